// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestWhatCannotWorkIsSaidBeforeAnythingBegins(t *testing.T) {
	tls := []string{"--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c"}
	for _, test := range []struct {
		name string
		args []string
		says []string
	}{
		{"nobody could report", []string{"--listen", ""}, []string{"--listen", "--socket"}},
		{"no certificates", nil, []string{"--listen :7443 needs --tls-cert"}},
		{"one file is missing", tls[:4], []string{"--tls-ca"}},
		{"a limit of nothing would be its default", append(tls, "--settle", "0s", "--fences", "-1"), []string{"--settle 0s: it has to be above 0", "--fences -1"}},
		{"no share", append(tls, "--storm-share", "25"), []string{"--storm-share 25"}},
		{"agents do not report so often", append(tls, "--interval", "10ms"), []string{"--interval 10ms"}},
		{"no number", append(tls, "--fences", "many"), []string{"--fences", "see ha-service --help"}},
		{"an argument", append(tls, "node001"), []string{"node001"}},
		{"power of nobody", []string{"power"}, []string{"1 arg"}},
		{"no API", append(tls, "--kubeconfig", "/nowhere"), []string{"find the API", "/nowhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			c := newRoot()
			c.SetArgs(test.args)
			c.SetOut(&out)
			c.SetErr(&out)
			err := c.ExecuteContext(t.Context())
			for _, words := range test.says {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%v does not say %q", err, words)
				}
			}
		})
	}
}

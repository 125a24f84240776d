// SPDX-License-Identifier: Apache-2.0

package testbed_test

import (
	"testing"
	"time"

	"github.com/adit-hv/adit/testbed"
)

// TestRowsHaveTheFieldsThatViewRowsSays looks at a world with a row of each kind.
func TestRowsHaveTheFieldsThatViewRowsSays(t *testing.T) {
	w, err := testbed.New(testbed.Spec{
		Hosts: []testbed.HostGroup{{Name: "node", Count: 3}},
		VMs:   []testbed.VMGroup{{Name: "web", Count: 2, CPUs: 1, Memory: 1 << 30}},
		HA:    &testbed.HA{},
	}, testbed.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Run(2 * time.Minute)
	for _, text := range []string{"vm.migrate vm=web-1", "evict on=@web-2"} {
		a, err := testbed.ParseAction(text)
		if err != nil {
			t.Fatal(err)
		}
		w.Do(a)
	}
	w.Run(4 * time.Minute)
	f, err := testbed.ParseFault("host.power-off on=@web-2")
	if err != nil {
		t.Fatal(err)
	}
	w.Inject(f)
	w.Run(6 * time.Minute)
	view := w.View()
	for _, list := range testbed.ViewLists {
		rows := view[list].([]map[string]any)
		if len(rows) == 0 {
			t.Errorf("%s: no row to look at", list)
			continue
		}
		for name, value := range rows[0] {
			want, known := testbed.ViewRows[list][name]
			if !known || kind(value) != want {
				t.Errorf("%s: %s is a %T, and ViewRows says %v (there: %v)", list, name, value, want, known)
			}
		}
		for name := range testbed.ViewRows[list] {
			if _, there := rows[0][name]; !there {
				t.Errorf("%s: rows have no %s", list, name)
			}
		}
	}
}

func kind(v any) testbed.RowType {
	switch v.(type) {
	case bool:
		return testbed.Truth
	case string:
		return testbed.Text
	case []string:
		return testbed.Texts
	case int, int32, int64, uint32, uint64:
		return testbed.Number
	}
	return -1
}

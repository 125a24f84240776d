// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// command is VERB KEY=VALUE ..., the shape of actions and faults. A value with
// blanks stands in double quotes.
type command struct {
	verb string
	args map[string]string
	text string
}

func parseCommand(text string) (command, error) {
	words, err := split(text)
	if err != nil {
		return command{}, err
	}
	if len(words) == 0 {
		return command{}, fmt.Errorf("is empty; write VERB KEY=VALUE, as vm.delete vm=web-1")
	}
	c := command{verb: words[0], args: map[string]string{}, text: text}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return command{}, fmt.Errorf("%q is not KEY=VALUE, in %q", w, text)
		}
		if _, twice := c.args[key]; twice {
			return command{}, fmt.Errorf("%s= stands twice in %q", key, text)
		}
		c.args[key] = value
	}
	return c, nil
}

func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, inWord := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, inWord = !quoted, true
		case r == ' ' && !quoted:
			if inWord {
				words, inWord = append(words, word.String()), false
				word.Reset()
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed in %q", text)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// only reports the first key that the verb does not know.
func (c command) only(known ...string) error {
	keys := make([]string, 0, len(c.args))
	for k := range c.args {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !slices.Contains(known, k) {
			return fmt.Errorf("%s knows no %s=; it takes %s", c.verb, k, strings.Join(known, "=, ")+"=")
		}
	}
	return nil
}

func (c command) need(keys ...string) error {
	for _, k := range keys {
		if c.args[k] == "" {
			return fmt.Errorf("%s needs %s=, in %q", c.verb, k, c.text)
		}
	}
	return nil
}

func (c command) duration(key string) (time.Duration, error) {
	if c.args[key] == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(c.args[key])
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%s is no time span; write it as 90s or 5m", key, c.args[key])
	}
	return d, nil
}

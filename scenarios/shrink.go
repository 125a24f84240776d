// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"strings"
)

// Shrink takes entries from the lists of a scenario's text (timeline, workload,
// fleet, expect) as long as it still fails, and returns what is left: no single
// entry of it can go. fails must say false of a text that is no good scenario.
// It is delta debugging (Zeller and Hildebrandt 2002) over entries.
func Shrink(text string, fails func(text string) bool) string {
	for {
		before := text
		for _, section := range []string{"timeline", "expect", "workload", "fleet"} {
			text = shrinkSection(text, section, fails)
		}
		if text == before {
			return text
		}
	}
}

func shrinkSection(text, section string, fails func(string) bool) string {
	head, entries, tail := cutSection(text, section)
	join := func(e []string) string { return head + strings.Join(e, "") + tail }
	for size := len(entries) / 2; size >= 1; size /= 2 {
		for from := 0; from+size <= len(entries) && len(entries) > size; {
			fewer := append(append([]string{}, entries[:from]...), entries[from+size:]...)
			if fails(join(fewer)) {
				entries = fewer
			} else {
				from += size
			}
		}
	}
	return join(entries)
}

// cutSection parts a text into what stands before a section's entries, the
// entries, and what follows. An entry begins with a dash at the margin.
func cutSection(text, section string) (head string, entries []string, tail string) {
	i := strings.Index("\n"+text, "\n"+section+":\n")
	if i < 0 {
		return text, nil, ""
	}
	i += len(section) + 2
	head, text = text[:i], text[i:]
	for text != "" {
		end := strings.IndexByte(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		line := text[:end]
		switch {
		case strings.HasPrefix(line, "- "):
			entries = append(entries, line)
		case len(entries) > 0 && strings.HasPrefix(line, " "):
			entries[len(entries)-1] += line
		default:
			return head, entries, text
		}
		text = text[end:]
	}
	return head, entries, text
}

// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Shrink takes from a scenario's text what it does not need to fail: entries of
// its lists, then hosts and VMs, options, and time. No single entry of what it
// returns can go. fails must say false of a text that is no good scenario, and
// of any once the caller has no more time.
//
// It is delta debugging (Zeller and Hildebrandt 2002), over entries first.
func Shrink(text string, fails func(text string) bool) string {
	for {
		before := text
		for _, section := range []string{"timeline", "workload", "fleet", "expect"} {
			text = shrinkSection(text, section, fails)
		}
		text = shrinkNumbers(text, "count: ", fails)
		text = shrinkFields(text, fails)
		text = shrinkSpans(text, fails)
		text = shrinkWaits(text, fails)
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

// each tries to put something shorter in the place of each match of a pattern,
// from the last to the first, so that what was changed moves nothing that is
// still to come. shorter returns what to try, the boldest first.
func each(text string, pattern *regexp.Regexp, fails func(string) bool, shorter func(match string) []string) string {
	matches := pattern.FindAllStringIndex(text, -1)
	for i := len(matches) - 1; i >= 0; i-- {
		from, to := matches[i][0], matches[i][1]
		for _, s := range shorter(text[from:to]) {
			if try := text[:from] + s + text[to:]; fails(try) {
				text = try
				break
			}
		}
	}
	return text
}

// shrinkNumbers makes the numbers after a key smaller.
func shrinkNumbers(text, key string, fails func(string) bool) string {
	return each(text, regexp.MustCompile(regexp.QuoteMeta(key)+`\d+`), fails, func(match string) (out []string) {
		n, err := strconv.Atoi(match[len(key):])
		if err != nil {
			return nil
		}
		for _, less := range []int{1, n / 4, n / 2, n - 1} {
			if less >= 1 && less < n {
				out = append(out, key+strconv.Itoa(less))
			}
		}
		return out
	})
}

// option is a field within braces that stands behind another one.
var option = regexp.MustCompile(`, [a-zA-Z]+: (\{[^{}]*\}|[^,{}\n']+)`)

// line is a section of one line, as operator.
var line = regexp.MustCompile(`(?m)^[a-z]+: \{.*\}\n`)

// shrinkFields takes fields that have a default away.
func shrinkFields(text string, fails func(string) bool) string {
	text = each(text, line, fails, func(string) []string { return []string{""} })
	text = each(text, regexp.MustCompile(`: \{[a-zA-Z]+: [^,{}\n']+, `), fails, func(string) []string { return []string{": {"} })
	return each(text, option, fails, func(string) []string { return []string{""} })
}

// shrinkSpans makes faults shorter.
func shrinkSpans(text string, fails func(string) bool) string {
	return each(text, lasts, fails, func(match string) (out []string) {
		d, err := time.ParseDuration(strings.TrimPrefix(match, " for="))
		if err != nil {
			return nil
		}
		for _, less := range []time.Duration{5 * time.Second, d / 4, d / 2, d.Truncate(time.Minute), d.Truncate(10 * time.Second)} {
			if less = less.Truncate(time.Second); less > 0 && less < d {
				out = append(out, fmt.Sprintf(" for=%v", less))
			}
		}
		return out
	})
}

var (
	atTime  = regexp.MustCompile(`(?m)^- \{at: ([0-9hms.]+),`)
	runsFor = regexp.MustCompile(`(?m)^for: ([0-9hms.]+)$`)
)

// shrinkWaits brings what comes later nearer to what comes before, and the end
// of the run with it.
func shrinkWaits(text string, fails func(string) bool) string {
	_, steps, _ := cutSection(text, "timeline")
	for i := 0; i <= len(steps); i++ {
		for _, share := range []int64{64, 4, 2} {
			if try, ok := nearer(text, i, share); ok && fails(try) {
				text = try
				break
			}
		}
	}
	return text
}

// nearer divides the wait before step i of the timeline (of the end, for i the
// number of steps) by share; false if there is nothing to gain.
func nearer(text string, i int, share int64) (string, bool) {
	head, steps, tail := cutSection(text, "timeline")
	whole := runsFor.FindStringSubmatch(text)
	if whole == nil {
		return "", false
	}
	end, err := time.ParseDuration(whole[1])
	times := make([]time.Duration, 0, len(steps)+1)
	for _, s := range steps {
		m := atTime.FindStringSubmatch(s)
		if m == nil {
			return "", false
		}
		at, parseErr := time.ParseDuration(m[1])
		if parseErr != nil {
			return "", false
		}
		times = append(times, at)
	}
	if err != nil {
		return "", false
	}
	times = append(times, end)
	before := time.Duration(0)
	if i > 0 {
		before = times[i-1]
	}
	wait := times[i] - before
	gain := (wait - wait/time.Duration(share)).Truncate(time.Second)
	if gain < 2*time.Second {
		return "", false
	}
	for k := i; k < len(steps); k++ {
		steps[k] = strings.Replace(steps[k], atTime.FindString(steps[k]), fmt.Sprintf("- {at: %v,", times[k]-gain), 1)
	}
	return runsFor.ReplaceAllLiteralString(head+strings.Join(steps, "")+tail, fmt.Sprintf("for: %v", end-gain)), true
}

// SPDX-License-Identifier: Apache-2.0

package parse

import (
	"errors"
	"fmt"
	"strings"
)

// OSRelease reads an os-release file by the quoting rules of os-release(5),
// without a shell. The last of repeated keys wins. Lines that are not right are
// left out and named in the error, beside which the rest is still returned.
func OSRelease(file []byte) (map[string]string, error) {
	values := map[string]string{}
	var bad []string
	for i, line := range strings.Split(string(file), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, rest, ok := strings.Cut(line, "=")
		if !ok || !variableName(key) {
			bad = append(bad, fmt.Sprintf("line %d: %q is not KEY=VALUE", i+1, line))
			continue
		}
		value, err := unquote(rest)
		if err != nil {
			bad = append(bad, fmt.Sprintf("line %d: %s: %v", i+1, key, err))
			continue
		}
		values[key] = value
	}
	if len(bad) > 0 {
		return values, fmt.Errorf("os-release: %s", strings.Join(bad, "; "))
	}
	return values, nil
}

func variableName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// unquote joins the quoted and plain pieces of one shell word.
func unquote(s string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return "", errors.New("the single quote is not closed")
			}
			out.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case '"':
			closed := false
			for i++; i < len(s); i++ {
				if s[i] == '"' {
					closed = true
					break
				}
				// Within double quotes a backslash counts only before these.
				if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\"$`\\", s[i+1]) >= 0 {
					i++
				}
				out.WriteByte(s[i])
			}
			if !closed {
				return "", errors.New("the double quote is not closed")
			}
		case '\\':
			if i++; i < len(s) {
				out.WriteByte(s[i])
			}
		case ' ', '\t':
			if rest := strings.TrimSpace(s[i:]); rest[0] != '#' {
				return "", fmt.Errorf("blanks before %q: put the value in quotes", rest)
			}
			return out.String(), nil
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

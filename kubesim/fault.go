// SPDX-License-Identifier: Apache-2.0

package kubesim

import "time"

// Fault is a trouble of the API. The zero value of a selector selects all.
//
//	api.409 api.429 api.5xx api.unavailable   the call is refused, nothing happened
//	api.timeout phase=before|after            the result is unknown; it happened or not
//	api.latency delay=2s                      each call takes longer
//	api.stale                                 live reads answer from delay ago
//	api.compact                               all watch history is gone
//	watch.cut watch.expire                    the watches end; with expire at 410
//	watch.freeze                              the watches stay silent while it lasts
type Fault struct {
	Kind      string
	For       time.Duration // 0: once, at injection (watch.cut, watch.expire, api.compact) or for ever
	P         float64       // chance per call; 0 means 1
	Times     int           // ends after this many hits; 0: no limit
	Verbs     []string      // of the calls
	Resources []string      // plural names
	On        []string      // process names, or users; a trailing * matches any rest
	Phase     string        // of api.timeout: before or after the commit
	Delay     time.Duration // of api.latency and api.stale; Retry-After of api.429
}

// ParseFault reads what String prints: the kind, then key=value pairs, as in
// "api.429 for=30s p=0.3 verbs=update,patch on=operator".
func ParseFault(text string) (Fault, error) { return Fault{}, nil }

// String prints the fault so that ParseFault reads it.
func (f Fault) String() string { return f.Kind }

// Inject lets a fault begin now. It is noted when it begins, hits and ends.
// The returned function ends it early.
func (c *Cluster) Inject(f Fault) (end func()) { return func() {} }

// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

const evictions = "evictions.kvm.cloud.sap"

func TestEvictionRules(t *testing.T) {
	server := serve(t, evictions)
	for _, test := range []struct {
		name     string
		old, new string // Old is empty for a create.
		want     string // What the refusal contains; empty accepts.
	}{
		{"takes a plain wish", ``, `{spec: {hypervisor: a, reason: b}}`, ``},
		{"takes our own fields", ``, `{spec: {hypervisor: a, reason: b, dryRun: true, parallel: 4}}`, ``},
		{"takes another reason", `{spec: {hypervisor: a, reason: b}}`, `{spec: {hypervisor: a, reason: c}}`, ``},
		{"takes more at once", `{spec: {hypervisor: a, reason: b, parallel: 1}}`, `{spec: {hypervisor: a, reason: b, parallel: 9}}`, ``},
		{"refuses another host", `{spec: {hypervisor: a, reason: b}}`, `{spec: {hypervisor: b, reason: b}}`, `spec.hypervisor: Invalid value: "b": Value is immutable`},
		{"refuses no spec", ``, `{}`, `spec: Required value`},
		{"refuses no host", ``, `{spec: {reason: b}}`, `spec.hypervisor: Required value`},
		{"refuses an empty host", ``, `{spec: {hypervisor: "", reason: b}}`, `spec.hypervisor in body should be at least 1 chars long`},
		{"refuses no reason", ``, `{spec: {hypervisor: a}}`, `spec.reason: Required value`},
		{"refuses an empty reason", ``, `{spec: {hypervisor: a, reason: ""}}`, `spec.reason in body should be at least 1 chars long`},
		{"refuses to move none at once", ``, `{spec: {hypervisor: a, reason: b, parallel: 0}}`, `spec.parallel in body should be greater than or equal to 1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var err error
			if test.old == "" {
				_, err = server.create(server.object(t, test.new))
			} else {
				old, failed := server.create(server.object(t, test.old))
				if failed != nil {
					t.Fatal(failed)
				}
				_, err = server.update(old, server.object(t, test.new))
			}
			answered(t, err, test.want)
		})
	}
}

func TestEvictionStatusIsChecked(t *testing.T) {
	server := serve(t, evictions)
	old, err := server.create(server.object(t, `{spec: {hypervisor: a, reason: b}}`))
	if err != nil {
		t.Fatal(err)
	}
	instances := func(n int) string {
		var list strings.Builder
		for i := range n {
			fmt.Fprintf(&list, "{id: u%d, state: Waiting},", i)
		}
		return "{instances: [" + list.String() + "]}"
	}
	for _, test := range []struct {
		name, status, want string
	}{
		{"takes a whole one", `{instances: [{id: u, name: a, namespace: b, state: Failed, reason: TimedOut, message: m, attempts: 2, nextAttempt: "2026-01-01T00:00:00Z", destination: c}]}`, ``},
		{"takes as many as Go says", instances(kvmv1.MaxEvictionInstances), ``},
		{"refuses one more", instances(kvmv1.MaxEvictionInstances + 1), `status.instances: Too many: 501: must have at most 500 items`},
		{"refuses a VM twice", `{instances: [{id: u, state: Moved}, {id: u, state: Moving}]}`, `status.instances[1]: Duplicate value`},
		{"refuses a VM without an id", `{instances: [{state: Moved}]}`, `status.instances[0].id: Required value`},
		{"refuses a VM without a state", `{instances: [{id: u}]}`, `status.instances[0].state: Required value`},
		{"refuses another state", `{instances: [{id: u, state: Gone}]}`, `status.instances[0].state: Unsupported value: "Gone"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := server.updateStatus(old, server.object(t, "{spec: {hypervisor: a, reason: b}, status: "+test.status+"}"))
			answered(t, err, test.want)
		})
	}
	for _, state := range []kvmv1.EvictionInstanceState{
		kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceMoving, kvmv1.EvictionInstanceMoved, kvmv1.EvictionInstanceBlocked,
		kvmv1.EvictionInstanceFailed, kvmv1.EvictionInstanceWouldMove, kvmv1.EvictionInstanceCannotMove,
	} {
		t.Run("takes the state "+string(state), func(t *testing.T) {
			_, err := server.updateStatus(old, server.object(t, "{status: {instances: [{id: u, state: "+string(state)+"}]}}"))
			answered(t, err, "")
		})
	}
}

func TestEvictionDefaults(t *testing.T) {
	server := serve(t, evictions)
	got, err := server.create(server.object(t, `{spec: {hypervisor: a, reason: b}, status: {total: 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, there := got["status"]; there {
		t.Errorf("status came in by the main resource: %v", got)
	}
	got, err = server.updateStatus(got, server.object(t, `{status: {}}`))
	if err != nil {
		t.Fatal(err)
	}
	if status := asYAML(got["status"]); status != "outstandingRamMb: 0\n" {
		t.Errorf("got status %s", status)
	}
}

func TestEvictionTable(t *testing.T) {
	server := serve(t, evictions)
	eviction := server.object(t, `
metadata: {name: node001}
spec: {hypervisor: node001, reason: new firmware}
status:
  total: 40
  moved: 31
  running: 4
  failed: 1
  eta: "2026-01-01T12:00:00Z"
  conditions: [{type: Evicting, status: "True", reason: Running, lastTransitionTime: "2026-01-01T00:00:00Z", message: 9 VMs to go}]
`)
	eviction["metadata"].(map[string]any)["creationTimestamp"] = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	printed(t, server, eviction, false,
		"NAME | HYPERVISOR | REASON | STATE | CREATED",
		"node001 | node001 | new firmware | Running | 120m")
	printed(t, server, eviction, true,
		"NAME | HYPERVISOR | REASON | STATE | TOTAL | MOVED | RUNNING | FAILED | ETA | MESSAGE | CREATED",
		"node001 | node001 | new firmware | Running | 40 | 31 | 4 | 1 | 2026-01-01T12:00:00Z | 9 VMs to go | 120m")
}

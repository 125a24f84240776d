// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

const migrations = "migrations.kvm.cloud.sap"

// TestMigrationCanBeCreated guards the one place where we leave the wire format:
// a schema that requires status refuses every create, since the server takes
// status away before it validates.
func TestMigrationCanBeCreated(t *testing.T) {
	server := serve(t, migrations)
	for _, test := range []struct {
		name, given string
	}{
		{"with nothing", `{}`},
		{"with an empty spec", `{spec: {}}`},
		{"with a status, as CobaltCore's agent sends it", `{spec: {}, status: {started: "2026-01-01T00:00:00Z"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored, err := server.create(server.object(t, test.given))
			if err != nil {
				t.Fatal(err)
			}
			stored, err = server.updateStatus(stored, server.object(t, `{status: {origin: a}}`))
			if err != nil {
				t.Fatalf("status before the job is seen: %v", err)
			}
			if _, err = server.updateStatus(stored, server.object(t, `{status: {origin: a, started: "2026-01-01T00:00:00Z", type: unbounded}}`)); err != nil {
				t.Fatalf("status of a job: %v", err)
			}
		})
	}
	t.Run("from Go", func(t *testing.T) {
		migration := v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "12e479eb-1f28-4f0c-8d1c-9f6d1c1e6a11", Namespace: "monsoon3"}}
		migration.APIVersion, migration.Kind = v1alpha1.GroupVersion.String(), "Migration"
		stored, err := server.create(plain(t, migration))
		if err != nil {
			t.Fatal(err)
		}
		started := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		migration.Status.Started, migration.Status.Type = &started, v1alpha1.TypeUnbounded
		if _, err := server.updateStatus(stored, plain(t, migration)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMigrationStatusIsChecked(t *testing.T) {
	server := serve(t, migrations)
	old, err := server.create(server.object(t, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = server.updateStatus(old, server.object(t, `{status: {started: yesterday}}`))
	answered(t, err, `status.started: Invalid value: "yesterday": started in body must be of type date-time`)
	_, err = server.updateStatus(old, server.object(t, `{status: {memIteration: "3"}}`))
	answered(t, err, `status.memIteration: Invalid value: "string": memIteration in body must be of type integer`)
}

func TestMigrationTable(t *testing.T) {
	server := serve(t, migrations)
	migration := server.object(t, `
metadata: {name: 12e479eb}
status:
  origin: node002-bb086
  destination: node008-bb086
  type: completed
  operation: migration_in
  timeElapsed: 2.755s
  dataTotal: 4.0 GiB
  dataProcessed: 10.4 MiB
  dataRemaining: 0 B
  memBps: 16.5 MiB/s
  memDirtyRate: 0/s
  memIteration: 3
`)
	migration["status"].(map[string]any)["started"] = time.Now().Add(-74 * 24 * time.Hour).UTC().Format(time.RFC3339)
	printed(t, server, migration, false,
		"NAME | ORIGIN | DESTINATION | TYPE | OPERATION | STARTED | ELAPSED | DATA TOTAL",
		"12e479eb | node002-bb086 | node008-bb086 | completed | migration_in | 74d | 2.755s | 4.0 GiB")
	printed(t, server, migration, true,
		"NAME | ORIGIN | DESTINATION | TYPE | OPERATION | STARTED | ELAPSED | DATA TOTAL | DATA PROCESSED | DATA REMAINING | MEMORY TX | MEMORY DIRTY RATE | MEMORY ITERATION",
		"12e479eb | node002-bb086 | node008-bb086 | completed | migration_in | 74d | 2.755s | 4.0 GiB | 10.4 MiB | 0 B | 16.5 MiB/s | 0/s | 3")
}

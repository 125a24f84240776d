// SPDX-License-Identifier: Apache-2.0

// Package rpc carries the reports of HA agents to the HA service: gRPC under
// mutual TLS, or over a Unix socket on one machine.
//
// It owns who may speak for which host (a certificate names its host), how a
// client finds the replica that leads, and the bounds: of time, of messages, of
// calls at once, and of memory for a thousand connections. It may sleep, start
// goroutines and read the wall clock, so nothing that the simulator runs may
// import it: agents and service know a Service, and cmd/ puts this under it. It
// must never know what a report means.
package rpc

import (
	"context"
	"time"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// Service takes reports. The HA service's ingest is one, and so is a Client.
type Service interface {
	Report(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error)
}

// Bounds. A full report of a host with 500 VMs is about 80 KiB, and a spool of
// events comes on top.
const (
	maxRequest  = 1 << 20
	maxResponse = 64 << 10
	maxHeaders  = 8 << 10

	// Gone connections are found by pings (the client's, while it waits for an
	// answer) and by what TCP does not get acknowledged. A host's lease lasts
	// 20 s: by then another connection must have had its chance.
	pingAfter     = 10 * time.Second // gRPC allows no less
	pingTimeout   = 3 * time.Second
	serverPing    = 20 * time.Second
	handshakeTime = 5 * time.Second

	// A connection lives so long, and a tenth more or less; then the client
	// connects anew, and certificates are looked at again.
	connectionAge  = 30 * time.Minute
	connectionIdle = 2 * time.Minute

	// gRPC's default is 32 KiB each way and connection. A report of a quiet host
	// has a few hundred bytes; larger ones take a few more system calls.
	buffer = 2 << 10
)

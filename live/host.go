// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"io"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// host is a simulated host's hardware, as one life of a process calls it.
type host struct {
	caller
	h hardware.Host
}

type answer[T any] struct {
	value T
	err   error
}

// ask makes a call in the world. A caller that gives up, or whose process is
// killed, does not hear the answer.
func ask[T any](ctx context.Context, h *host, call func(context.Context) (T, error)) (T, error) {
	var zero T
	fail := func(c hardware.Consequence, err error) (T, error) {
		return zero, hardware.Fail(c, hardware.ReasonOther, "call", "the host", "%w", err)
	}
	answers := make(chan answer[T], 1)
	err := h.begin(func() {
		value, err := call(ctx)
		answers <- answer[T]{value, err}
	})
	if err != nil {
		return fail(hardware.Unavailable, err)
	}
	select {
	case a := <-answers:
		if err := h.gate.pass(); err != nil {
			return fail(hardware.Unknown, err)
		}
		return a.value, a.err
	case <-ctx.Done():
		return fail(hardware.Unknown, context.Cause(ctx))
	}
}

func (h *host) tell(ctx context.Context, call func(context.Context) error) error {
	_, err := ask(ctx, h, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// The rest of hardware.Host, call by call.

func (h *host) Domains(ctx context.Context) ([]hardware.Domain, error) {
	return ask(ctx, h, func(ctx context.Context) ([]hardware.Domain, error) { return h.h.Domains(ctx) })
}

func (h *host) Domain(ctx context.Context, uuid string) (hardware.Domain, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Domain, error) { return h.h.Domain(ctx, uuid) })
}

func (h *host) Define(ctx context.Context, spec hardware.DomainSpec) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Define(ctx, spec) })
}

func (h *host) Undefine(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Undefine(ctx, uuid) })
}

func (h *host) Start(ctx context.Context, uuid string, o hardware.StartOptions) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Start(ctx, uuid, o) })
}

func (h *host) Shutdown(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Shutdown(ctx, uuid) })
}

func (h *host) Destroy(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Destroy(ctx, uuid) })
}

func (h *host) Reboot(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Reboot(ctx, uuid) })
}

func (h *host) Reset(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Reset(ctx, uuid) })
}

func (h *host) Suspend(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Suspend(ctx, uuid) })
}

func (h *host) Resume(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Resume(ctx, uuid) })
}

func (h *host) AttachDisk(ctx context.Context, uuid string, d hardware.Disk) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.AttachDisk(ctx, uuid, d) })
}

func (h *host) DetachDisk(ctx context.Context, uuid, target string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.DetachDisk(ctx, uuid, target) })
}

func (h *host) AttachInterface(ctx context.Context, uuid string, i hardware.Interface) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.AttachInterface(ctx, uuid, i) })
}

func (h *host) DetachInterface(ctx context.Context, uuid, mac string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.DetachInterface(ctx, uuid, mac) })
}

func (h *host) Resize(ctx context.Context, uuid string, vcpus int, memoryKiB uint64) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Resize(ctx, uuid, vcpus, memoryKiB) })
}

func (h *host) Stats(ctx context.Context, uuid string) (hardware.Stats, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Stats, error) { return h.h.Stats(ctx, uuid) })
}

func (h *host) GuestInfo(ctx context.Context, uuid string) (hardware.GuestInfo, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.GuestInfo, error) { return h.h.GuestInfo(ctx, uuid) })
}

func (h *host) Freeze(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Freeze(ctx, uuid) })
}

func (h *host) Thaw(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Thaw(ctx, uuid) })
}

func (h *host) Console(ctx context.Context, uuid string) (io.ReadWriteCloser, error) {
	return ask(ctx, h, func(ctx context.Context) (io.ReadWriteCloser, error) { return h.h.Console(ctx, uuid) })
}

func (h *host) Graphics(ctx context.Context, uuid string) (io.ReadWriteCloser, error) {
	return ask(ctx, h, func(ctx context.Context) (io.ReadWriteCloser, error) { return h.h.Graphics(ctx, uuid) })
}

func (h *host) Screenshot(ctx context.Context, uuid string) ([]byte, error) {
	return ask(ctx, h, func(ctx context.Context) ([]byte, error) { return h.h.Screenshot(ctx, uuid) })
}

func (h *host) Migrate(ctx context.Context, uuid string, o hardware.MigrateOptions) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Migrate(ctx, uuid, o) })
}

func (h *host) Job(ctx context.Context, uuid string) (hardware.Job, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Job, error) { return h.h.Job(ctx, uuid) })
}

func (h *host) AbortJob(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.AbortJob(ctx, uuid) })
}

func (h *host) StartPostCopy(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.StartPostCopy(ctx, uuid) })
}

func (h *host) RecoverPostCopy(ctx context.Context, uuid string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.RecoverPostCopy(ctx, uuid) })
}

func (h *host) SetMigrationLimits(ctx context.Context, uuid string, bytesPerSecond uint64, downtime time.Duration) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.SetMigrationLimits(ctx, uuid, bytesPerSecond, downtime) })
}

func (h *host) Identity(ctx context.Context) (hardware.Identity, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Identity, error) { return h.h.Identity(ctx) })
}

func (h *host) System(ctx context.Context) (hardware.System, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.System, error) { return h.h.System(ctx) })
}

func (h *host) Boot(ctx context.Context) (hardware.Boot, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Boot, error) { return h.h.Boot(ctx) })
}

func (h *host) Capabilities(ctx context.Context) (hardware.Capabilities, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Capabilities, error) { return h.h.Capabilities(ctx) })
}

func (h *host) Units(ctx context.Context, names ...string) ([]hardware.Unit, error) {
	return ask(ctx, h, func(ctx context.Context) ([]hardware.Unit, error) { return h.h.Units(ctx, names...) })
}

func (h *host) StartUnit(ctx context.Context, name string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.StartUnit(ctx, name) })
}

func (h *host) StopUnit(ctx context.Context, name string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.StopUnit(ctx, name) })
}

func (h *host) RestartUnit(ctx context.Context, name string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.RestartUnit(ctx, name) })
}

func (h *host) ReloadUnit(ctx context.Context, name string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.ReloadUnit(ctx, name) })
}

func (h *host) RebootHost(ctx context.Context) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.RebootHost(ctx) })
}

func (h *host) StartUpdate(ctx context.Context, version string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.StartUpdate(ctx, version) })
}

func (h *host) Watchdog(ctx context.Context) (hardware.WatchdogState, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.WatchdogState, error) { return h.h.Watchdog(ctx) })
}

func (h *host) FeedWatchdog(ctx context.Context, timeout time.Duration) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.FeedWatchdog(ctx, timeout) })
}

func (h *host) DisarmWatchdog(ctx context.Context) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.DisarmWatchdog(ctx) })
}

func (h *host) WriteHeartbeat(ctx context.Context, pool string, b hardware.Heartbeat) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.WriteHeartbeat(ctx, pool, b) })
}

func (h *host) ReadHeartbeat(ctx context.Context, pool, host string) (hardware.Heartbeat, error) {
	return ask(ctx, h, func(ctx context.Context) (hardware.Heartbeat, error) { return h.h.ReadHeartbeat(ctx, pool, host) })
}

func (h *host) Reach(ctx context.Context, n hardware.Network, host string) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.Reach(ctx, n, host) })
}

func (h *host) SaveNote(ctx context.Context, name string, data []byte) error {
	return h.tell(ctx, func(ctx context.Context) error { return h.h.SaveNote(ctx, name, data) })
}

func (h *host) LoadNote(ctx context.Context, name string) ([]byte, error) {
	return ask(ctx, h, func(ctx context.Context) ([]byte, error) { return h.h.LoadNote(ctx, name) })
}

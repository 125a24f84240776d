// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"slices"

	"github.com/adit-hv/adit/hardware"
)

// Stats implements hardware.Domains.
func (v *view) Stats(ctx context.Context, uuid string) (out hardware.Stats, err error) {
	c := v.h.domainCall("Stats", "read stats of", uuid)
	c.mutating, c.monitor, c.service = false, uuid, statsTime
	c.work = func() error {
		d := v.h.domains[uuid]
		if d == nil {
			return v.h.noDomain(c)
		}
		if d.q == nil {
			return nil
		}
		out = d.stats()
		return nil
	}
	err = v.do(ctx, c)
	return out, err
}

// stats derives totals from how long the guest ran: they only grow, and cost
// nothing while nobody reads them.
func (d *domain) stats() hardware.Stats {
	cpu := d.q.cpuTime(d.h.f.s.Elapsed(), d.live.VCPUs)
	s := hardware.Stats{CPUTime: cpu, Interfaces: map[string]hardware.InterfaceStats{}}
	if d.q.guest == nil {
		return s
	}
	b := d.q.guest.behaviour()
	s.MemoryKiB = b.UsedMemoryBytes / 1024
	s.DirtyRate = b.DirtyBytesPerSecond
	seconds := cpu.Seconds()
	if len(d.live.Disks) > 0 {
		s.ReadBytes, s.WriteBytes = uint64(seconds*2e6), uint64(seconds*1e6)
	}
	for _, n := range d.live.Interfaces {
		s.Interfaces[n.MAC] = hardware.InterfaceStats{ReceivedBytes: uint64(seconds * 4e5), SentBytes: uint64(seconds * 3e5)}
	}
	return s
}

// withAgent is a call that the guest agent answers.
func (v *view) withAgent(ctx context.Context, name, attempt, uuid string, mutating bool, do func(*guest)) error {
	c := v.h.domainCall(name, attempt, uuid)
	c.mutating, c.monitor, c.service = mutating, uuid, agentTime
	if d := v.h.domains[uuid]; d != nil && d.q != nil && d.q.guest != nil && d.q.guest.hung {
		c.service = agentBlocks
	}
	c.work = func() error {
		d, err := v.h.withGuest(c, uuid)
		if err != nil {
			return err
		}
		g := d.q.guest
		switch {
		case !g.agent:
			return hardware.Fail(hardware.Refused, hardware.ReasonNoAgent, c.attempt, c.on, "QEMU guest agent is not connected")
		case !d.cpusRun() || g.hung:
			return c.lost("guest agent is not responding")
		}
		do(g)
		return nil
	}
	return v.do(ctx, c)
}

// GuestInfo implements hardware.Domains.
func (v *view) GuestInfo(ctx context.Context, uuid string) (info hardware.GuestInfo, err error) {
	err = v.withAgent(ctx, "GuestInfo", "read guest of", uuid, false, func(g *guest) {
		info = hardware.GuestInfo{
			Hostname: g.at.name, OSName: "Garden Linux", OSVersion: defaultGardenLinux, Kernel: defaultKernel,
			Filesystems: 1 + len(g.at.live.Disks), Frozen: g.frozen,
		}
	})
	return info, err
}

// Freeze implements hardware.Domains.
func (v *view) Freeze(ctx context.Context, uuid string) error {
	return v.withAgent(ctx, "Freeze", "freeze", uuid, true, func(g *guest) { g.frozen = true })
}

// Thaw implements hardware.Domains.
func (v *view) Thaw(ctx context.Context, uuid string) error {
	return v.withAgent(ctx, "Thaw", "thaw", uuid, true, func(g *guest) { g.frozen = false })
}

// stream is one end of a console or a display: what the guest has said is
// there to be read, and a console echoes what is written.
type stream struct {
	said   bytes.Buffer
	echo   bool
	closed bool
}

var errStreamClosed = errors.New("the stream is closed")

// Read returns io.EOF when the guest has nothing more to say.
func (s *stream) Read(p []byte) (int, error) {
	if s.closed {
		return 0, errStreamClosed
	}
	return s.said.Read(p)
}

func (s *stream) Write(p []byte) (int, error) {
	if s.closed {
		return 0, errStreamClosed
	}
	if s.echo {
		s.said.Write(p)
	}
	return len(p), nil
}

func (s *stream) Close() error {
	s.closed = true
	return nil
}

// Console implements hardware.Domains.
func (v *view) Console(ctx context.Context, uuid string) (out io.ReadWriteCloser, err error) {
	err = v.look(ctx, "Console", "open console of", uuid, func(c *call, d *domain) error {
		if !d.live.SerialConsole {
			return hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, c.attempt, c.on, "the domain has no serial console")
		}
		s := &stream{echo: true}
		s.said.WriteString("\r\n" + d.name + " login: ")
		out = s
		return nil
	})
	return out, err
}

// Graphics implements hardware.Domains.
func (v *view) Graphics(ctx context.Context, uuid string) (out io.ReadWriteCloser, err error) {
	err = v.look(ctx, "Graphics", "open graphics of", uuid, func(c *call, d *domain) error {
		if !d.live.Graphics {
			return hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, c.attempt, c.on, "the domain has no graphics")
		}
		s := &stream{}
		s.said.WriteString("RFB 003.008\n")
		out = s
		return nil
	})
	return out, err
}

// Screenshot implements hardware.Domains: a text console's size, grey when the
// guest runs.
func (v *view) Screenshot(ctx context.Context, uuid string) (out []byte, err error) {
	err = v.look(ctx, "Screenshot", "take screenshot of", uuid, func(c *call, d *domain) error {
		if !d.live.Graphics {
			return hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, c.attempt, c.on, "the domain has no graphics")
		}
		img := image.NewGray(image.Rect(0, 0, 720, 400))
		if d.cpusRun() {
			for i := range img.Pix {
				img.Pix[i] = color.Gray{Y: 0x20}.Y
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			return c.fail(hardware.Refused, "encode: %w", err)
		}
		out = slices.Clone(b.Bytes())
		return nil
	})
	return out, err
}

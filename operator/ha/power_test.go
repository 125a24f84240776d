// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// controller answers as it is told, and takes a moment for each answer.
type controller struct {
	clock   *steady
	who     hardware.Controller
	whoErr  error
	order   error
	reads   func(now time.Duration) (hardware.PowerState, error)
	ordered []time.Duration
}

func (c *controller) Controller(context.Context) (hardware.Controller, error) { return c.who, c.whoErr }
func (c *controller) PowerState(context.Context) (hardware.PowerState, error) {
	return c.reads(c.clock.now)
}

func (c *controller) SetPower(context.Context, bool) error {
	c.ordered = append(c.ordered, c.clock.now)
	return c.order
}

// turnOff plays the steps with a controller until there is a proof or time is up,
// and returns when that was.
func turnOff(t *testing.T, c *controller, identity string, memory *hostMemory) (proof time.Duration, m powerMemory) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := kvmv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	h := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{annotationIdentity: identity}}}
	c.clock = &steady{}
	r := &Reconciler{
		Client:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build(),
		Service: newService(Options{Steady: c.clock, Limits: limits}),
		o:       Options{Steady: c.clock, Power: func(string) (hardware.Power, error) { return c, nil }},
	}
	if memory != nil {
		r.Service.hosts["a"] = memory
	}
	m = powerMemory{wish: wishOff}
	for c.clock.now < 5*time.Minute {
		again := r.powerStep(context.Background(), "a", &m)
		if m.proof != "" {
			return c.clock.now, m
		}
		if again <= 0 {
			t.Fatalf("at %v it would not look again", c.clock.now)
		}
		c.clock.now += again
	}
	return 0, m
}

const known = `{"productUUID":"u-1","serial":"S-1"}`

func TestAHostThatLivesIsNotOff(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lives func(h *hostMemory, now time.Duration)
		until time.Duration
	}{
		{"it reports", func(h *hostMemory, now time.Duration) { h.last = now }, time.Minute},
		{"its heartbeat moves", func(h *hostMemory, now time.Duration) {
			h.sightings["w"] = sighting{at: now, storage: true, boot: "b"}
		}, time.Minute},
		{"another boot's heartbeat does", func(h *hostMemory, now time.Duration) {
			h.sightings["w"] = sighting{at: now, storage: true, boot: "a"}
		}, 0},
		{"a heartbeat that was seen to move just before", func(h *hostMemory, _ time.Duration) {
			h.sightings["w"] = sighting{at: 5 * time.Second, storage: true, boot: "b"}
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &controller{who: hardware.Controller{Serial: "S-1"}}
			h := &hostMemory{boot: "b", sightings: map[string]sighting{}}
			c.reads = func(now time.Duration) (hardware.PowerState, error) {
				if now < time.Minute {
					tt.lives(h, now)
				}
				return hardware.PowerOff, nil
			}
			at, m := turnOff(t, c, known, h)
			if at == 0 || at < tt.until || at > tt.until+30*time.Second {
				t.Errorf("proven at %v, it lives until %v; trouble %q", at, tt.until, m.problem)
			}
		})
	}
}

func TestOffIsProvenByTwoReadings(t *testing.T) {
	unknown := hardware.Fail(hardware.Unknown, hardware.ReasonOther, "power off", "a", "timed out")
	right := hardware.Controller{SystemUUID: "U-1", Serial: "S-1"}
	from := func(at time.Duration, lies ...func(time.Duration) hardware.PowerState) func(time.Duration) (hardware.PowerState, error) {
		return func(now time.Duration) (hardware.PowerState, error) {
			if now >= at {
				return hardware.PowerOff, nil
			}
			for _, lie := range lies {
				return lie(now), nil
			}
			return hardware.PowerOn, nil
		}
	}
	early := func(now time.Duration) hardware.PowerState {
		if now < 9*time.Second {
			return hardware.PowerOff
		}
		return hardware.PowerPoweringOff
	}
	for _, tt := range []struct {
		name     string
		c        controller
		identity string
		notUntil time.Duration // 0: never
	}{
		{"it goes off at once", controller{who: right, reads: from(0)}, known, 10 * time.Second},
		{"it takes its time", controller{who: right, reads: from(47 * time.Second)}, known, 57 * time.Second},
		{"it says what it was told to reach", controller{who: right, reads: from(47*time.Second, early)}, known, 57 * time.Second},
		{"the order timed out, and was taken", controller{who: right, order: unknown, reads: from(20 * time.Second)}, known, 30 * time.Second},
		{"the order timed out, and was not", controller{who: right, order: unknown, reads: from(time.Hour)}, known, 0},
		{"the order is refused", controller{who: right, order: hardware.Fail(hardware.Refused, "", "power off", "a", "no"), reads: from(0)}, known, 0},
		{"it does not say whose it is", controller{whoErr: errors.New("401"), reads: from(0)}, known, 0},
		{"it is another machine's", controller{who: hardware.Controller{SystemUUID: "u-2", Serial: "S-1"}, reads: from(0)}, known, 0},
		{"it names nothing", controller{reads: from(0)}, known, 0},
		{"nobody knows the machine", controller{who: right, reads: from(0)}, `{"machineID":"m"}`, 0},
		{"the serial number is enough", controller{who: hardware.Controller{Serial: "S-1"}, reads: from(0)}, known, 10 * time.Second},
		{"its state cannot be read", controller{who: right, reads: func(time.Duration) (hardware.PowerState, error) { return "", unknown }}, known, 0},
		{"it flips between", controller{who: right, reads: func(now time.Duration) (hardware.PowerState, error) {
			if int(now/(3*time.Second))%2 == 0 {
				return hardware.PowerOff, nil
			}
			return hardware.PowerOn, nil
		}}, known, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, m := turnOff(t, &tt.c, tt.identity, nil)
			switch {
			case (at > 0) != (tt.notUntil > 0), at > 0 && at < tt.notUntil:
				t.Errorf("proven at %v (%s), not before %v; trouble %q", at, m.proof, tt.notUntil, m.problem)
			case at == 0 && m.problem == "":
				t.Error("nobody is told what the trouble is")
			}
			if len(tt.c.ordered) > 8 {
				t.Errorf("ordered %d times within five minutes", len(tt.c.ordered))
			}
		})
	}
}

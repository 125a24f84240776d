// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/sabotage"
	"github.com/adit-hv/adit/internal/wiring"
)

const (
	// offReads is for how long all readings have to say off: controllers are
	// known that show for nine seconds what they were told to reach. offLook is
	// how often it is read meanwhile.
	offReads = 10 * time.Second
	offLook  = 2 * time.Second
	// powerRetry is how soon a controller is asked again; orders are repeated
	// with a back-off from orderRetry to orderRetryMax.
	powerRetry    = 5 * time.Second
	orderRetry    = 15 * time.Second
	orderRetryMax = 2 * time.Minute
)

// annotationIdentity is where the node agent records which machine a Hypervisor
// is (agents/node, identity.go).
const annotationIdentity = "kvm.cloud.sap/identity"

// powerMemory is what was learned from one host's management controller on behalf
// of one Evacuation. It is gone with the leader: the next one reads anew.
type powerMemory struct {
	evacuation string // its powerKey
	wish       wish
	problem    string // the latest, in words that do not change from try to try
	right      bool   // it is that of the right machine, as it said when it was looked at
	proof      string
	attempts   int
	nextOrder  time.Duration
	ordered    bool          // in this leader's time
	firstOff   time.Duration // of the readings that say off one after another; 0: the last did not
}

// powerKey tells Evacuations apart, also one that was deleted from its namesake.
func powerKey(e *v1alpha1.Evacuation) string { return e.Name + "/" + string(e.UID) }

// powerRoom is where management controllers are spoken to, each by a request of
// its own, so that one that hangs keeps nobody else waiting.
type powerRoom struct {
	mu    sync.Mutex
	queue queue
	hosts map[string]powerMemory
}

func newPowerRoom() *powerRoom { return &powerRoom{hosts: map[string]powerMemory{}} }

func (p *powerRoom) memory(host string) powerMemory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hosts[host]
}

func (p *powerRoom) forget(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hosts, host)
}

// want says what is wished of a host's controller.
func (p *powerRoom) want(host, evacuation string, w wish) {
	p.mu.Lock()
	m, was := p.hosts[host]
	if w == wishNothing {
		if was {
			delete(p.hosts, host)
		}
		p.mu.Unlock()
		return
	}
	changed := m.evacuation != evacuation || m.wish != w
	if changed {
		p.hosts[host] = powerMemory{evacuation: evacuation, wish: w}
	}
	q := p.queue
	p.mu.Unlock()
	if changed && q != nil {
		request := wiring.Request{}
		request.Name = host
		q.Add(request)
	}
}

// keep stores what a step has learned, unless the wish has changed meanwhile.
func (p *powerRoom) keep(host string, m powerMemory) (kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.hosts[host]; now.evacuation != m.evacuation || now.wish != m.wish {
		return false
	}
	p.hosts[host] = m
	return true
}

// watch adds the controller that speaks to management controllers.
func (p *powerRoom) watch(mgr manager.Manager, r *Reconciler) error {
	start := source.Func(func(_ context.Context, q queue) error {
		p.mu.Lock()
		p.queue = q
		p.mu.Unlock()
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("ha-power").
		WatchesRawSource(start).
		WithOptions(wiring.Options(mgr, max(16, r.o.PowerWorkers))).
		Complete(reconcile.Func(r.speak))
}

// speak takes one step with one host's controller.
func (r *Reconciler) speak(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := r.power.memory(req.Name)
	if m.wish == wishNothing || m.proof != "" {
		return ctrl.Result{}, nil
	}
	before, knew := m.problem, m.right
	again := r.powerStep(ctx, req.Name, &m)
	if !r.power.keep(req.Name, m) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if m.proof != "" || m.problem != before || m.right != knew {
		r.wakeHost(req.Name)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// powerStep asks whose controller answers, orders if it is time, and reads.
func (r *Reconciler) powerStep(ctx context.Context, host string, m *powerMemory) (again time.Duration) {
	power, err := r.o.Power(host)
	if err != nil {
		m.problem = err.Error()
		return orderRetry
	}
	who, err := r.rightOne(ctx, power, host)
	if err != nil {
		m.problem, m.firstOff = err.Error(), 0
		return powerRetry
	}
	if m.wish == wishLook {
		m.right, m.problem = true, ""
		return orderRetryMax
	}
	now := r.o.Steady.Elapsed()
	switch on := m.wish == wishOn; {
	case now < m.nextOrder && !m.ordered:
		return m.nextOrder - now
	case now >= m.nextOrder:
		state, err := power.PowerState(ctx)
		if err == nil && on && state == hardware.PowerOn {
			m.problem = ""
			return orderRetryMax
		}
		if m.ordered && err == nil && !on && state == hardware.PowerOff {
			return r.readOff(host, m, who, state)
		}
		m.firstOff = 0
		m.attempts++
		m.nextOrder = now + min(orderRetry<<min(m.attempts-1, 4), orderRetryMax)
		if err := power.SetPower(ctx, on); err != nil {
			m.problem = "it does not take the order: " + trouble(err)
			if hardware.ConsequenceOf(err) == hardware.Unknown {
				m.ordered = true // It may have. The readings will tell.
				if !on && sabotage.On(sabotage.TimeoutIsOff) {
					m.proof = "sabotage: what timed out is done"
				}
			}
			return powerRetry
		}
		m.ordered = true
		return time.Second
	}
	state, err := power.PowerState(ctx)
	if err != nil {
		m.firstOff, m.problem = 0, "it does not say the power's state: "+trouble(err)
		return powerRetry
	}
	return r.readOff(host, m, who, state)
}

// readOff takes in one reading after an order. A host that shows that it lives is not
// off, whatever its controller says.
func (r *Reconciler) readOff(host string, m *powerMemory, who string, state hardware.PowerState) (again time.Duration) {
	now := r.o.Steady.Elapsed()
	switch {
	case m.wish != wishOff:
		return powerRetry
	case state != hardware.PowerOff:
		m.firstOff = 0
		if now+powerRetry >= m.nextOrder && state == hardware.PowerOn {
			m.problem = "it took the order, and the host is still on"
		}
		return offLook
	case m.firstOff != 0 && r.Service.livedSince(host, m.firstOff):
		m.firstOff, m.problem = 0, "it says off, and the host lives"
		return offLook
	case m.firstOff == 0 && !sabotage.On(sabotage.OneRead):
		m.firstOff = max(now, 1)
		return offLook
	case now-m.firstOff < offReads:
		return min(offLook, offReads-(now-m.firstOff))
	}
	m.problem = ""
	m.proof = fmt.Sprintf("its management controller (%s) was told to switch it off, and has said Off for more than %s", who, offReads)
	return 0
}

// rightOne makes sure that the controller is that of the machine which the node
// agent recorded.
func (r *Reconciler) rightOne(ctx context.Context, power hardware.Power, host string) (who string, err error) {
	var h kvmv1.Hypervisor
	if err := r.Client.Get(ctx, client.ObjectKey{Name: host}, &h, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("its Hypervisor cannot be read")
	}
	var recorded struct{ ProductUUID, Serial string }
	if json.Unmarshal([]byte(h.Annotations[annotationIdentity]), &recorded) != nil || recorded.ProductUUID == "" && recorded.Serial == "" {
		return "", fmt.Errorf("the machine's UUID and serial number are not on record, so that nobody knows whether it is the right one")
	}
	c, err := power.Controller(ctx)
	if err != nil {
		return "", fmt.Errorf("it does not say whose it is: %s", trouble(err))
	}
	uuid, serial := c.SystemUUID != "" && recorded.ProductUUID != "", c.Serial != "" && recorded.Serial != ""
	switch {
	case !uuid && !serial:
		return "", fmt.Errorf("it names neither the UUID nor the serial number of its machine")
	case uuid && !strings.EqualFold(c.SystemUUID, recorded.ProductUUID), serial && c.Serial != recorded.Serial:
		return "", fmt.Errorf("another machine's answers (UUID %s, serial %s)", c.SystemUUID, c.Serial)
	case serial:
		return "serial " + c.Serial, nil
	}
	return "UUID " + c.SystemUUID, nil
}

// trouble is an error in words that stay the same from try to try.
func trouble(err error) string {
	switch hardware.ConsequenceOf(err) {
	case hardware.Refused:
		return "refused"
	case hardware.Unavailable:
		return "no answer"
	}
	return "no answer, although it may have been done"
}

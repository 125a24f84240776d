// SPDX-License-Identifier: Apache-2.0

// Package nova makes one host's domains equal the VMs placed on it: it starts,
// stops and pauses them, moves them out and takes them in, adopts what runs
// after its own restart, and clears away what a failed migration left.
//
// It reads the VirtualMachineInstances labelled for its host, the host's
// Hypervisor and the host's domains. It alone writes what ARCHITECTURE.md gives
// to the VM's host, to a migration's source and to its target. It must never
// know another host's domains, nor touch one that is not ours.
package nova

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// Options say which host the agent serves and how patient it is.
type Options struct {
	// Host is the host's name: its Hypervisor's and its Node's.
	Host string

	// Hardware is the host.
	Hardware hardware.Host

	// Clock is what every deadline is measured with.
	Clock clock.PassiveClock

	// Address is what migrations to this host connect to; "" is the host's
	// name, which the sending side's hardware resolves.
	Address string

	// Resync is how often the host's domains are listed with no event, and the
	// VMs looked at that do not run as they should; 0 is 5 minutes.
	// Each host's own is up to a tenth longer, by its name, so that a fleet's
	// agents do not look in step.
	Resync time.Duration

	// HoldOff is how long a domain that stopped without a request is watched
	// before its end is believed, because a hard reset by another program is a
	// stop and a start; 0 is 15 seconds, as in OpenStack Nova's libvirt driver.
	HoldOff time.Duration

	// NeedPermit says that the host has high availability: its HA agent keeps
	// the run permit (package permit), and without a valid one no protected VM is
	// started here, nor is anything concluded from one that is off.
	NeedPermit bool

	// Workers is how many VMs are handled at once; 0 is 4.
	Workers int
}

const (
	// retry is how soon an unanswered call of the hardware is repeated.
	retry = 5 * time.Second

	// afterConflict lets the cache catch up with whoever wrote before us.
	afterConflict = 500 * time.Millisecond
)

// Reconciler makes the domain of one VM equal its VMI.
type Reconciler struct {
	o      Options
	client client.Client
	live   client.Reader // past the cache
	host   *host

	written written
}

// Setup adds the agent to a manager, whose cache holds the
// VirtualMachineInstances labelled host.kvm.cloud.sap/HOST and the host's
// Hypervisor, and no more.
func Setup(mgr manager.Manager, o Options) error {
	o.Address = cmp.Or(o.Address, o.Host)
	o.Resync = jitter(cmp.Or(o.Resync, 5*time.Minute), o.Host)
	o.HoldOff = cmp.Or(o.HoldOff, 15*time.Second)
	r := &Reconciler{
		o:      o,
		client: mgr.GetClient(),
		live:   mgr.GetAPIReader(),
		host:   newHost(o.Host, o.Hardware),
	}
	events := source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[wiring.Request]) error {
		r.host.listen(ctx, queue.AddAfter)
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("nova").
		For(&kubevirtv1.VirtualMachineInstance{}).
		WatchesRawSource(events).
		WithOptions(wiring.Options(mgr, cmp.Or(o.Workers, 4))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up nova on %s: %w", o.Host, err)
	}
	return nil
}

// jitter makes a period up to a tenth longer, by name.
func jitter(period time.Duration, name string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return period + time.Duration(h.Sum32()%1000)*period/10000
}

// Reconcile observes, decides and acts. The request without a namespace is the
// host's own, made by its events.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Namespace == "" {
		return r.lookAround(ctx)
	}
	r.host.stir()
	defer r.host.stir()
	seen, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return r.failed(err)
	}
	p := decide(seen)
	if p.confirm && !seen.live {
		if seen, err = r.confirm(ctx, seen); err != nil {
			return r.failed(err)
		}
		p = decide(seen)
	}
	again, err := r.act(ctx, seen, p)
	if err != nil {
		return r.failed(err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// failed turns an error into when to look again. A lost race with another
// writer is no error, and a hardware that does not answer is the host's news,
// not each VM's.
func (r *Reconciler) failed(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: afterConflict}, nil
	}
	var e *hardware.Error
	if errors.As(err, &e) && e.Consequence != hardware.Refused {
		r.host.doubt()
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return ctrl.Result{}, err
}

// lookAround lists the host's domains and wakes the VMs that changed.
func (r *Reconciler) lookAround(ctx context.Context) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	err := r.host.list(ctx, r.o.Clock.Now)
	news, all := r.host.news()
	if news != "" {
		log.Info(news, "host", r.o.Host)
	}
	if err == nil || all {
		if err := r.wakeUnsettled(ctx, all); err != nil {
			if all {
				r.host.keepNews()
			}
			return ctrl.Result{}, err
		}
	}
	if err != nil {
		log.V(1).Info("Hypervisor does not answer", "host", r.o.Host, "err", err)
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return ctrl.Result{RequeueAfter: r.o.Resync}, nil
}

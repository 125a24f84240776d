// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// sweepEvery is how often expired records are looked for; they live for days.
const sweepEvery = 6 * time.Hour

// archivesKept bounds the earlier records of one VM.
const archivesKept = 5

// migrationReconciler writes what this host's migration jobs do. Its requests
// are VMs' UUIDs; the empty name asks for a sweep over all of the host's jobs
// and records.
//
// Records are read past the cache, a few times per migration: no agent holds
// the records of a fleet.
type migrationReconciler struct {
	client client.Client
	reader client.Reader
	o      Options
	feed   *feed

	mu   sync.Mutex
	jobs map[string]*watched // by UUID; of jobs under way, or ended just now
}

// watched is what is remembered of one VM's job.
type watched struct {
	ended  *hardware.Job // as an event told; libvirt may have forgotten it
	seenAt time.Time     // when it was seen ended or gone

	read    bool
	record  *v1alpha1.Migration // as last read or written
	written time.Time
	peer    string // metal name
}

func newMigrationReconciler(c client.Client, reader client.Reader, o Options) *migrationReconciler {
	r := &migrationReconciler{client: c, reader: reader, o: o, jobs: map[string]*watched{}}
	r.feed = &feed{events: o.Hardware, take: r.heard, retry: r.request("")}
	return r
}

func (r *migrationReconciler) request(uuid string) wiring.Request {
	return wiring.Request{NamespacedName: types.NamespacedName{Namespace: r.o.Namespace, Name: uuid}}
}

// heard is told each event of the host. It only takes note.
func (r *migrationReconciler) heard(e hardware.Event, q queue) {
	request := r.request(e.UUID)
	switch e.Kind {
	case hardware.EventGap:
		q.Add(request) // UUID is empty: sweep
	case hardware.EventMigrationIteration:
		q.Add(request)
	case hardware.EventJobCompleted:
		if e.Job != nil && migrates(*e.Job) {
			job := *e.Job
			at := r.o.Clock.Now()
			r.note(e.UUID, func(w *watched) { w.ended, w.seenAt = &job, at })
			q.Add(request)
		}
	case hardware.EventResumed:
		// The VM has arrived. Its job may be reaped without another word.
		if e.Detail == hardware.DetailMigrated {
			q.AddAfter(request, sourceFirst+time.Second)
		}
	}
}

func migrates(j hardware.Job) bool {
	return j.Operation == hardware.OperationMigrationIn || j.Operation == hardware.OperationMigrationOut
}

// note changes what is remembered of a VM's job, and returns a copy.
func (r *migrationReconciler) note(uuid string, change func(*watched)) watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.jobs[uuid]
	if w == nil {
		w = &watched{}
		r.jobs[uuid] = w
	}
	change(w)
	return *w
}

// forget drops what is remembered, unless the end of another job has come in
// meanwhile.
func (r *migrationReconciler) forget(uuid string, job *hardware.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.jobs[uuid]; w != nil && (w.ended == nil || w.ended == job) {
		delete(r.jobs, uuid)
	}
}

func (r *migrationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return r.sweep(ctx)
	}
	seen, err := r.observe(ctx, req.Name)
	if c := hardware.ConsequenceOf(err); isHardware(err) && c != hardware.Refused {
		return ctrl.Result{RequeueAfter: unavailableIn}, nil // LibVirtConnection tells
	} else if err != nil {
		return ctrl.Result{}, err
	}
	p := decideRecord(seen)
	if p.write {
		err := r.write(ctx, req.Name, seen, p)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			r.note(req.Name, func(w *watched) { w.read, w.record = false, nil })
			return ctrl.Result{RequeueAfter: time.Second}, nil // another agent was here: read again
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("record migration of %s: %w", req.Name, err)
		}
	}
	if p.done {
		r.forget(req.Name, seen.job)
	}
	return ctrl.Result{RequeueAfter: p.lookAgain}, nil
}

func isHardware(err error) bool {
	var e *hardware.Error
	return errors.As(err, &e)
}

func (r *migrationReconciler) observe(ctx context.Context, uuid string) (recordView, error) {
	v := recordView{now: r.o.Clock.Now(), host: r.o.Host, every: r.o.ProgressEvery}
	w := r.note(uuid, func(*watched) {})
	job, err := r.job(ctx, uuid, w)
	if err != nil {
		return v, err
	}
	v.job = job
	if job == nil || !job.Running() {
		if v.domain, err = r.domain(ctx, uuid); err != nil {
			return v, err
		}
	}
	w = r.note(uuid, func(w *watched) {
		switch runs := job != nil && job.Running(); {
		case runs:
			w.seenAt = time.Time{}
		case w.seenAt.IsZero():
			w.seenAt = v.now
		}
	})
	v.sawEndAt, v.written = w.seenAt, w.written
	if !w.read && r.mayConcern(v) {
		record, err := r.readRecord(ctx, uuid)
		if err != nil {
			return v, err
		}
		w = r.note(uuid, func(w *watched) { w.read, w.record = true, record })
	}
	v.record = w.record
	v.self = r.metalName(ctx, r.client, r.o.Host)
	if job != nil && job.Peer != "" && w.peer == "" {
		peer := r.metalName(ctx, r.reader, job.Peer)
		w = r.note(uuid, func(w *watched) { w.peer = peer })
	}
	v.peer = w.peer
	return v, nil
}

// mayConcern spares a read while the answer can only be to wait.
func (r *migrationReconciler) mayConcern(v recordView) bool {
	switch {
	case v.job == nil:
		return true
	case v.job.Running():
		return v.job.Operation == hardware.OperationMigrationOut && v.now.Sub(v.started()) >= shortJob
	case v.job.Operation == hardware.OperationMigrationIn:
		return v.now.Sub(v.sawEndAt) >= sourceFirst
	}
	return true
}

// job returns the running job, else the ended one, else nil.
func (r *migrationReconciler) job(ctx context.Context, uuid string, w watched) (*hardware.Job, error) {
	if w.ended != nil {
		return w.ended, nil
	}
	job, err := r.o.Hardware.Job(ctx, uuid)
	switch {
	case hardware.ConsequenceOf(err) == hardware.Refused:
		return nil, nil
	case err != nil:
		return nil, err
	case job.Type == hardware.JobNone || job.Type == "":
		return nil, nil
	}
	return &job, nil
}

func (r *migrationReconciler) domain(ctx context.Context, uuid string) (*hardware.Domain, error) {
	d, err := r.o.Hardware.Domain(ctx, uuid)
	if hardware.ReasonOf(err) == hardware.ReasonNoDomain {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &d, nil
}

func (r *migrationReconciler) readRecord(ctx context.Context, uuid string) (*v1alpha1.Migration, error) {
	var record v1alpha1.Migration
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: uuid}, &record)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of %s: %w", uuid, err)
	}
	return &record, nil
}

// metalName is how people call a host. Where nobody can say, its own name will
// do: a record is no reason to wait.
func (r *migrationReconciler) metalName(ctx context.Context, reader client.Reader, host string) string {
	if host == r.o.Host && r.o.MetalName != "" {
		return r.o.MetalName
	}
	var hv kvmv1.Hypervisor
	if err := reader.Get(ctx, client.ObjectKey{Name: host}, &hv, client.UnsafeDisableDeepCopy); err != nil {
		return host
	}
	return cmp.Or(hv.Labels[kvmv1.LabelMetalName], host)
}

// write puts the status under the VM's name: at most a create and a patch, and
// before them the record of an earlier migration steps aside.
func (r *migrationReconciler) write(ctx context.Context, uuid string, seen recordView, p recordPlan) error {
	record := seen.record
	if p.archive {
		if err := r.archive(ctx, uuid, record); err != nil {
			return err
		}
		record = nil
	}
	if record == nil {
		record = &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.o.Namespace,
			Name:      uuid,
			Labels:    map[string]string{LabelHost: r.o.Host, LabelVM: uuid},
		}}
		if p.job != "" {
			record.Annotations = map[string]string{AnnotationJob: p.job}
		}
		if err := r.client.Create(ctx, record); err != nil {
			return err
		}
	}
	if err := r.patchStatus(ctx, record, p.status); err != nil {
		return err
	}
	r.note(uuid, func(w *watched) { w.read, w.record, w.written = true, record, seen.now })
	return nil
}

// patchStatus changes record to what was written.
func (r *migrationReconciler) patchStatus(ctx context.Context, record *v1alpha1.Migration, s v1alpha1.MigrationStatus) error {
	before := record.DeepCopy()
	record.Status = s
	return r.client.Status().Patch(ctx, record, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// archive moves a record to the name of the VM and its start. A crash between
// the steps leaves both, and the next try goes on.
func (r *migrationReconciler) archive(ctx context.Context, uuid string, record *v1alpha1.Migration) error {
	if record.Status.Started != nil {
		old := &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{
			Namespace:   record.Namespace,
			Name:        uuid + "." + strconv.FormatInt(record.Status.Started.Unix(), 10),
			Labels:      record.Labels,
			Annotations: record.Annotations,
		}}
		err := r.client.Create(ctx, old)
		if apierrors.IsAlreadyExists(err) {
			err = r.reader.Get(ctx, client.ObjectKeyFromObject(old), old)
		}
		if err != nil {
			return err
		}
		if err := r.patchStatus(ctx, old, record.Status); err != nil {
			return err
		}
	}
	err := r.client.Delete(ctx, record, client.Preconditions{UID: &record.UID, ResourceVersion: &record.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.prune(ctx, uuid)
}

// prune deletes a VM's oldest records beyond what is kept.
func (r *migrationReconciler) prune(ctx context.Context, uuid string) error {
	var list v1alpha1.MigrationList
	if err := r.reader.List(ctx, &list, client.InNamespace(r.o.Namespace), client.MatchingLabels{LabelVM: uuid}); err != nil {
		return fmt.Errorf("list records of %s: %w", uuid, err)
	}
	old := slices.DeleteFunc(list.Items, func(m v1alpha1.Migration) bool { return m.Name == uuid })
	slices.SortFunc(old, func(a, b v1alpha1.Migration) int {
		return cmp.Or(startOf(b).Compare(startOf(a)), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range old[min(len(old), archivesKept):] {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, &m)); err != nil {
			return fmt.Errorf("delete record %s: %w", m.Name, err)
		}
	}
	return nil
}

func startOf(m v1alpha1.Migration) time.Time {
	if m.Status.Started != nil {
		return m.Status.Started.Time
	}
	return m.CreationTimestamp.Time
}

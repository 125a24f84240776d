// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/sim"
)

var background = context.Background()

// desk is a person at the API.
type desk struct {
	*testing.T
	client.WithWatch
	s *sim.Scheduler
	c *Cluster
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// fails demands an error of a sort that says something.
func (d *desk) fails(err error, is func(error) bool, says string) {
	d.Helper()
	if err == nil || !is(err) || !strings.Contains(err.Error(), says) {
		d.Errorf("got %v, want an error that says %q", err, says)
	}
}

func (d *desk) machine(name string, spec MachineSpec) *Machine {
	d.Helper()
	m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	d.must(d.Create(background, m))
	return m
}

func (d *desk) job(name string, spec JobSpec) *Job {
	d.Helper()
	j := &Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec}
	d.must(d.Create(background, j))
	return j
}

func (d *desk) gone(o client.Object) bool {
	return apierrors.IsNotFound(d.Get(background, client.ObjectKeyFromObject(o), o))
}

func (d *desk) wait(t time.Duration) { d.s.Run(d.s.Elapsed() + t) }

func ptr[T any](v T) *T { return &v }

// TestStore runs each story on both tiers.
func TestStore(t *testing.T) {
	stories := []struct {
		name string
		tell func(*desk)
	}{
		{"a created object has version, UID, generation 1 and virtual time, and no status", func(d *desk) {
			d.wait(1500 * time.Millisecond)
			m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Status: MachineStatus{Jobs: 3}}
			d.must(d.Create(background, m))
			if m.ResourceVersion == "" || len(m.UID) != 36 || m.Generation != 1 || m.Status.Jobs != 0 {
				d.Errorf("got %+v", m)
			}
			if !m.CreationTimestamp.Time.Equal(sim.Epoch.Add(time.Second)) {
				d.Errorf("created at %v", m.CreationTimestamp)
			}
		}},
		{"schema defaults are set, nested ones where their parent is", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			if m.Spec.Slots != 4 || m.Spec.Policy != nil {
				d.Errorf("got %+v", m.Spec)
			}
			m = d.machine("n", MachineSpec{Slots: 2, Policy: &Policy{Retries: 1}})
			if m.Spec.Slots != 2 || m.Spec.Policy.Mode != "soft" {
				d.Errorf("got %+v %+v", m.Spec, m.Spec.Policy)
			}
		}},
		{"an old version conflicts, none at all is invalid", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			stale := m.DeepCopyObject().(*Machine)
			m.Spec.Slots = 5
			d.must(d.Update(background, m))
			d.fails(d.Update(background, stale), apierrors.IsConflict, "modified")
			stale.ResourceVersion = ""
			d.fails(d.Update(background, stale), apierrors.IsInvalid, "must be specified for an update")
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"spec":{"slots":6}}`))
			d.fails(d.Patch(background, m, patch), apierrors.IsConflict, "modified")
			m.UID = "other"
			d.fails(d.Update(background, m), apierrors.IsConflict, "UID")
			d.fails(d.Update(background, &Machine{ObjectMeta: metav1.ObjectMeta{Name: "none", ResourceVersion: "1"}}), apierrors.IsNotFound, "")
		}},
		{"a core kind may be updated without a version", func(d *desk) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			d.must(d.Create(background, n))
			n.ResourceVersion, n.Spec.Unschedulable = "", true
			d.must(d.Update(background, n))
			if n.Generation != 0 {
				d.Errorf("generation %d", n.Generation)
			}
		}},
		{"a write that changes nothing makes no version and no event", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			version, all := m.ResourceVersion, d.c.ResourceVersion()
			d.must(d.Update(background, m))
			d.must(d.Status().Update(background, m))
			d.must(d.Patch(background, m, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"slots":4},"metadata":{"labels":null}}`))))
			if m.ResourceVersion != version || d.c.ResourceVersion() != all || d.c.Totals().NoOps != 3 {
				d.Errorf("version %s, was %s; %+v", m.ResourceVersion, version, d.c.Totals())
			}
		}},
		{"the generation counts changes of the spec only", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			m.Labels = map[string]string{"a": "b"}
			d.must(d.Update(background, m))
			m.Status.Jobs = 1
			d.must(d.Status().Update(background, m))
			if m.Generation != 1 {
				d.Errorf("generation %d after labels and status", m.Generation)
			}
			m.Spec.Slots = 9
			d.must(d.Update(background, m))
			if m.Generation != 2 {
				d.Errorf("generation %d after spec", m.Generation)
			}
		}},
		{"without a status subresource the status is part of the object", func(d *desk) {
			n := &Note{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "default"}, Status: NoteStatus{Read: true}}
			d.must(d.Create(background, n))
			if !n.Status.Read {
				d.Error("status was dropped")
			}
			n.Status.Read = false
			d.must(d.Update(background, n))
			if n.Generation != 2 {
				d.Errorf("generation %d", n.Generation)
			}
			d.fails(d.Status().Update(background, n), apierrors.IsNotFound, "")
		}},
		{"each endpoint writes its own half", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			m.Spec.Slots, m.Labels, m.Status.Jobs = 8, map[string]string{"a": "b"}, 2
			d.must(d.Status().Update(background, m))
			if m.Spec.Slots != 4 || m.Labels != nil || m.Status.Jobs != 2 {
				d.Errorf("after status: %+v", m)
			}
			m.Spec.Slots, m.Status.Jobs = 8, 5
			d.must(d.Update(background, m))
			if m.Spec.Slots != 8 || m.Status.Jobs != 2 {
				d.Errorf("after main: %+v", m)
			}
		}},
		{"times lose what their text does not hold", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			m.Status.Seen = ptr(metav1.NewTime(sim.Epoch.Add(1234567 * time.Microsecond)))
			d.must(d.Status().Update(background, m))
			if !m.Status.Seen.Time.Equal(sim.Epoch.Add(time.Second)) {
				d.Errorf("seen %v", m.Status.Seen)
			}
		}},
		{"a finalizer holds a deleted object, and no new one may join it", func(d *desk) {
			m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Finalizers: []string{"toy.example.org/a"}}}
			d.must(d.Create(background, m))
			d.must(d.Delete(background, m))
			d.must(d.Get(background, client.ObjectKeyFromObject(m), m))
			if m.DeletionTimestamp == nil || m.Generation != 2 {
				d.Errorf("got %+v", m.ObjectMeta)
			}
			version := d.c.ResourceVersion()
			d.must(d.Delete(background, m))
			if d.c.ResourceVersion() != version {
				d.Error("deleting again made a version")
			}
			m.Finalizers = append(m.Finalizers, "toy.example.org/b")
			d.fails(d.Update(background, m), apierrors.IsInvalid, "no new finalizers")
			m.Finalizers = nil
			d.must(d.Update(background, m))
			if !d.gone(m) {
				d.Error("still there")
			}
		}},
		{"deletion heeds its preconditions", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			d.fails(d.Delete(background, m, client.Preconditions{UID: ptr(types.UID("other"))}), apierrors.IsConflict, "UID")
			d.fails(d.Delete(background, m, client.Preconditions{ResourceVersion: ptr("1")}), apierrors.IsConflict, "")
			d.must(d.Delete(background, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}))
			d.fails(d.Delete(background, m), apierrors.IsNotFound, "")
		}},
		{"merge patches keep, replace and remove", func(d *desk) {
			m := d.machine("m", MachineSpec{Slots: 3, Extra: map[string]string{"a": "1", "b": "2"}, Policy: &Policy{Retries: 3}})
			d.must(d.Patch(background, m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}},"spec":{"extra":{"a":null,"c":"3"},"policy":{"retries":7},"unknown":1}}`))))
			if text := fmt.Sprint(m.Spec.Extra, *m.Spec.Policy, m.Spec.Slots, m.Annotations); text != "map[b:2 c:3] {7 soft} 3 map[x:y]" {
				d.Errorf("got %s", text)
			}
			d.must(d.Patch(background, m, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"policy":null}}`))))
			if m.Spec.Policy != nil {
				d.Errorf("got %+v", m.Spec.Policy)
			}
			j := d.job("j", JobSpec{Ports: []Port{{Name: "a", Number: 1}, {Name: "b", Number: 2}}})
			d.must(d.Patch(background, j, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ports":[{"name":"c"}]}}`))))
			if fmt.Sprint(j.Spec.Ports) != "[{c 0}]" {
				d.Errorf("got %v", j.Spec.Ports)
			}
		}},
		{"JSON patches apply, strategic ones are for core kinds", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			d.must(d.Patch(background, m, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/slots","value":4},{"op":"replace","path":"/spec/slots","value":5}]`))))
			if m.Spec.Slots != 5 {
				d.Errorf("slots %d", m.Spec.Slots)
			}
			err := d.Patch(background, m, client.RawPatch(types.StrategicMergePatchType, []byte(`{}`)))
			d.fails(err, func(error) bool { return true }, "strategic")
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			d.must(d.Create(background, n))
			d.must(d.Patch(background, n, client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`))))
			if len(n.Spec.Taints) != 1 {
				d.Errorf("taints %v", n.Spec.Taints)
			}
		}},
		{"a dry run changes nothing", func(d *desk) {
			m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			d.must(d.Create(background, m, client.DryRunAll))
			if !d.gone(&Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}) {
				d.Error("it was created")
			}
			m = d.machine("n", MachineSpec{})
			m.Spec.Slots = 1
			d.must(d.Update(background, m, client.DryRunAll))
			d.must(d.Delete(background, m, client.DryRunAll))
			d.must(d.Get(background, client.ObjectKeyFromObject(m), m))
			if m.Spec.Slots != 4 {
				d.Errorf("slots %d", m.Spec.Slots)
			}
		}},
		{"names are generated and judged", func(d *desk) {
			a := &Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "job-", Namespace: "default"}}
			d.must(d.Create(background, a))
			if len(a.Name) != 9 {
				d.Errorf("name %q", a.Name)
			}
			d.fails(d.Create(background, &Machine{ObjectMeta: metav1.ObjectMeta{Name: "No"}}), apierrors.IsInvalid, "metadata.name")
			d.fails(d.Create(background, &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"a/b/c": ""}}}), apierrors.IsInvalid, "metadata.labels")
			d.fails(d.Create(background, a.DeepCopyObject().(*Job)), apierrors.IsBadRequest, "resourceVersion")
			d.fails(d.Create(background, &Job{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: "default"}}), apierrors.IsAlreadyExists, "")
		}},
		{"an object of more than 1.5 MiB is refused", func(d *desk) {
			n := &Note{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "default"}, Spec: NoteSpec{Text: strings.Repeat("x", 1<<20)}}
			d.must(d.Create(background, n))
			n.Spec.Text += n.Spec.Text
			d.fails(d.Update(background, n), apierrors.IsInternalError, "too large")
		}},
		{"objects live in a namespace that stays", func(d *desk) {
			d.fails(d.Create(background, &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "none"}}), apierrors.IsNotFound, "none")
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			d.must(d.Create(background, ns))
			j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "team"}}
			d.must(d.Create(background, j))
			d.must(d.Delete(background, ns))
			err := d.Create(background, &Job{ObjectMeta: metav1.ObjectMeta{Name: "k", Namespace: "team"}})
			d.fails(err, apierrors.IsForbidden, "being terminated")
			d.wait(time.Minute)
			if !d.gone(j) || !d.gone(ns) {
				d.Error("the namespace was not emptied")
			}
		}},
		{"lists select by label and field", func(d *desk) {
			for i, machine := range []string{"a", "b", "a"} {
				d.must(d.Create(background, &Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("j", i), Namespace: "default", Labels: map[string]string{"on": machine}}, Spec: JobSpec{Machine: machine}}))
			}
			names := func(opts ...client.ListOption) string {
				d.Helper()
				var l JobList
				d.must(d.List(background, &l, opts...))
				var out []string
				for _, j := range l.Items {
					out = append(out, j.Name)
				}
				return strings.Join(out, " ")
			}
			for want, opt := range map[string]client.ListOption{
				"j0 j2": client.MatchingLabels{"on": "a"}, "j1": client.MatchingFields{"spec.machine": "b"}, "j2": client.MatchingFields{"metadata.name": "j2"},
				"j0 j1 j2": client.HasLabels{"on"}, "": client.InNamespace("kube-system"),
			} {
				if got := names(opt); got != want {
					d.Errorf("%v: got %q, want %q", opt, got, want)
				}
			}
			d.fails(d.List(background, &JobList{}, client.MatchingFields{"spec.args": "x"}), apierrors.IsBadRequest, "field label not supported")
			d.must(d.DeleteAllOf(background, &Job{}, client.InNamespace("default"), client.MatchingLabels{"on": "a"}))
			if got := names(); got != "j1" {
				d.Errorf("left %q", got)
			}
		}},
		{"pages show one state", func(d *desk) {
			for i := range 5 {
				d.job(fmt.Sprint("j", i), JobSpec{})
			}
			var first, second JobList
			d.must(d.List(background, &first, client.Limit(2)))
			if *first.RemainingItemCount != 3 {
				d.Errorf("remaining %d", *first.RemainingItemCount)
			}
			d.must(d.Delete(background, &Job{ObjectMeta: metav1.ObjectMeta{Name: "j3", Namespace: "default"}}))
			d.job("j9", JobSpec{})
			d.must(d.List(background, &second, client.Limit(9), client.Continue(first.Continue)))
			var names []string
			for _, j := range append(first.Items, second.Items...) {
				names = append(names, j.Name)
			}
			if strings.Join(names, " ") != "j0 j1 j2 j3 j4" || second.ResourceVersion != first.ResourceVersion {
				d.Errorf("got %v", names)
			}
			d.c.Inject(Fault{Kind: "api.compact"})
			d.fails(d.List(background, &second, client.Continue(first.Continue)), apierrors.IsResourceExpired, "too old")
		}},
		{"a watch replays, follows a selection, marks its place and expires", func(d *desk) {
			a := d.machine("a", MachineSpec{})
			from := a.ResourceVersion
			a.Labels = map[string]string{"in": "yes"}
			d.must(d.Update(background, a))
			list := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true}}
			w, err := d.Watch(background, &MachineList{}, list, client.HasLabels{"in"})
			d.must(err)
			a.Spec.Slots = 6
			d.must(d.Update(background, a))
			a.Labels = nil
			d.must(d.Update(background, a))
			d.wait(61 * time.Second)
			w.Stop()
			var got []string
			for e := range w.ResultChan() {
				got = append(got, string(e.Type))
			}
			if want := []string{string(watch.Added), string(watch.Modified), string(watch.Deleted), string(watch.Bookmark)}; !slices.Equal(got, want) {
				d.Errorf("got %v, want %v", got, want)
			}
			d.c.Inject(Fault{Kind: "api.compact"})
			_, err = d.Watch(background, &MachineList{}, list)
			d.fails(err, apierrors.IsResourceExpired, "too old")
		}},
		{"dependents follow their owner in the background", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", OwnerReferences: []metav1.OwnerReference{ownerRef(m)}}}
			d.must(d.Create(background, j))
			d.wait(5 * time.Second)
			d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
			d.must(d.Delete(background, m))
			d.wait(5 * time.Second)
			if !d.gone(j) {
				d.Error("still there")
			}
			late := &Job{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "default", OwnerReferences: j.OwnerReferences}}
			d.must(d.Create(background, late))
			d.wait(5 * time.Second)
			if !d.gone(late) {
				d.Error("an owner that is gone owns nothing")
			}
		}},
		{"a foreground deletion waits for the dependents", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", Finalizers: []string{"toy.example.org/x"}, OwnerReferences: []metav1.OwnerReference{ownerRef(m)}}}
			d.must(d.Create(background, j))
			d.must(d.Delete(background, m, client.PropagationPolicy(metav1.DeletePropagationForeground)))
			d.wait(5 * time.Second)
			d.must(d.Get(background, client.ObjectKeyFromObject(m), m))
			d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
			j.Finalizers = nil
			d.must(d.Update(background, j))
			d.wait(5 * time.Second)
			if !d.gone(m) || !d.gone(j) {
				d.Error("still there")
			}
		}},
		{"orphans stay behind without their owner", func(d *desk) {
			m := d.machine("m", MachineSpec{})
			j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", OwnerReferences: []metav1.OwnerReference{ownerRef(m)}}}
			d.must(d.Create(background, j))
			d.must(d.Delete(background, m, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
			d.wait(5 * time.Second)
			d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
			if !d.gone(m) || j.OwnerReferences != nil {
				d.Errorf("got %+v", j.OwnerReferences)
			}
		}},
		{"appliers own what they apply", applyStory},
		{"unstructured and metadata-only readers are served", func(d *desk) {
			d.job("j", JobSpec{Machine: "m"})
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(toyVersion.WithKind("Job"))
			d.must(d.Get(background, client.ObjectKey{Namespace: "default", Name: "j"}, u))
			if on, _, _ := unstructured.NestedString(u.Object, "spec", "machine"); on != "m" {
				d.Errorf("got %v", u.Object)
			}
			unstructured.SetNestedField(u.Object, "n", "spec", "machine")
			d.must(d.Update(background, u))
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(toyVersion.WithKind("JobList"))
			d.must(d.List(background, l))
			if len(l.Items) != 1 || l.Items[0].Generation != 2 {
				d.Errorf("got %+v", l.Items)
			}
		}},
	}
	for _, fidelity := range []Fidelity{Typed, Full} {
		for _, story := range stories {
			t.Run([]string{"typed: ", "full: "}[fidelity]+story.name, func(t *testing.T) {
				s := sim.New(sim.Options{Seed: 1})
				c := toyCluster(t, s, Options{Fidelity: fidelity})
				story.tell(&desk{t, c.Client("person"), s, c})
			})
		}
	}
}

func ownerRef(m *Machine) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: toyVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID, BlockOwnerDeletion: ptr(true)}
}

func applyStory(d *desk) {
	apply := func(manager, text string, opts ...client.ApplyOption) error {
		u := &unstructured.Unstructured{}
		d.must(json.Unmarshal([]byte(text), &u.Object))
		return d.Apply(background, client.ApplyConfigurationFromUnstructured(u), append(opts, client.FieldOwner(manager))...)
	}
	const head = `{"apiVersion":"toy.example.org/v1","kind":"Job","metadata":{"name":"j","namespace":"default"},`
	d.must(apply("one", head+`"spec":{"machine":"a","ports":[{"name":"p","number":1}]}}`))
	d.must(apply("two", head+`"spec":{"ports":[{"name":"q","number":2}]}}`))
	j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default"}}
	d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
	if len(j.Spec.Ports) != 2 || len(j.ManagedFields) != 2 {
		d.Errorf("after two appliers: %+v, %d managers", j.Spec, len(j.ManagedFields))
	}
	version := j.ResourceVersion
	d.must(apply("two", head+`"spec":{"ports":[{"name":"q","number":2}]}}`))
	d.fails(apply("two", head+`"spec":{"machine":"b"}}`), apierrors.IsConflict, "one")
	d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
	if j.ResourceVersion != version {
		d.Error("applying the same made a version")
	}
	d.must(apply("two", head+`"spec":{"machine":"b"}}`, client.ForceOwnership))
	d.must(d.Get(background, client.ObjectKeyFromObject(j), j))
	if j.Spec.Machine != "b" || len(j.Spec.Ports) != 1 || j.Spec.Ports[0].Name != "p" {
		d.Errorf("after force: %+v", j.Spec) // two no longer applies its port
	}
	j.Spec.Machine = "c"
	d.must(d.Update(background, j))
	d.fails(apply("two", head+`"spec":{"machine":"b"}}`), apierrors.IsConflict, "person")

	// An object that was written before anybody applied.
	d.job("k", JobSpec{Machine: "x"})
	const other = `{"apiVersion":"toy.example.org/v1","kind":"Job","metadata":{"name":"k","namespace":"default"},`
	d.fails(apply("one", other+`"spec":{"machine":"y"}}`), apierrors.IsConflict, "person")
	d.must(apply("one", other+`"spec":{"args":["v"]}}`))
}

func TestFullJudgesWhatTypedTrusts(t *testing.T) {
	s := sim.New(sim.Options{Seed: 1})
	c := toyCluster(t, s, Options{Fidelity: Full})
	d := &desk{t, c.Client("person"), s, c}
	d.fails(d.Create(background, &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: MachineSpec{Slots: -1}}), apierrors.IsInvalid, "spec.slots")
	m := d.machine("m", MachineSpec{Zone: "a"})
	m.Spec.Zone = "b"
	d.fails(d.Update(background, m), apierrors.IsInvalid, "zone is immutable")
	j := d.job("j", JobSpec{})
	j.Spec.Ports = []Port{{Name: "a"}, {Name: "a"}}
	d.fails(d.Update(background, j), apierrors.IsInvalid, "Duplicate")
	j = d.job("k", JobSpec{})
	j.Status.Phase = "Nonsense"
	d.fails(d.Status().Update(background, j), apierrors.IsInvalid, "status.phase")
}

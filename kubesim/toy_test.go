// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/sim"
)

// A toy API: Machines hold Jobs.

var toyVersion = schema.GroupVersion{Group: "toy.example.org", Version: "v1"}

type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MachineSpec   `json:"spec,omitempty"`
	Status            MachineStatus `json:"status,omitempty"`
}

type MachineSpec struct {
	Slots  int32             `json:"slots,omitempty"`
	Zone   string            `json:"zone,omitempty"`
	Extra  map[string]string `json:"extra,omitempty"`
	Policy *Policy           `json:"policy,omitempty"`
}

type Policy struct {
	Retries int32  `json:"retries,omitempty"`
	Mode    string `json:"mode,omitempty"`
}

type MachineStatus struct {
	Jobs       int32              `json:"jobs,omitempty"`
	Seen       *metav1.Time       `json:"seen,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              JobSpec   `json:"spec,omitempty"`
	Status            JobStatus `json:"status,omitempty"`
}

type JobSpec struct {
	Machine string   `json:"machine,omitempty"`
	Args    []string `json:"args,omitempty"`
	Ports   []Port   `json:"ports,omitempty"`
}

type Port struct {
	Name   string `json:"name"`
	Number int32  `json:"number,omitempty"`
}

type JobStatus struct {
	Phase string `json:"phase,omitempty"`
}

type JobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Job `json:"items"`
}

// Note has no status subresource.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NoteSpec   `json:"spec,omitempty"`
	Status            NoteStatus `json:"status,omitempty"`
}

type NoteSpec struct {
	Text string `json:"text,omitempty"`
}
type NoteStatus struct {
	Read bool `json:"read,omitempty"`
}
type NoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Note `json:"items"`
}

func (m *Machine) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if m.Spec.Extra != nil {
		out.Spec.Extra = map[string]string{}
		for k, v := range m.Spec.Extra {
			out.Spec.Extra[k] = v
		}
	}
	if m.Spec.Policy != nil {
		p := *m.Spec.Policy
		out.Spec.Policy = &p
	}
	out.Status.Seen = m.Status.Seen.DeepCopy()
	out.Status.Conditions = nil
	for _, c := range m.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *c.DeepCopy())
	}
	return &out
}
func (l *MachineList) DeepCopyObject() runtime.Object { out := *l; return &out }
func (j *Job) DeepCopyObject() runtime.Object {
	out := *j
	j.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Args = append([]string(nil), j.Spec.Args...)
	out.Spec.Ports = append([]Port(nil), j.Spec.Ports...)
	return &out
}
func (l *JobList) DeepCopyObject() runtime.Object { out := *l; return &out }
func (n *Note) DeepCopyObject() runtime.Object {
	out := *n
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
func (l *NoteList) DeepCopyObject() runtime.Object { out := *l; return &out }

func toyScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(toyVersion, &Machine{}, &MachineList{}, &Job{}, &JobList{}, &Note{}, &NoteList{})
	metav1.AddToGroupVersion(s, toyVersion)
	_ = corev1.AddToScheme(s)
	_ = coordinationv1.AddToScheme(s)
	return s
}

type props = map[string]apiextensionsv1.JSONSchemaProps

func object(p props) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: p}
}

func of(kind string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: kind}
}

func toyCRD(kind, plural string, scope apiextensionsv1.ResourceScope, status bool, p props, selectable ...string) *apiextensionsv1.CustomResourceDefinition {
	p["apiVersion"], p["kind"], p["metadata"] = of("string"), of("string"), of("object")
	root := object(p)
	v := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root}}
	if status {
		v.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	for _, path := range selectable {
		v.SelectableFields = append(v.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = plural + "." + toyVersion.Group
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: toyVersion.Group, Scope: scope, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{v},
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural[:len(plural)-1], Kind: kind, ListKind: kind + "List"}}
	return crd
}

func toyCRDs() []*apiextensionsv1.CustomResourceDefinition {
	min := 0.0
	slots := of("integer")
	slots.Minimum, slots.Default = &min, &apiextensionsv1.JSON{Raw: []byte("4")}
	mode := of("string")
	mode.Default = &apiextensionsv1.JSON{Raw: []byte(`"soft"`)}
	zone := of("string")
	zone.XValidations = apiextensionsv1.ValidationRules{{Rule: "self == oldSelf", Message: "zone is immutable"}}
	condition := object(props{"type": of("string"), "status": of("string"), "reason": of("string"), "message": of("string"), "observedGeneration": of("integer"),
		"lastTransitionTime": {Type: "string", Format: "date-time"}})
	condition.Required = []string{"type", "status"}
	listMap := "map"
	machine := props{
		"spec": object(props{"slots": slots, "zone": zone, "extra": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			"policy": object(props{"retries": of("integer"), "mode": mode})}),
		"status": object(props{"jobs": of("integer"), "seen": {Type: "string", Format: "date-time"},
			"conditions": {Type: "array", XListType: &listMap, XListMapKeys: []string{"type"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition}}}),
	}
	port := object(props{"name": of("string"), "number": of("integer")})
	port.Required = []string{"name"}
	job := props{
		"spec": object(props{"machine": of("string"), "args": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			"ports": {Type: "array", XListType: &listMap, XListMapKeys: []string{"name"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &port}}}),
		"status": object(props{"phase": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`""`)}, {Raw: []byte(`"Running"`)}, {Raw: []byte(`"Done"`)}}}}),
	}
	note := props{"spec": object(props{"text": of("string")}), "status": object(props{"read": of("boolean")})}
	return []*apiextensionsv1.CustomResourceDefinition{
		toyCRD("Machine", "machines", apiextensionsv1.ClusterScoped, true, machine),
		toyCRD("Job", "jobs", apiextensionsv1.NamespaceScoped, true, job, ".spec.machine"),
		toyCRD("Note", "notes", apiextensionsv1.NamespaceScoped, false, note),
	}
}

// The toy operator: places each Job on a Machine that has room, counts a
// Machine's Jobs, and runs those placed.

type placer struct {
	client.Client
	live client.Reader
}

func (r *placer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var j Job
	if err := r.Get(ctx, req.NamespacedName, &j); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if j.Spec.Machine == "" {
		var machines MachineList
		if err := r.List(ctx, &machines); err != nil {
			return reconcile.Result{}, err
		}
		for i := range machines.Items {
			m := &machines.Items[i]
			var here JobList
			if err := r.List(ctx, &here, client.MatchingFields{"spec.machine": m.Name}); err != nil {
				return reconcile.Result{}, err
			}
			if int32(len(here.Items)) < m.Spec.Slots {
				j.Spec.Machine = m.Name
				return reconcile.Result{}, r.Update(ctx, &j)
			}
		}
		return reconcile.Result{RequeueAfter: 5 * time.Second}, nil
	}
	if j.Status.Phase == "" {
		before := j.DeepCopyObject().(*Job)
		j.Status.Phase = "Running"
		return reconcile.Result{}, r.Status().Patch(ctx, &j, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	return reconcile.Result{}, nil
}

type counter struct {
	client.Client
	now func() time.Time
}

func (r *counter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var m Machine
	if err := r.Get(ctx, req.NamespacedName, &m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var here JobList
	if err := r.List(ctx, &here, client.MatchingFields{"spec.machine": m.Name}); err != nil {
		return reconcile.Result{}, err
	}
	if m.Status.Jobs == int32(len(here.Items)) {
		return reconcile.Result{}, nil
	}
	now := metav1.NewTime(r.now())
	m.Status.Jobs, m.Status.Seen = int32(len(here.Items)), &now
	m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Counted", Message: fmt.Sprint(len(here.Items)), LastTransitionTime: now}}
	return reconcile.Result{}, r.Status().Update(ctx, &m)
}

func setupToy(s *sim.Scheduler) func(manager.Manager) error {
	return func(mgr manager.Manager) error {
		o := mgr.(interface {
			ControllerOptions(int) controller.Options
		})
		err := mgr.GetFieldIndexer().IndexField(context.Background(), &Job{}, "spec.machine", func(o client.Object) []string { return []string{o.(*Job).Spec.Machine} })
		err = errors.Join(err, ctrl.NewControllerManagedBy(mgr).For(&Job{}).WithOptions(o.ControllerOptions(4)).
			Watches(&Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (out []reconcile.Request) {
				var waiting JobList
				if err := mgr.GetClient().List(ctx, &waiting, client.MatchingFields{"spec.machine": ""}); err != nil {
					panic(err)
				}
				for i := range waiting.Items {
					out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&waiting.Items[i])})
				}
				return out
			})).Complete(&placer{Client: mgr.GetClient(), live: mgr.GetAPIReader()}))
		return errors.Join(err, ctrl.NewControllerManagedBy(mgr).For(&Machine{}).WithOptions(o.ControllerOptions(2)).
			Watches(&Job{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.(*Job).Spec.Machine}}}
			})).Complete(&counter{Client: mgr.GetClient(), now: s.Now}))
	}
}

// toySchemas spares the tests compiling the same rules again.
var toySchemas = NewSchemas()

func toyCluster(t testing.TB, s *sim.Scheduler, o Options) *Cluster {
	t.Helper()
	o.Scheme, o.CRDs = toyScheme(), toyCRDs()
	if o.Schemas == nil {
		o.Schemas = toySchemas
	}
	c, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func name(format string, args ...any) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: fmt.Sprintf(format, args...), Namespace: "default"}
}

// playToy runs the toy operator over machines and jobs that come and go.
func playToy(t testing.TB, s *sim.Scheduler, o Options, more func(*Cluster, *Process)) *Cluster {
	c := toyCluster(t, s, o)
	person := c.Client("person")
	p := c.Process("operator", ProcessOptions{Role: "operator"}, setupToy(s))
	p.Start()
	r := rand.New(rand.NewPCG(1, 2))
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range 5 {
		s.After(time.Duration(i)*time.Second, func() {
			m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)}, Spec: MachineSpec{Policy: &Policy{Retries: 1}}}
			if i == 2 {
				m.Spec.Slots = 7
			}
			must(person.Create(context.Background(), m))
		})
	}
	for i := range 30 {
		at := time.Duration(r.IntN(20000)) * time.Millisecond
		s.After(at, func() { must(person.Create(context.Background(), &Job{ObjectMeta: name("j%d", i)})) })
		if i%4 == 0 {
			s.After(at+10*time.Second, func() { must(person.Delete(context.Background(), &Job{ObjectMeta: name("j%d", i)})) })
		}
	}
	if more != nil {
		more(c, p)
	}
	s.Run(2 * time.Minute)
	return c
}

// settled checks the toy's end: every job runs on a machine, and the machines
// have counted right.
func settled(t testing.TB, c *Cluster) {
	t.Helper()
	on := map[string]int32{}
	c.Each(toyVersion.WithKind("Job"), func(o client.Object) {
		j := o.(*Job)
		if j.Spec.Machine == "" || j.Status.Phase != "Running" {
			t.Errorf("job %s: machine %q, phase %q", j.Name, j.Spec.Machine, j.Status.Phase)
		}
		on[j.Spec.Machine]++
	})
	c.Each(toyVersion.WithKind("Machine"), func(o client.Object) {
		m := o.(*Machine)
		if m.Status.Jobs != on[m.Name] {
			t.Errorf("machine %s counts %d jobs, has %d", m.Name, m.Status.Jobs, on[m.Name])
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/adit-hv/adit/internal/controlplane"
)

// plane is the control plane that all tests here share; it starts with the first
// that needs it.
var plane = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
	c, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		return nil, err
	}
	if err := install(c); err != nil {
		_ = c.Stop()
		return nil, err
	}
	started = c
	return c, nil
})

var started *controlplane.ControlPlane

func TestMain(m *testing.M) {
	code := m.Run()
	if testing.Short() {
		fmt.Println("NOT RUN, for -short: the same of a real API server")
	}
	if started != nil {
		if err := started.Stop(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// install applies the definitions and waits until they are served.
func install(c *controlplane.ControlPlane) error {
	ctx := context.Background()
	client, err := apiextensions.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	crds, err := All()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			now, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(now.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}), err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", crd.Name, err)
		}
	}
	return nil
}

// real is a resource of the real API server.
type real struct {
	plane    *controlplane.ControlPlane
	crd      *apiextensionsv1.CustomResourceDefinition
	resource dynamic.NamespaceableResourceInterface
}

func serveReal(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *real {
	t.Helper()
	c, err := plane()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &real{c, crd, client.Resource(schema.GroupVersionResource{
		Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural,
	})}
}

// in returns the objects beside obj.
func (r *real) in(t *testing.T, obj map[string]any) dynamic.ResourceInterface {
	t.Helper()
	if r.crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		return r.resource
	}
	namespace := (&unstructured.Unstructured{Object: obj}).GetNamespace()
	if namespace == "" {
		return r.resource.Namespace(metav1.NamespaceDefault)
	}
	client, err := kubernetes.NewForConfig(r.plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return r.resource.Namespace(namespace)
}

// create makes obj, in the place of one that has its name.
func (r *real) create(t *testing.T, obj map[string]any) (map[string]any, error) {
	t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj)}
	objects := r.in(t, obj)
	if err := objects.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	stored, err := objects.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return stored.Object, nil
}

// put makes old, status and all.
func (r *real) put(t *testing.T, old map[string]any) map[string]any {
	t.Helper()
	stored, err := r.create(t, old)
	if err == nil && old["status"] != nil && r.crd.Spec.Versions[0].Subresources != nil {
		stored["status"] = runtime.DeepCopyJSONValue(old["status"])
		var u *unstructured.Unstructured
		if u, err = r.in(t, old).UpdateStatus(t.Context(), &unstructured.Unstructured{Object: stored}, metav1.UpdateOptions{}); err == nil {
			stored = u.Object
		}
	}
	if err != nil {
		t.Fatalf("the real API server did not take what is to be changed: %v", err)
	}
	return stored
}

// update changes old into obj, by way of the status subresource if it says so.
func (r *real) update(t *testing.T, old, obj map[string]any, subresources ...string) (map[string]any, error) {
	t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj)}
	u.SetResourceVersion((&unstructured.Unstructured{Object: r.put(t, old)}).GetResourceVersion())
	u.SetName((&unstructured.Unstructured{Object: old}).GetName())
	stored, err := r.in(t, old).Update(t.Context(), u, metav1.UpdateOptions{}, subresources...)
	if err != nil {
		return nil, err
	}
	return stored.Object, nil
}

// agree complains if the real API server stored something else or refused for
// another reason. Metadata are its own business.
func agree(t *testing.T, what string, ours map[string]any, err error, theirs map[string]any, realErr error) {
	t.Helper()
	if err != nil || realErr != nil {
		if reasons(err) != reasons(realErr) {
			t.Errorf("%s: the library says:\n%v\nthe real API server says:\n%v", what, reasons(err), reasons(realErr))
		}
		return
	}
	a, b := without(ours, "metadata"), without(theirs, "metadata")
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s: the library stores:\n%s\nthe real API server:\n%s", what, asYAML(a), asYAML(b))
	}
}

var refusal = regexp.MustCompile(`^[A-Za-z]+\.[a-z.]+ "[^"]*" is invalid: `)

// reasons are a refusal's, sorted, without what both sides wrap around them.
func reasons(err error) string {
	if err == nil {
		return "nothing: it was accepted"
	}
	text := refusal.ReplaceAllString(err.Error(), "")
	list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ", ")
	slices.Sort(list)
	return strings.Join(list, "\n")
}

func without(obj map[string]any, key string) map[string]any {
	obj = runtime.DeepCopyJSON(obj)
	delete(obj, key)
	return obj
}

var gap = regexp.MustCompile(` {2,}`)

// table is what the stock kubectl prints of obj, cells joined as ours are.
func (r *real) table(t *testing.T, obj map[string]any, wide bool) (header, row string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: r.put(t, without(obj, ""))}
	args := []string{"--kubeconfig", r.plane.Kubeconfig(), "get", r.crd.Name, u.GetName()}
	if namespace := u.GetNamespace(); namespace != "" {
		args = append(args, "-n", namespace)
	}
	if wide {
		args = append(args, "-o", "wide")
	}
	assets, err := controlplane.Assets()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 {
		t.Fatalf("kubectl printed:\n%s", out)
	}
	cells := func(line string) string { return strings.Join(gap.Split(strings.TrimSpace(line), -1), " | ") }
	return cells(lines[0]), cells(lines[1])
}

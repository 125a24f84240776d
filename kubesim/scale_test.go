// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// TestAThousandAgentsCostWhatConcernsThem: a write reaches the one agent it is
// for, and ending them leaves no goroutine.
func TestAThousandAgentsCostWhatConcernsThem(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	d := newDesk(t, 1, Options{})
	const agents = 1000
	reconciles := 0
	for i := range agents {
		host := fmt.Sprint("h", i)
		own := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", host)}
		d.c.Process(host, ProcessOptions{ByObject: map[client.Object]cache.ByObject{&Machine{}: own}},
			runs(2, func(context.Context, manager.Manager, reconcile.Request) (reconcile.Result, error) {
				reconciles++
				return reconcile.Result{}, nil
			})).Start()
	}
	for i := range agents {
		d.must(d.Create(background, &Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("h", i)}}))
	}
	d.wait(time.Minute)
	if reconciles != agents {
		t.Errorf("%d reconciles", reconciles)
	}
	d.c.Close()
	time.Sleep(10 * time.Millisecond)
	if left := runtime.NumGoroutine() - goroutines; left > 5 {
		t.Errorf("%d goroutines left", left)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// api is as much of a Kubernetes API as a real client with a real cache needs:
// objects as they were sent, lists, watches, merge patches with their lock. It
// counts writes. It validates nothing.
type api struct {
	kinds map[string]kind // by path: "kvm.cloud.sap/v1/hypervisors"

	mu      sync.Mutex
	changed *sync.Cond
	version int64
	objects map[string]map[string][]byte // by path and namespace/name
	log     []change                     // all that happened, for watches
	writes  map[string]int               // by resource
}

type kind struct {
	group, version, resource, kind string
	namespaced                     bool
}

type change struct {
	version      int64
	path, action string
	object       []byte
}

func newAPI(kinds ...kind) *api {
	a := &api{kinds: map[string]kind{}, objects: map[string]map[string][]byte{}, writes: map[string]int{}}
	a.changed = sync.NewCond(&a.mu)
	for _, k := range kinds {
		path := k.version + "/" + k.resource
		if k.group != "" {
			path = k.group + "/" + path
		}
		a.kinds[path], a.objects[path] = k, map[string][]byte{}
	}
	return a
}

// seed puts an object there, as if it had always been.
func (a *api) seed(path, name string, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.put(path, name, "ADDED", data)
	return err
}

// put stores an object under the next version. The lock is held.
func (a *api) put(path, name, action string, data []byte) ([]byte, error) {
	a.version++
	data, err := jsonpatch.MergePatch(data, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, a.version))
	if err != nil {
		return nil, err
	}
	a.objects[path][name] = data
	a.log = append(a.log, change{a.version, path, action, data})
	a.changed.Broadcast()
	return data, nil
}

// counts is how often each resource was written.
func (a *api) counts() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.writes)
}

// ServeHTTP is the API.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	core := words[0] == "api"
	words = words[1:]
	size := 2 // of group and version
	if core {
		size = 1
	}
	if len(words) <= size {
		a.discover(w, core, words)
		return
	}
	prefix, words := strings.Join(words[:size], "/"), words[size:]
	namespace := ""
	if words[0] == "namespaces" && len(words) > 2 {
		namespace, words = words[1], words[2:]
	}
	path := prefix + "/" + words[0]
	k, known := a.kinds[path]
	switch {
	case !known:
		fail(w, http.StatusNotFound, "NotFound")
	case len(words) == 1 && r.Method == http.MethodPost:
		a.create(w, r, path, namespace, k)
	case len(words) == 1 && r.URL.Query().Get("watch") != "":
		a.watch(w, r, path, namespace)
	case len(words) == 1:
		a.list(w, path, namespace, k)
	default:
		name := words[1]
		if k.namespaced {
			name = namespace + "/" + name
		}
		a.object(w, r, path, name, len(words) > 2)
	}
}

// read returns a request's body as JSON. Clients of Kubernetes' own types send
// protobuf.
func read(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
		return body
	}
	o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil
	}
	body, _ = json.Marshal(o)
	return body
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, reason, code)
}

// discover tells clients which resources there are.
func (a *api) discover(w http.ResponseWriter, core bool, words []string) {
	answer := map[string]any{"kind": "APIVersions", "versions": []string{"v1"}}
	switch {
	case len(words) == 0 && !core:
		groups := map[string]any{}
		for _, k := range a.kinds { // In any order: it fills a map.
			v := map[string]any{"groupVersion": k.group + "/" + k.version, "version": k.version}
			groups[k.group+"/"+k.version] = map[string]any{"name": k.group, "versions": []any{v}, "preferredVersion": v}
		}
		delete(groups, "/v1")
		answer = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": slices.Collect(maps.Values(groups))}
	case len(words) > 0:
		at := strings.Join(words, "/")
		var list []any
		for path, k := range a.kinds { // In any order: clients index it.
			if path == at+"/"+k.resource {
				list = append(list, map[string]any{"name": k.resource, "kind": k.kind, "namespaced": k.namespaced, "verbs": []string{"get", "list", "watch", "create", "patch"}})
			}
		}
		answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": at, "resources": list}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// names are a path's objects in a namespace, sorted.
func (a *api) names(path, namespace string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.objects[path])), func(name string) bool {
		return namespace != "" && !strings.HasPrefix(name, namespace+"/")
	})
}

func (a *api) list(w http.ResponseWriter, path, namespace string, k kind) {
	a.mu.Lock()
	items := []json.RawMessage{}
	for _, name := range a.names(path, namespace) {
		items = append(items, a.objects[path][name])
	}
	version := a.version
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": k.kind + "List", "apiVersion": strings.TrimSuffix(path, "/"+k.resource),
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(version, 10)}, "items": items,
	})
}

// watch sends what happens, until the client leaves.
func (a *api) watch(w http.ResponseWriter, r *http.Request, path, namespace string) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
		a.changed.Broadcast()
	}()
	k := a.kinds[path]
	since, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	a.mu.Lock()
	next := len(a.log)
	var send []change
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, name := range a.names(path, namespace) {
			send = append(send, change{path: path, action: "ADDED", object: a.objects[path][name]})
		}
		mark := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, k.kind, strings.TrimSuffix(path, "/"+k.resource), a.version)
		send = append(send, change{path: path, action: "BOOKMARK", object: []byte(mark)})
	} else {
		next = slices.IndexFunc(a.log, func(c change) bool { return c.version > since })
		if next < 0 {
			next = len(a.log)
		}
	}
	for r.Context().Err() == nil {
		a.mu.Unlock()
		for _, c := range send {
			fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", c.action, c.object)
		}
		w.(http.Flusher).Flush()
		send = nil
		a.mu.Lock()
		for next == len(a.log) && r.Context().Err() == nil {
			a.changed.Wait()
		}
		for ; next < len(a.log); next++ {
			if a.log[next].path == path {
				send = append(send, a.log[next])
			}
		}
	}
	a.mu.Unlock()
}

func (a *api) create(w http.ResponseWriter, r *http.Request, path, namespace string, k kind) {
	body := read(r)
	var o struct {
		Metadata struct{ Name, Namespace string }
	}
	if json.Unmarshal(body, &o) != nil {
		fail(w, http.StatusBadRequest, "BadRequest")
		return
	}
	name := o.Metadata.Name
	if k.namespaced {
		name = namespace + "/" + name
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes[k.resource]++
	if a.objects[path][name] != nil {
		fail(w, http.StatusConflict, "AlreadyExists")
		return
	}
	a.answer(w, path, name, "ADDED", body)
}

// object reads or changes one.
func (a *api) object(w http.ResponseWriter, r *http.Request, path, name string, status bool) {
	body := read(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.objects[path][name]
	if r.Method != http.MethodGet {
		a.writes[a.kinds[path].resource]++
	}
	if old == nil {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	now := old
	switch r.Method {
	case http.MethodPut:
		now = body
	case http.MethodPatch:
		var err error
		if now, err = patch(old, body, status); err != nil {
			fail(w, http.StatusBadRequest, "BadRequest")
			return
		}
	case http.MethodGet:
		_, _ = w.Write(old)
		return
	}
	if lock, have := version(body), version(old); lock != "" && lock != have {
		fail(w, http.StatusConflict, "Conflict")
		return
	}
	a.answer(w, path, name, "MODIFIED", now)
}

func (a *api) answer(w http.ResponseWriter, path, name, action string, data []byte) {
	data, err := a.put(path, name, action, data)
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequest")
		return
	}
	_, _ = w.Write(data)
}

// patch merges the status, or all but the status.
func patch(old, body []byte, status bool) ([]byte, error) {
	var part map[string]json.RawMessage
	if err := json.Unmarshal(body, &part); err != nil {
		return nil, err
	}
	maps.DeleteFunc(part, func(field string, _ json.RawMessage) bool { return (field == "status") != status })
	data, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(old, data)
}

func version(object []byte) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(object, &o) // what has none has no lock
	return o.Metadata.ResourceVersion
}

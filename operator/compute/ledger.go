// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

func domainOf(vmi *kubevirtv1.VirtualMachineInstance) string { return kubevirt.DomainUUID(vmi) }

// Observe takes over what a VMI's object shows: from an event, or from the
// answer to a write, which spares the wait for its event. Older versions than
// the last are dropped. The object must not be changed afterwards. It returns
// the hosts on which room became free.
func (f *Fleet) Observe(vmi *kubevirtv1.VirtualMachineInstance) (freed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observe(vmi)
}

func (f *Fleet) observe(vmi *kubevirtv1.VirtualMachineInstance) (freed []string) {
	v := f.vms[vmi.UID]
	if v != nil && v.version != vmi.ResourceVersion && !newer(vmi.ResourceVersion, v.version) {
		return nil
	}
	reshape := v == nil || v.shapeChanged(vmi)
	if v == nil {
		v = newVM(vmi)
		if old := f.byKey[v.key]; old != nil {
			freed = f.forget(old) // Its end was missed: a name is free once the object is gone.
		}
		f.vms[v.uid], f.byKey[v.key] = v, v
	}
	v.version = vmi.ResourceVersion
	if priority := priorityOf(vmi); priority != v.priority {
		f.reorder(v, func() { v.priority = priority })
	}

	v.yields = yields(vmi) && !vmi.IsFinal()
	v.leaving = kubevirt.AskedToLeave(vmi, vmi.Status.NodeName) != ""

	want := f.wanted(v, vmi)
	if len(want) > 0 || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		f.setWaiting(v, false)
	}
	for i := range v.claims {
		h := v.claims[i].host
		if !slices.ContainsFunc(want, func(c claim) bool { return c.host == h }) {
			freed = append(freed, h.name)
		}
	}
	if !reshape && slices.EqualFunc(want, v.claims, func(a, b claim) bool { return a.host == b.host && a.incoming == b.incoming && a.starting == b.starting }) {
		copy(v.claims, want)
		return freed
	}
	for len(v.claims) > 0 {
		f.unclaim(v, v.claims[0].host)
	}
	if reshape {
		f.reorder(v, func() { f.reshape(v, vmi) })
	}
	for _, c := range want {
		f.claim(v, c)
	}
	return freed
}

// wanted are the claims a VM has by its object, and the assumptions its version
// neither shows nor rules out.
func (f *Fleet) wanted(v *vm, vmi *kubevirtv1.VirtualMachineInstance) (want []claim) {
	hosts, target := claimsOf(vmi)
	for _, name := range hosts {
		c := claim{host: f.host(name), cell: -1}
		if have := v.claimOn(c.host); have != nil {
			c.cell, c.reported = have.cell, have.reported
		}
		c.incoming = name == target
		c.starting = name == vmi.Status.NodeName && Starting(vmi)
		want = append(want, c)
	}
	for _, c := range v.claims {
		if c.assumed && !slices.Contains(hosts, c.host.name) && vmi.DeletionTimestamp == nil &&
			(c.base == vmi.ResourceVersion || !newer(vmi.ResourceVersion, c.base)) {
			want = append(want, c)
		}
	}
	return want
}

// reshape reads anew what a VM needs. It must hold no claim meanwhile.
func (f *Fleet) reshape(v *vm, vmi *kubevirtv1.VirtualMachineInstance) {
	old := v.shape
	v.generation, v.labels, v.wantTraits = vmi.Generation, vmi.Labels, vmi.Annotations[kubevirt.AnnotationRequiredTraits]
	v.shape = f.shapeOf(vmi)
	f.forgetTerms(&old.affinity) // After the new ones, so that what both hold stays.
	v.groups = f.groupsFor(v.key.Namespace, v.labels)
	if f.byDomain[old.domain] == v {
		delete(f.byDomain, old.domain)
	}
	f.byDomain[v.domain] = v
}

// Forget takes a VM that is gone out of the ledger. It returns the hosts on
// which room became free.
func (f *Fleet) Forget(uid types.UID) (freed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.vms[uid]; v != nil {
		return f.forget(v)
	}
	return nil
}

// forgetKey is Forget for one that was found gone by its name.
func (f *Fleet) forgetKey(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.byKey[key]; v != nil {
		f.forget(v)
	}
}

func (f *Fleet) forget(v *vm) (freed []string) {
	f.setWaiting(v, false)
	for len(v.claims) > 0 {
		freed = append(freed, v.claims[0].host.name)
		f.unclaim(v, v.claims[0].host)
	}
	f.forgetTerms(&v.affinity)
	delete(f.vms, v.uid)
	if f.byKey[v.key] == v {
		delete(f.byKey, v.key)
	}
	if f.byDomain[v.domain] == v {
		delete(f.byDomain, v.domain)
	}
	return freed
}

// claim adds a VM to a host's sums; unclaim takes it away. Nothing else changes
// them, but for a new report.
func (f *Fleet) claim(v *vm, c claim) {
	h := c.host
	_, c.reported = h.instances[v.domain]
	c.reported = c.reported && f.byDomain[v.domain] == v
	if !v.pinned {
		c.cell = -1
	} else if c.cell < 0 || int(c.cell) >= len(h.cells) {
		c.cell = f.cellFor(v, h)
	}
	v.claims = append(v.claims, c)
	if v.pinned {
		h.pinned = append(h.pinned, v)
	}
	h.sum(v, &c, 1)
	for _, g := range v.groups {
		add(g.onHost, h.id, 1)
	}
	for _, t := range v.apart {
		add(t.holders, h.id, 1)
	}
}

func (f *Fleet) unclaim(v *vm, h *host) {
	i := slices.IndexFunc(v.claims, func(c claim) bool { return c.host == h })
	c := v.claims[i]
	v.claims = slices.Delete(v.claims, i, i+1)
	if v.pinned {
		h.pinned = without(h.pinned, v)
	}
	h.sum(v, &c, -1)
	for _, g := range v.groups {
		add(g.onHost, h.id, -1)
	}
	for _, t := range v.apart {
		add(t.holders, h.id, -1)
	}
}

func (h *host) sum(v *vm, c *claim, by int64) {
	h.claimedMemory += by * v.memory
	h.claimedCPUs += by * v.cpus
	if c.reported {
		h.explainedMemory += by * v.memory
		h.explainedCPUs += by * v.cpus
	}
	if c.incoming {
		h.incoming += int32(by)
	}
	if c.starting {
		h.starting += int32(by)
	}
	if v.pinned {
		h.due(v, c, by)
	} else if !c.reported || h.cellsSilent {
		h.looseMemory += by * v.memory
	}
}

// ObserveHost takes over what a Hypervisor says, and tells whether VMs that
// wait may now fit there.
func (f *Fleet) ObserveHost(hv *kvmv1.Hypervisor) (better bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.host(hv.Name)
	if h.known && h.version != hv.ResourceVersion && !newer(hv.ResourceVersion, h.version) {
		return false
	}
	if !h.known {
		f.known++
	}
	memory, cpus := h.free()
	cells := h.largestCells()
	was := h.state
	changed := h.read(hv, f.classes.of(hv))
	f.report(h, hv.Status.Instances)
	nowMemory, nowCPUs := h.free()
	return h.state == taking &&
		(changed || was != taking || nowMemory > memory || nowCPUs > cpus || h.largestCells() > cells)
}

func (h *host) largestCells() (memory int64) {
	for i := range h.cells {
		free, _ := h.cellFree(i, false)
		memory = max(memory, free)
	}
	return memory
}

// ForgetHost takes a Hypervisor out. Claims on it stand: its VMs may still run.
func (f *Fleet) ForgetHost(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.byName[name]; h != nil && h.known {
		h.known, h.state, h.version = false, absent, ""
		f.known--
	}
}

// report sorts the claims on a host anew into those its report names and
// those it does not.
func (f *Fleet) report(h *host, instances []kvmv1.Instance) {
	for id := range h.instances {
		if c := f.claimed(id, h); c != nil {
			c.reported = false
		}
	}
	h.instances = make(map[string]bool, len(instances))
	for i := range instances {
		h.instances[instances[i].ID] = h.instances[instances[i].ID] || instances[i].Active
	}
	h.explainedMemory, h.explainedCPUs = 0, 0
	var pinnedMemory int64
	for _, v := range h.pinned {
		pinnedMemory += v.memory
	}
	h.looseMemory = h.claimedMemory - pinnedMemory
	for _, id := range instancesOf(instances) {
		c := f.claimed(id, h)
		if c == nil {
			continue
		}
		v := f.byDomain[id]
		c.reported = true
		h.explainedMemory += v.memory
		h.explainedCPUs += v.cpus
		if !v.pinned && !h.cellsSilent {
			h.looseMemory -= v.memory
		}
	}
	for _, v := range h.pinned {
		c := v.claimOn(h)
		if int(c.cell) >= len(h.cells) || c.cell < 0 {
			c.cell = f.cellFor(v, h)
		}
		h.due(v, c, 1)
	}
}

// claimed is the claim a host's domain belongs to, nil if it is not ours there.
func (f *Fleet) claimed(domain string, h *host) *claim {
	v := f.byDomain[domain]
	if v == nil {
		return nil
	}
	return v.claimOn(h)
}

// due adds a pinned VM to its cell, or takes it away, unless the host's report
// has it in there already.
func (h *host) due(v *vm, c *claim, by int64) {
	if c.cell < 0 || c.reported && !h.cellsSilent {
		return
	}
	h.cells[c.cell].dueMemory += by * v.memory
	h.cells[c.cell].dueCPUs += by * v.cpus
}

// instancesOf are the domains of a report, each once.
func instancesOf(instances []kvmv1.Instance) []string {
	ids := make([]string, len(instances))
	for i := range instances {
		ids[i] = instances[i].ID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

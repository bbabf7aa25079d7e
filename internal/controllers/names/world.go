package names

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/transfer/wire"
)

// host is what matters here of a Node.
type host struct {
	name        string
	uid         types.UID
	environment string
	joined      bool
	seen        presence.Seen
	known       bool
	address     string // where its instances are reached, as it was told last
}

func shapeNode(obj any) (string, *host) {
	n := obj.(*v1alpha1.Node)
	return n.Name, &host{name: n.Name, uid: n.UID, environment: n.Spec.Environment, joined: n.Status.Identity != nil}
}

func shapeWorkload(obj any) (string, *v1alpha1.Workload) {
	w := obj.(*v1alpha1.Workload)
	return w.Namespace + "/" + w.Name, w
}

// instance is what matters here of an Instance: there may be hundreds of thousands.
type instance struct {
	namespace, name, uid string
	workload, revision   string
	node                 string
	nodeUID              types.UID
	slot                 int32
	leaving              bool // it is to be reached no more, whatever its host says
}

func shapeInstance(obj any) (string, *instance) {
	i := obj.(*v1alpha1.Instance)
	return i.Namespace + "/" + i.Name, &instance{
		namespace: i.Namespace, name: i.Name, uid: string(i.UID), workload: i.Spec.Workload, revision: i.Spec.Revision, node: i.Spec.Node, nodeUID: i.Spec.NodeUID, slot: i.Spec.Slot,
		leaving: i.Spec.Stop != nil || i.Status.Abandoned != nil || i.Status.Ended != nil,
	}
}

// template is the key of the revision that it runs.
func (i *instance) template() string { return i.namespace + "/" + i.revision }

// revision is the ports of a revision of a workload.
type revision []declared.Port

func shapeRevision(obj any) (string, *revision) {
	r := obj.(*v1alpha1.Revision)
	key := r.Namespace + "/" + r.Name
	if r.Spec.Template == nil || r.Spec.Source == nil || r.Spec.Source.Kind != v1alpha1.KindWorkload {
		return key, nil
	}
	ports := portsOf(r.Spec.Template)
	return key, &ports
}

func portsOf(t *declared.Template) (all revision) {
	for i := range t.Tasks {
		all = append(all, t.Tasks[i].Ports...)
	}
	return all
}

// world is what the loop knows. Only its goroutine touches it.
type world struct {
	began     time.Time
	term      uint64
	pause     time.Time // before, there is no other edition
	deaf      bool      // not all hosts had the time to be heard
	told      bool      // it has made an edition
	full      bool      // it was told that there are more names than fit
	nodes     hosts
	unasked   map[string]bool // nodes of which the presence is to be asked, whatever it says has changed
	asked     uint64          // how many changes the presence had when it was asked last
	workloads map[string]*v1alpha1.Workload
	revisions map[string]*revision
	instances map[string]*instance
	on        map[string]map[string]bool // instances by node
	of        map[string]map[string]bool // instances by revision
	spaces    map[string]int             // of how many workloads and hosts each namespace is
	left      map[string]bool            // keys of rows for which there was no room
	dirty     map[string]bool            // keys of rows
}

type hosts map[string]*host

func newWorld(now time.Time, term uint64) *world {
	return &world{began: now, term: term, deaf: true, nodes: hosts{}, unasked: map[string]bool{}, workloads: map[string]*v1alpha1.Workload{}, revisions: map[string]*revision{}, instances: map[string]*instance{},
		on: map[string]map[string]bool{}, of: map[string]map[string]bool{}, spaces: map[string]int{}, left: map[string]bool{}}
}

// The keys of rows, as package edition has them.
func spaceKey(namespace string) string  { return edition.NamespaceRow(namespace).Key }
func workloadKey(key string) string     { return "w/" + key }
func instanceKey(key string) string     { return "i/" + key }
func nodeKey(name string) string        { return edition.NodeRow(names.Node{Name: name}).Key }
func cut(row string) (kind, key string) { return row[:1], row[2:] }

func (w *world) touch(row string) {
	if w.dirty != nil { // otherwise all of them are
		w.dirty[row] = true
	}
}

// again has everything compared with the newest edition.
func (w *world) again() { w.dirty = nil }

// space counts what is in a namespace.
func (w *world) space(namespace string, more int) {
	if namespace == "" {
		return
	}
	if w.spaces[namespace] += more; w.spaces[namespace] == 0 {
		delete(w.spaces, namespace)
	}
	w.touch(spaceKey(namespace))
}

func (h hosts) take(news map[string]*host, w *world) {
	for name, is := range news {
		was := h[name]
		if was != nil {
			w.space(was.environment, -1)
		}
		if is == nil {
			delete(h, name)
		} else {
			if was != nil && was.uid == is.uid {
				is.seen, is.known, is.address = was.seen, was.known, was.address
			}
			h[name] = is
			w.space(is.environment, 1)
		}
		w.unasked[name] = true
		w.touchHost(name)
	}
}

func (w *world) touchHost(name string) {
	w.touch(nodeKey(name))
	for key := range w.on[name] {
		w.touch(instanceKey(key))
	}
}

func (w *world) takeWorkloads(news map[string]*v1alpha1.Workload) {
	for key, is := range news {
		if was := w.workloads[key]; was != nil {
			w.space(was.Namespace, -1)
		}
		if delete(w.workloads, key); is != nil {
			w.workloads[key] = is
			w.space(is.Namespace, 1)
		}
		w.touch(workloadKey(key))
	}
}

func (w *world) takeRevisions(news map[string]*revision) {
	for key, is := range news {
		if delete(w.revisions, key); is != nil {
			w.revisions[key] = is
		}
		for instance := range w.of[key] {
			w.touch(instanceKey(instance))
		}
	}
}

func (w *world) takeInstances(news map[string]*instance) {
	enter := func(index map[string]map[string]bool, at, key string, there bool) {
		if !there {
			if delete(index[at], key); len(index[at]) == 0 {
				delete(index, at)
			}
			return
		}
		if index[at] == nil {
			index[at] = map[string]bool{}
		}
		index[at][key] = true
	}
	for key, is := range news {
		if was := w.instances[key]; was != nil {
			enter(w.on, was.node, key, false)
			enter(w.of, was.template(), key, false)
		}
		if delete(w.instances, key); is != nil {
			w.instances[key] = is
			enter(w.on, is.node, key, true)
			enter(w.of, is.template(), key, true)
		}
		w.touch(instanceKey(key))
	}
}

// hear takes in what the presence knows by now.
func (w *world) hear(p Presence) {
	names, all, asked := p.Since(w.asked)
	for _, name := range names {
		w.unasked[name] = true
	}
	of := func(yield func(string, *host) bool) {
		for name := range w.unasked {
			if h := w.nodes[name]; h != nil && !yield(name, h) {
				return
			}
		}
	}
	if all || w.deaf { // whether all were heard is about all of them
		of = maps.All(w.nodes)
	}
	unheard := false
	for name, h := range of {
		seen, known := p.Of(h.uid)
		unheard = unheard || h.joined && (!known || seen.Presence == node.Unheard)
		if known == h.known && seen.Presence == h.seen.Presence && seen.Believed == h.seen.Believed && seen.Report == h.seen.Report {
			continue
		}
		h.seen, h.known = seen, known
		if seen.Report != nil && seen.Report.Offers != nil {
			h.address = seen.Report.Offers.Address
		}
		w.touchHost(name)
	}
	w.deaf = w.deaf && unheard
	w.asked, w.unasked = asked, map[string]bool{}
}

// quiet is until when hosts that were not heard yet may still be.
func (w *world) quiet(now time.Time) time.Time {
	if !w.deaf {
		return now
	}
	return w.began.Add(node.UnheardMax)
}

// mark is that of the next edition. Its number is of the clock, so that a leader that begins a term twice does not begin again with lower ones.
func (w *world) mark(last wire.NamesMark, epoch uint64, now time.Time) wire.NamesMark {
	m := wire.NamesMark{Epoch: epoch, Term: w.term, Number: uint64(now.UnixMilli())}
	if last.Epoch == m.Epoch && last.Term == m.Term {
		m.Number = max(m.Number, last.Number+1)
	}
	return m
}

// draft is what is to be said otherwise than in the newest edition.
func (w *world) draft(s *edition.Store) (d edition.Draft) {
	dirty := w.dirty
	if dirty == nil {
		dirty = w.all(s)
	}
	room := edition.RowsMax - int(s.Edition().Rows)
	if room > 0 {
		maps.Copy(dirty, w.left)
	}
	var fresh []edition.Row
	for _, key := range slices.Sorted(maps.Keys(dirty)) {
		row, there := w.row(key, s)
		delete(w.left, key)
		switch said := s.Says(key, row); {
		case !there && said != edition.Unsaid:
			d.Gone = append(d.Gone, key)
			room++
		case !there:
		case said == edition.Unsaid:
			fresh = append(fresh, *row)
		case said == edition.Otherwise:
			d.Put = append(d.Put, *row)
		}
	}
	for i := range fresh {
		if room == 0 {
			w.left[fresh[i].Key] = true
			continue
		}
		d.Put = append(d.Put, fresh[i])
		room--
	}
	w.dirty, d.Left = map[string]bool{}, len(w.left)
	return d
}

// all are the keys of all rows that there are or were.
func (w *world) all(s *edition.Store) map[string]bool {
	all := map[string]bool{}
	for _, key := range s.Keys() {
		all[key] = true
	}
	for namespace := range w.spaces {
		all[spaceKey(namespace)] = true
	}
	for key := range w.workloads {
		all[workloadKey(key)] = true
	}
	for key := range w.instances {
		all[instanceKey(key)] = true
	}
	for name := range w.nodes {
		all[nodeKey(name)] = true
	}
	return all
}

// row is what is to be said under a key; false where nothing is.
func (w *world) row(row string, s *edition.Store) (*edition.Row, bool) {
	var r edition.Row
	switch kind, key := cut(row); kind {
	case "z":
		if w.spaces[key] == 0 {
			return nil, false
		}
		r = edition.NamespaceRow(key)
	case "w":
		o := w.workloads[key]
		if o == nil {
			return nil, false
		}
		n := names.Workload{Namespace: o.Namespace, Name: o.Name}
		for _, p := range portsOf(&o.Spec.Template) {
			n.Ports = append(n.Ports, names.Port{Name: p.Name, Protocol: p.Protocol})
		}
		r = edition.WorkloadRow(n)
	case "i":
		return w.instanceRow(row, key, s)
	case "n":
		h := w.nodes[key]
		if h == nil || !h.joined {
			return nil, false
		}
		if h.address == "" && h.deaf() {
			if old, there := s.Get(row); there {
				return &old, true
			}
		}
		r = edition.NodeRow(names.Node{Name: h.name, Addresses: h.addresses()})
	default:
		return nil, false
	}
	return &r, true
}

// deaf says that nothing is known of a host yet that would count.
func (h *host) deaf() bool {
	return !h.known || h.seen.Presence == node.Unheard || h.seen.Report == nil || !h.seen.Believed
}

func (h *host) addresses() []netip.Addr {
	a, err := netip.ParseAddr(h.address)
	if err != nil || a.Zone() != "" {
		return nil // it has told none
	}
	return []netip.Addr{a.Unmap()}
}

// instanceRow is that of an instance, if it is ready.
func (w *world) instanceRow(row, key string, s *edition.Store) (*edition.Row, bool) {
	in := w.instances[key]
	if in == nil || in.leaving {
		return nil, false
	}
	h := w.nodes[in.node]
	switch {
	case h == nil || h.uid != in.nodeUID || h.known && h.seen.Presence == node.Gone:
		return nil, false
	case h.deaf():
		old, there := s.Get(row)
		return &old, there && old.Node == in.node && old.Revision == in.revision
	}
	at := slices.IndexFunc(h.seen.Report.Instances, func(i wire.Instance) bool { return i.UID == in.uid })
	if at < 0 || !h.seen.Report.Instances[at].Ready {
		return nil, false
	}
	said := &h.seen.Report.Instances[at]
	n := names.Instance{Namespace: in.namespace, Workload: in.workload, Name: in.name, Node: in.node, Index: in.slot, Revision: in.revision, Addresses: h.addresses()}
	for _, p := range w.portsOf(in) {
		if k := slices.IndexFunc(said.Ports, func(has wire.InstancePort) bool { return has.Name == p.Name }); k >= 0 {
			n.Endpoints = append(n.Endpoints, names.Endpoint{Port: names.Port{Name: p.Name, Protocol: p.Protocol}, Number: said.Ports[k].Number, Text: p.Text})
		}
	}
	r := edition.InstanceRow(&n)
	return &r, true
}

// portsOf are the ports of an instance as its revision declares them, in that order.
func (w *world) portsOf(in *instance) revision {
	if r := w.revisions[in.template()]; r != nil {
		return *r
	}
	if of := w.workloads[in.namespace+"/"+in.workload]; of != nil {
		return portsOf(&of.Spec.Template) // its revision is not here yet, or not any more
	}
	return nil
}

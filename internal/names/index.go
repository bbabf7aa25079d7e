package names

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// DefaultDomain is what namespaces stand under. The domain internal is set apart for private use (ICANN, 2024), so nobody else answers for
// it, and resolvers that validate expect no signatures below it.
const DefaultDomain = "tako.internal"

// Options are what an Index is made for.
type Options struct {
	// Domain is what namespaces stand under: at most 61 signs. Default DefaultDomain.
	Domain string
	// Servers are the addresses of those who answer from the index, which the domain's own name stands for. Default none.
	Servers []netip.Addr
}

// Index is what there is at one version. It never changes.
type Index struct {
	domain  string
	servers []netip.Addr
	version uint64
	zones   map[string]*zone
	nodes   map[string][]netip.Addr
	above   map[string]int // what stands between a node and NodeLabel because its name has dots: of how many nodes
}

// zone is a namespace.
type zone struct {
	declared  bool
	workloads map[string]*member
	instances shards
	// services are the ports of the workloads, and which workloads have them, by name. A list is replaced, never changed.
	services map[service][]*member
}

func (z *zone) empty() bool { return !z.declared && len(z.workloads) == 0 }

// member is a workload in its zone. An Edit makes another one for each that it touches.
type member struct {
	name      string
	declared  bool
	ports     []service   // declared
	instances []*Instance // by name
	services  map[service][]*Instance
}

func (m *member) empty() bool { return !m.declared && len(m.instances) == 0 }

// New is an index with nothing in it, at version 0.
func New(o Options) (*Index, error) {
	if o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if len(o.Domain) > domainBytesMax || !isSubdomain(o.Domain) {
		return nil, unservable("domain", o.Domain, "up to 61 signs: "+labelHint+", and dots between")
	}
	return &Index{domain: o.Domain, servers: slices.Clone(o.Servers)}, nil
}

// Domain is what namespaces stand under.
func (x *Index) Domain() string { return x.domain }

// Version is what the index was committed with.
func (x *Index) Version() uint64 { return x.version }

// Service is a port of a workload, with the instances that are ready and have it.
type Service struct {
	Namespace string
	Workload  string
	Port      Port
	Name      string      // of DNS, for SRV
	Instances []*Instance // by name; nobody changes them
}

// Services are all services by namespace, workload and port, TCP before UDP.
func (x *Index) Services() iter.Seq[Service] {
	return func(yield func(Service) bool) {
		for _, namespace := range slices.Sorted(maps.Keys(x.zones)) {
			for s := range x.ServicesOf(namespace) {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// ServicesOf are those of a namespace.
func (x *Index) ServicesOf(namespace string) iter.Seq[Service] {
	return func(yield func(Service) bool) {
		z := x.zones[namespace]
		if z == nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(z.workloads)) {
			m := z.workloads[name]
			for _, s := range slices.SortedFunc(maps.Keys(m.services), compareServices) {
				one := Service{Namespace: namespace, Workload: name, Port: Port{Name: s.port, Protocol: workload.TCP}, Name: s.String() + "." + name + "." + x.Zone(namespace), Instances: m.services[s]}
				if s.udp {
					one.Port.Protocol = workload.UDP
				}
				if !yield(one) {
					return
				}
			}
		}
	}
}

// Zone is the name of a namespace.
func (x *Index) Zone(namespace string) string { return namespace + "." + x.domain }

// Edit is the next index on its way. It belongs to one goroutine. What it costs is by what it touches: of a namespace the list of its
// workloads, of a workload the list of its instances.
type Edit struct {
	next  *Index
	fresh map[string]*draft // zones that are this edit's own
	nodes bool              // so are the maps of nodes
}

// draft is a zone that an edit has made its own.
type draft struct {
	*zone
	fresh map[string]*member // members that are its own, and what they were before, or nil
	owned [shardCount]bool
}

// Edit begins the next index. The one that it begins with stays as it is.
func (x *Index) Edit() *Edit {
	next := *x
	next.zones = maps.Clone(x.zones)
	if next.zones == nil {
		next.zones = map[string]*zone{}
	}
	return &Edit{next: &next, fresh: map[string]*draft{}}
}

// zone is the edit's own copy of a namespace.
func (e *Edit) zone(namespace string) *draft {
	if d := e.fresh[namespace]; d != nil {
		return d
	}
	z := &zone{workloads: map[string]*member{}, services: map[service][]*member{}}
	if old := e.next.zones[namespace]; old != nil {
		*z = zone{declared: old.declared, workloads: maps.Clone(old.workloads), instances: old.instances, services: maps.Clone(old.services)}
	}
	d := &draft{zone: z, fresh: map[string]*member{}}
	e.fresh[namespace], e.next.zones[namespace] = d, z
	return d
}

// member is the edit's own copy of a workload.
func (d *draft) member(name string) *member {
	old := d.workloads[name]
	if _, ok := d.fresh[name]; ok {
		return old
	}
	m := &member{name: name, services: map[service][]*Instance{}}
	if old != nil {
		m.declared, m.ports, m.instances = old.declared, old.ports, slices.Clone(old.instances)
		for s, with := range old.services {
			m.services[s] = slices.Clone(with)
		}
	}
	d.fresh[name], d.workloads[name] = old, m
	return m
}

// PutNamespace says that a namespace is there.
func (e *Edit) PutNamespace(name string) error {
	if err := checkNamespace(name); err != nil {
		return err
	}
	e.zone(name).declared = true
	return nil
}

// DropNamespace says that a namespace is no longer there. It stays while there are workloads or instances in it.
func (e *Edit) DropNamespace(name string) {
	if e.next.zones[name] != nil {
		e.zone(name).declared = false
	}
}

// PutWorkload says that a workload is declared, in place of what was said of it before.
func (e *Edit) PutWorkload(w Workload) error {
	if err := w.check(); err != nil {
		return err
	}
	ports := make([]service, len(w.Ports))
	for i, p := range w.Ports {
		ports[i] = p.service()
	}
	e.zone(w.Namespace).member(w.Name).declare(true, ports)
	return nil
}

// DropWorkload says that a workload is no longer declared. It stays while instances of it are ready.
func (e *Edit) DropWorkload(namespace, name string) {
	if z := e.next.zones[namespace]; z != nil && z.workloads[name] != nil {
		e.zone(namespace).member(name).declare(false, nil)
	}
}

func (m *member) declare(declared bool, ports []service) {
	m.declared, m.ports = declared, ports
	maps.DeleteFunc(m.services, func(s service, with []*Instance) bool { return len(with) == 0 && !slices.Contains(ports, s) })
	for _, s := range ports {
		if _, there := m.services[s]; !there {
			m.services[s] = nil
		}
	}
}

// PutInstance says that an instance is ready, in place of what was said of it before. It keeps i. When that cannot be served nothing is: what
// was said before is not so any more.
func (e *Edit) PutInstance(i *Instance) error {
	if err := i.check(); err != nil {
		if z := e.next.zones[i.Namespace]; z != nil {
			if old := z.instances.get(i.Name); old != nil && old.Workload == i.Workload {
				e.DropInstance(i.Namespace, i.Name)
			}
		}
		return err
	}
	d := e.zone(i.Namespace)
	if old := d.instances.get(i.Name); old != nil && old.Workload != i.Workload {
		return &reason.Error{Code: reason.InstanceNameTaken, Doing: "serve the name of instance " + i.Namespace + "/" + i.Name + " of workload " + i.Workload,
			Hint: "it is one of workload " + old.Workload}
	}
	d.own(i.Name)[i.Name] = i
	m := d.member(i.Workload)
	m.drop(i.Name)
	m.instances = insert(m.instances, i)
	for s := range i.services() {
		m.services[s] = insert(m.services[s], i)
	}
	return nil
}

// DropInstance says that an instance is not ready, or gone.
func (e *Edit) DropInstance(namespace, name string) {
	z := e.next.zones[namespace]
	if z == nil || z.instances.get(name) == nil {
		return
	}
	d := e.zone(namespace)
	d.member(d.instances.get(name).Workload).drop(name)
	delete(d.own(name), name)
}

// drop takes an instance from a workload, if it is there.
func (m *member) drop(name string) {
	at, found := find(m.instances, name)
	if !found {
		return
	}
	old := m.instances[at]
	m.instances = slices.Delete(m.instances, at, at+1)
	for s := range old.services() {
		at, _ := find(m.services[s], name)
		m.services[s] = slices.Delete(m.services[s], at, at+1)
		if len(m.services[s]) == 0 && !slices.Contains(m.ports, s) {
			delete(m.services, s)
		}
	}
}

// services calls yield for each service of an instance, once.
func (i *Instance) services() iter.Seq[service] {
	return func(yield func(service) bool) {
		for at, e := range i.Endpoints {
			s := e.service()
			if !slices.ContainsFunc(i.Endpoints[:at], func(f Endpoint) bool { return f.service() == s }) && !yield(s) {
				return
			}
		}
	}
}

func find(instances []*Instance, name string) (int, bool) {
	return slices.BinarySearchFunc(instances, name, func(i *Instance, name string) int { return strings.Compare(i.Name, name) })
}

func insert(instances []*Instance, i *Instance) []*Instance {
	at, _ := find(instances, i.Name)
	return slices.Insert(instances, at, i)
}

// PutNode says where a node is, in place of what was said of it before. When that cannot be served nothing is.
func (e *Edit) PutNode(n Node) error {
	if err := n.check(e.next.domain); err != nil {
		e.DropNode(n.Name)
		return err
	}
	e.ownNodes()
	if _, known := e.next.nodes[n.Name]; !known {
		for above := range ends(n.Name) {
			e.next.above[above]++
		}
	}
	e.next.nodes[n.Name] = slices.Clone(n.Addresses)
	return nil
}

// DropNode says that a node is no longer there.
func (e *Edit) DropNode(name string) {
	if _, known := e.next.nodes[name]; !known {
		return
	}
	e.ownNodes()
	delete(e.next.nodes, name)
	for above := range ends(name) {
		if e.next.above[above]--; e.next.above[above] == 0 {
			delete(e.next.above, above)
		}
	}
}

func (e *Edit) ownNodes() {
	if e.nodes {
		return
	}
	e.nodes = true
	e.next.nodes, e.next.above = maps.Clone(e.next.nodes), maps.Clone(e.next.above)
	if e.next.nodes == nil {
		e.next.nodes, e.next.above = map[string][]netip.Addr{}, map[string]int{}
	}
}

// ends calls yield for what a name ends with after each of its dots: b.c and c of a.b.c.
func ends(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, rest, ok := strings.Cut(name, "."); ok; _, rest, ok = strings.Cut(rest, ".") {
			if !yield(rest) {
				return
			}
		}
	}
}

// Commit ends the edit. The version grows with each index of a cluster: it is the serial number of its zones.
func (e *Edit) Commit(version uint64) *Index {
	for namespace, d := range e.fresh {
		for name := range d.fresh {
			d.settle(name)
		}
		if d.empty() {
			delete(e.next.zones, namespace)
		}
	}
	e.next.version = version
	x := e.next
	*e = Edit{}
	return x
}

// settle tells the zone by which ports a workload is found now.
func (d *draft) settle(name string) {
	m := d.workloads[name]
	if before := d.fresh[name]; before != nil {
		for s := range before.services {
			if _, still := m.services[s]; !still {
				d.list(s, name, nil)
			}
		}
	}
	for s := range m.services {
		d.list(s, name, m)
	}
	if m.empty() {
		delete(d.workloads, name)
	}
}

// list has a workload stand among those with a port, or takes it from there.
func (d *draft) list(s service, name string, m *member) {
	list := slices.Clone(d.services[s])
	at, found := slices.BinarySearchFunc(list, name, func(m *member, name string) int { return strings.Compare(m.name, name) })
	switch {
	case m == nil && found:
		list = slices.Delete(list, at, at+1)
	case m == nil:
	case found:
		list[at] = m
	default:
		list = slices.Insert(list, at, m)
	}
	if len(list) == 0 {
		delete(d.services, s)
		return
	}
	d.services[s] = list
}

// shardCount is into how many maps a zone's instances are divided, of which an edit copies those that it touches: with 100,000 instances a
// change of one copies 1,600. A zone has as many words for them when it is empty.
const shardCount = 64

// shards are instances by name.
type shards [shardCount]map[string]*Instance

// shardOf is FNV-1a: names that differ in their end only are spread evenly.
func shardOf(name string) int {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int(h>>16) % shardCount
}

func (s *shards) get(name string) *Instance { return s[shardOf(name)][name] }

// own is the edit's own map with a name.
func (d *draft) own(name string) map[string]*Instance {
	at := shardOf(name)
	if !d.owned[at] {
		d.owned[at] = true
		if d.instances[at] = maps.Clone(d.instances[at]); d.instances[at] == nil {
			d.instances[at] = map[string]*Instance{}
		}
	}
	return d.instances[at]
}

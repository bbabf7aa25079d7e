package names

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"tako.dev/tako/declare/workload"
)

// model is what there is, and every record of it written out: what an Index must answer, the long way.
type model struct {
	domain     string
	servers    []netip.Addr
	namespaces map[string]bool
	workloads  map[[2]string]Workload
	instances  map[[2]string]*Instance // by namespace and name
	nodes      map[string][]netip.Addr
}

func newModel(domain string) *model {
	return &model{domain: domain, servers: []netip.Addr{netip.MustParseAddr("127.0.0.88")}, namespaces: map[string]bool{}, workloads: map[[2]string]Workload{},
		instances: map[[2]string]*Instance{}, nodes: map[string][]netip.Addr{}}
}

// records are all records, as name and type to data, and all names, those between two that are there included.
type records struct {
	data  map[string]map[uint16][]string
	there map[string]bool
	zones []string
}

func (r *records) add(name string, rrtype uint16, data ...string) {
	r.exist(name)
	if r.data[name] == nil {
		r.data[name] = map[uint16][]string{}
	}
	for _, d := range data {
		if !slices.Contains(r.data[name][rrtype], d) {
			r.data[name][rrtype] = append(r.data[name][rrtype], d)
		}
	}
}

// exist has a name be there, with all above it up to its zone.
func (r *records) exist(name string) {
	for !r.there[name] {
		r.there[name] = true
		if slices.Contains(r.zones, name) {
			return
		}
		_, name, _ = strings.Cut(name, ".")
	}
}

func (r *records) addresses(name string, addresses []netip.Addr) {
	r.exist(name)
	for _, a := range addresses {
		rrtype := dns.TypeAAAA
		if a.Unmap().Is4() {
			rrtype = dns.TypeA
		}
		r.add(name, rrtype, a.Unmap().String())
	}
}

func (m *model) records() *records {
	r := &records{data: map[string]map[uint16][]string{}, there: map[string]bool{}, zones: []string{m.domain + "."}}
	top := m.domain + "."
	spaces := maps.Clone(m.namespaces)
	for key := range m.workloads {
		spaces[key[0]] = true
	}
	for key := range m.instances {
		spaces[key[0]] = true
	}
	for space := range spaces {
		r.zones = append(r.zones, space+"."+top)
	}
	r.addresses(top, m.servers)
	r.add(top, dns.TypeNS, top)
	for name, addresses := range m.nodes {
		r.addresses(name+".node."+top, addresses)
	}
	for space := range spaces {
		zone := space + "." + top
		r.add(zone, dns.TypeNS, top)
		r.exist("_services._dns-sd._udp." + zone)
		r.add("b._dns-sd._udp."+zone, dns.TypePTR, zone)
		r.add("db._dns-sd._udp."+zone, dns.TypePTR, zone)
		r.add("lb._dns-sd._udp."+zone, dns.TypePTR, zone)
	}
	for key, w := range m.workloads {
		zone := key[0] + "." + top
		r.exist(w.Name + "." + zone)
		for _, p := range w.Ports {
			m.port(r, zone, w.Name, p)
		}
	}
	for key, i := range m.instances {
		m.instance(r, key[0]+"."+top, i)
	}
	return r
}

func typeOf(p Port) string {
	if p.Protocol == workload.UDP {
		return "_" + p.Name + "._udp"
	}
	return "_" + p.Name + "._tcp"
}

func (m *model) port(r *records, zone, name string, p Port) {
	r.exist(typeOf(p) + "." + name + "." + zone)
	r.exist(typeOf(p) + "." + zone)
	r.exist(name + "._sub." + typeOf(p) + "." + zone)
}

func (m *model) instance(r *records, zone string, i *Instance) {
	host := i.Name + "." + i.Workload + "." + zone
	facts := fmt.Sprintf("txtvers=1|index=%d|node=%s|revision=%s", i.Index, i.Node, i.Revision)
	r.addresses(i.Workload+"."+zone, i.Addresses)
	for _, name := range []string{host, fmt.Sprintf("%d.%s.%s", i.Index, i.Workload, zone)} {
		r.addresses(name, i.Addresses)
		r.add(name, dns.TypeTXT, facts)
	}
	for at, e := range i.Endpoints {
		if slices.ContainsFunc(i.Endpoints[:at], func(f Endpoint) bool { return typeOf(f.Port) == typeOf(e.Port) }) {
			continue
		}
		m.port(r, zone, i.Workload, e.Port)
		named, place := i.Name+"."+typeOf(e.Port)+"."+zone, fmt.Sprintf("0 1 %d %s", e.Number, host)
		r.add(typeOf(e.Port)+"."+i.Workload+"."+zone, dns.TypeSRV, place)
		r.add("_services._dns-sd._udp."+zone, dns.TypePTR, typeOf(e.Port)+"."+zone)
		r.add(typeOf(e.Port)+"."+zone, dns.TypePTR, named)
		r.add(i.Workload+"._sub."+typeOf(e.Port)+"."+zone, dns.TypePTR, named)
		r.add(named, dns.TypeSRV, place)
		texts := []string{"txtvers=1"}
		for _, key := range slices.Sorted(maps.Keys(e.Text)) {
			texts = append(texts, key+"="+e.Text[key])
		}
		r.add(named, dns.TypeTXT, strings.Join(texts, "|"))
	}
}

// zoneOf is the zone that a name is in.
func (r *records) zoneOf(name string) string {
	best := ""
	for _, z := range r.zones {
		if len(z) > len(best) && dns.IsSubDomain(z, name) {
			best = z
		}
	}
	return best
}

// data is what a record says, in the model's words.
func data(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.String()
	case *dns.AAAA:
		return rr.AAAA.String()
	case *dns.NS:
		return rr.Ns
	case *dns.PTR:
		return rr.Ptr
	case *dns.SRV:
		return fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, rr.Target)
	case *dns.TXT:
		return strings.ReplaceAll(strings.Join(rr.Txt, "|"), `\\`, `\`)
	}
	return rr.String()
}

// check compares an answer with the model's.
func (r *records) check(t interface{ Fatalf(string, ...any) }, x *Index, q dns.Question, rotate uint64) {
	got := x.Answer(q, rotate)
	name := strings.ToLower(q.Name)
	fault := func(what string) {
		t.Fatalf("%s %s: %s: answered %s %v, authority %v", q.Name, dns.TypeToString[q.Qtype], what, dns.RcodeToString[got.Rcode], got.Answer, got.Authority)
	}
	zone := r.zoneOf(name)
	switch {
	case zone == "":
		if got.Rcode != dns.RcodeRefused || len(got.Answer)+len(got.Authority) > 0 {
			fault("is not ours")
		}
		return
	case (got.Rcode == dns.RcodeSuccess) != r.there[name] || got.Rcode != dns.RcodeSuccess && got.Rcode != dns.RcodeNameError:
		fault(fmt.Sprintf("that it is there is %t", r.there[name]))
	}
	if q.Qtype == dns.TypeSOA && slices.Contains(r.zones, name) {
		if len(got.Answer) != 1 || got.Answer[0].(*dns.SOA).Serial != uint32(x.Version()) {
			fault("has its SOA")
		}
		return
	}
	var words []string
	for _, rr := range got.Answer {
		if rr.Header().Name != q.Name || rr.Header().Rrtype != q.Qtype {
			fault("each answer is to the question")
		}
		words = append(words, data(rr))
	}
	want := slices.Sorted(slices.Values(r.data[name][q.Qtype]))
	if slices.Sort(words); !slices.Equal(words, want) {
		fault(fmt.Sprintf("answers %q, should %q", words, want))
	}
	if len(want) == 0 && (len(got.Authority) != 1 || got.Authority[0].Header().Name != zone && q.Qtype != dns.TypeDS) {
		fault("says who says that there is nothing: " + zone)
	}
	for _, rr := range got.Additional {
		h := rr.Header()
		if !slices.Contains(r.data[h.Name][h.Rrtype], data(rr)) {
			fault("adds what is not: " + rr.String())
		}
	}
}

var types = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypePTR, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME, dns.TypeHTTPS, dns.TypeDS}

// TestAgainstModel changes an index again and again, several changes at a time, and asks it for all names that there are, for names near to
// them, and for all types of each.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel("tako.internal")
		x, err := New(Options{Servers: m.servers})
		if err != nil {
			t.Fatal(err)
		}
		var before *Index
		var beforeRecords *records
		for version := range uint64(rapid.IntRange(1, 4).Draw(t, "edits")) {
			edit := x.Edit()
			for range rapid.IntRange(1, 12).Draw(t, "changes") {
				m.change(t, edit)
			}
			x = edit.Commit(version + 1)
			r := m.records()
			m.ask(t, r, x)
			if before != nil {
				m.ask(t, beforeRecords, before) // what it was made of has not changed
			}
			before, beforeRecords = x, r
		}
	})
}

func (m *model) ask(t *rapid.T, r *records, x *Index) {
	names := slices.Sorted(maps.Keys(r.there))
	rotate := rapid.Uint64().Draw(t, "rotate")
	for _, name := range names {
		for _, rrtype := range types {
			r.check(t, x, dns.Question{Name: name, Qtype: rrtype, Qclass: dns.ClassINET}, rotate)
		}
		near := rapid.SampledFrom([]string{strings.ToUpper(name), "x." + name, "_x." + name, "_tcp." + name, "0." + name, "00." + name, strings.Replace(name, ".", `\.`, 1), name[1:]}).Draw(t, "near")
		if _, ok := dns.IsDomainName(near); ok && !strings.HasPrefix(near, ".") {
			r.check(t, x, dns.Question{Name: near, Qtype: rapid.SampledFrom(types).Draw(t, "type"), Qclass: dns.ClassINET}, rotate)
		}
	}
	for _, name := range []string{"tako.internal.example.", "internal.", ".", "xtako.internal.", `x\.tako.internal.`, "a.b.c.tako.internal."} {
		r.check(t, x, dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}, rotate)
	}
}

var (
	someNames = rapid.SampledFrom([]string{"a", "web", "db-1", "x0"})
	somePorts = rapid.Custom(func(t *rapid.T) Port {
		return Port{Name: rapid.SampledFrom([]string{"http", "dns"}).Draw(t, "port"), Protocol: rapid.SampledFrom([]workload.Protocol{"", workload.TCP, workload.UDP}).Draw(t, "protocol")}
	})
	someAddresses = rapid.SliceOfN(rapid.Map(rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "::ffff:192.0.2.3"}), netip.MustParseAddr), 0, 3)
	someTexts     = rapid.MapOfN(rapid.SampledFrom([]string{"path", "a b"}), rapid.SampledFrom([]string{"", `\065"x`, "ü"}), 0, 2)
)

// change makes one change to both.
func (m *model) change(t *rapid.T, e *Edit) {
	space, name := rapid.SampledFrom([]string{"prod", "qa"}).Draw(t, "namespace"), someNames.Draw(t, "name")
	key := [2]string{space, name}
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0:
		m.namespaces[space] = true
		must(t, e.PutNamespace(space))
	case 1:
		delete(m.namespaces, space)
		e.DropNamespace(space)
	case 2:
		w := Workload{Namespace: space, Name: name, Ports: rapid.SliceOfN(somePorts, 0, 2).Draw(t, "ports")}
		m.workloads[key] = w
		must(t, e.PutWorkload(w))
	case 3:
		delete(m.workloads, key)
		e.DropWorkload(space, name)
	case 4, 5, 6:
		i := &Instance{Namespace: space, Workload: someNames.Draw(t, "workload"), Name: name, Node: "n1", Index: rapid.Int32Range(0, 2).Draw(t, "index"), Revision: "r1", Addresses: someAddresses.Draw(t, "addresses")}
		for _, p := range rapid.SliceOfN(somePorts, 0, 2).Draw(t, "endpoints") {
			i.Endpoints = append(i.Endpoints, Endpoint{Port: p, Number: rapid.Uint16Range(1, 9).Draw(t, "number"), Text: someTexts.Draw(t, "text")})
		}
		err := e.PutInstance(i)
		if old := m.instances[key]; old != nil && old.Workload != i.Workload {
			if err == nil {
				t.Fatalf("%s is of %s and became one of %s", name, old.Workload, i.Workload)
			}
			return
		}
		must(t, err)
		m.instances[key] = i
	case 7:
		delete(m.instances, key)
		e.DropInstance(space, name)
	case 8:
		node := rapid.SampledFrom([]string{"n1", "n1.rack", "a.n1.rack", "node"}).Draw(t, "node")
		m.nodes[node] = someAddresses.Draw(t, "at")
		must(t, e.PutNode(Node{Name: node, Addresses: m.nodes[node]}))
	case 9:
		node := rapid.SampledFrom([]string{"n1", "n1.rack", "a.n1.rack"}).Draw(t, "gone")
		delete(m.nodes, node)
		e.DropNode(node)
	}
}

func must(t interface{ Fatalf(string, ...any) }, err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

package names

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

var httpPort = Port{Name: "http", Protocol: workload.TCP}

// many is n ready instances of prod/web and as many of prod/api, on a node for each ten.
func many(t testing.TB, n int) *Index {
	t.Helper()
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := x.Edit()
	for i := range n {
		for _, w := range []string{"web", "api"} {
			if err := e.PutInstance(instanceOf(w, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e.Commit(1)
}

func instanceOf(w string, i int) *Instance {
	return &Instance{Namespace: "prod", Workload: w, Name: fmt.Sprintf("%s-%05d", w, i), Index: int32(i), Node: fmt.Sprintf("n%d", i/10), Revision: "6b5f7d",
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}, Endpoints: []Endpoint{{Port: httpPort, Number: uint16(20000 + i%10)}}}
}

func question(name string, qtype uint16) dns.Question {
	return dns.Question{Name: name, Qtype: qtype, Qclass: dns.ClassINET}
}

// TestLongListsRotate: of more instances than an answer lists, each answer lists as many different ones, says how many it leaves out, and
// one answer after the other comes round to all.
func TestLongListsRotate(t *testing.T) {
	const n = 450
	x := many(t, n)
	for _, one := range []struct {
		name  string
		qtype uint16
		all   int
	}{
		{"web.prod.tako.internal.", dns.TypeA, n},
		{"_http._tcp.web.prod.tako.internal.", dns.TypeSRV, n},
		{"_http._tcp.prod.tako.internal.", dns.TypePTR, 2 * n},
		{"web._sub._http._tcp.prod.tako.internal.", dns.TypePTR, n},
	} {
		seen := map[string]int{}
		for rotate := range uint64(one.all) {
			r := x.Answer(question(one.name, one.qtype), rotate)
			if len(r.Answer) != InstancesMax || r.Ready != one.all || r.Left != one.all-InstancesMax || len(r.Additional) > 0 {
				t.Fatalf("%s, %d: %d answers, %d more, %d of %d left out", one.name, rotate, len(r.Answer), len(r.Additional), r.Left, r.Ready)
			}
			here := map[string]bool{}
			for _, rr := range r.Answer {
				here[data(rr)] = true
				seen[data(rr)]++
			}
			if len(here) != InstancesMax {
				t.Fatalf("%s, %d: %d different ones", one.name, rotate, len(here))
			}
		}
		for what, times := range seen {
			if len(seen) != one.all || times != InstancesMax {
				t.Fatalf("%s: %d of %d seen; %s %d times", one.name, len(seen), one.all, what, times)
			}
		}
		if first := x.Answer(question(one.name, one.qtype), 1<<63); len(first.Answer) != InstancesMax {
			t.Errorf("%s: a large number rotates to %d answers", one.name, len(first.Answer))
		}
	}
}

// TestTimesToLive: what follows readiness, and that there is nothing, is kept for a second at most.
func TestTimesToLive(t *testing.T) {
	x := many(t, 3)
	for _, q := range []dns.Question{question("web.prod.tako.internal.", dns.TypeA), question("_http._tcp.web.prod.tako.internal.", dns.TypeSRV), question("_http._tcp.prod.tako.internal.", dns.TypePTR),
		question("web-00000._http._tcp.prod.tako.internal.", dns.TypeTXT), question("web.prod.tako.internal.", dns.TypeAAAA), question("none.prod.tako.internal.", dns.TypeA), question("web.prod.tako.internal.", dns.TypeANY)} {
		r := x.Answer(q, 0)
		all := slices.Concat(r.Answer, r.Authority, r.Additional)
		for _, rr := range all {
			if rr.Header().Ttl != 1 {
				t.Errorf("%s: %s", q.Name, rr)
			}
			if soa, ok := rr.(*dns.SOA); ok && soa.Minttl != 1 {
				t.Errorf("%s: %s", q.Name, rr)
			}
		}
		if len(all) == 0 {
			t.Errorf("%s: nothing", q.Name)
		}
	}
}

// TestTextsOnTheWire: texts come out of a message byte for byte as they were declared, the version first.
func TestTextsOnTheWire(t *testing.T) {
	x, err := New(Options{})
	must(t, err)
	e := x.Edit()
	for name, text := range map[string]map[string]string{"a": {"path": `C:\new "x"`, "ä": ""}, "b": {"path": `C:\065 "x"` + "\x00\xff=", "A": "ü"}, "c": {"TXTVERS": "3", "a": "1"}, "d": nil} {
		i := instanceOf("web", 0)
		i.Name, i.Endpoints = name, []Endpoint{{Port: httpPort, Number: 80, Text: text}}
		if err := e.PutInstance(i); (err != nil) != (name == "a") {
			t.Errorf("%s: %v", name, err)
		}
	}
	x = e.Commit(1)
	for name, want := range map[string][]string{"b": {"txtvers=1", "A=ü", `path=C:\065 "x"` + "\x00\xff="}, "c": {"TXTVERS=3", "a=1"}, "d": {"txtvers=1"}} {
		m := &dns.Msg{Answer: x.Answer(question(name+"._http._tcp.prod.tako.internal.", dns.TypeTXT), 0).Answer}
		wire, err := m.Pack()
		must(t, err)
		rest, got := wire[len(wire)-len(strings.Join(want, ""))-len(want):], []string{}
		for len(rest) > 0 {
			got, rest = append(got, string(rest[1:1+rest[0]])), rest[1+rest[0]:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLongestNames: with names as long as they may be, every answer fits a message.
func TestLongestNames(t *testing.T) {
	long := strings.Repeat("x", 59)
	domain := long + "." + strings.Repeat("y", 61-60)
	x, err := New(Options{Domain: domain})
	must(t, err)
	e := x.Edit()
	for i := range 300 {
		must(t, e.PutInstance(&Instance{Namespace: long + "yyyy", Workload: long + "wwww", Name: fmt.Sprintf("%s%04d", long, i), Index: 1, Node: "n", Revision: "r",
			Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, Endpoints: []Endpoint{{Port: Port{Name: "fifteen-letters"}, Number: 1}}}))
	}
	must(t, e.PutNode(Node{Name: strings.Repeat("n.", 92) + "n"}))
	if err := e.PutNode(Node{Name: strings.Repeat("n.", 93) + "n"}); !reason.Is(err, reason.NameUnservable) {
		t.Errorf("a node whose name is too long with the domain: %v", err)
	}
	for i := range 300 {
		must(t, e.PutInstance(&Instance{Namespace: long + "yyyy", Workload: "facts", Name: fmt.Sprintf("facts%04d", i), Index: 1, Node: fmt.Sprintf("n%04d", i) + strings.Repeat(".node", 49), Revision: strings.Repeat("r", 246)}))
	}
	for i := range 3000 {
		must(t, e.PutInstance(&Instance{Namespace: long + "yyyy", Workload: "types", Name: fmt.Sprintf("types%04d", i), Index: 1, Node: "n", Endpoints: []Endpoint{{Port: Port{Name: fmt.Sprintf("fifteen-let%04d", i)}, Number: 1}}}))
	}
	x = e.Commit(1)
	for _, q := range []dns.Question{question("1.facts."+long+"yyyy."+domain+".", dns.TypeTXT), question("_services._dns-sd._udp."+long+"yyyy."+domain+".", dns.TypePTR), question("_fifteen-letters._tcp."+long+"wwww."+long+"yyyy."+domain+".", dns.TypeSRV), question("_fifteen-letters._tcp."+long+"yyyy."+domain+".", dns.TypePTR),
		question("1."+long+"wwww."+long+"yyyy."+domain+".", dns.TypeTXT)} {
		r := x.Answer(q, 0)
		m := &dns.Msg{Question: []dns.Question{q}, Answer: r.Answer, Extra: r.Additional, Compress: true}
		wire, err := m.Pack()
		if err != nil || len(wire) > dns.MaxMsgSize-600 || len(r.Answer) == 0 {
			t.Errorf("%s: %d records, %d bytes, %v", q.Name, len(r.Answer), len(wire), err)
		}
	}
}

// TestRefused: what cannot be a name is refused with its reason, and nothing else is touched.
func TestRefused(t *testing.T) {
	x := many(t, 1)
	e := x.Edit()
	with := func(change func(i *Instance)) error {
		i := instanceOf("web", 7)
		change(i)
		return e.PutInstance(i)
	}
	for what, err := range map[string]error{
		"a namespace of nodes":    e.PutNamespace("node"),
		"a namespace with a dot":  e.PutNamespace("a.b"),
		"no namespace":            e.PutNamespace(""),
		"a workload with a dot":   e.PutWorkload(Workload{Namespace: "prod", Name: "a.b"}),
		"a workload in capitals":  e.PutWorkload(Workload{Namespace: "prod", Name: "Web"}),
		"a workload of 64":        e.PutWorkload(Workload{Namespace: "prod", Name: strings.Repeat("w", 64)}),
		"a port with a dot":       e.PutWorkload(Workload{Namespace: "prod", Name: "web", Ports: []Port{{Name: "a.b"}}}),
		"the port of browsing":    e.PutWorkload(Workload{Namespace: "prod", Name: "web", Ports: []Port{{Name: "dns-sd", Protocol: workload.UDP}}}),
		"a port of 16":            with(func(i *Instance) { i.Endpoints = []Endpoint{{Port: Port{Name: "sixteen-letters-"}}} }),
		"an instance of digits":   with(func(i *Instance) { i.Name = "17" }),
		"an underscore":           with(func(i *Instance) { i.Name = "_tcp" }),
		"a hyphen at the end":     with(func(i *Instance) { i.Name = "web-" }),
		"a negative index":        with(func(i *Instance) { i.Index = -1 }),
		"a long node":             with(func(i *Instance) { i.Node = strings.Repeat("n", 254) }),
		"no address":              with(func(i *Instance) { i.Addresses = []netip.Addr{{}} }),
		"an address of this host": with(func(i *Instance) { i.Addresses = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")} }),
		"a key with =":            with(func(i *Instance) { i.Endpoints[0].Text = map[string]string{"a=b": ""} }),
		"a text of 256":           with(func(i *Instance) { i.Endpoints[0].Text = map[string]string{"a": strings.Repeat("x", 254)} }),
		"a node in capitals":      e.PutNode(Node{Name: "N1"}),
		"a node without address":  e.PutNode(Node{Name: "n1", Addresses: []netip.Addr{{}}}),
	} {
		if !reason.Is(err, reason.NameUnservable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := instanceOf("web", 0)
	other.Workload = "api"
	if err := e.PutInstance(other); !reason.Is(err, reason.InstanceNameTaken) {
		t.Errorf("an instance of two workloads: %v", err)
	}
	for _, domain := range []string{"Tako.internal", "tako.internal.", "a..b", strings.Repeat("a.", 30) + "bc", "-"} {
		if _, err := New(Options{Domain: domain}); !reason.Is(err, reason.NameUnservable) {
			t.Errorf("domain %s: %v", domain, err)
		}
	}
	x = e.Commit(2)
	listed := 0
	for s := range x.Services() {
		listed += len(s.Instances)
	}
	if listed != 2 || x.Answer(question("web.prod.tako.internal.", dns.TypeA), 0).Ready != 1 {
		t.Errorf("%d instances are there", listed)
	}
}

// TestDeclaredStaysThere: what is declared is a name while nothing of it is ready, before and after; what is not, only as long as something is.
func TestDeclaredStaysThere(t *testing.T) {
	x, err := New(Options{})
	must(t, err)
	all := []string{"web.prod.tako.internal.", "_http._tcp.web.prod.tako.internal.", "_http._tcp.prod.tako.internal.", "web._sub._http._tcp.prod.tako.internal.", "prod.tako.internal."}
	there := func(want int, when string) {
		t.Helper()
		for _, name := range all {
			if r := x.Answer(question(name, dns.TypeTXT), 0); r.Rcode != want || len(r.Authority) != 1 {
				t.Errorf("%s, %s: %s", name, when, dns.RcodeToString[r.Rcode])
			}
		}
	}
	commit := func(change func(e *Edit)) {
		e := x.Edit()
		change(e)
		x = e.Commit(x.Version() + 1)
	}
	put := func(e *Edit) { must(t, e.PutInstance(instanceOf("web", 1))) }
	drop := func(e *Edit) { e.DropInstance("prod", "web-00001") }
	there(dns.RcodeNameError, "nothing is declared")
	commit(put)
	there(dns.RcodeSuccess, "an instance is ready of what is not declared any more")
	commit(drop)
	there(dns.RcodeNameError, "it is gone")
	commit(func(e *Edit) {
		must(t, e.PutWorkload(Workload{Namespace: "prod", Name: "web", Ports: []Port{httpPort}}))
	})
	there(dns.RcodeSuccess, "it is declared")
	commit(put)
	commit(drop)
	there(dns.RcodeSuccess, "nothing is ready any more")
	commit(put)
	commit(func(e *Edit) { e.DropWorkload("prod", "web") })
	there(dns.RcodeSuccess, "it is deleted and an instance is ready")
	commit(drop)
	there(dns.RcodeNameError, "all is gone")
}

// TestRefusedIsNotStale: what is told anew and cannot be served is left out; what was said of it before is not so any more.
func TestRefusedIsNotStale(t *testing.T) {
	x := many(t, 1)
	e := x.Edit()
	must(t, e.PutNode(Node{Name: "n0", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}))
	x = e.Commit(2)
	e = x.Edit()
	i := instanceOf("web", 0)
	i.Addresses = []netip.Addr{{}}
	other := instanceOf("web", 0)
	other.Name, other.Addresses = "api-00000", []netip.Addr{{}}
	for what, err := range map[string]error{"instance": e.PutInstance(i), "name of another": e.PutInstance(other), "node": e.PutNode(Node{Name: "n0", Addresses: []netip.Addr{{}}})} {
		if !reason.Is(err, reason.NameUnservable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	x = e.Commit(3)
	for name, answers := range map[string]int{"web.prod.tako.internal.": 0, "web-00000.web.prod.tako.internal.": 0, "n0.node.tako.internal.": 0, "api.prod.tako.internal.": 1} {
		if r := x.Answer(question(name, dns.TypeA), 0); len(r.Answer) != answers {
			t.Errorf("%s: %v", name, r.Answer)
		}
	}
}

// TestOtherFamilyIsCheap: clients ask for both families each time; who has no address of one costs nothing for each instance.
func TestOtherFamilyIsCheap(t *testing.T) {
	x := many(t, 10_000)
	if n := testing.AllocsPerRun(5, func() { x.Answer(question("web.prod.tako.internal.", dns.TypeAAAA), 0) }); n > 100 {
		t.Errorf("%v allocations to say that of 10,000 instances none has an address of IPv6", n)
	}
}

// TestAddedOnce: an address that is told twice is there once (RFC 2181, section 5), in what is added too.
func TestAddedOnce(t *testing.T) {
	x := many(t, 1)
	e := x.Edit()
	i := instanceOf("web", 0)
	i.Addresses = append(i.Addresses, i.Addresses[0], netip.AddrFrom16(i.Addresses[0].As16()))
	must(t, e.PutInstance(i))
	x = e.Commit(2)
	if r := x.Answer(question("_http._tcp.web.prod.tako.internal.", dns.TypeSRV), 0); len(r.Additional) != 1 {
		t.Errorf("added: %v", r.Additional)
	}
}

// TestInstanceChangesHands: an instance's name goes to another workload in one edit when it is told that it has gone.
func TestInstanceChangesHands(t *testing.T) {
	x := many(t, 1)
	e := x.Edit()
	e.DropInstance("prod", "web-00000")
	i := instanceOf("api", 3)
	i.Name = "web-00000"
	must(t, e.PutInstance(i))
	e.DropInstance("prod", "nobody")
	e.DropInstance("nowhere", "nobody")
	e.DropWorkload("nowhere", "nobody")
	e.DropNode("nobody")
	x = e.Commit(2)
	for name, there := range map[string]bool{"web-00000.web.prod.tako.internal.": false, "web.prod.tako.internal.": false, "web-00000.api.prod.tako.internal.": true, "web-00000._http._tcp.prod.tako.internal.": true} {
		if r := x.Answer(question(name, dns.TypeA), 0); (r.Rcode == dns.RcodeSuccess) != there {
			t.Errorf("%s: %s", name, dns.RcodeToString[r.Rcode])
		}
	}
}

// BenchmarkChange is one instance of many that becomes ready, to the index that has it.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 1000, 10000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := many(b, n)
			i := instanceOf("web", n/2)
			b.ReportAllocs()
			for b.Loop() {
				e := x.Edit()
				if err := e.PutInstance(i); err != nil {
					b.Fatal(err)
				}
				x = e.Commit(2)
			}
		})
	}
}

// BenchmarkMemory is what an instance takes in an index, its own name and addresses included.
func BenchmarkMemory(b *testing.B) {
	const n = 20000
	var x *Index
	var before, after runtime.MemStats
	for b.Loop() {
		x = nil
		runtime.GC()
		runtime.ReadMemStats(&before)
		x = many(b, n)
		runtime.GC()
		runtime.ReadMemStats(&after)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(2*n), "B/instance")
	runtime.KeepAlive(x)
}

package naming

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/names/server"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// rig is a server that leads and one that follows, of which both answer.
type rig struct {
	*testing.T
	key     *trust.SigningKey
	stores  [2]*edition.Store
	at      [2]netip.AddrPort
	metrics [2]*prometheus.Registry
	number  uint64
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, key: trust.NewSigningKey()}
	for i := range r.stores {
		r.stores[i] = edition.New(edition.Options{Cluster: "a-cluster", Keys: func(time.Time) catalog.Keys { return catalog.Keys{r.key.Public()} }})
		r.at[i], r.metrics[i] = free(t), prometheus.NewRegistry()
		n, err := New(Options{Addresses: []netip.AddrPort{r.at[i]}, Store: r.stores[i], Metrics: r.metrics[i]})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.Run(ctx)
		}()
		t.Cleanup(func() {
			stop()
			<-ended
		})
	}
	return r
}

// free is an address that nobody listens at.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	sockets, err := server.Listen(t.Context(), []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer sockets.Close()
	return sockets.Addresses()[0]
}

// publish has the leader make an edition, and the follower take it.
func (r *rig) publish(put []edition.Row, gone ...string) {
	r.Helper()
	r.number++
	if err := r.stores[0].Publish(edition.Draft{Mark: wire.NamesMark{Epoch: 1, Term: 1, Number: r.number}, Issued: time.Now(), Put: put, Gone: gone}, r.key); err != nil {
		r.Fatal(err)
	}
	parts, _, _ := r.stores[0].After(r.stores[1].Mark())
	for i := range parts {
		if _, err := r.stores[1].Take(&parts[i], time.Now()); err != nil {
			r.Fatal(err)
		}
	}
}

// until asks both servers, by UDP and TCP, until they answer so.
func (r *rig) until(name string, qtype uint16, want string) {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, at := range r.at {
		for _, network := range []string{"udp", "tcp"} {
			for is := ""; ; {
				if is = ask(at, network, name, qtype); is == want {
					break
				}
				if time.Now().After(deadline) {
					r.Fatalf("%s by %s: %q, want %q", name, network, is, want)
				}
				<-time.After(5 * time.Millisecond)
			}
		}
	}
}

// ask is the code of an answer, and what is in it, sorted.
func ask(at netip.AddrPort, network, name string, qtype uint16) string {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	reply, _, err := (&dns.Client{Net: network, Timeout: 5 * time.Second}).Exchange(q, at.String())
	if err != nil {
		return err.Error()
	}
	words := []string{}
	for _, rr := range reply.Answer {
		words = append(words, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(words)
	return strings.Join(append([]string{dns.RcodeToString[reply.Rcode]}, words...), " ")
}

func instance(name string, last byte) edition.Row {
	return edition.InstanceRow(&names.Instance{Namespace: "prod", Workload: "web", Name: name, Node: "n1", Revision: "web-1", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, last})},
		Endpoints: []names.Endpoint{{Port: names.Port{Name: "http", Protocol: workload.TCP}, Number: 20000 + uint16(last)}}})
}

// TestServersAnswer: the server that leads and one that follows answer from the newest edition, and say that they know nothing before there is one. What
// they answer is counted.
func TestServersAnswer(t *testing.T) {
	r := newRig(t)
	r.until("web.prod.tako.internal.", dns.TypeA, "SERVFAIL")
	r.publish([]edition.Row{edition.NamespaceRow("prod"), edition.WorkloadRow(names.Workload{Namespace: "prod", Name: "web"}), instance("web-0", 1), instance("web-1", 2), {Key: "w/prod/no.label"}})
	r.until("web.prod.tako.internal.", dns.TypeA, "NOERROR 10.0.0.1 10.0.0.2")
	r.publish([]edition.Row{instance("web-2", 3)}, instance("web-0", 1).Key)
	r.until("web.prod.tako.internal.", dns.TypeA, "NOERROR 10.0.0.2 10.0.0.3")
	r.until("_http._tcp.prod.tako.internal.", dns.TypePTR, "NOERROR web-1._http._tcp.prod.tako.internal. web-2._http._tcp.prod.tako.internal.")
	r.until("tako.internal.", dns.TypeA, "NOERROR 127.0.0.1")
	r.until("nobody.prod.tako.internal.", dns.TypeA, "NXDOMAIN")
	r.until("example.org.", dns.TypeA, "REFUSED")
	for _, registry := range r.metrics {
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("metrics: %v, %v", problems, err)
		}
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counted := map[string]float64{}
		for _, family := range all {
			for _, m := range family.GetMetric() {
				labels := ""
				for _, l := range m.GetLabel() {
					labels += " " + l.GetValue()
				}
				counted[family.GetName()+labels] = m.GetCounter().GetValue()
			}
		}
		if counted["tako_names_answers_total REFUSED"] != 2 || counted["tako_names_answers_total NXDOMAIN"] != 2 || counted["tako_names_unanswered_total limited"] != 0 || len(counted) != 7 {
			t.Errorf("counted %v", counted)
		}
	}
}

// TestBehind: who is further behind than the changes that are kept has all that there is, and nothing that was.
func TestBehind(t *testing.T) {
	r := newRig(t)
	n, err := New(Options{Addresses: r.at[:1], Store: r.stores[0]})
	if err != nil {
		t.Fatal(err)
	}
	r.publish([]edition.Row{edition.NamespaceRow("prod"), instance("web-0", 1)})
	first, _, err := r.stores[0].Since(wire.NamesMark{})
	if err != nil {
		t.Fatal(err)
	}
	x := n.next(n.nothing, first)
	r.publish([]edition.Row{instance("web-1", 2)}, instance("web-0", 1).Key)
	later, _, err := r.stores[0].Since(wire.NamesMark{Epoch: 1}) // an edition of which nothing is kept
	if err != nil || !later.All {
		t.Fatalf("%+v, %v", later, err)
	}
	x = n.next(x, later)
	if reply := x.Answer(dns.Question{Name: "web.prod.tako.internal.", Qtype: dns.TypeA, Qclass: dns.ClassINET}, 0); len(reply.Answer) != 1 || x.Version() != 2 {
		t.Errorf("version %d answers %v", x.Version(), reply.Answer)
	}
}

// TestOptions: without somewhere to answer, or something to answer from, there is no Naming.
func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Addresses: []netip.AddrPort{free(t)}}, {Store: edition.New(edition.Options{})}} {
		if _, err := New(o); !reason.Is(err, reason.InternalFault) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

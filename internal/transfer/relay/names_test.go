package relay

import (
	"maps"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// TestNames: names come to hosts of servers and of relays, and go on to come after a server or a relay was away; what somebody has
// changed on the way is not believed, and comes anew from who is honest.
func TestNames(t *testing.T) {
	play(t, func(s *scene) {
		opts := edition.Options{Cluster: s.cluster, Keys: func(time.Time) catalog.Keys { return catalog.Keys{s.signing.Public()} }}
		leader, number := edition.New(opts), uint64(0)
		publish := func(put []edition.Row, gone ...string) {
			t.Helper()
			number++
			if err := leader.Publish(edition.Draft{Mark: wire.NamesMark{Epoch: 1, Term: 1, Number: number}, Issued: time.Now(), Put: put, Gone: gone}, s.signing); err != nil {
				t.Fatal(err)
			}
		}
		ready := func(name string) edition.Row {
			return edition.InstanceRow(&names.Instance{Namespace: "prod", Workload: "web", Name: name, Node: "n1"})
		}
		kept := map[string]*edition.Store{}
		s.tune = func(h *host, o *client.Options) {
			if kept[h.name] == nil {
				kept[h.name] = edition.New(opts)
			}
			into := client.NamesOf(kept[h.name])
			o.Names = &into
		}
		all := func(most time.Duration, what string) {
			t.Helper()
			s.eventually(most, what, func() bool {
				return !slices.ContainsFunc(slices.Collect(maps.Values(kept)), func(k *edition.Store) bool { return k.Edition() != leader.Edition() })
			})
		}
		tell := func(o *server.Options) { o.Names = leader.Feed }
		s.serve("server:6444", tell)
		s.publish(t, "one")
		edge := s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "server:6444")
		s.host("web-2", "edge-1:6444", "edge-2:6444")
		s.all(10*time.Second, 1)
		publish([]edition.Row{ready("web-0"), ready("web-1")})
		all(time.Minute, "all have the first edition")
		for range 10 {
			publish([]edition.Row{ready("web-2")}, ready("web-1").Key)
			all(100*time.Millisecond, "all have the next one at once")
			publish([]edition.Row{ready("web-1")}, ready("web-2").Key)
		}
		s.servers["server:6444"].stop()
		publish(nil, ready("web-1").Key)
		pass(time.Minute)
		s.serve("server:6444", tell)
		all(5*time.Minute, "all have what has changed while the server was away")
		edge.stop()
		s.relay("edge-2:6444", "", nil, "server:6444")
		publish([]edition.Row{ready("web-7")})
		all(5*time.Minute, "all have what has changed while the relay was away")
	})
}

package heads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/trust"
)

// standingOf is what a host with a mark makes of the head that a server has for it.
func standingOf(r *rig, who server.Identity, mark catalog.Mark) catalog.Standing {
	r.Helper()
	b, _, err := r.Head(who)
	r.must(err)
	h := r.verify(who, b)
	standing, _ := mark.Judge(&h, time.Now())
	return standing
}

func markOf(h catalog.Head) catalog.Mark {
	_, mark := catalog.Mark{}.Judge(&h, time.Now())
	return mark
}

// TestTransferCase20_CompactedPastTheWatch: the watch of etcd is away while its history is cut. The server reads its Assignments once, and
// no host notices but the one that has something new.
func TestTransferCase20_CompactedPastTheWatch(t *testing.T) {
	c := casetest.Start(t)
	dir := t.TempDir()
	on, err := openStoreOver(filepath.Join(dir, "data"), filepath.Join(dir, "line.sock"))
	c.NoError(err, "open a store")
	t.Cleanup(on.close)
	r := rigOn(t, on)
	r.options.Compare = time.Hour // what it would find is not to be found so
	enter := r.assignments.enter
	var entered atomic.Int32 // Assignments that the view was told of
	r.assignments.enter = func(o any) {
		entered.Add(1)
		enter(o)
	}
	t.Cleanup(r.start())
	changed, fine := r.join(), r.join()
	r.head(changed, atVersion(r.assign(changed, one(1))))
	r.head(fine, atVersion(r.assign(fine, one(1))))
	before, still, err := r.Head(fine)
	c.NoError(err, "ask for a head")
	told, signed := entered.Load(), testutil.ToFloat64(r.metrics.signed)

	on.line.set(true)
	var version uint64
	for i := range 20 {
		version = r.assign(changed, one(2+i))
	}
	direct, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: on.member.Endpoints()})
	c.NoError(err, "connect to etcd")
	defer direct.Close()
	_, err = direct.Compact(t.Context(), int64(version))
	c.NoError(err, "compact")
	b, waits, err := r.Head(changed)
	c.NoError(err, "ask for a head")
	old := r.verify(changed, b)
	c.Check(old.Version < version, "version %d is known, and the watch is away", old.Version)

	on.line.set(false)
	r.told(waits)
	h := r.head(changed, atVersion(version))
	c.Equal(h.Epoch, old.Epoch, "the epoch")
	c.Equal(entered.Load()-told, int32(2), "Assignments that were read anew: each of the two once, and none of the changes in between")
	c.Equal(testutil.ToFloat64(r.metrics.signed)-signed, 1.0, "heads that were signed")
	c.Equal(testutil.ToFloat64(r.metrics.lost), 0.0, "changes that count as lost")
	after, _, err := r.Head(fine)
	c.NoError(err, "ask for a head")
	c.Check(bytes.Equal(before, after), "a host for which nothing has changed gets another head")
	select {
	case <-still:
		c.Check(false, "a host for which nothing has changed is told that there may be another head")
	default:
	}
}

// TestTransferCase21_EtcdDropsAnEvent: a watch of etcd does not tell of a change, and goes on, so that every cache above it takes itself for
// fresh. Reading everything again, from etcd itself, finds it; that happens every five minutes, and is counted.
func TestTransferCase21_EtcdDropsAnEvent(t *testing.T) {
	c := casetest.Start(t)
	on, err := openStore(t.TempDir())
	c.NoError(err, "open a store")
	t.Cleanup(on.close)
	r := rigOn(t, on)
	registry := prometheus.NewRegistry()
	r.options.Metrics = registry
	t.Cleanup(r.start())
	changed, gone, fine := r.join(), r.join(), r.join()
	for _, who := range []server.Identity{changed, gone, fine} {
		r.head(who, atVersion(r.assign(who, one(1))))
	}
	on.watcher.mu.Lock()
	on.watcher.lost[changed.Name], on.watcher.lost[gone.Name] = true, true
	on.watcher.mu.Unlock()
	version := r.assign(changed, one(2))
	c.NoError(r.store.Delete(t.Context(), &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: gone.Name}}, nil), "delete a node")
	r.head(fine, atVersion(r.assign(fine, one(2)))) // what comes later is told
	c.Equal(r.head(changed, atVersion(version)).Version, version, "the version that was lost")
	c.Eventually(within, "the node that is gone is none", func() (string, bool) {
		_, _, err := r.Head(gone)
		return fmt.Sprint(err), codeOf(err) == reason.ObjectUnknown
	})
	c.Eventually(within, "the metric tako_heads_lost_events_total says 2, after the hosts are told", func() (string, bool) {
		n := lostOf(t, registry)
		return fmt.Sprint(n), n == 2
	})
	every := Options{}.withDefaults().Compare
	c.Check(every <= 10*time.Minute, "everything is read again every %s", every)
}

// TestTransferCase21_CacheDropsAnEvent: the same between the server's cache and the heads.
func TestTransferCase21_CacheDropsAnEvent(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t).run()
	changed, fine := r.join(), r.join()
	for _, who := range []server.Identity{changed, fine} {
		r.head(who, atVersion(r.assign(who, one(1))))
	}
	r.losing.lose(changed)
	version := r.assign(changed, one(2))
	r.head(fine, atVersion(r.assign(fine, one(2))))
	c.Equal(r.head(changed, atVersion(version)).Version, version, "the version that was lost")
	c.Eventually(within, "it is counted, after the host is told", func() (string, bool) {
		n := testutil.ToFloat64(r.metrics.lost)
		return fmt.Sprint(n), n == 1
	})
}

// lostOf is what a registry says of lost events.
func lostOf(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tako_heads_lost_events_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// lose has the watches of the heads not tell of a node's objects.
func (l *losing) lose(who server.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[who.Name] = true
}

// find ends that, for what changes from then on.
func (l *losing) find(who server.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, who.Name)
}

// pair is two servers of one cluster, of which the second is behind for a host from now on.
func pair(t *testing.T, c *casetest.Case) (ahead, behind *rig, who server.Identity, first catalog.Head) {
	t.Helper()
	ahead, behind = newRig(t), newRig(t)
	behind.share(ahead)
	behind.options.Compare = time.Hour
	ahead.run()
	behind.run()
	who = ahead.join()
	version := ahead.assign(who, one(1))
	first = ahead.head(who, atVersion(version))
	c.Equal(behind.head(who, atVersion(version)), first, "what two servers have for a host")
	behind.losing.lose(who)
	return ahead, behind, who, first
}

// TestTransferCase22_OneServerLags: a host that has what one server signed is told by the one that lags to come again, and takes nothing older.
func TestTransferCase22_OneServerLags(t *testing.T) {
	c := casetest.Start(t)
	ahead, behind, who, first := pair(t, c)
	version := ahead.assign(who, one(2))
	mark := markOf(ahead.head(who, atVersion(version)))
	began := time.Now()
	err := behind.Shown(t.Context(), who, mark)
	e := reason.Of(err)
	c.Check(err != nil && e.Code == reason.ServerBehind && e.Entry().HTTP == 409 && e.After > 0 && e.After <= 5*time.Second, "the server that lags says %v", err)
	c.Check(time.Since(began) >= catchUpMax, "it has not waited")
	c.Equal(standingOf(behind, who, mark), catalog.HeadOld, "what its head is to the host")
	c.Equal(len(behind.suspicions()), 0, "suspicions")
	c.Equal(testutil.ToFloat64(behind.metrics.behind), 1.0, "what tako_heads_behind_total says")
	c.Check(ahead.Shown(t.Context(), who, mark) == nil, "the other one refuses the host")
	// A host that has less is served meanwhile, with what that server has.
	c.Check(behind.Shown(t.Context(), who, markOf(first)) == nil, "it refuses a host that is no further than itself")
	c.Equal(standingOf(behind, who, markOf(first)), catalog.HeadRepeated, "what its head is to a host with the older state")

	behind.losing.find(who)
	version = ahead.assign(who, one(3))
	want := ahead.head(who, atVersion(version))
	c.Equal(behind.head(who, atVersion(version)), want, "what both have when it has caught up")
	c.Check(behind.Shown(t.Context(), who, mark) == nil, "it refuses the host then")
	c.Equal(standingOf(behind, who, mark), catalog.HeadNews, "what its head is to the host then")
}

// TestTransferCase23_SplitBrain: a server that is cut off from etcd serves what it has signed as long as that is good, and signs nothing. Hosts of
// the other side go on, and nobody goes back when the two see each other again.
func TestTransferCase23_SplitBrain(t *testing.T) {
	c := casetest.Start(t)
	ahead, cut, who, first := pair(t, c)
	signed := testutil.ToFloat64(cut.metrics.signed)
	cut.disturb(errors.New("no majority answers"), 0)
	cut.fresh.extend(time.Time{}, time.Now()) // 30 s later
	version := ahead.assign(who, one(2))
	second := ahead.head(who, atVersion(version))
	b, waits, err := cut.Head(who)
	c.NoError(err, "ask for a head")
	c.Equal(cut.verify(who, b), first, "what the server that is cut off has")
	err = cut.Shown(t.Context(), who, markOf(second))
	c.Check(err != nil && reason.Of(err).Code == reason.StoreUnreachable && reason.Of(err).After > 0, "a host of the other side is told %v", err)
	c.Equal(standingOf(cut, who, markOf(second)), catalog.HeadOld, "what its head is to that host")

	// The period of its last head ends, and then the head itself does.
	age := func(by time.Duration) {
		cut.view.mu.Lock()
		defer cut.view.mu.Unlock()
		cut.view.nodes[who.Name].signed.issued -= int64(by / time.Second)
	}
	age(period)
	b, _, err = cut.Head(who)
	c.NoError(err, "ask for a head")
	c.Equal(cut.verify(who, b), first, "what it has when it would sign anew")
	age(lifetime)
	b, _, err = cut.Head(who)
	c.NoError(err, "ask for a head")
	c.Equal(len(b), 0, "bytes of a head that has expired")
	c.Equal(testutil.ToFloat64(cut.metrics.signed), signed, "heads that it has signed")

	cut.disturb(nil, 0)
	cut.losing.find(who)
	third := ahead.assign(who, one(3))
	cut.told(waits)
	c.Equal(cut.head(who, atVersion(third)), ahead.head(who, atVersion(third)), "what both have after healing")
	c.Equal(standingOf(cut, who, markOf(second)), catalog.HeadNews, "what that is to the host")
	c.Equal(len(cut.suspicions())+len(ahead.suspicions()), 0, "suspicions")
}

// TestTransferCase27_VersionBeyondAll: a thief has signed the highest version that there is. The server sees what it cannot have signed, signs
// nothing more for that host, and goes on for all in another epoch, with another key.
func TestTransferCase27_VersionBeyondAll(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t).run()
	who, other := r.join(), r.join()
	r.head(who, atVersion(r.assign(who, one(1))))
	for _, far := range []uint64{1 << 63, math.MaxUint64} {
		mark := catalog.Mark{Epoch: 1, Version: far, Root: rootNo(9), Expires: time.Now().Add(time.Hour).Unix()}
		err := r.Shown(t.Context(), who, mark)
		c.Check(err != nil && reason.Of(err).Code == reason.RollbackSuspected && reason.Of(err).Entry().HTTP == 409, "version %d: %v", far, err)
		c.Equal(standingOf(r, who, mark), catalog.HeadOld, "what the server's head is to the host")
	}
	c.Equal(len(r.suspicions()), 1, "people who are told")
	next := r.assign(who, one(2))
	r.head(other, atVersion(r.assign(other, one(1)))) // of others nothing is known to be wrong

	stolen := r.keys.Heads()
	r.edit(trust.BumpEpoch())
	h := r.head(who, atVersion(next))
	c.Equal(h.Epoch, uint64(2), "the epoch of the head after the bump")
	mark := catalog.Mark{Epoch: 1, Version: math.MaxUint64, Root: rootNo(9)}
	c.Equal(standingOf(r, who, mark), catalog.HeadNews, "what it is to the host")
	c.Check(r.Shown(t.Context(), who, mark) == nil, "the host is refused after the bump")

	// With the key revoked nothing of it is believed, by servers neither.
	r.edit(trust.Revoke(stolen.Public().ID()), trust.SetKey(trust.RoleHeads, trust.NewSigningKey().Public(), time.Now().Add(time.Hour)))
	s, err := h.Sign(stolen)
	c.NoError(err, "sign as the thief")
	_, err = s.Verify(r.HeadKeys(time.Now()), catalog.Node{Cluster: r.keys.Cluster(), Name: who.Name, UID: who.UID})
	c.Check(codeOf(err) == reason.HeadRefused, "a head of the stolen key: %v", err)
}

// TestTransferCase56_SignedAnewIsSpread: the moments at which the heads of 100,000 nodes are signed anew are spread over the period, so that no
// second has much more than its share.
func TestTransferCase56_SignedAnewIsSpread(t *testing.T) {
	c := casetest.Start(t)
	const nodes = 100_000
	start := time.Unix(1_900_000_000, 0)
	seconds := int64(period / time.Second)
	each := make([]int, seconds)
	for i := range nodes {
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i*2654435761%(1<<32), i)
		issued := Issued(uid, start)
		due := issued + seconds - start.Unix() // from now until it is signed anew
		if due <= 0 || due > seconds {
			t.Fatalf("a head that is good now is signed anew in %d s", due)
		}
		each[due-1]++
		if Issued(uid, start.Add(time.Duration(due-1)*time.Second)) != issued || Issued(uid, start.Add(time.Duration(due)*time.Second)) != issued+seconds {
			t.Fatalf("node %s is signed anew at another moment than once in a period", uid)
		}
	}
	share, most, none := nodes/int(seconds), 0, 0
	for _, n := range each {
		most = max(most, n)
		if n == 0 {
			none++
		}
	}
	c.Check(most <= 3*share, "of %d in a second on average there is one second with %d", share, most)
	c.Equal(none, 0, "seconds without any")
}

// TestTransferCase56_SigningWritesNothing: heads are derived. Signing them all anew is no write to etcd.
func TestTransferCase56_SigningWritesNothing(t *testing.T) {
	c := casetest.Start(t)
	on, err := openStore(t.TempDir())
	c.NoError(err, "open a store")
	t.Cleanup(on.close)
	r := rigOn(t, on)
	t.Cleanup(r.start())
	const nodes = 50
	var all []server.Identity
	for range nodes {
		who := r.join()
		r.head(who, atVersion(r.assign(who, one(1))))
		all = append(all, who)
	}
	before, err := on.revision(context.Background())
	c.NoError(err, "read the revision")
	signed := testutil.ToFloat64(r.metrics.signed)
	for range 3 {
		for _, who := range all {
			r.view.mu.Lock()
			last := &r.view.nodes[who.Name].signed
			last.issued -= int64(period / time.Second) // an hour later
			old := last.version
			r.view.mu.Unlock()
			b, _, err := r.Head(who)
			c.NoError(err, "ask for a head")
			c.Equal(r.verify(who, b).Version, old, "the version of a head that was signed anew")
		}
	}
	c.Equal(testutil.ToFloat64(r.metrics.signed)-signed, float64(3*nodes), "heads that were signed")
	after, err := on.revision(context.Background())
	c.NoError(err, "read the revision")
	c.Equal(after, before, "the revision of the store")
}

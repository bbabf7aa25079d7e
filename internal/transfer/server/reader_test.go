package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// trickle reads a kilobyte each second, until the end of what there is.
func trickle(r io.Reader) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for piece := make([]byte, 100); ; <-tick.C {
		if _, err := r.Read(piece); err != nil {
			return
		}
	}
}

// percentile is the time that so many of a hundred do not exceed.
func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*p/100]
}

// TestTransferCase37_KilobyteEachSecond: a host that reads on, but slower than what it is sent, is closed at the write deadline. Until then it costs
// no memory but its buffers, and the others get theirs as fast as without it; afterwards it comes back to the newest.
func TestTransferCase37_KilobyteEachSecond(t *testing.T) {
	c := casetest.Start(t)
	noLeak(t)
	const write, bound = 2 * time.Second, 8 << 20
	r := newRig(t, func(o *Options) { o.Times.Write = write })
	r.add("slow")
	r.add("quick")
	quick := r.as("quick").watch(t.Context(), wire.Report{})
	number := 0
	round := func() time.Duration {
		began := time.Now()
		head := slowHead(number)
		number++
		r.give("slow", head)
		r.give("quick", head)
		for string(quick.next().Head) != string(head) { // an older one that is still on its way
		}
		return time.Since(began)
	}
	var alone, beside []time.Duration
	for range 500 {
		alone = append(alone, round())
	}
	before := inUse()
	slow := r.as("slow").watch(t.Context(), wire.Report{})
	var reading sync.WaitGroup
	reading.Go(func() { trickle(slow.body) })
	opened := time.Now()
	closed := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.heard, func(s string) bool { return strings.HasPrefix(s, "closed slow") })
	}
	var grown int64
	for late := opened.Add(time.Minute); !closed() && time.Now().Before(late); {
		beside = append(beside, round())
		if len(beside)%20 == 0 {
			grown = max(grown, int64(inUse())-int64(before))
		}
	}
	c.Check(closed(), "after %s it is not closed", time.Since(opened))
	c.Check(len(beside) >= 20 && grown < bound, "of %d heads that it has not read %d bytes are kept", len(beside), grown)
	p, q := percentile(alone, 99), percentile(beside, 99)
	c.Check(q < max(10*p, write/10), "99 of 100 heads reach the others within %s, and without the slow one within %s", q, p)
	_ = slow.body.Close() // what has come of it and was not read
	reading.Wait()
	again := r.as("slow").watch(t.Context(), wire.Report{})
	c.Equal(string(again.next().Head), string(slowHead(number-1)), "what it gets when it comes back")
	r.stop()
}

// fresh is a host that has nothing yet, and fetches a layer piece by piece.
type fresh struct {
	*host
	name   string
	ask    wire.SyncRequest
	trie   catalog.Trie
	parts  atomic.Int32
	refuse int
}

// fetch makes calls until it has all of the layer.
func (f *fresh) fetch(ctx context.Context) error {
	for {
		resp, err := f.post(ctx, wire.PathSync, encode(f.rig.t, f.ask))
		if err != nil {
			return err
		}
		done, err := f.read(resp)
		_ = resp.Body.Close()
		if done || err != nil {
			return err
		}
	}
}

func (f *fresh) read(resp *http.Response) (done bool, err error) {
	if resp.StatusCode == http.StatusServiceUnavailable {
		f.refuse++
		return false, nil
	}
	for {
		var p wire.SyncPart
		switch err := wire.ReadFrame(resp.Body, &p); {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case p.Kind != wire.SyncSnapshot:
			return false, fmt.Errorf("a part of kind %d", p.Kind)
		}
		changes := make([]catalog.Change, 0, len(p.Changes))
		for _, change := range p.Changes {
			changes = append(changes, catalog.Change{Key: change.Key, Digest: sha256.Sum256(change.Body)})
			f.ask.Cursor = change.Key
		}
		var err error
		if f.trie, err = f.trie.Apply(catalog.Changes(changes...)); err != nil {
			return false, err
		}
		if f.parts.Add(1); p.Last {
			return true, nil
		}
		for i := len(f.ask.Cursor) - 1; i >= 0; i-- { // the key after the last one that came
			if f.ask.Cursor[i]++; f.ask.Cursor[i] != 0 {
				break
			}
		}
	}
}

// TestTransferCase41_GiantFirstSnapshots: many hosts fetch all of a large layer at once. No more than have a place are served at a time, each goes on
// where it was cut off, all get on alike, and small changes of others come through meanwhile.
func TestTransferCase41_GiantFirstSnapshots(t *testing.T) {
	c := casetest.Start(t)
	const hosts, places, rows = 20, 3, 4_000
	r := newRig(t, func(o *Options) {
		o.Limits.Snapshots, o.Limits.Deltas, o.Limits.NodeFetches = places, 1, 100_000
		o.Times.Send = time.Nanosecond // a part, and then it is the turn of others
		o.Times.Turn = 30 * time.Second
	})
	giant := r.layer("giant", rows, 0, 1<<10)
	old, next := r.layer("small", 100, 0, 0), r.layer("small", 100, 1, 0)
	all := make([]*fresh, hosts)
	for i := range all {
		name := fmt.Sprint("fresh-", i)
		head := r.head(r.add(name), 5, listOf(t, catalog.Layer{ID: "giant", Root: giant.Root()}))
		all[i] = &fresh{host: r.as(name), name: name, ask: wire.SyncRequest{Head: head, Layer: "giant", Target: giant.Root()}}
	}
	id := r.add("steady")
	steady := r.as("steady")
	change := wire.SyncRequest{Head: r.head(id, 5, listOf(t, catalog.Layer{ID: "small", Root: next.Root()})), Layer: "small", Base: old.Root(), Target: next.Root()}

	var fetching sync.WaitGroup
	var running atomic.Int32
	running.Store(hosts)
	least := make([]int32, hosts) // parts that the slowest had when this one had all
	for i, f := range all {
		fetching.Go(func() {
			defer running.Add(-1)
			if err := f.fetch(t.Context()); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
			least[i] = f.parts.Load()
			for _, other := range all {
				least[i] = min(least[i], other.parts.Load())
			}
		})
	}
	changes, most := 0, 0
	for running.Load() > 0 {
		parts, whole := steady.parts(change)
		c.Check(whole && len(parts) == 1 && len(parts[0].Changes) == 1, "a small change does not come through: %+v", parts)
		most = max(most, r.server.budgets.snapshots.Taken())
		changes++
	}
	fetching.Wait()
	c.Check(changes > hosts, "only %d small changes came through meanwhile", changes)
	c.Check(most <= places, "%d snapshots at a time", most)
	whole := all[0].parts.Load()
	for _, f := range all {
		c.Equal(f.trie.Root(), giant.Root(), "what "+f.name+" has")
		c.Equal(f.parts.Load(), whole, "parts for "+f.name+": each row comes once")
		c.Equal(f.refuse, 0, "times that it was sent away")
	}
	c.Check(whole > 10, "a snapshot of %d parts", whole)
	c.Check(slices.Min(least) >= whole/4, "when the first had all of its %d parts another one had %d", whole, slices.Min(least))
}

package presence

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/transfer/server"
)

// TestMarksAreSpread: after a change that all hosts have got, what is stored of them comes at a rate that does not grow with their number.
func TestMarksAreSpread(t *testing.T) {
	for nodes, rateMax := range map[int]int{10: 10, 1000: 300, 10_000: 450, 20_000: 450} {
		at := make([]time.Duration, nodes)
		for i := range at {
			at[i] = markWait(types.UID(fmt.Sprint("uid-", i)), nodes)
		}
		slices.Sort(at)
		most := 0
		for first, last := 0, 0; last < nodes; last++ {
			for at[last]-at[first] > time.Second {
				first++
			}
			most = max(most, last-first+1)
		}
		if at[0] < markDelay || nodes <= 1000 && at[nodes-1] > 2*markDelay || most > rateMax {
			t.Errorf("of %d nodes %d are stored in one second, from %v to %v", nodes, most, at[0], at[nodes-1])
		}
	}
}

// TestEverythingIsStored: whatever order hosts are heard in, and whatever is stored meanwhile, each has its highest mark stored in the end, and
// nothing is left.
func TestEverythingIsStored(t *testing.T) {
	inBubble(t, func(r *rig) {
		const hosts = 2*batchMax + 7
		var all []server.Identity
		for i := range hosts {
			all = append(all, r.make(fmt.Sprint("n", i), fmt.Sprint(i)))
			r.Opened(all[i], uint64(i+1))
		}
		for version := uint64(1); version <= 3; version++ {
			for i := range all {
				r.Heard(all[i], uint64(i+1), report("x", 1, version, version))
			}
			after(time.Duration(version) * 3 * time.Second)
		}
		after(2 * time.Minute)
		for i := range all {
			if head := r.store.node(fmt.Sprint("n", i)).Status.AppliedHead; head == nil || head.Version != 3 {
				t.Errorf("of host %d is stored %+v", i, head)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.saves) > 0 {
			t.Errorf("%d are still to be stored", len(r.saves))
		}
	})
}

// TestPresenceIsCounted: the metric has each node once.
func TestPresenceIsCounted(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, _ := r.make("a", "1"), r.make("b", "2")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 1))
		synctest.Wait()
		var got []string
		for _, is := range presences() {
			got = append(got, fmt.Sprint(is, "=", r.count(is)))
		}
		if text := strings.Join(got, " "); text != "unheard=1 here=1 silent=0 gone=0" {
			t.Error(text)
		}
	})
}

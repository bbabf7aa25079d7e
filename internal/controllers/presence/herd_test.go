package presence

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// TestManyAwayTogether: hosts whose connections have all ended come back one after the other, for longer than one alone is waited for. None of
// them is told to be gone, which would be two writes each, but those that stay away are.
func TestManyAwayTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		const all, back = 200, 150
		var hosts []server.Identity
		for i := range all {
			host := r.make(fmt.Sprint("n-", i), fmt.Sprint("n", i))
			r.Opened(host, 1)
			r.Heard(host, 1, report("x", 1, 1, 7))
			hosts = append(hosts, host)
		}
		after(time.Minute)
		written := r.store.written()
		for _, host := range hosts {
			r.Closed(host, 1, false)
		}
		for i := range back {
			after(200 * time.Millisecond)
			r.Opened(hosts[i], 2)
			r.Heard(hosts[i], 2, report("x", 1, 2, 7))
		}
		after(2 * time.Second)
		if more := r.store.written() - written; more != 0 {
			t.Errorf("%d writes while they come back", more)
		}
		r.wantReady("n-0", metav1.ConditionTrue, node.ReasonAnswering)
		r.wantReady(fmt.Sprint("n-", all-1), metav1.ConditionTrue, node.ReasonAnswering)
		after(10 * time.Second)
		r.wantReady("n-0", metav1.ConditionTrue, node.ReasonAnswering)
		r.wantReady(fmt.Sprint("n-", back), metav1.ConditionUnknown, node.ReasonHostGone)
		r.wantReady(fmt.Sprint("n-", all-1), metav1.ConditionUnknown, node.ReasonHostGone)

		// Those that stayed away are no herd that others are waited for with.
		r.Closed(hosts[0], 2, false)
		r.Closed(hosts[1], 2, false)
		after(5 * time.Second)
		r.Opened(hosts[1], 3)
		after(6 * time.Second)
		r.wantReady("n-0", metav1.ConditionUnknown, node.ReasonHostGone)
		r.wantReady("n-1", metav1.ConditionTrue, node.ReasonAnswering)
	})
}

func TestManyAreAskedToBeSilent(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		if reply := r.Heard(a, 1, report("x", 1, 1, 7)); reply != (wire.StatusReply{}) {
			t.Errorf("one of one is answered %+v", reply)
		}
		for i := range 9000 {
			r.make(fmt.Sprint("n-", i), fmt.Sprint("n", i))
		}
		answers := map[uint32]bool{}
		for number := range uint64(20) {
			reply := r.Heard(a, 1, report("x", 1, number+2, 7))
			if least, most := node.Quiet(9001); reply.RetryAfter < uint32(least/time.Second) || reply.RetryAfter > uint32(most/time.Second) {
				t.Fatalf("one of 9,001 is answered %+v", reply)
			}
			answers[reply.RetryAfter] = true
		}
		if len(answers) < 5 {
			t.Errorf("answers are %v", answers)
		}
		longest := slices.Max(slices.Collect(maps.Keys(answers)))
		for end := time.Now().Add(time.Duration(longest)*time.Second - time.Minute); time.Now().Before(end); after(45 * time.Second) {
			r.Asked(a, 1)
		}
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		for range 5 {
			after(45 * time.Second)
			r.Asked(a, 1)
		}
		after(15 * time.Second)
		r.wantReady("a", metav1.ConditionUnknown, node.ReasonAgentSilent)
	})
}

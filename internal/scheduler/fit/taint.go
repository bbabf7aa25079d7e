package fit

import (
	"fmt"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// Taint is one of a node, and since when.
type Taint struct {
	declare.Taint
	Since time.Time
}

// String is the taint as people write it: dedicated=gpu:NoSchedule.
func (t Taint) String() string { return TaintText(t.Taint) }

// TaintText is a taint as people write it.
func TaintText(t declare.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}

// Tolerated reports whether one of the tolerations covers a taint. For how long it does is another question: an instance comes to a node
// whose taint it tolerates for a while.
func Tolerated(t declare.Taint, tolerations []workload.Toleration) bool {
	for i := range tolerations {
		if covers(&tolerations[i], t) {
			return true
		}
	}
	return false
}

func covers(o *workload.Toleration, t declare.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect {
		return false
	}
	if o.Operator == workload.TolerationExists {
		return o.Key == "" || o.Key == t.Key
	}
	return o.Key == t.Key && o.Value == t.Value
}

// LeavesAt is when an instance has to leave its node for the node's taints: at once for one that it does not tolerate, and when its seconds
// are over for one that it tolerates for a while, of which the longest counts. Without ok it stays.
func LeavesAt(taints []Taint, tolerations []workload.Toleration) (at time.Time, ok bool) {
	for _, t := range taints {
		if t.Effect != declare.TaintNoExecute {
			continue
		}
		if end, ends := toleratedUntil(t, tolerations); ends && (!ok || end.Before(at)) {
			at, ok = end, true
		}
	}
	return at, ok
}

func toleratedUntil(t Taint, tolerations []workload.Toleration) (end time.Time, ends bool) {
	end = t.Since
	for i := range tolerations {
		o := &tolerations[i]
		if !covers(o, t.Taint) {
			continue
		}
		if o.TolerationSeconds == nil {
			return time.Time{}, false
		}
		// Beyond what a Duration holds is for ever, to anyone alive.
		seconds := min(max(*o.TolerationSeconds, 0), int64(1<<62/time.Second))
		if until := t.Since.Add(time.Duration(seconds) * time.Second); until.After(end) {
			end = until
		}
	}
	return end, true
}

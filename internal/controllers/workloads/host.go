package workloads

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/scheduler"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

// hostSpec is what matters here of a Node.
type hostSpec struct {
	name          string
	uid           types.UID
	generation    int64
	environment   string
	labels        map[string]string
	taints        []declare.Taint
	tainted       []v1alpha1.NodeTaint // since when, as it is stored
	unschedulable bool
	drain         *v1alpha1.NodeDrain
	joined        bool
	gone          time.Time // since when it is stored that the host is gone; zero: it is not
	drained       *metav1.Condition
}

func shapeNode(obj any) (string, *hostSpec) {
	n := obj.(*v1alpha1.Node)
	h := &hostSpec{
		name: n.Name, uid: n.UID, generation: n.Generation, environment: n.Spec.Environment, labels: n.Labels, taints: n.Spec.Taints, tainted: n.Status.Taints, unschedulable: n.Spec.Unschedulable, drain: n.Spec.Drain,
		joined: n.Status.Identity != nil, drained: meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionDrained),
	}
	if ready := meta.FindStatusCondition(n.Status.Conditions, node.Ready); ready != nil && ready.Reason == node.ReasonHostGone {
		h.gone = ready.LastTransitionTime.Time
	}
	return n.Name, h
}

// host is a node.
type host struct {
	hostSpec
	seen      presence.Seen
	known     bool                        // the presence knows it
	goneAt    time.Time                   // since when it is gone
	missedAt  time.Time                   // since when this server has seen that
	taintedAt map[declare.Taint]time.Time // since when it has them
	drainAt   time.Time                   // since when it has seen the drain
	offers    *wire.Offers                // as they were told last
	images    []string                    // that it has, in order
	last      *wire.Report                // that was taken in; nil: none yet
}

func (w *world) absorbHost(name string, spec *hostSpec, now time.Time) {
	h := w.hosts[name]
	if h != nil && (spec == nil || spec.uid != h.uid) {
		delete(w.hosts, name)
		delete(w.sights, name)
		w.snapshot.RemoveNode(name)
		w.settleHost(h, true)
		h = nil
	}
	if spec == nil {
		return
	}
	w.unasked[name] = true
	if h != nil && reflect.DeepEqual(h.hostSpec, *spec) {
		return
	}
	fresh := h == nil
	if fresh {
		h = &host{taintedAt: map[declare.Taint]time.Time{}}
		w.hosts[name] = h
	}
	h.hostSpec = *spec
	h.since(now)
	w.sight(h, now)
	w.settleHost(h, fresh)
}

// since notes what was seen for the first time.
func (h *host) since(now time.Time) {
	maps.DeleteFunc(h.taintedAt, func(t declare.Taint, _ time.Time) bool { return !slices.Contains(h.taints, t) })
	for _, t := range h.taints {
		if _, known := h.taintedAt[t]; !known {
			h.taintedAt[t] = h.taintedSince(t, now)
		}
	}
	switch {
	case h.drain == nil:
		h.drainAt = time.Time{}
	case h.drainAt.IsZero():
		h.drainAt = now
		if c := h.drained; c != nil { // another server has seen it before
			h.drainAt = c.LastTransitionTime.Time
		}
	}
}

// taintedSince is since when a host has a taint: what is stored, and now where that says nothing, or the clock of who has stored it is ahead.
func (h *host) taintedSince(t declare.Taint, now time.Time) time.Time {
	for _, is := range h.tainted {
		if t.Effect == declare.TaintNoExecute && is.Key == t.Key && is.Value == t.Value && is.Since.Time.Before(now) {
			return is.Since.Time
		}
	}
	return now
}

// settleHost has everything decided about that a host matters to. anew: it is another one, or has come or gone.
func (w *world) settleHost(h *host, anew bool) {
	w.counted, w.unsettled[h.name] = true, true
	for in := range w.on[h.name] {
		if anew {
			w.restate(in)
		}
		w.touch(in.of)
	}
	w.touchEverywhere(h.environment)
	if anew {
		w.touchData(h.name)
	}
	w.touchPending(h.name)
}

// touchPending has the workloads decided about of which something waits for a node: whether it is to be waited for is another matter now.
func (w *world) touchPending(name string) {
	for _, of := range w.workloads {
		for _, p := range of.pending {
			if p.Node == name {
				w.touch(of)
				break
			}
		}
	}
}

// touchData has the workloads decided about of which a node has data: with its Node that is given up.
func (w *world) touchData(name string) {
	for _, of := range w.workloads {
		if of.o != nil && slices.ContainsFunc(of.was.Homes, func(h fleet.Home) bool { return h.Node == name }) {
			w.touch(of)
		}
	}
}

// touchEverywhere has the workloads decided about that have an instance on every node of an environment.
func (w *world) touchEverywhere(environment string) {
	for key, of := range w.workloads {
		if key.Namespace == environment && of.o != nil && of.o.Spec.Mode == declared.PerNode {
			w.touch(of)
		}
	}
}

// sight tells decisions and the scheduler how a host stands.
func (w *world) sight(h *host, now time.Time) {
	p := h.seen.Presence
	switch {
	case p != node.Gone:
		h.goneAt = time.Time{}
	case !h.goneAt.IsZero():
	case !h.gone.IsZero() && h.gone.Before(w.began):
		h.goneAt = h.gone // it was, before this server began to lead
	default:
		h.goneAt = now
	}
	if h.seen.Report != nil && h.seen.Report.Offers != nil {
		h.offers = h.seen.Report.Offers
	}
	if h.seen.Host != nil {
		h.images = h.seen.Host.Images
	}
	// It may have been back since the last round, and have been told that it was heard. One that is silent is told so with each report.
	switch {
	case p != node.Gone && p != node.Silent:
		h.missedAt = time.Time{}
	case h.missedAt.IsZero() || h.seen.Since.After(h.missedAt):
		h.missedAt = now
	}
	if p == node.Silent && h.seen.Heard.After(h.missedAt) {
		h.missedAt = h.seen.Heard
	}
	w.sights[h.name] = fleet.Node{Presence: p, Gone: h.goneAt, Missed: h.missedAt, Closed: h.unschedulable || h.drain != nil}
	if h.joined {
		w.snapshot.SetNode(h.offered())
	} else {
		w.snapshot.RemoveNode(h.name)
	}
}

// offered is a host as the scheduler sees it.
func (h *host) offered() scheduler.Node {
	n := scheduler.Node{Node: fit.Node{Name: h.name, Unschedulable: h.unschedulable || h.drain != nil, Unhealthy: h.unhealthy()}}
	n.Labels = make(map[string]string, len(h.labels)+4)
	maps.Copy(n.Labels, h.labels)
	n.Labels[v1alpha1.LabelEnvironment] = h.environment
	for _, t := range h.taints {
		n.Taints = append(n.Taints, fit.Taint{Taint: t, Since: h.taintedAt[t]})
	}
	if o := h.offers; o != nil {
		n.Architecture, n.Devices, n.Directories, n.Images = o.Arch, o.Devices, o.Directories, h.images
		n.Capacity = fit.Amounts{CPU: o.CPU, Memory: o.Memory, Disk: o.Disk}
		for _, r := range o.Runtimes {
			n.Runtimes = append(n.Runtimes, declared.Runtime(r))
		}
	}
	return n
}

// unhealthy is why nothing is placed on a host; empty: it is.
func (h *host) unhealthy() string {
	switch p := h.seen.Presence; {
	case !h.known || p == node.Unheard:
		return "was not heard yet by this server"
	case p == node.Silent:
		return "its agent does not answer"
	case p == node.Gone:
		return "is gone"
	case !h.seen.Believed:
		return "two agents have its identity"
	case h.offers == nil:
		return "its agent takes no instances"
	}
	return ""
}

// hear takes in what the presence knows by now.
func (c *Workloads) hear(w *world, now time.Time) {
	type change struct {
		*host
		seen  presence.Seen
		known bool
	}
	var changed []change
	names, all, asked := c.options.Presence.Since(w.asked)
	for _, name := range names {
		w.unasked[name] = true
	}
	ask := func(h *host) {
		seen, known := c.options.Presence.Of(h.uid)
		if known != h.known || seen.Presence != h.seen.Presence || !seen.Since.Equal(h.seen.Since) || seen.Believed != h.seen.Believed || seen.Report != h.seen.Report || later(seen, h.seen) {
			changed = append(changed, change{h, seen, known})
		}
	}
	for name := range w.unasked {
		if h := w.hosts[name]; h != nil && !all {
			ask(h)
		}
	}
	if all {
		for _, h := range w.hosts {
			ask(h)
		}
	}
	w.asked, w.unasked = asked, map[string]bool{}
	slices.SortFunc(changed, func(a, b change) int { return cmp.Compare(a.name, b.name) })
	for _, one := range changed {
		h, seen, known := one.host, one.seen, one.known
		was, offers := h.seen, h.offers
		h.seen, h.known = seen, known
		if was.Presence != seen.Presence || !was.Since.Equal(seen.Since) || was.Believed != seen.Believed || later(seen, was) || !reflect.DeepEqual(offersOf(seen.Report, offers), offers) || was.Report == nil {
			w.sight(h, now)
			w.settleHost(h, false)
		} else if seen.Host != nil && !slices.Equal(seen.Host.Images, h.images) {
			w.sight(h, now) // nothing waits for that: it is where the next one goes
		}
		if seen.Report != nil && seen.Report != h.last && seen.Believed {
			w.observe(h, now)
		}
	}
}

// later reports whether a node that is silent was heard since. It is still called so where it comes and goes.
func later(is, was presence.Seen) bool {
	return is.Presence == node.Silent && is.Heard.After(was.Heard)
}

// offersOf are those of a report, where it has any.
func offersOf(r *wire.Report, otherwise *wire.Offers) *wire.Offers {
	if r == nil || r.Offers == nil {
		return otherwise
	}
	return r.Offers
}

// count finds out whether all were heard, and whether too many are gone.
func (w *world) count(now time.Time) {
	if w.deaf {
		w.deaf = now.Before(w.began.Add(node.UnheardMax)) && w.unheard()
		if !w.deaf {
			for _, of := range w.workloads {
				w.touch(of)
			}
		}
	}
	if !w.counted {
		return
	}
	w.counted = false
	all, gone := map[string]int{}, map[string]int{}
	for _, h := range w.hosts {
		if !h.joined {
			continue
		}
		for _, group := range []string{"", h.environment} {
			all[group]++
			if h.seen.Presence == node.Gone {
				gone[group]++
			}
			if h.environment == "" {
				break
			}
		}
	}
	brakes := map[string]string{}
	for group := range gone {
		whole := "of the fleet"
		if group != "" {
			whole = "of " + group
		}
		if why := node.Brake(gone[group], all[group], whole); why != "" {
			brakes[group] = why
		}
	}
	for _, of := range w.workloads {
		if w.brake(of.key.Namespace) != brakeOf(brakes, of.key.Namespace) {
			w.touch(of)
		}
	}
	w.brakes = brakes
}

// brake is why nothing is replaced now in an environment; empty: it is.
func (w *world) brake(environment string) string { return brakeOf(w.brakes, environment) }

func brakeOf(brakes map[string]string, environment string) string {
	if why := brakes[""]; why != "" {
		return why
	}
	return brakes[environment]
}

// unheard: some host has not had its say yet.
func (w *world) unheard() bool {
	for _, h := range w.hosts {
		if h.joined && (!h.known || h.seen.Presence == node.Unheard) {
			return true
		}
	}
	return false
}

// quiet is when all nodes had the time to be heard.
func (w *world) quiet() time.Time {
	if w.deaf {
		return w.began.Add(node.UnheardMax)
	}
	return w.began
}

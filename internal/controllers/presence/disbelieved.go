package presence

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// disbelieved is how much a host has not believed, in all.
func disbelieved(r wire.Refused) uint64 { return r.Forged + r.Old + r.Equivocation + r.Content }

func disbelievedOf(r wire.Refused) *v1alpha1.Disbelieved {
	if disbelieved(r) == 0 {
		return nil
	}
	return &v1alpha1.Disbelieved{Forged: int64(r.Forged), Old: int64(r.Old), Equivocation: int64(r.Equivocation), Content: int64(r.Content)}
}

// disbeliefLocked is what people are told when a host has not believed something since they were told last.
func (e *entry) disbeliefLocked() []event {
	if !e.doubts.disbelieves {
		return nil
	}
	e.doubts.disbelieves = false
	r := e.report.Refused
	return []event{{e.reference(), core.EventTypeWarning, "Disbelieved", fmt.Sprintf(
		"its host was sent what it does not believe: since its agent was installed %d forged and %d older states, %d that contradict another one, %d parts that are not what was asked for",
		r.Forged, r.Old, r.Equivocation, r.Content)}}
}

// metrics are what is measured of all nodes.
func (r *Register) metrics() []prometheus.Collector {
	var all []prometheus.Collector
	for what, of := range map[string]func(wire.Refused) uint64{
		"forged": func(x wire.Refused) uint64 { return x.Forged }, "old": func(x wire.Refused) uint64 { return x.Old },
		"equivocation": func(x wire.Refused) uint64 { return x.Equivocation }, "content": func(x wire.Refused) uint64 { return x.Content },
	} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tako_presence_disbelieved", ConstLabels: prometheus.Labels{"what": what},
			Help: "What the hosts that were heard have been sent and did not believe, since their agents were installed.",
		}, func() float64 { return r.sum(of) }))
	}
	for _, is := range presences() {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tako_presence_nodes", ConstLabels: prometheus.Labels{"presence": is.String()},
			Help: "Nodes, by whether their hosts are there.",
		}, func() float64 { return r.count(is) }))
	}
	return append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tako_presence_behind_nodes", Help: "Hosts that were heard and do not enforce the newest state that there is for them.",
	}, func() float64 { return float64(r.lag(time.Now()).hosts) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tako_presence_lag_seconds", Help: "For how long the host has not been at its newest state that is behind the longest.",
	}, func() float64 { return r.lag(time.Now()).longest.Seconds() }))
}

// lag is how many hosts are behind, and for how long the one is that is so the longest.
type lag struct {
	hosts   int
	longest time.Duration
}

func (r *Register) lag(now time.Time) (all lag) {
	enforced := map[types.UID]catalog.Mark{}
	r.mu.Lock()
	for uid, e := range r.nodes {
		if e.known && e.report != nil {
			enforced[uid] = e.report.Enforced
		}
	}
	r.mu.Unlock()
	for uid, mark := range enforced {
		head, ok := r.options.Assigned(uid)
		if !ok || head.Epoch == numberOf(mark.Epoch) && head.Version == numberOf(mark.Version) {
			continue
		}
		all.hosts++
		if head.Since != nil {
			all.longest = max(all.longest, now.Sub(head.Since.Time))
		}
	}
	return all
}

func presences() []node.Presence {
	return []node.Presence{node.Unheard, node.Here, node.Silent, node.Gone}
}

// count is how many nodes there are of a presence.
func (r *Register) count(is node.Presence) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.names {
		if e.said.Presence == is {
			n++
		}
	}
	return float64(n)
}

func (r *Register) sum(of func(wire.Refused) uint64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := uint64(0)
	for _, e := range r.nodes {
		if e.report != nil {
			sum += of(e.report.Refused)
		}
	}
	return float64(sum)
}

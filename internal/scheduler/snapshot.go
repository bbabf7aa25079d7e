package scheduler

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// Node is what is known of one node.
type Node struct {
	fit.Node
	Images []string // those that it has, by digest or path
	// Revision is that of the node's column in the store: what was written of the node, and what is placed there.
	Revision int64
}

// Workload is one revision of one workload. Instances of it are alike.
type Workload struct {
	Key       string // NAMESPACE/NAME, and what tells it from one of that name before
	Revision  string
	Namespace string
	Labels    map[string]string // of the template
	Priority  int32
	Request   fit.Request
	Placement workload.Placement
	Images    []string
}

// Instance is one that has a node.
type Instance struct {
	Name     string // NAMESPACE/NAME
	Workload string // the key
	Revision string
	Node     string
	Ending   bool // it was told to go, and holds what it has until its processes have ended
}

// classKey names a revision of a workload.
type classKey struct{ Workload, Revision string }

// class is what the instances of one revision of one workload have in common.
type class struct {
	key      classKey
	spec     Workload
	needs    []need
	rules    []rule
	keeps    []string        // what its instances keep away from themselves
	keepers  []*counter      // where such instances of any class are
	feeds    []*counter      // in which its instances are counted
	repelled []*counter      // where instances are that keep it away
	on       map[int32]tally // its instances by node
	count    int             // instances, and rooms kept for some
	ending   int             // of them, those that are ending
	evicting int             // of them, those that we have told to go and that have not begun to
	gone     bool            // it is not declared any more
}

// need is one condition of a selector of nodes.
type need struct {
	selector declare.Selector
	text     string
}

// tally counts instances of one class on one node.
type tally struct{ live, ending int32 }

func (t tally) counted(ending bool) int32 {
	if ending {
		return t.live + t.ending
	}
	return t.live
}

// instance is one, or room that is kept for one.
type instance struct {
	name     string // of the group, where it is kept room
	class    *class
	node     int32
	slot     int32 // its place in the node's list
	room     bool  // it is kept room: it holds, and counts nowhere
	ending   bool
	evicting bool // we have said that it is to go
	assumed  bool // the store has not answered yet
}

// nodeState is one node with what is on it.
type nodeState struct {
	Node
	there   bool
	on      []int32 // instances
	devices map[string]int64
	ports   map[fit.Port][]int32
	tiers   []tier
	onWay   int // bindings whose answer is not there
}

// tier is what the instances of one priority hold of a node and could give back.
type tier struct {
	priority int32
	count    int32
	amounts  fit.Amounts
}

// Snapshot is all that decisions depend on. One goroutine owns it.
type Snapshot struct {
	seed       uint64
	nodes      []nodeState
	left       []fit.Amounts // of each node: apart, because every decision reads it
	capacity   []fit.Amounts
	ties       []uint64 // the place of each among those that are equally good
	numbers    map[string]int32
	unused     []int32
	all        bitset // the nodes that are there
	attributes attributes
	ports      map[fit.Port]bitset
	holding
	topologies map[string]*topology
	counters   map[string]*counter
	avoided    avoidance
	changes    changes
	pass       pass
}

// holding are the instances, and whose they are.
type holding struct {
	instances []instance
	free      []int32
	names     map[string]int32
	classes   map[classKey]*class
	revisions map[string][]*class // of each workload
	budgets   map[string]int      // how many of a workload may be told to go, as it was told last
	rooms     map[string][]int32  // kept for each group
}

// New is a snapshot of nothing. The seed decides among what is equally good.
func New(seed uint64) *Snapshot {
	return &Snapshot{seed: seed, numbers: map[string]int32{}, attributes: newAttributes(), ports: map[fit.Port]bitset{},
		holding: holding{names: map[string]int32{}, classes: map[classKey]*class{}, revisions: map[string][]*class{}, budgets: map[string]int{},
			rooms: map[string][]int32{}},
		topologies: map[string]*topology{}, counters: map[string]*counter{}, avoided: newAvoidance()}
}

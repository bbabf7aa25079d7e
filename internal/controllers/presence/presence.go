package presence

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// Objects is where Nodes are, with the errors of the API. *registry.Local is one.
type Objects interface {
	// Cached reads a version that may be late, into an object that is not shared.
	Cached(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// UpdateStatus writes the status, if the object is still the version that was read.
	UpdateStatus(ctx context.Context, o runtime.Object) error
	// ListerWatcher lists and watches all objects of a kind. The objects may be shared.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Recorder makes Events. It does not wait.
type Recorder interface {
	// Tell notes that something has happened to an object.
	Tell(about core.ObjectReference, kind, why, words string)
}

// Measures takes what hosts say that their instances take. *measures.Usage is one.
type Measures interface {
	// Take notes what a report says. The answer is after how long the host is to report again though nothing changes; 0: nobody waits for that. It
	// must not block.
	Take(node types.UID, r *wire.Report, now time.Time) time.Duration
}

// Options say what to work with. Objects and Recorder are required.
type Options struct {
	Objects  Objects
	Recorder Recorder
	// Assigned is the newest signed state of a node, or what will be; false when there is none. It must not block. Default: never one.
	Assigned func(node types.UID) (v1alpha1.AppliedHead, bool)
	// Leads says whether this server leads at a moment, by its own clock: leases of hosts are put off by nobody else. It must not block. Default: always.
	Leads func(time.Time) bool
	// Measures takes what instances take. Default nobody does.
	Measures Measures
	// Lease is the shortest lease of a copy that may be placed on a node of an environment; 0: none has one. It must not block. Default: none.
	Lease func(environment string) time.Duration
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where the metrics tako_presence_* are registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
}

// Register is what is known of all nodes. Use New. It is safe for concurrent use.
type Register struct {
	options Options
	began   time.Time
	nudge   chan struct{} // holds one: something was noted
	changed chan struct{} // holds one: there are changes

	mu      sync.Mutex // guards what follows, and all entries; nothing outside of this package is called with it, but pure functions
	nodes   map[types.UID]*entry
	names   map[string]*entry   // of those that have an object
	herd    node.Herd           // those that are away and may come back, all together
	noted   []*entry            // to be decided about
	wakes   wakes               // when to decide again
	changes map[string]struct{} // names of nodes
	told    []chan struct{}     // hold one each: who else is told of changes
	journal journal
	saves   saves // those that have something to store, and are not being stored
}

var _ server.Presence = (*Register)(nil)

// New makes a register of nodes that nobody has heard yet, and starts nothing. The error is InternalFault, for options that make no
// sense.
func New(options Options) (*Register, error) {
	if options.Objects == nil || options.Recorder == nil || options.Objects.ListerWatcher(kindNode, false) == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the presence of nodes", Cause: errors.New("no way to the Nodes or to the Events is given")}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Assigned == nil {
		options.Assigned = func(types.UID) (v1alpha1.AppliedHead, bool) { return v1alpha1.AppliedHead{}, false }
	}
	if options.Lease == nil {
		options.Lease = func(string) time.Duration { return 0 }
	}
	if options.Leads == nil {
		options.Leads = func(time.Time) bool { return true }
	}
	return &Register{
		options: options, began: time.Now(), nudge: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		nodes: map[types.UID]*entry{}, names: map[string]*entry{}, changes: map[string]struct{}{},
	}, nil
}

var kindNode = v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNode)

// entry is one node. It may be heard before its object is seen: then nothing is decided about it, and without one it is forgotten.
type entry struct {
	subject
	key      string // of the host that speaks for it
	known    bool   // its object was seen
	away     bool   // it is one of the herd
	created  time.Time
	life     node.Life
	said     node.Decision // the last one; before the first, what is stored
	since    time.Time     // of its presence; zero: nothing was decided yet
	heard    time.Time
	report   *wire.Report // the last one; nil: none yet
	enforced time.Time    // since when it is about that state; zero: that was so when it was heard first
	host     *wire.Host   // what changes seldom, of the last report that had it
	doubts   doubts
	isNoted  bool
	wake     time.Time // zero: not by itself
	place    int       // in wakes; -1: not in it
	saving   saving
	waking
}

// waking is what paces how others are woken because of a node.
type waking struct {
	others   pending // what was noted may matter to others
	stirring pending // something else was heard of its instances
	telling  calm    // how often people were told
}

// subject is what a node is called, and the environment that it is in.
type subject struct {
	uid               types.UID
	name, environment string
}

func newEntry(uid types.UID, name string) *entry {
	return &entry{subject: subject{uid: uid, name: name}, place: -1, saving: saving{place: -1}}
}

// doubts are about a host, and of the host.
type doubts struct {
	judged      bool          // whether the store knows what the host has accepted was found out
	suspect     string        // and it does not
	disbelieves bool          // the host has disbelieved something since people were told
	ahead       time.Duration // how far the host's clock was before ours when its last report came
}

// Opened is told of a watch that a host has opened.
func (r *Register) Opened(who server.Identity, conn uint64) {
	r.note(who, func(e *entry, now time.Time) {
		if e.key != who.Key {
			// A person has put another host in the place of the one before, whose key is refused from now on. What was known of that one,
			// such as that it had a copy, says nothing of this one.
			e.forgetHost()
			e.key = who.Key
		}
		e.life.Opened(conn, who.Through, now)
	})
}

// forgetHost lets go what is known of the host. Where none was heard since this server began, what is stored of the node stays: it may
// be the same one.
func (e *entry) forgetHost() {
	e.life, e.report, e.host, e.doubts = node.Life{}, nil, nil, doubts{}
	if e.key == "" {
		return
	}
	e.said.Believed, e.said.High = true, catalog.Mark{}
	e.said.Conditions = slices.DeleteFunc(slices.Clone(e.said.Conditions), func(c node.Condition) bool { return c.Type == node.Cloned })
}

// Closed is told that it has ended.
func (r *Register) Closed(who server.Identity, conn uint64, dead bool) {
	r.note(who, func(e *entry, now time.Time) { e.life.Closed(conn, dead, now) })
}

// Asked is told of a heartbeat.
func (r *Register) Asked(who server.Identity, conn uint64) {
	r.note(who, func(e *entry, now time.Time) { e.life.Asked(conn, now) })
}

// Heard is told of a report, and keeps it where it is news: what was overtaken, or was left of a connection that is over, is none. The answer says for how long the host may be silent, after how long it is to report in any case, and that it
// was heard: not while the node counts as gone, from when on its leases are taken to run out, however soon it is back.
func (r *Register) Heard(who server.Identity, conn uint64, report *wire.Report) wire.StatusReply {
	var reply wire.StatusReply
	var every time.Duration
	past := false
	share(report)
	r.note(who, func(e *entry, now time.Time) {
		if past = e.hear(conn, report, now) == node.Past; past {
			return
		}
		if least, most := node.Quiet(len(r.names)); most > 0 {
			quiet := (least + rand.N(most-least)).Truncate(time.Second)
			reply.RetryAfter = uint32(quiet / time.Second)
			e.life.Spared(now.Add(quiet))
		}
		if e.known && e.said.Presence != node.Gone && r.options.Leads(time.Now()) {
			reply.Echo = report.Echo
		}
		every = node.ReportEvery(r.options.Lease(e.environment))
		reply.Cloned = e.known && !e.said.Believed && len(e.said.Conditions) > 0
	})
	if m := r.options.Measures; m != nil && !past {
		if usage := m.Take(types.UID(who.UID), report, time.Now()); usage > 0 && (every == 0 || usage < every) {
			every = usage
		}
	}
	reply.UsageEvery = uint32(every / time.Second)
	return reply
}

// Judged is told whether the store knows the highest state that a host says it has accepted; wrong is why not, for people, and empty
// where it does.
func (r *Register) Judged(who server.Identity, wrong string) {
	r.mu.Lock()
	e := r.nodes[types.UID(who.UID)]
	same := e != nil && e.doubts.judged && e.doubts.suspect == wrong
	r.mu.Unlock()
	if !same {
		r.note(who, func(e *entry, _ time.Time) { e.doubts.judged, e.doubts.suspect = true, wrong })
	}
}

// note changes the entry of a node, and has it decided about.
func (r *Register) note(who server.Identity, change func(*entry, time.Time)) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.nodes[types.UID(who.UID)]
	if e == nil {
		e = newEntry(types.UID(who.UID), who.Name)
		r.nodes[e.uid] = e
		r.wakeLocked(e, now.Add(unknownMax))
		signal(r.nudge) // for the time to forget it
	}
	was := e.life.Away()
	change(e, now)
	switch is := e.life.Away(); {
	case is && !was:
		e.away = true
		r.herd.Left()
	case !is && e.away:
		e.away = false
		r.herd.Returned(now)
	}
	r.noteLocked(e)
}

// dropLocked has a node not be waited for with the herd any more.
func (r *Register) dropLocked(e *entry) {
	if e.away {
		e.away = false
		r.herd.Dropped()
	}
}

func (r *Register) noteLocked(e *entry) {
	if !e.isNoted && e.known {
		e.isNoted = true
		r.noted = append(r.noted, e)
		signal(r.nudge)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is on its way
	}
}

// hear takes a report in, and says what it is worth.
func (e *entry) hear(conn uint64, report *wire.Report, now time.Time) node.Worth {
	worth := e.life.Heard(node.Report{
		Session: node.Session{ID: report.Session.ID, Start: report.Session.Start}, Number: report.Number, Conn: conn, Have: report.Have,
	}, now)
	if worth == node.Past {
		return worth
	}
	e.heard = now
	old := e.report
	if old != nil && worth != node.News {
		return worth
	}
	if old != nil {
		e.doubts.disbelieves = e.doubts.disbelieves || disbelieved(report.Refused) > disbelieved(old.Refused)
	}
	if old != nil && (old.Enforced.Epoch != report.Enforced.Epoch || old.Enforced.Version != report.Enforced.Version) {
		e.enforced = now
	}
	e.stirring.is = e.stirring.is || old == nil || stirs(old, report) || report.Host != nil && e.host != nil && !slices.Equal(report.Host.Images, e.host.Images)
	e.report, e.doubts.ahead = report, time.UnixMilli(report.At).Sub(now)
	if report.Host != nil {
		e.others.is = e.others.is || e.host != nil && e.host.Peer != report.Host.Peer
		e.host = report.Host
	}
	e.others.is = e.others.is || old == nil || tellsOther(old, report)
	return worth
}

// Seen is what is known of a node now.
type Seen struct {
	Presence node.Presence
	// Since is since when that is so, by the clock of this server; zero: nothing was decided yet.
	Since time.Time
	// Heard is when a report was heard last; zero: never.
	Heard time.Time
	// Believed is false while two agents have the identity of the node.
	Believed bool
	// Report is the last one; nil before the first. It is shared: change nothing in it.
	Report *wire.Report
	// Host is what changes seldom, as it was told last; nil before. It is shared, too.
	Host *wire.Host
	// Highest is the highest state that the node has taken up, as far as it is known.
	Highest catalog.Mark
}

// Of returns what is known of a node; false when there is none with this UID. Before something was decided about it, it is unheard.
func (r *Register) Of(uid types.UID) (Seen, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.nodes[uid]
	if e == nil || !e.known {
		return Seen{}, false
	}
	return Seen{Presence: e.said.Presence, Since: e.since, Heard: e.heard, Believed: e.said.Believed, Report: e.report, Host: e.host, Highest: e.said.High}, true
}

// Changed has something to receive when Changes has something to return. It is the same channel always, for one receiver.
func (r *Register) Changed() <-chan struct{} { return r.changed }

// Tell has c hold something whenever something else is to be said of nodes, or is heard of their instances, until stop is called. c must have room for
// one.
func (r *Register) Tell(c chan struct{}) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, c)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = slices.DeleteFunc(r.told, func(other chan struct{}) bool { return other == c })
	}
}

// Changes returns the names of the nodes of which something else is to be decided than at the last call: their presence, their
// verdicts. A heartbeat that says what the one before said is no change.
func (r *Register) Changes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.changes))
	for name := range r.changes {
		names = append(names, name)
	}
	clear(r.changes)
	return names
}

// Package host is the contract between the agent and the types of host resources. Each type lives in its own folder below
// this one, implements Type, and passes hosttest. The agent knows this contract only; the types know nothing of the agent,
// of one another, or of order: the graph core decides what runs when.
//
// The life of a resource: Bind (once per declaration) -> Check (observes and plans, writes nothing) -> Apply (carries out
// exactly that plan) -> Check again whenever the kernel or systemd says that something touched it -> Remove, when it has
// left the declaration. Methods are called from several goroutines, but never twice at once for one Resource.
// The package owns no goroutine.
package host

import (
	"context"
	"path"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
)

// Depth says how hard a check looks.
type Depth uint8

// The depths.
const (
	Shallow Depth = iota // one look at what the resource remembers of itself (a stat); deeper only where that differs
	Deep                 // everything, content included, whatever is remembered
	Explain              // Deep, and the plan carries the texts that a diff shows
)

// Type carries out one resource type.
type Type interface {
	// Lane says how much of this type runs at once, in what batches, at what rate.
	Lane() converge.Lane
	// Bind makes a declared resource ready on this host. It may read (users, groups) and must not write. An error is
	// final until the declaration changes if its code says so, otherwise Bind is tried again. Of one that is Leaving, what only Check and
	// Apply need is no reason for an error: the user who owns a file may have gone before it.
	Bind(ctx context.Context, d Declared) (Resource, error)
	// Check observes the resources and plans what would make them as declared; it writes nothing and runs nothing that could.
	// plans[i] belongs to rs[i].
	Check(ctx context.Context, rs []Resource, depth Depth) (plans []Plan)
	// Apply carries out plans that Check made, all of this type and none empty; results[i] belongs to plans[i]. What Apply
	// reports as done is durable. A resource that has changed since its Check is left alone with reason.ConcurrentEdit.
	Apply(ctx context.Context, plans []Plan) (results []Result)
	// Original describes what is there now so that Remove can put it back; old content is made durable before it
	// returns. It is called before the first Apply of a resource that is declared with onRemove: restore.
	Original(ctx context.Context, r Resource) ([]byte, error)
	// Remove undoes a resource that is not declared any more. how is delete or restore; original is what Original
	// returned, for restore. It is idempotent: what is already gone or already back is success. A thing that is not as tako
	// left it (another type, a directory with entries) is not destroyed but an error.
	Remove(ctx context.Context, r Resource, how declare.OnRemove, original []byte) error
}

// Refresher is a Type whose resources can be notified.
type Refresher interface {
	// Refresh acts on a notification whose cause became visible at since: it restarts, reloads, or finds that a start
	// later than since has satisfied it. It returns nil only when nothing is left to do.
	Refresh(ctx context.Context, r Resource, since Stamp) (Refreshed, error)
}

// Satisfier is a Refresher that can tell, and changes nothing, whether somebody else has done what a notification asks for. Outside of its
// windows a resource is asked that instead of being refreshed.
type Satisfier interface {
	Satisfied(ctx context.Context, r Resource, since Stamp) (done bool, note string)
}

// Sweeper is a Type that leaves something behind when it is killed.
type Sweeper interface {
	// Sweep removes what a killed run left in directories, which are those that resources of the type stand in, and keeps old content that is among
	// it. It is called before the first Check, and of files before that of others.
	Sweep(ctx context.Context, dirs []string) error
}

// Around are the directories that a resource is told of, which it stands in, and those above, in which it makes them where they are missing; but those of the
// kernel, which nobody has made.
func Around(r Resource) (dirs []string) {
	for _, w := range r.Watches() {
		dir := w.Name
		switch {
		case strings.HasPrefix(w.Name, "/proc/") || strings.HasPrefix(w.Name, "/sys/"):
			continue
		case w.Kind == WatchPath:
			dir = path.Dir(w.Name)
		case w.Kind != WatchEntries && w.Kind != WatchNames:
			continue
		}
		dirs = append(dirs, dir, path.Dir(dir))
	}
	return dirs
}

// Keeper is a Type that keeps old content.
type Keeper interface {
	// Forget drops old content that has been kept for long enough. originals are all that Original has returned and that
	// Remove may still get: what these need stays. It may run beside every other method.
	Forget(ctx context.Context, originals [][]byte) error
}

// Declared is one resource as the agent gives it to Bind.
type Declared struct {
	Title    string           // TYPE/NAME, for messages
	Key      string           // its claim as text: what nothing else on this host has, whatever config it is of
	Resource declare.Resource // validated and expanded; Bind keeps no content of it
	// Body reads the resource again, for what is too large to keep in memory.
	Body func() (declare.Resource, error)
	// Below lists what else is declared for this host that stands below a directory, sorted by path, as of now. It may be called from any
	// goroutine; the list is not to be changed. Nil where nobody can tell.
	Below func(dir string) []Place
	// Leaving says that it is not declared any more: nothing but Remove will be asked of it.
	Leaving bool
}

// Shared returns a path, such as that of a file, out of the key where that ends with it: so it is in memory once.
func (d *Declared) Shared(path string) string {
	if rest := len(d.Key) - len(path); rest >= 0 && d.Key[rest:] == path {
		return d.Key[rest:]
	}
	return path
}

// Place is a path at which something declared stands.
type Place struct {
	Path  string
	Whole bool // its resource answers for everything below, too
}

// Resource is one bound resource. It is small: large content stays behind Declared.Body. It may remember what it saw last.
type Resource interface {
	// Watches lists what tells when the resource is touched. Empty means that nothing does. It is the same each time, but of a Following.
	Watches() []Watch
}

// Following is a Resource for which other things tell when a check has found it elsewhere, or more of it.
type Following interface {
	// Follow returns the watches to drop and to add since it was called last. Watches are what they are with these from then on, and not
	// before. Where any are to be added, the resource has to be checked again after that: something may have come before its watch.
	// It is called after a check has ended, and not beside another method.
	Follow() (drop, add []Watch)
}

// Enclosing is a Resource that is about everything below a directory. What else is declared there matters to it, so it is checked again
// when that has changed; and what it has found below tells about it, too.
type Enclosing interface {
	Following
	// Encloses is the path of the directory.
	Encloses() string
}

// WatchKind is a source of events.
type WatchKind uint8

// The sources.
const (
	WatchPath    WatchKind = iota // the thing at a path
	WatchEntries                  // every entry of a directory
	WatchNames                    // which entries a directory has, with their owners and modes, but not what is in them
	WatchUnit                     // a systemd unit
	WatchPolled                   // a file of the kernel's own that tells by poll(2): /proc/self/mountinfo, /proc/swaps
	WatchTime                     // time: what nothing tells about, every so often. Name is how often, "30s"
)

// Watch is one subscription.
type Watch struct {
	Kind WatchKind
	Name string // path or unit name
}

// Plan is what a check found. It is valid until the resource changes.
type Plan struct {
	Resource Resource
	// Err says why the check could not be made; then the rest is empty. But with Explain, where the directory is missing that the resource
	// stands in, Changes may be what Apply will do in a new one.
	Err     error
	Changes []Change // what Apply will do; empty when the resource is as declared
	Unknown string   // why it cannot be told without running; such a plan is not empty and may be applied
	// Recognised says that a Shallow check saw just what the resource remembered, so that it looked no further.
	Recognised bool
	State      any // the type's own: what Apply needs
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return p.Err == nil && len(p.Changes) == 0 && p.Unknown == "" }

// Change is one difference between what is and what is declared.
type Change struct {
	Field string // "content", "mode", "state", ...; "" for the thing as a whole
	From  string // what is, short, for a person; empty when there is nothing
	To    string // what is declared
	// Text carries the whole texts of a content change, with Depth Explain and when they are not private.
	Text *Text
}

// Text is a content change in full.
type Text struct{ From, To []byte }

// Result is what became of one plan.
type Result struct {
	Err     error
	Changed bool   // something on the host changed, also when Err is set
	Note    string // what else a person should know: a hard link was broken, a backup's digest
}

// Refreshed says how a notification was satisfied.
type Refreshed struct {
	Acted bool   // false: it already was
	Note  string // "restarted", "was restarted by somebody else at ..."
}

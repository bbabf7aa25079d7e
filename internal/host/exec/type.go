package exec

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// laneParallel is how many commands and guards run at once. Most of their time is waiting, and one may wait for a day.
const laneParallel = 8

// recordDir is where records are, in the state directory.
const recordDir = "exec"

// Options are what New needs.
type Options struct {
	Sandbox bool // paths begin below a sandbox directory; commands would run outside of it
	// Root is the host's own root. Nil in a sandbox only.
	Root *disk.Root
	// StateDir is absolute; what has run is recorded below it.
	StateDir string
	// Warden is how a program is started that calls command.Serve; see command.NewWarden. Empty means that no command can be run.
	Warden []string
}

// Type is the resource type exec.
type Type struct {
	sandbox bool
	root    *disk.Root
	records string
	warden  *command.Warden // nil where no command can be run
	ids     identities
}

var (
	_ host.Type      = (*Type)(nil)
	_ host.Refresher = (*Type)(nil)
	_ host.Sweeper   = (*Type)(nil)
)

// New makes the Type.
func New(o Options) *Type {
	t := &Type{sandbox: o.Sandbox, root: o.Root, records: filepath.Join(o.StateDir, recordDir), ids: newIdentities()}
	if len(o.Warden) > 0 {
		t.warden = command.NewWarden(o.Warden)
	}
	return t
}

// Lane returns the lane of commands.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeExec), Parallel: laneParallel, Batch: 1}
}

// resource is one declared command.
type resource struct {
	title       string
	record      string // path of its record
	body        func() (declare.Resource, error)
	creates     string
	declared    [sha256.Size]byte // of everything declared
	digest      [sha256.Size]byte // of what is run; see digestOf
	refreshOnly bool
	guarded     bool     // has unless or onlyIf
	asked       []string // paths that guards ask for; see askedPaths
	frozen      bool     // it runs in its windows only
	trust       trust
}

// trust is what is known of a guard's word when it is sealed.
type trust uint8

const (
	unproven trust = iota // it has not been asked for real yet
	truthful              // it has said the same for real
	misled                // it has said something else: the seal is in its way
)

// Watches names what the command creates, and what guards of test(1) ask for. Nothing tells when another guard would say something else.
func (r *resource) Watches() []host.Watch {
	if r.refreshOnly {
		return nil
	}
	var watches []host.Watch
	if r.creates != "" {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: r.creates})
	}
	for _, p := range r.asked {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: p})
	}
	return watches
}

// askedPathsMax bounds what is watched of one command: a guard that asks for more of them does not end at each of them.
const askedPathsMax = 16

// askedPaths are the paths that guards of the form `test -e PATH` are about.
func askedPaths(guards ...[]string) []string {
	var paths []string
	for _, args := range guards {
		if len(args) == 0 || path.Base(args[0]) != "test" {
			continue
		}
		for _, arg := range args[1:] {
			if path.IsAbs(arg) && arg == path.Clean(arg) && arg != "/" && len(paths) < askedPathsMax && !slices.Contains(paths, arg) {
				paths = append(paths, arg)
			}
		}
	}
	return paths
}

// Bind makes a command ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	e := d.Resource.Exec
	switch {
	case e == nil:
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a command")}
	case t.sandbox:
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: "run " + d.Title, Hint: "a sandbox has files only: a command would run outside of it"}
	case t.warden == nil:
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("the agent was started without a way to run commands")}
	}
	return &resource{
		title: d.Title, record: filepath.Join(t.records, nameOf(d.Key)), body: d.Body, creates: e.Creates,
		declared: sum(e), digest: digestOf(e), refreshOnly: e.RefreshOnly, guarded: len(e.Unless) > 0 || len(e.OnlyIf) > 0,
		asked: askedPaths(e.Unless, e.OnlyIf), frozen: d.Resource.Frozen(),
	}, nil
}

// doing is what an error of this resource begins with.
func (r *resource) doing() string { return "run " + r.title }

// read reads the declaration again. It may have been replaced since Bind; then the plan that asks for it is void.
func (r *resource) read() (*declare.Exec, error) {
	d, err := r.body()
	if err != nil {
		return nil, err
	}
	if d.Exec == nil || sum(d.Exec) != r.declared {
		return nil, &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("its declaration has just been replaced")}
	}
	return d.Exec, nil
}

// sum is a digest of a declared command or a part of one. The same text comes of the same declaration in every version, because absent
// fields are left out and maps are sorted.
func sum(e *declare.Exec) [sha256.Size]byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("encode a command: " + err.Error()) // it has texts, numbers and booleans only
	}
	return sha256.Sum256(b)
}

// digestOf is the digest of what is run and how. When that changes, a command without a condition runs again; what only decides
// whether it runs, or for how long, is no reason to.
func digestOf(e *declare.Exec) [sha256.Size]byte {
	return sum(&declare.Exec{Command: e.Command, User: e.User, Group: e.Group, Directory: e.Directory, Environment: e.Environment, Umask: e.Umask})
}

// Original says nothing: what a command changes is not known, so it cannot be put back. No declaration asks for it.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	return nil, res.(*resource).lasting()
}

// Remove undoes nothing; see Original.
func (t *Type) Remove(_ context.Context, res host.Resource, _ declare.OnRemove, _ []byte) error {
	return res.(*resource).lasting()
}

func (r *resource) lasting() error {
	return &reason.Error{Code: reason.InternalFault, Doing: "undo " + r.title, Cause: errors.New("what a command has done cannot be undone, and no declaration may ask for it")}
}

// Sweep removes what a killed run has left of a record that was being written.
func (t *Type) Sweep(ctx context.Context, _ []string) error {
	if t.root == nil {
		return nil
	}
	if _, err := os.Lstat(t.records); err != nil {
		return nil // nothing has run yet
	}
	_, err := durable.SweepTemporaries(ctx, t.root, []string{t.records}, nil)
	return err
}

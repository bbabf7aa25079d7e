package upgrade

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// running is the program of this process, whatever has become of its file.
const running = "/proc/self/exe"

// fieldProgram is the one field that can differ.
const fieldProgram = "program"

// lookAgain is when a trial is looked at again, should its end not be heard of.
const lookAgain = 5 * time.Second

// Units is what is needed of systemd.
type Units interface {
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	QueueRestart(ctx context.Context, unit string, onlyIfActive bool) error
	MainPID(ctx context.Context, unit string) (int, error)
	Unit(ctx context.Context, unit string) (systemd.UnitState, error)
	Journal(ctx context.Context, unit string, since time.Time) string
}

// Options say what is upgraded, and with what.
type Options struct {
	Root     *disk.Root // not a sandbox's
	Sandbox  bool       // there is nothing to upgrade
	StateDir string     // absolute
	Objects  *content.Objects
	Units    Units // nil in a sandbox
	// Rehearse is what a program is called with to plan: it prints its Plan, see Summary, and writes nothing.
	Rehearse []string
}

// Type is the resource type agent. It is a host.Type.
type Type struct {
	Options
	dir     string // STATE/upgrade
	program string // path of the program of this process
	uid     uint32
	own     func() (content.Digest, error) // of the program of this process
	// awaitEnd waits until the agent ends, because it is restarted; but for tests.
	awaitEnd func(ctx context.Context) error
	*durable.Sweeper
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// New makes the Type, for an agent that runs as this process does.
func New(o Options) *Type {
	program, err := os.Readlink(running)
	if err != nil {
		program = ""
	}
	return &Type{Options: o, dir: filepath.Join(o.StateDir, "upgrade"), program: strings.TrimSuffix(program, " (deleted)"), uid: uint32(os.Geteuid()), own: sync.OnceValues(ownDigest), awaitEnd: ended, Sweeper: durable.NewSweeper(o.Root)}
}

// ownDigest is the digest of the program of this process.
func ownDigest() (content.Digest, error) {
	f, err := os.Open(running)
	if err != nil {
		return content.Digest{}, &reason.Error{Code: reason.InputOutput, Doing: "read the agent's own program", Cause: err}
	}
	defer f.Close()
	d, _, err := content.SumOf(context.Background(), f) // as long as a file of 20 MB takes
	if err != nil {
		return d, &reason.Error{Code: reason.InputOutput, Doing: "read the agent's own program", Cause: err}
	}
	return d, nil
}

// Lane returns the lane of upgrades: a host has one.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeAgent), Parallel: 1, Batch: 1}
}

// resource is the bound program.
type resource struct {
	digest content.Digest // what is declared; of a path, what it was when it was looked at last
	size   int64
	source string // path of the program; empty for an object
	key    string // of the resource, for who gives the object out

	sourceSeen, fileSeen sight          // the source, and the program's file, as they were hashed last
	there                disk.Signature // the program's file, as it was looked at last
	watches              []host.Watch
}

// Watches names the program's file, what it is to be made of, and the notes of a trial.
func (r *resource) Watches() []host.Watch { return r.watches }

const doing = "upgrade the agent"

// Bind makes the program ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	a := d.Resource.Agent
	if a == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not an agent")}
	}
	if t.Sandbox {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: doing, Cause: errors.New("a sandbox has no agent of its own")}
	}
	p := a.Program(runtime.GOARCH)
	if p == nil {
		return nil, &reason.Error{Code: reason.AgentNoProgram, Doing: doing, Cause: errors.New("this host is " + runtime.GOARCH), Hint: "add it to `programs`"}
	}
	r := &resource{source: p.Path, key: d.Key}
	for _, path := range []string{t.program, r.source, filepath.Join(t.dir, trialName), filepath.Join(t.dir, refusedName)} {
		if path != "" {
			r.watches = append(r.watches, host.Watch{Kind: host.WatchPath, Name: path})
		}
	}
	if o := p.Object; o != nil {
		var err error
		if r.digest, err = content.ParseDigest(o.Digest); err != nil {
			return nil, err
		}
		r.size = o.SizeBytes
		if t.Objects != nil {
			t.Objects.Use(r.digest)
			runtime.AddCleanup(r, t.Objects.Release, r.digest)
		}
	}
	return r, nil
}

// Check compares what runs, and what would run after a restart, with what is declared.
func (t *Type) Check(_ context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, res := range rs {
		plans[i].Resource = res
		plans[i].Changes, plans[i].Err = t.check(res.(*resource), depth)
	}
	return plans
}

func (t *Type) check(r *resource, depth host.Depth) ([]host.Change, error) {
	runs, err := t.own()
	if err != nil {
		return nil, err
	}
	var on trial
	if some, err := t.read(trialName, &on); err != nil {
		return nil, err
	} else if some {
		return nil, &reason.Error{Code: reason.AgentOnTrial, Doing: doing, Cause: errors.New(short(on.To) + " has not shown yet that it keeps this host"), After: lookAgain}
	}
	if r.source != "" {
		source, err := t.lookAtSource(r.source, &r.sourceSeen, depth)
		if err != nil {
			return nil, err
		}
		r.digest, r.size = source.digest, source.Size
	}
	file, err := t.look(t.program, &r.fileSeen, depth)
	if err != nil {
		return nil, err
	}
	r.there = file.Signature
	if file.digest == r.digest && runs == r.digest {
		return nil, nil
	}
	var refused refusal
	if some, err := t.read(refusedName, &refused); err != nil {
		return nil, err
	} else if some && refused.Digest == r.digest {
		return nil, &reason.Error{Code: reason.AgentPutBack, Doing: doing, Cause: errors.New(refused.Why), Evidence: refused.Said,
			Hint: "declare another program; to try this one again, rm " + filepath.Join(t.dir, refusedName)}
	}
	from := runs
	if runs == r.digest {
		from = file.digest // somebody has put another one in its place, which would run after the next start
	}
	return []host.Change{{Field: fieldProgram, From: short(from), To: short(r.digest)}}, nil
}

// sight is a file as it was seen, with its digest: zero where there is no regular file.
type sight struct {
	disk.Stat
	digest  content.Digest
	settled bool // no later change can leave it looking the same
}

// look hashes a file, where it is not as it was seen last.
func (t *Type) look(path string, seen *sight, depth host.Depth) (sight, error) {
	d, name, err := t.Root.Parent(path)
	if err != nil {
		return sight{}, err
	}
	defer d.Close()
	return lookIn(d, name, seen, depth)
}

func lookIn(d *disk.Dir, name string, seen *sight, depth host.Depth) (sight, error) {
	now, err := d.Stat(name)
	if err != nil {
		return sight{}, err
	}
	if now.Type() != unix.S_IFREG {
		*seen = sight{Stat: now}
		return *seen, nil
	}
	if depth == host.Shallow && seen.settled && now.Signature == seen.Signature {
		return *seen, nil
	}
	began := disk.Tick()
	sum, now, err := disk.NewHasher().File(d, name, now.Size)
	if err != nil {
		return sight{}, err
	}
	*seen = sight{Stat: now, digest: sum, settled: now.Ctime < began}
	return *seen, nil
}

// lookAtSource looks at where the program comes from, which nobody else may be able to change.
func (t *Type) lookAtSource(path string, seen *sight, depth host.Depth) (sight, error) {
	from := doing + " from " + disk.Shown(path)
	d, name, err := t.Root.Parent(path)
	if err != nil {
		return sight{}, err
	}
	defer d.Close()
	dir, err := d.Stat("")
	if err != nil {
		return sight{}, err
	}
	now, err := lookIn(d, name, seen, depth)
	if err != nil {
		return now, err
	}
	if now.Type() != unix.S_IFREG {
		return now, &reason.Error{Code: reason.SourceMissing, Doing: from, Hint: "put the file there; what makes it can be named in `require`"}
	}
	if st, foreign := disk.Foreign(t.uid, dir, now.Stat); foreign {
		return now, &reason.Error{Code: reason.SourceUntrusted, Doing: from, Cause: errors.New("others than root own the " + st.Kind() + ", or may write to it"),
			Hint: "let the file and its directory belong to root, and nobody else write there"}
	}
	return now, nil
}

// short is the beginning of a digest, for people.
func short(d content.Digest) string {
	if d.IsZero() {
		return "nothing"
	}
	return d.String()[:len("sha256:")+12]
}

// Original says that there is nothing to put back: see Remove.
func (t *Type) Original(context.Context, host.Resource) ([]byte, error) { return nil, nil }

// Remove refuses: a host is not left without its agent because nobody says which one it is to have.
func (t *Type) Remove(context.Context, host.Resource, declare.OnRemove, []byte) error {
	return &reason.Error{Code: reason.InternalFault, Doing: "remove the agent", Cause: errors.New("an agent does not remove itself")}
}

package edit

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/edit/part"
	"tako.dev/tako/internal/reason"
)

const (
	// laneParallel and laneBatch are those of files: a batch shares a look at a file, and its write.
	laneParallel = 2
	laneBatch    = 64
)

// Options are what New needs.
type Options struct {
	Root *disk.Root
	// Content takes the old content of what is edited. Nil, for dry runs, means that nothing can be.
	Content *content.Store
}

// Type is the resource type edit.
type Type struct {
	root  *disk.Root
	store *content.Store // may be nil
	// Sweeper is for what a killed run has left beside the files.
	*durable.Sweeper

	mu    sync.Mutex // guards sites
	sites map[string]*site
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// New makes the Type.
func New(o Options) *Type {
	return &Type{root: o.Root, store: o.Content, Sweeper: durable.NewSweeper(o.Root), sites: map[string]*site{}}
}

// Lane returns the lane of edits.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeEdit), Parallel: laneParallel, Batch: laneBatch}
}

// resource is one bound edit. It keeps neither the text nor what is declared: both are read again.
type resource struct {
	path   string
	name   string
	body   func() (declare.Resource, error)
	digest content.Digest // of the declaration as it was bound
	create bool
	absent bool

	seen    disk.Signature // what was last found to be as declared
	settled bool           // no later change can leave that signature
}

// Watches names the file.
func (r *resource) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: r.path}}
}

func (r *resource) doing() string { return "edit file " + disk.Shown(r.path) }

// remember notes a signature with which the file is as declared.
func (r *resource) remember(sig disk.Signature, settled bool) { r.seen, r.settled = sig, settled }

// Bind makes an edit ready. The file need not be there yet.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	e := d.Resource.Edit
	if e == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not an edit")}
	}
	r := &resource{path: e.Path, name: d.Resource.Name, body: d.Body, create: e.Create, absent: e.State == declare.EditAbsent}
	if len(e.Check) > 0 && t.root.Path() != "/" {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: "run the check of file " + disk.Shown(e.Path),
			Hint: "leave `check` out: a command would run outside the sandbox"}
	}
	if _, err := part.New(e, r.name); err != nil { // of what was expanded here
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: r.doing(), Cause: err, Hint: "see what $(...) stands for on this host"}
	}
	var err error
	r.digest, err = digestOf(e)
	return r, err
}

func digestOf(e *declare.Edit) (content.Digest, error) {
	b, err := json.Marshal(e)
	return content.DigestOf(b), err
}

// wish is an edit as it is declared.
type wish struct {
	*part.Part
	check []string
}

// declared reads the declaration again. It may have been replaced since Bind; then the plan that asks for it is void.
func (r *resource) declared() (wish, error) {
	d, err := r.body()
	if err != nil {
		return wish{}, err
	}
	if d.Edit == nil {
		return wish{}, r.replaced()
	}
	digest, err := digestOf(d.Edit)
	if err != nil || digest != r.digest {
		return wish{}, r.replaced()
	}
	p, err := part.New(d.Edit, r.name)
	return wish{p, d.Edit.Check}, r.refused(err)
}

func (r *resource) replaced() error {
	return &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("its declaration has just been replaced")}
}

// refused makes a coded error of a part.Refusal.
func (r *resource) refused(err error) error {
	if err == nil {
		return nil
	}
	fault := &reason.Error{Code: reason.EditRefused, Doing: r.doing(), Cause: err}
	var why *part.Refusal
	if errors.As(err, &why) {
		fault.Hint = why.Hint
	}
	return fault
}

// sight is a file as it is found.
type sight struct {
	disk.Stat
	text string
}

// isPrivate reports whether nothing of the content may be shown: only the owner may use the file.
func (s *sight) isPrivate() bool {
	const others = 0o077
	return s.Exists() && s.Mode&others == 0
}

// stat looks at a file. Where the directory is missing, so is the file.
func (t *Type) stat(r *resource) (disk.Stat, error) {
	now, err := t.root.Stat(r.path)
	if err != nil {
		return now, err
	}
	return now, r.fits(now)
}

// fits says why what is there cannot be edited.
func (r *resource) fits(now disk.Stat) error {
	switch {
	case !now.Exists() && !r.create && !r.absent:
		return &reason.Error{Code: reason.EditFileMissing, Doing: r.doing(), Cause: errors.New("there is no such file"),
			Hint: "require the resource that makes it, or declare `create: true`"}
	case now.Exists() && now.Type() != unix.S_IFREG:
		hint := "move it away"
		if now.Type() == unix.S_IFLNK {
			hint = "declare the path that the link leads to"
		}
		return &reason.Error{Code: reason.TypeInTheWay, Doing: r.doing(), Cause: errors.New("a " + now.Kind() + " is there"), Hint: hint}
	case now.Size > part.BytesMax:
		return &reason.Error{Code: reason.EditRefused, Doing: r.doing(), Cause: errors.New("it has more than 16 MiB"), Hint: "what is so large is no text that can be edited: declare the whole file"}
	}
	return nil
}

// read reads a file that stat has found.
func (t *Type) read(r *resource, now disk.Stat) (*sight, error) {
	if !now.Exists() {
		return &sight{}, nil
	}
	d, name, err := t.root.Parent(r.path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, st, err := d.ReadFile(name, part.BytesMax)
	if err != nil {
		return nil, err
	}
	after, err := d.Stat(name)
	if err == nil && (st.Signature != now.Signature || after.Signature != now.Signature) {
		err = disk.Stale("read file", r.path)
	}
	return &sight{now, string(b)}, err
}

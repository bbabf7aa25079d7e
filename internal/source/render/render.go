package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/render/kustomize"
)

// IgnoreFile is the name of the file with ignore rules at the path.
const IgnoreFile = ".takoignore"

// Builder builds what kustomize.Collect has found: a *kustomize.Process.
type Builder interface {
	// Build makes the objects of each root, in order. An error is about all of them.
	Build(ctx context.Context, t *kustomize.Tree) ([]kustomize.Built, error)
}

// Identified is a view that knows the identity of the content of a file without reading it: the same identity is the same
// content, for ever. A file in a commit has that of its blob.
type Identified interface {
	BlobID(name string) (string, error)
}

// Options say how trees are rendered.
type Options struct {
	// Builder builds kustomizations. It may be nil: then one is a mistake.
	Builder Builder
	Limits  Limits
}

// Lacking is a view that does not offer all that stands in its tree: what is missing where documents are looked for is a mistake.
type Lacking interface {
	// Lacks says of each path that is not offered why.
	Lacks() map[string]error
}

// Limits bound one tree. More than they allow is a mistake, and not cut off.
type Limits struct {
	Entries   int   // files and directories that are looked at; default 100,000
	FileBytes int64 // of one file; default 1 MiB, what etcd stores of an object
	TreeBytes int64 // of all files that are read; default 256 MiB
	Documents int   // default 20,000
	Depth     int   // of directories below the path; default 64
}

func (l Limits) withDefaults() Limits {
	fill(&l.Entries, 100_000)
	fill(&l.FileBytes, 1<<20)
	fill(&l.TreeBytes, 256<<20)
	fill(&l.Documents, 20_000)
	fill(&l.Depth, 64)
	return l
}

func fill[N int | int64](n *N, value N) {
	if *n == 0 {
		*n = value
	}
}

// Renderer renders trees.
type Renderer struct {
	builder Builder
	limits  Limits
}

// New returns a Renderer. It starts nothing.
func New(o Options) *Renderer { return &Renderer{builder: o.Builder, limits: o.Limits.withDefaults()} }

// Request says what of a tree is rendered.
type Request struct {
	Path       string // of a directory or file, with slashes, relative to the root of the view; empty is the root
	Ignore     string // rules in the syntax of gitignore(5)
	Namespace  string // of documents that name none, for telling whether two are for one object
	AllowEmpty bool   // a tree without a document is no mistake
}

// Result is what a tree declares.
type Result struct {
	// Documents are in order of their files. Their File is the path from the root of the view.
	Documents []documents.Document
	// Read is how many files were opened, and Reused how many were taken over from the previous Result; a kustomization
	// counts as one in either.
	Read, Reused int

	units map[string]*unit
}

// unit is a file or kustomization that was read without a mistake.
type unit struct {
	documents []documents.Document
	bytes     int64
}

// Render reads a tree. What it declares has no mistake that can be seen without a server; else the error is declare.Faults, and
// the Result serves only as the previous one of the next Render. The previous Result may be nil, and is not changed.
func (r *Renderer) Render(ctx context.Context, view fs.FS, request Request, previous *Result) (*Result, error) {
	if previous == nil {
		previous = &Result{}
	}
	p := &pass{renderer: r, view: view, request: request, previous: previous, result: &Result{units: map[string]*unit{}}}
	p.request.Path = path.Clean("/" + request.Path)[1:]
	if p.request.Path == "" {
		p.request.Path = "."
	}
	p.walk()
	if err := p.read(ctx); err != nil {
		return p.result, err
	}
	if len(p.faults) == 0 {
		p.faults = documents.Duplicates(p.result.Documents, request.Namespace)
	}
	if len(p.faults) == 0 && len(p.result.Documents) == 0 && !request.AllowEmpty {
		p.faults = append(p.faults, declare.Fault{Code: reason.NothingDeclared, File: p.request.Path, Message: "no document is here",
			Hint: "a Source that declares nothing would delete all that it has applied: check the path and the ignore rules"})
	}
	if len(p.faults) > 0 {
		return p.result, declare.Faults(declare.SortFaults(p.faults))
	}
	return p.result, nil
}

// pass is one Render.
type pass struct {
	renderer *Renderer
	view     fs.FS
	request  Request
	previous *Result
	result   *Result

	found   []found
	entries int
	bytes   int64
	faults  []declare.Fault
}

// found is a file of documents, or a directory with a kustomization.
type found struct {
	name  string
	build bool
}

// faultsMax bounds what is told of one tree: more than that is no tree of declarations.
const faultsMax = 1000

func (p *pass) fault(f ...declare.Fault) {
	p.faults = append(p.faults, f[:min(len(f), max(0, faultsMax-len(p.faults)))]...)
}

// over reports a limit of the tree, once.
func (p *pass) over(file, message string) {
	p.fault(declare.Fault{Code: reason.RenderLimit, File: file, Message: message, Hint: "name a narrower path, leave files out with " + IgnoreFile + ", or split the Source into several"})
}

// read reads what the walk has found, in its order. The error is that of the context, or of a builder that does not work.
func (p *pass) read(ctx context.Context) error {
	built, err := p.build(ctx)
	if err != nil {
		return err
	}
	for _, f := range p.found {
		if err := ctx.Err(); err != nil {
			return err
		}
		var u *unit
		if f.build {
			u = built[f.name]
		} else {
			u = p.file(f.name)
		}
		if u == nil {
			continue
		}
		p.result.Documents = append(p.result.Documents, u.documents...)
		switch p.bytes += u.bytes; {
		case p.bytes > p.renderer.limits.TreeBytes:
			p.over(f.name, fmt.Sprintf("the files up to here have more than %d bytes together", p.renderer.limits.TreeBytes))
			return nil
		case len(p.result.Documents) > p.renderer.limits.Documents:
			p.over(f.name, fmt.Sprintf("there are more than %d documents up to here", p.renderer.limits.Documents))
			return nil
		}
	}
	return nil
}

// file reads a file of documents, or takes it over. It is nil after a mistake.
func (p *pass) file(name string) *unit {
	id, data, err := p.identity(name)
	if err != nil {
		p.fault(kustomize.Unread(name, err))
		return nil
	}
	key := name + "\x00" + id
	if u := p.takeOver(key); u != nil {
		return u
	}
	p.result.Read++
	if data == nil {
		if data, err = kustomize.ReadFile(p.view, name, p.renderer.limits.FileBytes); err != nil {
			p.fault(kustomize.Unread(name, err))
			return nil
		}
	}
	if fault := inflated(name, data); fault != nil {
		p.fault(*fault)
		return nil
	}
	list, faults := documents.Read(name, data)
	if len(faults) > 0 {
		p.fault(faults...)
		return nil
	}
	u := &unit{documents: list, bytes: int64(len(data))}
	p.result.units[key] = u
	return u
}

// takeOver returns what the previous Result has under a key.
func (p *pass) takeOver(key string) *unit {
	u := p.previous.units[key]
	if u != nil {
		p.result.units[key] = u
		p.result.Reused++
	}
	return u
}

// identity names the content of a file. Where the view does not know it, the file is read.
func (p *pass) identity(name string) (id string, data []byte, err error) {
	if view, ok := p.view.(Identified); ok {
		id, err := view.BlobID(name)
		return id, nil, err
	}
	data, err = kustomize.ReadFile(p.view, name, p.renderer.limits.FileBytes)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), data, err
}

// isAbsent tells whether a file is simply not there.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

package packages

import (
	"context"
	"errors"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// laneBatch is far more than anybody declares: one transaction for everything.
const laneBatch = 1000

// Options are what New needs.
type Options struct {
	Sandbox bool // paths begin below a sandbox directory; the host's packages are then none of its business
	// Backends are the package managers that there may be; the first that a host has is its own.
	Backends []Backend
}

// Type is the resource type package.
type Type struct {
	sandbox  bool
	backends []Backend

	mu      sync.Mutex // guards what follows
	chosen  Backend    // nil until a host is known to have it; from then on it has
	updated time.Time  // when package lists were fetched last; zero for never
	sources string     // Lists.Sources at that time
	offers  offers
}

var _ host.Type = (*Type)(nil)

// New makes the Type.
func New(o Options) *Type { return &Type{sandbox: o.Sandbox, backends: o.Backends} }

// Lane returns the lane of packages: there is one package database, and one transaction at a time.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypePackage), Parallel: 1, Batch: laneBatch, Gather: true}
}

// backend is the host's package manager.
func (t *Type) backend() (Backend, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.chosen != nil {
		return t.chosen, nil
	}
	var first error
	for _, b := range t.backends {
		err := b.Here()
		if err == nil {
			t.chosen = b
			return b, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = &reason.Error{Code: reason.NoPackageManager}
	}
	return nil, first
}

// resource is one declared package.
type resource struct {
	back     Backend
	name     string
	state    declare.PackageState // never empty
	version  declare.VersionRange
	hold     *bool // nil where a mark is not managed
	olderToo bool  // an older version may take the place of a newer one
	choices  Choices
	// body reads the answers to the package's questions; nil where there are none.
	body func() (declare.Resource, error)
}

func (r *resource) gone() bool {
	return r.state == declare.PackageAbsent || r.state == declare.PackagePurged
}

// Watches names what tells of packages that come and go, and of new lists where these matter.
func (r *resource) Watches() []host.Watch {
	w := r.back.Ways()
	if r.gone() {
		return w.Installed
	}
	return append(append(make([]host.Watch, 0, len(w.Installed)+len(w.Lists)), w.Installed...), w.Lists...)
}

// Bind makes a package ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	p := d.Resource.Package
	if p == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a package")}
	}
	r := &resource{name: p.NameOr(d.Resource.Name), state: p.StateOrDefault(), hold: p.Hold}
	if t.sandbox {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: r.doing(), Hint: "a sandbox has files only: its packages are those of the host"}
	}
	var err error
	if r.back, err = t.backend(); err != nil {
		return nil, doing(r.doing(), err)
	}
	r.version, err = declare.ParseVersionRange(p.Version)
	if err == nil && r.version.Exact != "" && r.state == declare.PackageLatest {
		err = errors.New("the latest of one version is that version")
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: r.doing(), Cause: err}
	}
	if p.Options != nil {
		r.olderToo = p.Options.AllowDowngrade
		r.choices.Recommends = recommends(p.Options.Recommends)
	}
	r.choices.Replace = p.Conffiles == declare.ConffilesReplace
	if p.Answers() {
		r.body = d.Body
	}
	return r, r.supported(p)
}

// supported is the error of what the package manager cannot do.
func (r *resource) supported(p *declare.Package) error {
	w := r.back.Ways()
	_, holds := r.back.(Holder)
	_, asks := r.back.(Answerer)
	for _, n := range []struct {
		field         string
		wanted, found bool
	}{{"hold", r.hold != nil, holds}, {"preseed", p.Answers(), asks}, {"conffiles: replace", r.choices.Replace, w.Conffiles}} {
		if n.wanted && !n.found {
			return &reason.Error{Code: reason.PackageOptionUnsupported, Doing: r.doing(), Cause: errors.New(w.Name + " has no " + n.field), Hint: "leave it out for hosts with " + w.Name}
		}
	}
	return nil
}

func recommends(wanted *bool) Recommends {
	switch {
	case wanted == nil:
		return RecommendsAsConfigured
	case *wanted:
		return RecommendsWanted
	}
	return RecommendsLeft
}

// doing says what is tried with the package.
func (r *resource) doing() string {
	switch {
	case r.state == declare.PackagePurged:
		return "purge package " + r.name
	case r.gone():
		return "remove package " + r.name
	case r.version.Exact != "":
		return "install package " + r.name + "=" + r.version.Exact
	}
	return "install package " + r.name
}

// doing is an error of a Backend with what was being done; nil where err is.
func doing(what string, err error) error {
	if err == nil {
		return nil
	}
	e := *reason.Of(err)
	e.Doing = what
	return &e
}

package packages

import (
	"context"
	"errors"
	"os"
	"path"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// laneBatch is far more than anybody declares: one transaction for everything.
	laneBatch = 1000

	dpkgPath    = "/usr/bin/dpkg"
	aptPath     = "/usr/bin/apt-get"
	aptDir      = "/etc/apt"
	databaseDir = "/var/lib/dpkg"
)

// Options are what New needs.
type Options struct {
	Sandbox bool // paths begin below a sandbox directory; the host's packages are then none of its business
}

// Type is the resource type package.
type Type struct {
	sandbox  bool
	database *database

	mu      sync.Mutex // guards what follows
	updated time.Time  // when package lists were fetched last; zero for never
	sources string     // sourcesState at that time
}

var _ host.Type = (*Type)(nil)

// New makes the Type.
func New(o Options) *Type { return &Type{sandbox: o.Sandbox, database: newDatabase(databaseDir)} }

// Lane returns the lane of packages: there is one package database, and one transaction at a time.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypePackage), Parallel: 1, Batch: laneBatch, Gather: true}
}

// resource is one declared package.
type resource struct {
	name    string
	present bool
	version string // the one that is declared; empty for any
}

// Watches names dpkg's directory, where a new database takes the place of the old one.
func (r *resource) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchEntries, Name: databaseDir}}
}

// Bind makes a package ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	p := d.Resource.Package
	if p == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a package")}
	}
	r := &resource{name: d.Resource.PackageName(), present: p.StateOrDefault() == declare.PackagePresent, version: p.Version}
	if t.sandbox {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: r.doing(), Hint: "a sandbox has files only: its packages are those of the host"}
	}
	for _, tool := range []string{dpkgPath, aptPath} {
		if _, err := os.Stat(tool); err != nil {
			return nil, &reason.Error{Code: reason.NoPackageManager, Doing: r.doing(), Cause: err,
				Hint: path.Base(tool) + " is needed: packages are those of Debian and its relatives"}
		}
	}
	return r, nil
}

// doing says what is tried with the package.
func (r *resource) doing() string {
	switch {
	case !r.present:
		return "remove package " + r.name
	case r.version != "":
		return "install package " + r.name + "=" + r.version
	}
	return "install package " + r.name
}

// argument is the package for apt-get install.
func (r *resource) argument() string {
	switch {
	case !r.present:
		return r.name + "-"
	case r.version != "":
		return r.name + "=" + r.version
	}
	return r.name
}

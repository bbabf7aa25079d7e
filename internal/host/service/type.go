package service

import (
	"context"
	"errors"
	"os"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

const (
	// laneParallel is how many units are waited for at once: most of the time is systemd's and the units' own.
	laneParallel = 4
	// laneBurst and laneEvery brake repairs of drift and restarts: a screenful at once, then ten a minute, which is what a
	// person can still follow.
	laneBurst = 20
	laneEvery = 6 * time.Second
	// busyWait is when to look again at a unit that somebody else is busy with; systemd tells when it is stopped, nothing tells
	// when the package database is unlocked.
	busyWait = 2 * time.Second
	// packageLock is the lock of whoever changes packages on Debian, apt(8).
	packageLock = "/var/lib/dpkg/lock-frontend"
	// bootedDir exists where systemd is pid 1, sd_booted(3).
	bootedDir = "/run/systemd/system"
)

// Options are what New needs.
type Options struct {
	Sandbox bool         // paths begin below a sandbox directory; units of the host are then none of its business
	Bus     *systemd.Bus // nil in a sandbox only
}

// Type is the resource type service.
type Type struct {
	sandbox     bool
	booted      string
	packageLock string
	bus         units
}

var (
	_ host.Type      = (*Type)(nil)
	_ host.Refresher = (*Type)(nil)
	_ host.Satisfier = (*Type)(nil)
	_ units          = (*systemd.Bus)(nil)
)

// units is what services need of systemd; see systemd.Bus.
type units interface {
	unitFiles
	jobs
}

type unitFiles interface {
	Unit(ctx context.Context, unit string) (systemd.UnitState, error)
	UnitFileState(ctx context.Context, unit string) (string, error)
	EnsureLoaded(ctx context.Context, unit string) (systemd.UnitState, error)
	Enable(ctx context.Context, unit string) error
	Disable(ctx context.Context, unit string) error
	Mask(ctx context.Context, unit string) error
	Unmask(ctx context.Context, unit string) error
}

type jobs interface {
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error
	ReloadOrRestart(ctx context.Context, unit string) error
	ResetFailed(ctx context.Context, unit string) error
}

// New makes the Type.
func New(o Options) *Type {
	return &Type{sandbox: o.Sandbox, booted: bootedDir, packageLock: packageLock, bus: o.Bus}
}

// Lane returns the lane of services.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeService), Parallel: laneParallel, Batch: 1, Burst: laneBurst, Every: laneEvery}
}

// resource is one declared unit.
type resource struct {
	unit    string
	running bool
	reload  bool // a notification reloads it
	enabled boot
	mask    mask
	// anyState says that others start and stop it.
	anyState bool
	// tried says that a start was asked for since Bind; see the package comment on start limits.
	tried bool
}

// boot is what is declared about starting at boot.
type boot uint8

const (
	unmanaged boot = iota
	disabled
	enabled
)

// mask is what is declared about being masked.
type mask uint8

const (
	maskOfOthers mask = iota // not managed
	unmasked
	maskedForGood
)

// Watches names the unit.
func (r *resource) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchUnit, Name: r.unit}}
}

// Bind makes a service ready. It fails for good where there is no systemd to ask.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	s := d.Resource.Service
	if s == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a service")}
	}
	r := &resource{
		unit:    s.UnitOr(d.Resource.Name),
		running: s.StateOrDefault() == declare.ServiceRunning,
		reload:  s.OnNotifyOrDefault() == declare.NotifyReload,
	}
	r.anyState = d.Resource.Ignores(fieldState)
	if s.Enabled != nil && !d.Resource.Ignores(fieldEnabled) {
		r.enabled = disabled
		if *s.Enabled {
			r.enabled = enabled
		}
	}
	if s.Masked != nil && !d.Resource.Ignores(fieldMasked) {
		r.mask = unmasked
		if *s.Masked {
			r.mask = maskedForGood
		}
	}
	if t.sandbox {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: "control unit " + r.unit,
			Hint: "a sandbox has files only: its services are those of the host"}
	}
	if _, err := os.Stat(t.booted); err != nil {
		return nil, &reason.Error{Code: reason.NoSystemd, Doing: "control unit " + r.unit, Cause: err,
			Hint: "services need a host that systemd has booted"}
	}
	return r, nil
}

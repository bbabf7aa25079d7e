package systemd

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// Names on the bus.
const (
	busName             = "org.freedesktop.systemd1"
	managerPath         = "/org/freedesktop/systemd1"
	managerInterface    = "org.freedesktop.systemd1.Manager"
	unitInterface       = "org.freedesktop.systemd1.Unit"
	propertiesInterface = "org.freedesktop.DBus.Properties"
)

// Options of a Bus. The zero value is right for a host.
type Options struct {
	// Address of the bus, "unix:path=..." or "unix:abstract=...". Default $DBUS_SYSTEM_BUS_ADDRESS, then
	// unix:path=/run/dbus/system_bus_socket.
	Address string
	// BootedDir exists where systemd is pid 1 (sd_booted(3)). Default /run/systemd/system.
	BootedDir string
	// UnitDirs are where unit files appear; a change of their modification times tells of new files. Default the
	// directories of systemd.unit(5).
	UnitDirs []string
	// CallTimeout bounds one call. Default 25 s, what D-Bus libraries give a call; must be positive.
	CallTimeout time.Duration
	// JobTimeout bounds waiting for a job or a daemon-reload. Default 200 s: a restart may take systemd's own 90 s to
	// stop and 90 s to start before systemd itself gives up. Must be positive.
	JobTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.Address = cmp.Or(o.Address, os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), "unix:path=/run/dbus/system_bus_socket")
	o.BootedDir = cmp.Or(o.BootedDir, "/run/systemd/system")
	if o.UnitDirs == nil {
		o.UnitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	}
	o.CallTimeout = cmp.Or(o.CallTimeout, 25*time.Second)
	o.JobTimeout = cmp.Or(o.JobTimeout, 200*time.Second)
	return o
}

func (o Options) validate() error {
	if o.CallTimeout < 0 || o.JobTimeout < 0 {
		return &reason.Error{Code: reason.InvalidValue, Doing: "set up the system bus", Cause: errors.New("a timeout is negative")}
	}
	_, err := socketOf(o.Address)
	return err
}

// Bus is the one connection to the system bus. Its methods may be called at any time and from any goroutine; while Run is
// not connected they fail with BusDisconnected, or NoSystemd where systemd is not what booted this host. Only before the
// first attempt to connect do they wait for it.
type Bus struct {
	opts      Options
	pending   *pending
	reloads   reloads
	attempted chan struct{} // closed after the first attempt to connect

	mu       sync.Mutex // guards the fields below; nothing is called while it is held
	current  *session   // nil while not connected
	down     *reason.Error
	interest interest
	followed map[string][]*Follower // by unit
}

// New checks the options and returns a Bus that is not connected; Run connects it.
func New(opts Options) (*Bus, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Bus{
		opts: opts, pending: newPending(), reloads: newReloads(), attempted: make(chan struct{}), interest: newInterest(),
		followed: make(map[string][]*Follower),
	}, nil
}

// Run connects, stays connected, and calls sink, one call at a time, for what happens to the units given to Watch. It
// returns nil when ctx ends; nothing else ends it. After each connection, the first too, the first event is a Resync.
// sink must not block: it records what to look at. A Bus is run once.
func (b *Bus) Run(ctx context.Context, sink func(Event)) error {
	failures := 0
	for {
		begin := time.Now()
		s, err := b.connect(ctx)
		b.publish(s, err)
		if err == nil {
			b.serve(ctx, s, sink)
			b.publish(nil, &reason.Error{Code: reason.BusDisconnected, Doing: "talk to systemd"})
			s.close()
			if time.Since(begin) > retryDelayMax {
				failures = 0 // it was a good connection, not one that breaks again and again
			}
		}
		if reason.Is(err, reason.NoSystemd) {
			<-ctx.Done() // what is pid 1 does not change while we run: sleep, do not poll
		}
		failures++
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryDelay(failures, rand.Float64())):
		}
	}
}

// serve hands out events until the connection is lost or ctx ends.
func (b *Bus) serve(ctx context.Context, s *session, sink func(Event)) {
	sink(Event{Kind: Resync})
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.conn.Context().Done():
			return
		case <-b.pending.wake:
		}
		events, renew := b.pending.take()
		if renew {
			if err := b.subscribe(ctx, s); err != nil {
				return // start over with a new connection, after the back-off
			}
			s.jobs.recheck()
			b.resyncFollowers()
			events = []Event{{Kind: Resync}}
		}
		for _, e := range events {
			sink(e)
		}
	}
}

// publish makes the outcome of an attempt to connect, or the loss of a connection, known to callers.
func (b *Bus) publish(s *session, err error) {
	b.mu.Lock()
	b.current, b.down = s, reason.Of(err)
	b.mu.Unlock()
	select {
	case <-b.attempted: // closed before
	default:
		close(b.attempted) // only Run's goroutine comes here
	}
}

// session returns the live connection, or the coded reason why there is none.
func (b *Bus) session(ctx context.Context, doing string) (*session, error) {
	select {
	case <-b.attempted:
	case <-ctx.Done():
		return nil, &reason.Error{Code: reason.BusDisconnected, Doing: doing, Cause: ctx.Err()}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil, &reason.Error{Code: b.down.Code, Doing: doing, Cause: b.down.Cause, Hint: b.down.Hint}
	}
	return b.current, nil
}

// Watch makes units (full names such as nginx.service) the set whose changes Run tells of; it replaces the set before. The
// caller looks at new units after Watch has returned, so that no change falls between. While not connected Watch only
// records the set, returns nil, and the Resync that follows the connection covers it.
func (b *Bus) Watch(ctx context.Context, units []string) error {
	b.mu.Lock()
	b.interest.replace(units)
	s := b.current
	b.mu.Unlock()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	return b.syncRules(ctx, s)
}

// changed notes for everybody who wants to know it that the unit with this name has changed.
func (b *Bus) changed(unit string) {
	b.mu.Lock()
	names := b.interest.wantedAs[unit] // replaced, never changed, by interest.index
	followers := b.followed[unit]      // likewise
	b.mu.Unlock()
	b.pending.addUnits(names)
	for _, f := range followers {
		f.pending.addUnits([]string{unit})
	}
}

// socketOf returns the socket of a bus address in the form of package net: the first unix address of the list counts.
func socketOf(address string) (string, error) {
	for one := range strings.SplitSeq(address, ";") {
		keys, ok := strings.CutPrefix(one, "unix:")
		if !ok {
			continue
		}
		for pair := range strings.SplitSeq(keys, ",") {
			switch key, value, _ := strings.Cut(pair, "="); {
			case key == "path" && value != "":
				return value, nil
			case key == "abstract" && value != "":
				return "@" + value, nil
			}
		}
	}
	return "", &reason.Error{
		Code: reason.InvalidValue, Doing: "read the bus address " + address,
		Cause: errors.New("it holds no unix:path= or unix:abstract="),
		Hint:  "unset DBUS_SYSTEM_BUS_ADDRESS to use /run/dbus/system_bus_socket",
	}
}

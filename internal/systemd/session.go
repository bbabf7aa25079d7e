package systemd

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"

	"tako.dev/tako/internal/reason"
)

// connectTimeout bounds dialing, authentication and subscription together. They take milliseconds; 10 s is for a host that
// is booting and short of everything.
const connectTimeout = 10 * time.Second

// session is one connection, from a successful connect to its end.
type session struct {
	conn *dbus.Conn
	boot string
	jobs jobs

	ruleGate chan struct{} // capacity 1: its token serialises changes of the match rules
	rules    []string      // match rules on the bus, sorted; belongs to the holder of the token
}

func (s *session) close() { _ = s.conn.Close() } // it is given up; nothing can be done about an error

// connect makes a session with everything subscribed.
func (b *Bus) connect(ctx context.Context) (*session, error) {
	const doing = "connect to the system bus"
	if _, err := os.Stat(b.opts.BootedDir); err != nil {
		return nil, &reason.Error{Code: reason.NoSystemd, Doing: doing, Cause: err, Hint: "services need systemd as pid 1"}
	}
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s := &session{boot: boot, jobs: newJobs(), ruleGate: make(chan struct{}, 1)}
	if s.conn, err = dial(ctx, b.opts.Address, receiver{bus: b, jobs: &s.jobs}); err != nil {
		return nil, &reason.Error{
			Code: reason.BusDisconnected, Doing: doing, Cause: err,
			Hint: "install and start dbus; `systemctl status dbus.socket` shows its state",
		}
	}
	if err := b.subscribe(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// dial opens, authenticates and greets. The library has no deadline for that, so the socket gets one for the while.
func dial(ctx context.Context, address string, signals dbus.SignalHandler) (*dbus.Conn, error) {
	socket, err := socketOf(address)
	if err != nil {
		return nil, err
	}
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) }) // long ago: wakes reads and writes
	defer stop()
	conn, err := dbus.NewConn(raw, dbus.WithSignalHandler(signals))
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	if err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err == nil {
		err = conn.Hello()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// subscribe asks the bus for the signals and systemd to send them; it may be repeated.
func (b *Bus) subscribe(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := b.syncRules(ctx, s); err != nil {
		return err
	}
	err := s.manager(ctx, "Subscribe").Err
	if err != nil && errorName(err) != "org.freedesktop.systemd1.AlreadySubscribed" {
		return callError("subscribe to systemd", err)
	}
	return nil
}

// syncRules makes the match rules on the bus what the units of interest and the jobs under way need. New rules come first,
// so that there is no gap.
func (b *Bus) syncRules(ctx context.Context, s *session) error {
	const doing = "ask the bus for signals"
	select {
	case s.ruleGate <- struct{}{}:
		defer func() { <-s.ruleGate }()
	case <-ctx.Done():
		return callError(doing, ctx.Err())
	}
	b.mu.Lock()
	want := b.rulesLocked(s.jobs.any())
	b.mu.Unlock()
	for _, rule := range slices.Clone(want) {
		if _, have := slices.BinarySearch(s.rules, rule); have {
			continue
		}
		if err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.AddMatch", 0, rule).Err; err != nil {
			return callError(doing, err)
		}
		at, _ := slices.BinarySearch(s.rules, rule)
		s.rules = slices.Insert(s.rules, at, rule)
	}
	for _, rule := range slices.Clone(s.rules) {
		if _, wanted := slices.BinarySearch(want, rule); wanted {
			continue
		}
		if err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.RemoveMatch", 0, rule).Err; err != nil {
			return callError(doing, err)
		}
		at, _ := slices.BinarySearch(s.rules, rule)
		s.rules = slices.Delete(s.rules, at, at+1)
	}
	return nil
}

// manager calls a method of systemd's manager object.
func (s *session) manager(ctx context.Context, method string, args ...any) *dbus.Call {
	return s.conn.Object(busName, managerPath).CallWithContext(ctx, managerInterface+"."+method, 0, args...)
}

// receiver takes signals on the connection's reader goroutine, where nothing may block and no call may be made: it only
// notes what they are about.
type receiver struct {
	bus  *Bus
	jobs *jobs
}

// DeliverSignal is the library's callback. A signal of another shape than systemd's is ignored.
func (r receiver) DeliverSignal(iface, member string, signal *dbus.Signal) {
	switch iface + "." + member {
	case propertiesInterface + ".PropertiesChanged":
		if unit, ok := unitOfPath(signal.Path); ok {
			r.bus.changed(unit)
		}
	case managerInterface + ".JobRemoved":
		var id uint32
		var job dbus.ObjectPath
		var unit, result string
		if dbus.Store(signal.Body, &id, &job, &unit, &result) == nil {
			r.jobs.ended(job, result)
			r.bus.changed(unit)
		}
	case managerInterface + ".UnitFilesChanged":
		r.bus.pending.addFiles()
	case managerInterface + ".Reloading":
		if active, ok := first[bool](signal.Body); ok && !active {
			r.bus.pending.addRenew()
		}
	case "org.freedesktop.DBus.NameOwnerChanged":
		var name, oldOwner, newOwner string
		if dbus.Store(signal.Body, &name, &oldOwner, &newOwner) == nil && name == busName && newOwner != "" {
			r.bus.pending.addRenew()
		}
	}
}

func first[T any](body []any) (v T, ok bool) {
	if len(body) > 0 {
		v, ok = body[0].(T)
	}
	return v, ok
}

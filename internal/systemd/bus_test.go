package systemd

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"tako.dev/tako/internal/reason"
)

func TestSocketOf(t *testing.T) {
	for address, want := range map[string]string{
		"unix:path=/run/dbus/system_bus_socket":  "/run/dbus/system_bus_socket",
		"unix:path=/x,guid=abc":                  "/x",
		"unix:guid=abc,path=/x":                  "/x",
		"unix:abstract=/tmp/dbus-x":              "@/tmp/dbus-x",
		"tcp:host=localhost,port=1;unix:path=/x": "/x",
		"tcp:host=localhost":                     "", "": "", "unix:": "", "unix:path=": "", "/run/dbus": "",
	} {
		got, err := socketOf(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", address, got, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, opts := range []Options{{Address: "tcp:host=x"}, {CallTimeout: -1}, {JobTimeout: -1}} {
		if _, err := New(opts); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// run runs a bus until the test ends and fails it if an event comes.
func run(t *testing.T, opts Options) *Bus {
	t.Helper()
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(e Event) { t.Errorf("event %v without a connection", e) }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("run does not end with its context")
		}
	})
	return b
}

func everyCall(b *Bus) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"unit":        func(ctx context.Context) error { _, err := b.Unit(ctx, "x.service"); return err },
		"file state":  func(ctx context.Context) error { _, err := b.UnitFileState(ctx, "x.service"); return err },
		"load":        func(ctx context.Context) error { _, err := b.EnsureLoaded(ctx, "x.service"); return err },
		"start":       func(ctx context.Context) error { return b.Start(ctx, "x.service") },
		"enable":      func(ctx context.Context) error { return b.Enable(ctx, "x.service") },
		"disable":     func(ctx context.Context) error { return b.Disable(ctx, "x.service") },
		"resetFailed": func(ctx context.Context) error { return b.ResetFailed(ctx, "x.service") },
		"transient":   func(ctx context.Context) error { _, err := b.StartTransient(ctx, "x.service", nil); return err },
		"follow":      func(ctx context.Context) error { _, err := b.Follow(ctx); return err },
		"loaded":      func(ctx context.Context) error { _, err := b.Loaded(ctx, "x.service"); return err },
		"reload":      b.Reload,
	}
}

func TestWithoutSystemd(t *testing.T) {
	b := run(t, Options{BootedDir: filepath.Join(t.TempDir(), "absent")})
	for name, call := range everyCall(b) {
		if err := call(t.Context()); !reason.Is(err, reason.NoSystemd) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Watch(t.Context(), []string{"x.service"}); err != nil {
		t.Errorf("watch: %v", err)
	}
}

func TestWithoutBus(t *testing.T) {
	dir := t.TempDir()
	b := run(t, Options{BootedDir: dir, Address: "unix:path=" + filepath.Join(dir, "absent")})
	for name, call := range everyCall(b) {
		err := call(t.Context())
		if !reason.Is(err, reason.BusDisconnected) || reason.Of(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMuteBus: a socket that accepts and says nothing must not hold up callers or the end.
func TestMuteBus(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "bus")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b := run(t, Options{BootedDir: dir, Address: "unix:path=" + socket, CallTimeout: 50 * time.Millisecond, JobTimeout: 50 * time.Millisecond})
	for name, call := range everyCall(b) {
		if err := call(t.Context()); !reason.Is(err, reason.BusDisconnected) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOddSignals: the bus lets only systemd through, but a signal of another shape must do nothing, not break the reader.
func TestOddSignals(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.interest.replace([]string{"x.service"})
	j := newJobs()
	r := receiver{bus: b, jobs: &j}
	bodies := [][]any{nil, {}, {1}, {"x"}, {true}, {uint32(1), dbus.ObjectPath("/j"), "x.service"}, {uint32(1), dbus.ObjectPath("/j"), 5, "done"}}
	for _, body := range bodies {
		for _, path := range []dbus.ObjectPath{"", "/", unitPath("other.service"), unitPathPrefix + "_zz"} {
			for _, member := range []string{"PropertiesChanged", "JobRemoved", "Reloading", "NameOwnerChanged", "Nonsense"} {
				for _, iface := range []string{propertiesInterface, managerInterface, "org.freedesktop.DBus", "x.y"} {
					r.DeliverSignal(iface, member, &dbus.Signal{Path: path, Name: iface + "." + member, Body: body})
				}
			}
		}
	}
	if events, renew := b.pending.take(); len(events) != 0 || renew {
		t.Errorf("told %v, %v", events, renew)
	}
	r.DeliverSignal(managerInterface, "JobRemoved", &dbus.Signal{Body: []any{uint32(1), dbus.ObjectPath("/j"), "x.service", "done"}})
	r.DeliverSignal(propertiesInterface, "PropertiesChanged", &dbus.Signal{Path: unitPath("x.service")})
	if events, _ := b.pending.take(); len(events) != 1 || events[0] != (Event{UnitChanged, "x.service"}) {
		t.Errorf("told %v", events)
	}
	r.DeliverSignal(managerInterface, "Reloading", &dbus.Signal{Body: []any{false}})
	if _, renew := b.pending.take(); !renew {
		t.Error("a reload that has ended must renew the subscription")
	}
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Errorf("nobody asked: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	for _, state := range []string{Ready, Status("3 files kept"), Watchdog, Stopping} {
		if err := Notify(state); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		if err != nil || string(buffer[:n]) != state {
			t.Errorf("sent %q, arrived %q, %v", state, buffer[:n], err)
		}
	}
}

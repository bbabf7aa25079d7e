package watch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// polledVariable tells the test binary that it runs in a mount namespace of its own.
const polledVariable = "TAKO_WATCH_TEST_INSIDE"

// inMountNamespace runs the test that calls it once more in a mount namespace of its own, and reports whether this is that run.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(polledVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[4] = exe
	cmd.Env = append(os.Environ(), polledVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("needs permission to create namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	return false
}

// TestPolledTellsOfMounts mounts, remounts and unmounts, and is told each time; what is not watched any more is not told.
func TestPolledTellsOfMounts(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	runtime.LockOSThread()
	const name = "/proc/self/mountinfo"
	p, err := NewPolled()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ID{7, 3} {
		if err := p.Watch(name, id); err != nil {
			t.Fatal(err)
		}
	}
	told := make(chan []Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ev []Event) { told <- ev }) }()
	dir := t.TempDir()
	var last []ID
	hears := func(want []ID) {
		t.Helper()
		for late := time.After(time.Minute); ; {
			select {
			case ev := <-told:
				switch {
				case len(ev) == 1 && slices.Equal(ev[0].IDs, want):
					last = want
					return
				case len(ev) != 1 || !slices.Equal(ev[0].IDs, last): // that would be a second part of what was told before
					t.Fatalf("told %+v, want %v", ev, want)
				}
			case <-late:
				t.Fatal("nothing is told")
			}
		}
	}
	steps := []func() error{
		func() error { return unix.Mount("x", dir, "tmpfs", 0, "size=1m") },
		func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT, "size=2m") },
		func() error { return unix.Unmount(dir, 0) },
	}
	hears([]ID{3, 7}) // what was watched before
	for _, do := range steps {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		hears([]ID{3, 7})
		for len(told) > 0 {
			<-told // a mount may be told in two parts
		}
	}
	p.Unwatch(name, 3)
	p.Unwatch(name, 3)
	if err := steps[0](); err != nil {
		t.Fatal(err)
	}
	hears([]ID{7})
	p.Unwatch(name, 7)
	for len(told) > 0 {
		<-told
	}
	if err := steps[3](); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || len(told) > 0 {
		t.Errorf("%v; told %d times what nobody watches", err, len(told))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestPolledUnwatched watches what the kernel tells nothing about.
func TestPolledUnwatched(t *testing.T) {
	p, err := NewPolled()
	if err != nil {
		t.Fatal(err)
	}
	plain := t.TempDir() + "/plain"
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{plain, "/proc/nothing/here"} {
		if err := p.Watch(name, ID(i)); !reason.Is(err, reason.WatchLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := p.Unwatched(); !slices.Equal(got, []ID{0, 1}) || len(p.Retry()) > 0 {
		t.Errorf("unwatched: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := p.Run(ctx, func([]Event) { t.Error("told") }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	p.Unwatch(plain, 0)
	p.Unwatch("/proc/nothing/here", 1)
	if got := p.Unwatched(); len(got) > 0 {
		t.Errorf("unwatched in the end: %v", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

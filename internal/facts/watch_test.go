package facts

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// insideVariable tells the test binary that it runs in name spaces of its own.
const insideVariable = "TAKO_FACTS_TEST_INSIDE"

// TestWatch runs itself in a network and a hostname of its own, so that it can change them.
func TestWatch(t *testing.T) {
	if os.Getenv(insideVariable) != "" {
		watchInside(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it changes addresses and the hostname in name spaces of its own")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip: it makes interfaces and addresses")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWatch$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS, Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func watchInside(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() {
		Watch(ctx, nil, func() { told <- struct{}{} }, func(err error) { t.Errorf("not watched: %v", err) })
		ended <- nil
	}()
	await := func(what string) {
		t.Helper()
		select {
		case <-told:
		case err := <-ended:
			t.Fatalf("watch ended: %v", err)
		case <-time.After(time.Minute):
			t.Fatalf("not told of %s", what)
		}
	}
	// The kernel says more than once that something changed: go on when it is quiet, as it must become.
	awaitQuiet := func() {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			select {
			case <-told:
			case <-time.After(5 * burst):
				return
			case <-deadline:
				t.Fatal("wakes up for ever while nothing changes")
			}
		}
	}
	await("the beginning")
	awaitQuiet()
	loopbackUp(t)
	await("addresses that came up")
	awaitQuiet()
	for _, step := range []struct{ command, want string }{
		{"link add name wire0 type bridge", ""},
		{"link set wire0 up", ""},
		{"address add 192.0.2.7/24 dev wire0", "192.0.2.7"},
		{"address add 2001:db8::7/64 dev wire0 nodad", "192.0.2.7 2001:db8::7"},
		{"address delete 192.0.2.7/24 dev wire0", "2001:db8::7"},
		{"link set wire0 down", ""},
		{"link delete wire0", ""},
	} {
		ip(t, step.command)
		await(step.command)
		awaitQuiet()
		f, err := Collect("/")
		value, _ := f.Get("facts.network.addresses")
		if got, _ := value.([]string); err != nil || strings.Join(got, " ") != step.want {
			t.Errorf("after %s the addresses are %v, want %q; %v", step.command, got, step.want, err)
		}
		mac, _ := f.Get(declare.MemberName(declare.InterfaceFacts, "wire0", "mac"))
		if known, _ := mac.(string); (len(known) == len("52:54:00:12:34:56")) != (step.want != "") {
			t.Errorf("after %s the hardware address is %v", step.command, mac)
		}
	}
	for _, name := range []string{"first", "second"} {
		if err := unix.Sethostname([]byte(name)); err != nil {
			t.Fatal(err)
		}
		await("the hostname " + name)
		awaitQuiet()
		f, err := Collect("/")
		if err != nil || f.Hostname != name {
			t.Errorf("collected hostname %q, %v", f.Hostname, err)
		}
	}
	// A container's name is nothing to this host, though the kernel reports both alike.
	container := exec.CommandContext(t.Context(), "unshare", "--uts", "hostname", "container")
	if out, err := container.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v %s", container, err, out)
	}
	select {
	case <-told:
		t.Error("told of the hostname of a container")
	case <-time.After(5 * burst):
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("does not end with its context")
	}
}

// ip runs ip(8) in the network of this process.
func ip(t *testing.T, arguments string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v %s", arguments, err, out)
	}
}

// loopbackUp gives the loopback interface its addresses.
func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}

func TestBurstsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		calls := 0
		ended := make(chan struct{})
		go func() {
			tell(ctx, changed, func() { calls++ })
			close(ended)
		}()
		synctest.Wait()
		if calls != 1 {
			t.Fatalf("%d calls at the beginning", calls)
		}
		for range 50 {
			note(changed)
			time.Sleep(burst / 100)
		}
		time.Sleep(2 * burst)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("%d calls after a burst, want 2", calls)
		}
		note(changed)
		time.Sleep(2 * burst)
		synctest.Wait()
		if calls != 3 {
			t.Errorf("%d calls after one more change, want 3", calls)
		}
		cancel()
		<-ended
	})
}

// TestWhatFailsIsWatchedAgain: a failure is told each time, what is there to be watched is tried again later and later, and soon where it went well for long.
func TestWhatFailsIsWatchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		var begun []time.Duration
		told, start := 0, time.Now()
		w := watching(func(ctx context.Context, changed chan<- struct{}) error {
			begun = append(begun, time.Since(start))
			note(changed)
			if len(begun) == 3 {
				time.Sleep(2 * retryMax) // well for long
			}
			if len(begun) == 5 {
				<-ctx.Done()
			}
			return errors.New("no watch")
		})
		ended := make(chan struct{})
		go func() {
			w.again(ctx, changed, func(error) { told++ })
			close(ended)
		}()
		time.Sleep(10 * retryMax)
		synctest.Wait()
		third := 3 * retryMin
		fourth := third + 2*retryMax + retryMin
		want := []time.Duration{0, retryMin, third, fourth, fourth + 2*retryMin}
		if !slices.Equal(begun, want) || told != 4 {
			t.Errorf("tried after %v, want %v, and told %d times, want 4", begun, want, told)
		}
		cancel()
		<-ended
		if told != 4 {
			t.Error("the end is told as a failure")
		}
	})
}

// TestFailureEndsAWatch: what can be read no more is an error and not silence.
func TestFailureEndsAWatch(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	err = until(t.Context(), "watch disks", r, func() error { return awaitMessages(r, changed, anything) })
	if !reason.Is(err, reason.SystemCallFailed) || !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
	if len(changed) != 1 {
		t.Error("what came before the watch is not told")
	}
}

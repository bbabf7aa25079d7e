package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

const (
	// orderVariable makes the test binary a helper, and holds its order.
	orderVariable = "TAKO_TEST_KILL_ORDER"
	// marker is a path that a helper looks for just before it begins, so that this is seen among its system calls.
	marker = "/tako-test-begin"
)

// Open starts an agent: it makes the types that it would have, which keep what they keep below state. Close ends it.
type Open func(state string) (types hosttest.TypeOf, agent io.Closer, err error)

// Main runs the tests of a package, or the helper that this process is.
func Main(m *testing.M, open Open) {
	text := os.Getenv(orderVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	// What a helper says is the code of what went wrong. It ends without os.Exit, before which the race detector sleeps for a second.
	if err := help(text, open); err != nil {
		fmt.Println(reason.Of(err).Code)
		fmt.Fprintln(os.Stderr, hosttest.Told(err))
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// deed is what a helper does with its resources.
type deed string

const (
	check  deed = "check" // at every depth
	apply  deed = "apply"
	redo   deed = "redo" // apply, and look whether there is something to do again
	remove deed = "remove"
)

// order is what a helper is told.
type order struct {
	Resources []declare.Resource
	State     string
	Deed      deed
}

// help carries out an order on one thread. No mode may come from the umask.
func help(text string, open Open) error {
	runtime.LockOSThread()
	unix.Umask(0)
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	of, agent, err := open(o.State)
	if err != nil {
		return err
	}
	defer agent.Close()
	return o.carryOut(context.Background(), of)
}

// carryOut does the work. Of an apply it begins after the check, which changes nothing: LooksOnly shows that.
func (o *order) carryOut(ctx context.Context, of hosttest.TypeOf) error {
	typ := of(o.Resources[0]) // a row has resources of one type
	var rs []host.Resource
	for _, r := range o.Resources {
		bound, err := typ.Bind(ctx, hosttest.Declared(r))
		if err != nil {
			return err
		}
		rs = append(rs, bound)
	}
	var err error
	switch o.Deed {
	case check:
		begin()
		for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
			for _, p := range typ.Check(ctx, rs, depth) {
				err = errors.Join(err, p.Err)
			}
		}
	case remove:
		begin()
		for _, r := range slices.Backward(rs) {
			err = errors.Join(err, typ.Remove(ctx, r, declare.OnRemoveDelete, nil))
		}
	case apply, redo:
		var plans []host.Plan
		for _, p := range typ.Check(ctx, rs, host.Deep) {
			if err = errors.Join(err, p.Err); !p.Empty() {
				plans = append(plans, p)
			}
		}
		if err != nil || len(plans) == 0 {
			return err
		}
		begin()
		for _, res := range typ.Apply(ctx, plans) {
			err = errors.Join(err, res.Err)
		}
		if o.Deed == redo && err == nil {
			begin()
			err = undone(typ.Check(ctx, rs, host.Shallow))
		}
	}
	return err
}

// undone is an error where there is still something to do.
func undone(plans []host.Plan) (err error) {
	for _, p := range plans {
		if err = errors.Join(err, p.Err); !p.Empty() {
			err = errors.Join(err, &reason.Error{Code: reason.ConcurrentEdit, Doing: "look at it again"})
		}
	}
	return err
}

func begin() { _, _ = os.Lstat(marker) }

// NeedsStrace skips a test where helpers cannot be traced.
func NeedsStrace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
}

// ended is how a helper has ended.
type ended struct {
	killed bool
	code   string // of what went wrong, if it was not killed
	err    error  // nil: it has done what it was to do
}

// run runs a helper under strace with more options. Its other threads and what it runs are traced too, unless it is to be traced alone.
func run(t testing.TB, o order, alone bool, options ...string) ended {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-qq"}
	if !alone {
		args = append(args, "-f", "--seccomp-bpf")
	}
	cmd := exec.CommandContext(t.Context(), "strace", append(append(args, options...), exe)...)
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	return end(cmd.Run(), out.String(), said.String())
}

// end is how a helper has ended, of which strace says how it has ended itself: it ends the way that what it traced has.
func end(err error, out, said string) ended {
	e := ended{err: err, code: strings.TrimSpace(out)}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		e.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
		e.err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said))
	}
	return e
}

// trace runs a helper, and lists the system calls of the thread that does the work: those of some classes of strace, each as strace shows
// it, and how many of them come before the beginning.
func trace(t testing.TB, o order, alone bool, classes string) (calls []string, before int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	if e := run(t, o, alone, "-o", log, "-e", "trace="+classes); e.err != nil {
		t.Fatalf("helper: %v", e.err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	byThread := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		thread, call := "", strings.TrimSpace(line)
		if !alone {
			thread, call, _ = strings.Cut(call, " ")
		}
		call = strings.TrimSpace(call)
		// What the kernel begins anew is listed again: a write of a parameter of the network does so thousands of times while another has their lock.
		again := strings.Contains(call, "= ? ERESTART")
		if !again && !strings.HasPrefix(call, "<...") && !strings.HasPrefix(call, "+++") && !strings.HasPrefix(call, "---") {
			byThread[thread] = append(byThread[thread], call)
		}
	}
	for _, calls := range byThread {
		if i := slices.IndexFunc(calls, func(call string) bool { return strings.Contains(call, marker) }); i >= 0 {
			return calls, i + 1
		}
	}
	t.Fatalf("the helper did not begin:\n%s", b)
	return nil, 0
}

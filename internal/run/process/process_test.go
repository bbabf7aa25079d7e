package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/process"
	"tako.dev/tako/internal/run/runtest"
)

// The test binary is its own shim.
const shimArgument = "mind-a-task"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == shimArgument {
		syscall.Exit(process.Serve()) // not os.Exit, before which the race detector sleeps for a second
	}
	runtest.Main(m, open)
}

func open(dir string) (run.Runtime, func() error, error) {
	return openWith(dir, []string{"/proc/self/exe", shimArgument})
}

func openWith(dir string, shim []string) (run.Runtime, func() error, error) {
	rt, err := process.New(process.Options{Dir: dir, Shim: shim})
	if err != nil {
		return nil, nil, err
	}
	return rt, rt.Close, nil
}

func subject() runtest.Subject {
	s := runtest.Subject{Open: open, Clean: []string{"attempts", "status", "users"}}
	if os.Geteuid() == 0 {
		s.User, s.UID = "nobody", 65534
	}
	return s
}

func TestSuite(t *testing.T) { runtest.Run(t, subject()) }

func TestWorkloadCase62_KilledWhileItStarts(t *testing.T) {
	runtest.KilledWhileItStarts(t, casetest.Start(t), subject())
}

// The suite holds without any privileges, too.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it is so already")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text, err := os.ReadFile(exe)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test"), text, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, 65534, 65534)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), "-test.run=^(TestSuite|TestShimIsKilled)$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestSuite/daemons") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// status sums a number of a process over its threads: files of status(5), the line that begins with key.
func status(t *testing.T, pid int, key string) (sum int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, key+":"); ok {
				n, err := strconv.Atoi(strings.Fields(value)[0])
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

// While nothing happens a shim sleeps, and has little memory of its own.
func TestShimIsIdle(t *testing.T) {
	rt, done, err := open(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	task := run.Task{ID: run.ID{Instance: "i", Task: "t", Attempt: 1}, Dir: "/", Command: []string{"/bin/sleep", "600"}}
	s, err := rt.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	shim := runtest.Parent(t, s.PID)
	const still = 2 * time.Second
	best := -1
	for range 5 { // the Go runtime settles for a while
		before := status(t, shim, "voluntary_ctxt_switches")
		<-time.NewTimer(still).C
		if woken := status(t, shim, "voluntary_ctxt_switches") - before; best < 0 || woken < best {
			best = woken
		}
		if best == 0 {
			break
		}
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", shim))
	if err != nil {
		t.Fatal(err)
	}
	anonymous := status(t, shim, "RssAnon") / len(threads) // every thread shows that of the process
	t.Logf("woken %d times in %v, %d KiB of memory of its own, %d threads", best, still, anonymous, len(threads))
	build, _ := debug.ReadBuildInfo()
	raced := build != nil && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) // it has ten times as much then
	if anonymous > 4<<10 && !raced {
		t.Errorf("a shim has %d KiB of memory of its own, at most 4 MiB are expected", anonymous)
	}
	if best > 0 {
		t.Errorf("a shim with nothing to do is woken %d times in %v", best, still)
	}
	finish(t, rt, task.ID)
	if err := done(); err != nil {
		t.Error(err)
	}
}

// TestMany: a host runs more tasks than the kernel gives one user of what there is few of by default, such as the 128 instances of inotify, and each of them
// still hears what is asked of it.
func TestMany(t *testing.T) {
	const tasks = 150
	rt, done, err := open(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]run.ID, tasks)
	for i := range ids {
		ids[i] = run.ID{Instance: fmt.Sprint("i", i), Task: "t", Attempt: 1}
		if s, err := rt.Start(t.Context(), run.Task{ID: ids[i], Dir: "/", Command: []string{"/bin/sleep", "600"}}); err != nil || s.Phase != run.Running {
			t.Errorf("task %d: %v, %v", i, s, err)
			ids = ids[:i]
			break
		}
	}
	for i := len(ids) - 1; i >= 0; i-- {
		finish(t, rt, ids[i])
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

// TestAskedBeforeTheBell: an agent that was killed when it had written down what it asks, and had woken nobody, has asked: the next one sees to it.
func TestAskedBeforeTheBell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	rt, done, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := run.ID{Instance: "i", Task: "t", Attempt: 1}
	if _, err := rt.Start(t.Context(), run.Task{ID: id, Dir: "/", Command: []string{"/bin/sleep", "600"}}); err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(dir, "attempts", id.String(), "stop")
	if err := os.WriteFile(asked+".fresh", []byte("15"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(asked+".fresh", asked); err != nil {
		t.Fatal(err)
	}
	if rt, done, err = open(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = rt.Run(ctx, func(s run.Status) {
		if s.Phase == run.Ended {
			if s.Ending.Cause != run.Signaled || s.Ending.Signal != run.Signal(syscall.SIGTERM) {
				t.Errorf("it ended %+v", s.Ending)
			}
			cancel()
		}
	})
	if err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("%v, %v", err, ctx.Err())
	}
	finish(t, rt, id)
	if err := done(); err != nil {
		t.Error(err)
	}
}

// finish ends an attempt, waits for that, and has it forgotten.
func finish(t *testing.T, rt run.Runtime, id run.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := rt.Kill(ctx, id); err != nil && !reason.Is(err, reason.TaskUnknown) {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	told, heard := context.WithCancel(ctx)
	go func() {
		over <- rt.Run(told, func(s run.Status) {
			if s.ID == id && s.Phase == run.Ended {
				heard()
			}
		})
	}()
	<-told.Done()
	heard()
	if err := errors.Join(<-over, ctx.Err(), rt.Remove(ctx, id)); err != nil {
		t.Errorf("finish %s: %v", id, err)
	}
}

func TestShimIsKilled(t *testing.T) { runtest.ShimKilled(t, subject()) }

func TestShimIsKilledAnywhere(t *testing.T) {
	runtest.ShimKilledAnywhere(t, subject(), shimArgument, openWith)
}

// Who names no user gets one of the instance's own, and no way to another.
func TestOwnUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	rt, done, err := open(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	ids := []run.ID{{Instance: "a", Task: "one", Attempt: 1}, {Instance: "a", Task: "two", Attempt: 1}, {Instance: "b", Task: "one", Attempt: 1}}
	var pids []int
	for _, id := range ids {
		s, err := rt.Start(t.Context(), run.Task{ID: id, Dir: "/", Command: []string{"/bin/sleep", "600"}})
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, s.PID)
		for key, want := range map[string]int{"NoNewPrivs": 1, "CapEff": 0, "CapPrm": 0} {
			if got := status(t, s.PID, key); got != want {
				t.Errorf("%s has %s %d", id, key, got)
			}
		}
	}
	a, again, b := status(t, pids[0], "Uid"), status(t, pids[1], "Uid"), status(t, pids[2], "Uid")
	if a < 66_000 || a >= 83_000 || a != again || a == b || status(t, pids[0], "Gid") != a {
		t.Errorf("the tasks of one instance run as %d and %d, that of another as %d", a, again, b)
	}
	for _, id := range ids {
		finish(t, rt, id)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

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
	rt, err := process.New(process.Options{Dir: dir, Shim: []string{"/proc/self/exe", shimArgument}})
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

// TestShimIsKilled kills what minds a task, as the kernel may when memory is short: what it has started goes with it, and that is said.
func TestShimIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	rt, done, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	told := make(chan run.Status, 100)
	over := make(chan error, 1)
	go func() { over <- rt.Run(ctx, func(s run.Status) { told <- s }) }()
	defer func() {
		cancel()
		if err := errors.Join(<-over, done()); err != nil {
			t.Error(err)
		}
	}()
	task := run.Task{
		ID: run.ID{Instance: "i", Task: "t", Attempt: 1}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Command: []string{"/bin/sh", "-c", "setsid sleep 7654321 & (setsid sleep 7654321 &) ; sleep 7654321"},
	}
	s, err := rt.Start(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	shim := parent(t, s.PID)
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for s.Phase != run.Ended {
		select {
		case s = <-told:
		case <-ctx.Done():
			t.Fatalf("it is not told that it has ended: %+v", s)
		}
	}
	if s.Ending.Cause != run.Lost || s.Ending.Words == "" || s.Ending.Survived != 0 || s.Started == 0 {
		t.Errorf("it ended as %+v", s)
	}
	if again, err := rt.Start(ctx, task); err != nil || again != s {
		t.Errorf("started again it is %+v (%v)", again, err)
	}
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), "7654321") {
			t.Errorf("%s is left: %q", name, line)
		}
	}
	if err := rt.Remove(ctx, task.ID); err != nil {
		t.Error(err)
	}
}

// parent is the process that minds a task.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	shim, err := strconv.Atoi(strings.Fields(string(stat))[3])
	if err != nil {
		t.Fatal(err)
	}
	return shim
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
	shim := parent(t, s.PID)
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

// eachMax is how many calls of one name are tried: a shim makes fewer before it minds its task.
const eachMax = 30

// TestShimIsKilledAnywhere kills a shim as it enters each of its system calls. Its task is executed once or not at all, is not left alone, and
// what became of it is said.
func TestShimIsKilledAnywhere(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for _, name := range []string{"openat", "write", "renameat", "fsync", "clone", "prctl", "inotify_init1", "wait4"} {
		for nth := 1; nth <= eachMax; nth++ {
			shim := []string{strace, "-qq", "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", name, nth), exe, shimArgument}
			if !killedAt(t, shim, fmt.Sprintf("%s %d", name, nth)) {
				break
			}
			kills++
		}
	}
	t.Logf("a shim was killed at %d calls", kills)
	if kills < 20 {
		t.Errorf("a shim was killed at %d calls only", kills)
	}
}

// killedAt runs a task below a shim that is killed somewhere; false: that was not to be.
func killedAt(t *testing.T, shim []string, call string) bool {
	t.Helper()
	dir, note := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "note")
	mark := fmt.Sprintf("KILLED_AT=%d-%d", os.Getpid(), time.Now().UnixNano())
	task := run.Task{
		ID: run.ID{Instance: "i", Task: "t", Attempt: 1}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin", mark}, User: strconv.Itoa(os.Geteuid()),
		Command: []string{"/bin/sh", "-c", "echo x >>" + note + "; (setsid sleep 5 &); exit 4"},
	}
	first, err := process.New(process.Options{Dir: dir, Shim: shim})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, failed := first.Start(ctx, task)
	if failed != nil && !reason.Is(failed, reason.TaskNotStarted) {
		t.Errorf("killed at %s: start: %v", call, failed)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	rt, done, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan run.Status, 10)
	told, heard := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() {
		over <- rt.Run(told, func(s run.Status) {
			if s.Phase == run.Ended {
				select {
				case ended <- s:
				default:
				}
			}
		})
	}()
	if _, err := rt.Start(ctx, task); err != nil {
		t.Errorf("killed at %s: start again: %v", call, err)
	}
	var s run.Status
	select {
	case s = <-ended:
	case <-ctx.Done():
		t.Fatalf("killed at %s: it does not end", call)
	}
	heard()
	text, _ := os.ReadFile(note) // it need not be there
	if n := strings.Count(string(text), "x"); n > 1 || n == 0 && s.Ending.Cause != run.Lost {
		t.Errorf("killed at %s: it was executed %d times, and ended as %+v", call, n, s.Ending)
	}
	if c := s.Ending.Cause; c != run.Lost && (c != run.Exited || s.Ending.Code != 4) {
		t.Errorf("killed at %s: it ended as %+v", call, s.Ending)
	}
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if env, err := os.ReadFile(name); err == nil && strings.Contains(string(env), mark) {
			t.Errorf("killed at %s: %s is left", call, name)
		}
	}
	if err := errors.Join(<-over, rt.Remove(ctx, task.ID), done()); err != nil {
		t.Errorf("killed at %s: %v", call, err)
	}
	return failed != nil || s.Ending.Cause == run.Lost
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
	if a < 66_000 || a >= 99_000 || a != again || a == b || status(t, pids[0], "Gid") != a {
		t.Errorf("the tasks of one instance run as %d and %d, that of another as %d", a, again, b)
	}
	for _, id := range ids {
		finish(t, rt, id)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

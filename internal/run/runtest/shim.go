package runtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// ShimKilled kills what minds a task, as the kernel may when memory is short: what it has started goes with it, and that is said.
func ShimKilled(t *testing.T, s Subject) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	rt, done, err := s.Open(dir)
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
	length := fmt.Sprintf("7654321.%07d", os.Getpid()) // several of these tests may run on a machine
	task := run.Task{
		ID: run.ID{Instance: fmt.Sprintf("i-%d", os.Getpid()), Task: "t", Attempt: 1}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Command: []string{"/bin/sh", "-c", strings.ReplaceAll("setsid sleep LENGTH & (setsid sleep LENGTH &) ; sleep LENGTH", "LENGTH", length)},
	}
	s.dress(&task)
	is, err := rt.Start(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	shim := Parent(t, is.PID)
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for is.Phase != run.Ended {
		select {
		case is = <-told:
		case <-ctx.Done():
			t.Fatalf("it is not told that it has ended: %+v", is)
		}
	}
	if is.Ending.Cause != run.Lost || is.Ending.Words == "" || is.Ending.Survived != 0 || is.Started == 0 {
		t.Errorf("it ended as %+v", is)
	}
	if again, err := rt.Start(ctx, task); err != nil || again != is {
		t.Errorf("started again it is %+v (%v)", again, err)
	}
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), length) {
			t.Errorf("%s is left: %q", name, line)
		}
	}
	if err := rt.Remove(ctx, task.ID); err != nil {
		t.Error(err)
	}
}

// Parent is the process that minds a task.
func Parent(t *testing.T, pid int) int {
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

// eachMax is how many calls of one name are tried: a shim makes fewer before it minds its task.
const eachMax = 30

// ShimKilledAnywhere kills a shim as it enters each of its system calls. Its task is executed once or not at all, is not left alone, and
// what became of it is said.
func ShimKilledAnywhere(t *testing.T, s Subject, argument string, open func(dir string, shim []string) (run.Runtime, func() error, error)) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for _, name := range []string{"openat", "write", "renameat", "fsync", "clone", "prctl", "inotify_init1", "wait4", "unshare", "mount", "mkdirat", "poll", "unlinkat"} {
		for nth := 1; nth <= eachMax; nth++ {
			shim := []string{strace, "-qq", "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", name, nth), exe, argument}
			with := func(dir string) (run.Runtime, func() error, error) { return open(dir, shim) }
			if !killedAt(t, s, with, fmt.Sprintf("%s %d", name, nth)) {
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
func killedAt(t *testing.T, s Subject, open func(dir string) (run.Runtime, func() error, error), call string) bool {
	t.Helper()
	dir, note := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "note")
	mark := fmt.Sprintf("KILLED_AT=%d-%d", os.Getpid(), time.Now().UnixNano())
	task := run.Task{
		ID: run.ID{Instance: fmt.Sprintf("i-%d", os.Getpid()), Task: "t", Attempt: 1}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin", mark}, User: strconv.Itoa(os.Geteuid()),
		Command: []string{"/bin/sh", "-c", "echo x >>" + note + "; (setsid sleep 5 &); exit 4"},
	}
	s.dress(&task)
	first, closeFirst, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, failed := first.Start(ctx, task)
	if failed != nil && !reason.Is(failed, reason.TaskNotStarted) {
		t.Errorf("killed at %s: start: %v", call, failed)
	}
	if err := closeFirst(); err != nil {
		t.Error(err)
	}
	rt, done, err := s.Open(dir)
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
	var is run.Status
	select {
	case is = <-ended:
	case <-ctx.Done():
		t.Fatalf("killed at %s: it does not end", call)
	}
	heard()
	text, _ := os.ReadFile(note) // it need not be there
	if n := strings.Count(string(text), "x"); n > 1 || n == 0 && is.Ending.Cause != run.Lost {
		t.Errorf("killed at %s: it was executed %d times, and ended as %+v", call, n, is.Ending)
	}
	if c := is.Ending.Cause; c != run.Lost && (c != run.Exited || is.Ending.Code != 4) {
		t.Errorf("killed at %s: it ended as %+v", call, is.Ending)
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
	return failed != nil || is.Ending.Cause == run.Lost
}

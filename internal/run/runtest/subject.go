package runtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/run"
)

// Subject is a runtime under test.
type Subject struct {
	// Open begins a runtime over a directory, as an agent does when it starts. Close ends it as when that ends.
	Open func(dir string) (rt run.Runtime, close func() error, err error)
	// Users are a user that tasks can run as, and its number; empty: none but the test's own.
	User string
	UID  int
	// Dress gives a task what it needs to run where the host's files are not there by themselves: an image, and these directories at their own
	// paths. Nil: nothing.
	Dress func(t *run.Task, directories []string)
	// Calls are the system calls at which KilledWhileItStarts kills an agent. Nil: all that may be seen by others.
	Calls []string
	// Lossy says that of a flood of lines the last ones may be lost: who keeps them bounds how many come at once.
	Lossy bool
	// Clean is what there is below the directory when nothing was run, as find prints it.
	Clean []string
}

// The words that make the test binary something else.
const (
	programWord = "runtest-program"
	agentWord   = "runtest-agent"
)

// patience is how long a state is waited for: long on a busy machine.
const patience = 2 * time.Minute

// sequence keeps what two tests make apart.
type sequence struct{ n atomic.Int64 }

func (s *sequence) next() string { return fmt.Sprintf("%d-%d", os.Getpid(), s.n.Add(1)) }

// bench is a runtime at work in a test.
type bench struct {
	*testing.T
	Subject
	dir    string
	rt     run.Runtime
	close  func() error
	stop   context.CancelFunc
	done   chan error
	born   string // of no other bench
	mark   string // in the environment of every task
	serial sequence
	gate   string // see fifo

	mu   sync.Mutex // guards what follows
	told map[run.ID]run.Status
	wake chan struct{} // closed and replaced when something is told
}

func newBench(t *testing.T, s Subject) *bench {
	t.Helper()
	b := &bench{T: t, Subject: s, dir: filepath.Join(t.TempDir(), "run")}
	b.born = fmt.Sprintf("%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36))
	b.mark = "RUNTEST_MARK=" + b.born
	b.open()
	t.Cleanup(b.end)
	return b
}

// open begins an agent.
func (b *bench) open() {
	b.Helper()
	var err error
	if b.rt, b.close, err = b.Open(b.dir); err != nil {
		b.Fatal(err)
	}
	b.mu.Lock()
	b.told, b.wake = map[run.ID]run.Status{}, make(chan struct{})
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, make(chan error, 1)
	go func() { b.done <- b.rt.Run(ctx, b.tell) }()
}

func (b *bench) tell(s run.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.told[s.ID]; was.Phase > s.Phase {
		b.Errorf("%s was %v, and is told to be %v", s.ID, was.Phase, s.Phase)
	}
	b.told[s.ID] = s
	close(b.wake)
	b.wake = make(chan struct{})
}

// leave ends the agent; what it runs goes on.
func (b *bench) leave() {
	b.Helper()
	b.stop()
	if err := <-b.done; err != nil {
		b.Errorf("run: %v", err)
	}
	if err := b.close(); err != nil {
		b.Errorf("close: %v", err)
	}
}

// end ends everything, and sees that nothing is left.
func (b *bench) end() {
	list, err := b.rt.List(context.Background())
	if err != nil {
		b.Errorf("list: %v", err)
	}
	for _, s := range list {
		b.over(s.ID)
	}
	b.leave()
	if left := b.marked(); len(left) > 0 {
		b.Errorf("processes are left: %v", left)
	}
	if found := b.files(); strings.Join(found, " ") != strings.Join(b.Clean, " ") {
		b.Errorf("files are left: %q, want %q", found, b.Clean)
	}
}

// over ends an attempt, and has it forgotten.
func (b *bench) over(id run.ID) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.rt.Kill(ctx, id); err != nil {
		b.Errorf("kill %s: %v", id, err)
	}
	b.ended(id)
	if err := b.rt.Remove(ctx, id); err != nil {
		b.Errorf("remove %s: %v", id, err)
	}
	if err := b.rt.Remove(ctx, id); err != nil {
		b.Errorf("remove %s again: %v", id, err)
	}
}

func (b *bench) files() (found []string) {
	err := filepath.WalkDir(b.dir, func(p string, _ os.DirEntry, err error) error {
		if rest, ok := strings.CutPrefix(p, b.dir+"/"); ok && err == nil {
			found = append(found, rest)
		}
		return err
	})
	if err != nil {
		b.Error(err)
	}
	return found
}

// marked are the processes that come from tasks of this test.
func (b *bench) marked() (found []string) {
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range list {
		if env, err := os.ReadFile(name); err == nil && bytes.Contains(env, []byte(b.mark)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			found = append(found, fmt.Sprintf("%s %.80q", filepath.Base(filepath.Dir(name)), line))
		}
	}
	return found
}

// task is a task that runs a program.
func (b *bench) task(command ...string) run.Task {
	t := run.Task{
		ID: run.ID{Instance: "i-" + b.born + "-" + b.serial.next(), Task: "main", Attempt: 1}, Command: command, Dir: "/", User: b.Subject.User,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", b.mark},
	}
	b.dress(&t)
	return t
}

// dress gives a task what it needs.
func (s *Subject) dress(t *run.Task) {
	if s.Dress != nil {
		s.Dress(t, []string{"/usr", os.TempDir()})
	}
}

// secluded is a task that runs a line of shell, and has a directory for temporary files of its own where the runtime gives it one.
func (b *bench) secluded(line string) run.Task {
	t := b.shell(line)
	t.Mounts = slices.DeleteFunc(t.Mounts, func(m run.Mount) bool { return m.Path == os.TempDir() })
	return t
}

// shell is a task that runs a line of shell.
func (b *bench) shell(line string) run.Task { return b.task("/bin/sh", "-c", line) }

// program is a task that runs something of this package; see Main.
func (b *bench) program(words ...string) run.Task {
	b.Helper()
	return b.task(append([]string{b.self(), programWord}, words...)...)
}

// self is this program where every user may execute it.
func (b *bench) self() string {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	if b.Subject.User == "" {
		return exe
	}
	dir, err := os.MkdirTemp("", "runtest")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "program")
	text, err := os.ReadFile(exe)
	if err == nil {
		err = os.WriteFile(name, text, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	return name
}

func (b *bench) start(t run.Task) run.Status {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	s, err := b.rt.Start(ctx, t)
	if err != nil {
		b.Fatalf("start %s: %v", t.ID, err)
	}
	return s
}

// until waits until an attempt is told to be in a phase.
func (b *bench) until(id run.ID, p run.Phase) run.Status {
	b.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		s, wake := b.told[id], b.wake
		b.mu.Unlock()
		if s.Phase >= p {
			return s
		}
		select {
		case <-wake:
		case <-late.C:
			list, err := b.rt.List(context.Background())
			b.Fatalf("%s is not told to be %v; it is %+v, and there is %+v (%v)\n%s", id, p, s, list, err, b.printed(id))
		}
	}
}

func (b *bench) ended(id run.ID) run.Ending {
	b.Helper()
	return b.until(id, run.Ended).Ending
}

// printed is what an attempt has printed to its first stream.
func (b *bench) printed(id run.ID) string {
	b.Helper()
	lines, err := b.rt.Tail(context.Background(), id, run.TailMax)
	if err != nil {
		b.Fatalf("tail: %v", err)
	}
	return string(run.Text(lines, false))
}

// eventually waits for what nobody tells.
func (b *bench) eventually(what string, is func() bool) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for stop := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(stop) {
			b.Fatalf("not in time: %s", what)
		}
	}
}

// says waits until an attempt has printed something.
func (b *bench) says(id run.ID, text string) {
	b.Helper()
	b.eventually("it prints "+text, func() bool { return strings.Contains(b.printed(id), text) })
}

func want(t testing.TB, got run.Ending, cause run.Cause, code int, signal syscall.Signal) {
	t.Helper()
	if got.Cause != cause || got.Code != code || got.Signal != run.Signal(signal) || got.At <= 0 || got.Survived != 0 {
		t.Errorf("it ended %v, code %d, %v, at %d, %d survived (%s); want %v, %d, %v", got.Cause, got.Code, got.Signal, got.At, got.Survived, got.Words, cause, code, signal)
	}
}

// number reads a number from the environment.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
	bus "tako.dev/tako/internal/systemd"
)

// serveMemory is what Serve's heap may have before it is collected more often, in bytes: it counts as the task's.
const serveMemory = 4 << 20

// Serve is what a unit starts: it becomes the task, or writes down how that ended. It returns an exit code. The process must be made for that
// alone; args are those behind Options.Program.
func Serve(args []string) int {
	debug.SetMemoryLimit(serveMemory)
	if len(args) < 4 {
		return 2
	}
	tree := tree{args[1], args[2]}
	id, err := run.ParseID(args[3])
	if err != nil {
		return 2
	}
	switch args[0] {
	case executeWord:
		if err := execute(tree, id); err != nil {
			return 1
		}
	case guardWord:
		if guard(tree, id) != nil {
			return 1
		}
	case recordWord:
		if len(args) != 6 || record(tree, id, args[4], args[5]) != nil {
			return 1 // the unit stays, and says how its process ended
		}
	}
	return 0
}

// now is the time of the boot clock.
func now() run.Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it cannot fail with a valid clock
	return run.Moment(ts.Nano())
}

// execute becomes the task. It returns only where that cannot be, and leaves why.
func execute(t tree, id run.ID) error {
	// Both are closed by the kernel when the program is executed. Nobody may be there any more to hear the word.
	word, err := unix.Open(t.in(id, wordFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		word = -1
	}
	why, err := os.OpenFile(t.in(id, whyFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	err = become(t, id)
	_, errWhy := why.WriteString(err.Error())
	if word >= 0 {
		_, _ = unix.Write(word, []byte("no")) // who waits looks at what there is, anyway
	}
	return errors.Join(err, errWhy)
}

// become does all that comes before the program, and executes it.
func become(t tree, id run.ID) error {
	var o order
	there, err := read(t.in(id, orderFile), orderMax, func(text []byte) error { return decodeOrder(text, &o) })
	if err != nil || !there {
		return errors.Join(err, errors.New("there is no order"))
	}
	until, err := t.until(id)
	if err != nil || until != 0 && now() >= until {
		return errors.Join(err, errors.New("it was to run until before now"))
	}
	first, err := t.put(id, begunFile, begun{Boot: o.Boot, PID: os.Getpid(), Started: now(), Logs: bus.MonotonicNow(), Log: o.Log}, false)
	if err != nil || !first {
		return errors.Join(err, errors.New("it was started before"))
	}
	if err := os.Remove(t.in(id, orderFile)); err != nil {
		return err
	}
	if err := stderrApart(id); err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	if err := bus.Notify(bus.Ready); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	groups := make([]int, len(o.As.Groups))
	for i, g := range o.As.Groups {
		groups[i] = int(g)
	}
	if err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(int(o.As.GID)), syscall.Setuid(int(o.As.UID))); err != nil {
		return fmt.Errorf("become user %d: %w", o.As.UID, err)
	}
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("enter its directory: %w", err)
	}
	command := texts(o.Command)
	return fmt.Errorf("execute %s: %w", command[0], syscall.Exec(command[0], command, texts(o.Env)))
}

func texts(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// journalSocket takes streams; what each begins with is written in systemd's documentation of its protocols for sd_journal_stream_fd(3).
const journalSocket = "/run/systemd/journal/stdout"

// The priorities of what a task prints: one apart, so that both streams are told apart and neither is an alarm.
const (
	stdoutPriority = 6 // info, systemd's default
	stderrPriority = 5 // notice
)

// stderrApart gives the second stream a connection to the journal of its own: systemd has but one for both.
func stderrApart(id run.ID) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: journalSocket, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	// Identifier, unit, priority; no prefix of levels, nothing handed on.
	head := fmt.Sprintf("%s\n%s\n%d\n0\n0\n0\n0\n", id.Task, unitOf(id), stderrPriority)
	if _, err := conn.Write([]byte(head)); err != nil {
		return err
	}
	file, err := conn.File() // it blocks, as programs expect of what they print to
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Dup3(int(file.Fd()), 2, 0)
}

// record writes down how the task ended, which systemd has put into the environment.
func record(t tree, id run.ID, boot, limit string) error {
	var b begun
	began, err := t.get(id, begunFile, &b)
	if err != nil {
		return err
	}
	why := ""
	if _, err := read(t.in(id, whyFile), statusMax/2, func(text []byte) error { why = string(text); return nil }); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	own := groupAt("/", nameOfGroup(text))
	survived := own.endRest()
	e := ended{Boot: boot, Ending: end(&ending{
		result: os.Getenv("SERVICE_RESULT"), code: os.Getenv("EXIT_CODE"), status: os.Getenv("EXIT_STATUS"),
		began: began, why: why, killed: t.has(id, killFile), short: own.outOfMemory(), limit: limit,
	})}
	e.Ending.At, e.Ending.Survived = now(), survived
	if e.Ending.Cause != run.NotExecuted {
		e.Started = b.Started
	}
	if _, err := t.put(id, endedFile, e, true); err != nil {
		return err
	}
	return t.clear(id)
}

// ending is what there is to know when a task has ended.
type ending struct {
	result, code, status string // as systemd.exec(5) has them
	began                bool
	why                  string // it was not executed
	killed               bool   // as somebody has asked
	short                int64  // how many processes the kernel has ended because memory was short
	limit                string // of memory, in bytes
}

// end is how a task has ended.
func end(e *ending) run.Ending {
	number, _ := strconv.Atoi(e.status)
	out := run.Ending{}
	switch signal := unix.SignalNum("SIG" + e.status); {
	case e.why != "":
		return run.Ending{Cause: run.NotExecuted, Words: e.why}
	case !e.began:
		return run.Ending{Cause: run.NotExecuted, Words: "systemd could not prepare it: " + describe(e.result, number)}
	case e.code == "exited":
		out = run.Ending{Cause: run.Exited, Code: number}
	case e.code != "killed" && e.code != "dumped":
		return run.Ending{Cause: run.Lost, Words: "systemd does not say how it ended: " + strings.TrimSpace(e.result+" "+e.code+" "+e.status)}
	case signal == unix.SIGKILL && e.short > 0 && !e.killed:
		return run.Ending{Cause: run.OutOfMemory, Words: fmt.Sprintf("its limit of %s bytes of memory was reached", e.limit)}
	case signal != 0:
		out = run.Ending{Cause: run.Signaled, Signal: run.Signal(signal)}
	default: // a number, or one of the real-time signals, counted from the first that is free or down from the last
		out = run.Ending{Cause: run.Signaled, Signal: run.Signal(realTime(e.status, number))}
	}
	if e.short > 0 {
		out.Words = fmt.Sprintf("its limit of memory was reached: the kernel has ended %d of its processes", e.short)
	}
	return out
}

// realTime is the number of a signal that has no name of its own: RTMIN+3, RTMAX-1, or the number itself. The first two of 32 are the C
// library's.
func realTime(name string, number int) int {
	const first, last = 34, 64
	if rest, ok := strings.CutPrefix(name, "RTMIN"); ok {
		n, _ := strconv.Atoi(strings.TrimPrefix(rest, "+"))
		return first + n
	}
	if rest, ok := strings.CutPrefix(name, "RTMAX"); ok {
		n, _ := strconv.Atoi(rest)
		return last + n
	}
	return number
}

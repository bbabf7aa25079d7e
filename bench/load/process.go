package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running process as /proc shows it.
type Process int

func (p Process) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(int(p)), name)
}

// Memory returns RssAnon and RSS in kB.
func (p Process) Memory() (anonymous, resident int64, err error) {
	if anonymous, err = field(p.proc("status"), "RssAnon"); err != nil {
		return 0, 0, err
	}
	resident, err = field(p.proc("status"), "VmRSS")
	return anonymous, resident, err
}

// Peak returns the highest RSS so far, in kB.
func (p Process) Peak() (int64, error) { return field(p.proc("status"), "VmHWM") }

// ForgetPeak begins to look for the highest RSS anew, as proc_pid_clear_refs(5) says.
func (p Process) ForgetPeak() error { return os.WriteFile(p.proc("clear_refs"), []byte("5"), 0) }

// Wakeups returns how often a thread of the process has begun to wait, which is how often one was woken.
func (p Process) Wakeups() (int64, error) {
	tasks, err := filepath.Glob(p.proc("task/*/status"))
	if err != nil || len(tasks) == 0 {
		return 0, errors.Join(err, fmt.Errorf("process %d has no threads", int(p)))
	}
	var sum int64
	for _, t := range tasks {
		n, err := field(t, "voluntary_ctxt_switches")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// Ticks returns the CPU time in ticks of the kernel: 100 a second, proc(5), utime and stime.
func (p Process) Ticks() (int64, error) {
	const utime = 11
	return p.twoTimes(utime)
}

// Children returns the CPU time of the processes that it has started and waited for, and of theirs: cutime and cstime, in ticks.
func (p Process) Children() (time.Duration, error) {
	const cutime, tick = 13, 10 * time.Millisecond
	n, err := p.twoTimes(cutime)
	return time.Duration(n) * tick, err
}

// twoTimes adds up two fields of what the kernel says of a process: that of a number, counted from the one after the name, and the next.
func (p Process) twoTimes(first int) (int64, error) {
	data, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, err
	}
	// The name of the command, in parentheses, may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= first+1 {
		return 0, fmt.Errorf("%s: only %d fields", p.proc("stat"), len(fields))
	}
	user, err := strconv.ParseInt(string(fields[first]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[first+1]), 10, 64)
	return user + system, err
}

// CPU returns the CPU time of all threads to the nanosecond, from the process's own clock.
func (p Process) CPU() (time.Duration, error) {
	// The clock of a process is the complement of its number, shifted, with the scheduler's kind; clock_getcpuclockid(3).
	const scheduler = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^int(p)<<3|scheduler), &ts); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", int(p), err)
	}
	return time.Duration(ts.Nano()), nil
}

// field reads a number of a file with lines such as "VmRSS:   123 kB".
func field(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(l, ":")
		if key != name {
			continue
		}
		return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

// Inotify returns how many inotify instances the process has, and how many watches they have together; proc_pid_fdinfo(5).
func (p Process) Inotify() (instances, watches int, err error) {
	list, err := os.ReadDir(p.proc("fd"))
	if err != nil {
		return 0, 0, err
	}
	for _, fd := range list {
		if to, _ := os.Readlink(p.proc("fd/" + fd.Name())); to != "anon_inode:inotify" {
			continue // or it was closed meanwhile
		}
		info, err := os.ReadFile(p.proc("fdinfo/" + fd.Name()))
		if err != nil {
			return 0, 0, err
		}
		instances++
		watches += strings.Count(string(info), "inotify wd:")
	}
	return instances, watches, nil
}

// Calls are how many system calls were made.
type Calls struct {
	All   int64
	Stats int64 // that look at files
	// Waits are those with which threads of a Go program wait, or wake one another. Tracing makes more of them, because everything takes longer.
	Waits int64
}

// attachMax is how long strace may take to attach to all threads of a process.
const attachMax = 10 * time.Second

// Calls counts the calls of the process while something is done; it needs strace and the right to trace.
func (p Process) Calls(ctx context.Context, do func(context.Context) error) (Calls, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := &awaited{prefix: " attached", at: make(chan time.Time, 1)}
	cmd := exec.CommandContext(ctx, "strace", "-f", "-c", "-p", strconv.Itoa(int(p)))
	cmd.Stderr = said
	// It prints its counts when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return Calls{}, err
	}
	late := time.NewTimer(attachMax)
	defer late.Stop()
	var err error
	select {
	case <-said.at:
		err = do(ctx)
	case <-late.C:
		err = fmt.Errorf("it has not attached after %v", attachMax)
	}
	if err == nil {
		err = cmd.Process.Signal(os.Interrupt) // it has ended by itself when this fails
	}
	cancel()
	_ = cmd.Wait() // its error is that it was interrupted
	if err != nil {
		return Calls{}, fmt.Errorf("strace: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return countCalls(said.String()), nil
}

// countCalls adds up the table that strace -c prints: share, seconds, microseconds a call, calls, perhaps errors, name.
func countCalls(table string) (c Calls) {
	for l := range strings.Lines(table) {
		f := strings.Fields(l)
		if len(f) < 5 {
			continue
		}
		calls, err := strconv.ParseInt(f[3], 10, 64)
		name := f[len(f)-1]
		if err != nil || name == "total" {
			continue
		}
		c.All += calls
		switch name {
		case "stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat":
			c.Stats += calls
		case "futex", "nanosleep", "clock_nanosleep", "epoll_wait", "epoll_pwait", "sched_yield", "restart_syscall", "rt_sigreturn", "getpid", "tgkill":
			c.Waits += calls
		}
	}
	return c
}

// Peak looks for the highest RssAnon of a process.
type Peak struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	most int64 // kB; for who has waited for all
}

// WatchPeak looks ten times a second until End is called. What lies between is not seen.
func (p Process) WatchPeak(ctx context.Context) *Peak {
	ctx, stop := context.WithCancel(ctx)
	w := &Peak{stop: stop}
	w.all.Go(func() {
		for Pause(ctx, 100*time.Millisecond) == nil {
			if anonymous, _, err := p.Memory(); err == nil { // one that has ended is told by others
				w.most = max(w.most, anonymous)
			}
		}
	})
	return w
}

// End returns the highest value, in kB.
func (w *Peak) End() int64 {
	w.stop()
	w.all.Wait()
	return w.most
}

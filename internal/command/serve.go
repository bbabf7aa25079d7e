package command

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The words of a StartError.
const (
	doingFind  = "find"
	doingEnter = "enter"
	doingStart = "start"
	doingSeal  = "seal"
)

const (
	// killEvery is how often SIGKILL goes round while something is left: what a process has started just before its end is found
	// the next time.
	killEvery = 10 * time.Millisecond
	// reapEvery is how often a warden looks for descendants that have ended without a parent, so that they do not pile up.
	reapEvery = 10 * time.Second
)

// The exit codes of a warden.
const (
	servedWell    = 0
	servedWithout = 1 // there was no order, or nobody to take the report
)

// Serve is the warden's side: it carries out the order on its standard input, reports on file descriptor 3, and returns the exit
// code. The process must be made for that alone.
func Serve() int {
	// The thread stays this one: no_new_privs and capabilities belong to a thread, and the command inherits those of its own.
	runtime.LockOSThread()
	keepFromCommand()
	out := os.NewFile(reportFD, "report")
	var o Order
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&o); err != nil || len(o.Args) == 0 {
		return servedWithout
	}
	if err := json.NewEncoder(out).Encode(mind(o)); err != nil {
		return servedWithout
	}
	return servedWell
}

// keepFromCommand has the kernel close every file but the standard ones when the command starts, also those that whoever started the
// agent has left open.
func keepFromCommand() {
	if unix.CloseRange(reportFD, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) != nil { // Linux before 5.11
		unix.CloseOnExec(reportFD)
		unix.CloseOnExec(holdFD)
	}
}

// mind runs a command to its end, or ends it when standard input does.
func mind(o Order) report {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed(doingStart, err)
	}
	unix.Umask(int(o.Umask))
	giveUpProtection()
	if o.Sealed {
		if err := seal(); err != nil {
			return failed(doingSeal, err)
		}
	}
	program, err := Find(o.Args[0])
	if err != nil {
		return failed(doingFind, err)
	}
	if st, err := os.Stat(o.Dir); err != nil {
		return failed(doingEnter, err)
	} else if !st.IsDir() {
		return failed(doingEnter, unix.ENOTDIR)
	}
	before := ""
	if o.Sealed {
		before = attempts()
	}
	m := minder{order: o, pidfd: -1}
	if err := m.start(program); err != nil {
		return failed(doingStart, err)
	}
	m.wait()
	if o.Sealed {
		after := attempts()
		m.report.Network = after == "" || after != before // what cannot be told is not ruled out
	}
	return m.report
}

// failed is the report of a command that was not run. The error's number travels, not its text, so that who reads it can tell.
func failed(doing string, err error) report {
	r := report{Doing: doing, Error: err.Error()}
	_ = errors.As(err, &r.Errno)
	return r
}

// giveUpProtection has the kernel take the command before the agent when memory is short; it fails where that is so already.
func giveUpProtection() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) }

// minder waits for the command and, where it is to end, for all its descendants. It is one loop in one thread: goroutines would cost
// a switch between threads for everything that happens, on a machine that may be busy.
type minder struct {
	order    Order
	pid      int
	pidfd    int            // of the command; -1 when that has ended
	hanging  bool           // standard input has ended
	signal   syscall.Signal // what is sent round; 0 while nothing is to end
	deadline time.Time      // when the next step of ending is due: SIGTERM, SIGKILL, giving up
	report   report
}

// start starts the command in a session of its own, without a terminal.
func (m *minder) start(program string) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Dir: m.order.Dir, Env: m.order.Env, Files: []uintptr{null.Fd(), 1, 1}, Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &m.pidfd}}
	if as := m.order.As; as != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}
	}
	if m.pid, _, err = syscall.StartProcess(program, m.order.Args, attr); err != nil {
		return err
	}
	if m.pidfd < 0 { // Linux before 5.3
		return errors.Join(errors.ErrUnsupported, unix.Kill(m.pid, unix.SIGKILL))
	}
	return nil
}

func (m *minder) wait() {
	m.deadline = time.Now().Add(m.order.Limit)
	for {
		m.sleep()
		left := m.reap()
		now := time.Now()
		switch {
		case !left:
			return
		case m.signal == 0 && m.pidfd < 0 && !m.order.Whole:
			return // what it has left goes on
		case m.signal == 0 && m.pidfd < 0:
			m.kill(now)
		case m.signal == 0 && (m.hanging || now.After(m.deadline)):
			m.report.Stopped, m.report.Hanging = !m.hanging, m.hanging
			m.end(now)
		case m.signal == unix.SIGTERM && now.After(m.deadline):
			m.kill(now)
		case m.signal == unix.SIGKILL && now.After(m.deadline):
			m.report.Survived = max(len(descendants(os.Getpid())), 1)
			return
		case m.signal == unix.SIGKILL:
			m.send()
		}
	}
}

// sleep waits until something happens or is due.
func (m *minder) sleep() {
	pause := min(time.Until(m.deadline)+time.Millisecond, reapEvery)
	if m.signal != 0 {
		pause = min(pause, killEvery)
	}
	fds := []unix.PollFd{{Fd: int32(m.pidfd), Events: unix.POLLIN}, {Fd: 0, Events: unix.POLLIN}} // a negative one is left out
	if m.hanging {
		fds[1].Fd = -1
	}
	if _, err := unix.Poll(fds, int(max(pause, 0).Milliseconds())); err != nil {
		return // a signal: look round
	}
	if fds[1].Revents != 0 {
		var b [64]byte // the end of the order's line
		n, err := unix.Read(0, b[:])
		m.hanging = n <= 0 && err != unix.EINTR
	}
}

// end asks everything to end, with time to tidy up where there is a grace.
func (m *minder) end(now time.Time) {
	if m.order.Grace == 0 {
		m.kill(now)
		return
	}
	m.signal, m.deadline = unix.SIGTERM, now.Add(m.order.Grace)
	m.send()
}

func (m *minder) kill(now time.Time) {
	m.signal, m.deadline = unix.SIGKILL, now.Add(killMax)
	m.send()
}

// send sends the signal to everything that has come from the command.
func (m *minder) send() {
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, m.signal) // it may just have ended; its number is not another's before it is reaped
	}
}

// reap takes in all children that have ended, also those that it has got from its descendants, and reports whether any is left.
func (m *minder) reap() (left bool) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, unix.WNOHANG, nil); {
		case err == unix.EINTR:
		case err != nil: // ECHILD
			return false
		case pid == 0:
			return true
		case pid == m.pid:
			m.report.Status = status
			_ = unix.Close(m.pidfd)
			m.pidfd = -1
		}
	}
}

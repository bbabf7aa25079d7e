package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/bell"
)

const (
	// wordFD is where a shim finds the pipe for its word: the first after the standard ones.
	wordFD = 3
	// killEvery is how often SIGKILL goes round while something is left: what was started just before is found the next time.
	killEvery = 10 * time.Millisecond
	// killMax is how long that goes on; a process that waits for a disk or a network file system cannot be ended sooner.
	killMax = 10 * time.Second
	// readSize is how much of the output is read at once.
	readSize = 16 << 10
	// shimMemory is what a shim's heap may have before it is collected more often, in bytes.
	shimMemory = 4 << 20
)

// The words of a shim.
const (
	wordStarted = "started"
	wordThere   = "there" // another shim has it, or it has ended
)

// Order is what a shim is told, on its standard input.
type Order struct {
	// Dir, ID, Group and Home are filled in by Start.
	Dir   string
	ID    run.ID
	Group Group // of the task
	Home  Group // where the shim is itself

	Command [][]byte // not strings: JSON would change what is no UTF-8
	Env     [][]byte // Start adds a variable to it
	WorkDir string
	As      *account.Account
	Limits  run.Limits
	Log     run.Log
	Until   run.Moment `json:",omitempty"`
	// More is what only the Launch of a runtime reads.
	More json.RawMessage `json:",omitempty"`
}

// Place is the directory of the attempt, where the rest of what it needs is kept until it is removed.
func (o *Order) Place() string { return tree{o.Dir}.attempt(o.ID) }

// Launch makes the first process of an attempt: a child of this one, or one that it becomes the reaper of, with these files as its standard
// ones. It runs on the shim's one thread, and what that starts with Pdeathsig ends with it. The cgroup is there already. Processes that are
// left after an error are ended.
type Launch func(o *Order, stdio [3]uintptr) (pid int, err error)

// Serve is the shim's side: it carries out the order on its standard input, says a word on file descriptor 3, and returns the exit code when
// the attempt has ended. The process must be made for that alone.
func Serve(launch Launch) int {
	// The thread stays this one: the kernel kills the task when the thread that has started it ends, and what is set for a thread is inherited.
	runtime.LockOSThread()
	debug.SetMemoryLimit(shimMemory)
	closeOnStart()
	word := os.NewFile(wordFD, "word")
	var o Order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return 1
	}
	quietStdio()
	s := &shim{order: &o, launch: launch, tree: tree{o.Dir}}
	// A lock that the collector gives back before the end is written would say that the shim was killed.
	defer runtime.KeepAlive(s)
	said, err := s.begin()
	if err != nil {
		said = "error: " + err.Error()
	}
	_, _ = word.WriteString(said) // an agent that is gone will find it on disk
	_ = word.Close()
	if s.start != nil {
		_ = s.start.Close()
	}
	if err != nil || s.pid == 0 {
		return 0
	}
	o.Env, o.Command, o.More = nil, nil, nil // may be secret, and is not needed any more
	debug.FreeOSMemory()
	s.mind()
	return 0
}

// closeOnStart has the kernel close every file but the standard ones when the task starts, also those that whoever started the agent has
// left open.
func closeOnStart() {
	if unix.CloseRange(wordFD, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) != nil { // Linux before 5.11
		unix.CloseOnExec(wordFD)
	}
}

// quietStdio has the standard files lead nowhere: those that it was started with are the agent's.
func quietStdio() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0) // it cannot fail with two that are open
	}
	_ = unix.Close(null)
}

// shim minds one attempt. It is one loop in one thread; nothing in it waits but for the kernel.
type shim struct {
	order  *Order
	launch Launch
	tree   tree
	start  *os.File // the lock for starting
	lock   *os.File // the lock of the one that lives
	boot   string

	pid     int // of the task; 0 when it was reaped
	started run.Moment
	streams [2]int // what it prints; -1 when that has ended
	asks    int    // rings when something is asked
	child   int    // eventfd: a child has ended
	alarm   int    // timerfd: it may run no longer
	log     *logWriter

	ending   run.Ending
	until    run.Moment // until when it may run; 0: for ever
	late     bool       // that was over
	asked    bool       // to stop
	killing  bool       // everything is to end
	deadline time.Time  // with killing: when to give up
}

// begin starts the task, once, whoever tries it at the same time.
func (s *shim) begin() (word string, err error) {
	id := s.order.ID
	if s.start, err = hold(s.tree.in(id, startFile), startWait); err == nil {
		s.lock, err = hold(s.tree.in(id, lockFile), 0)
	}
	if errors.Is(err, unix.EAGAIN) {
		return wordThere, nil
	}
	if err != nil {
		return "", fmt.Errorf("take the lock: %w", err)
	}
	if s.boot, err = bootNow(); err != nil {
		return "", err
	}
	if _, err := os.Lstat(s.tree.status(id, begunFile)); !errors.Is(err, fs.ErrNotExist) {
		return wordThere, err // a shim before this one was killed: whoever looks will say so
	}
	self, _ := readStat(os.Getpid())
	if err := s.tree.put(id, begunFile, begun{Boot: s.boot, PID: os.Getpid(), Since: self.since, Group: s.order.Group}, false); err != nil {
		return "", fmt.Errorf("note that it has begun: %w", err)
	}
	if err := s.execute(); err != nil {
		s.ending = run.Ending{Cause: run.NotExecuted, At: now(), Words: err.Error()}
		return wordThere, s.end()
	}
	if err := s.tree.put(id, runningFile, running{PID: s.pid, Started: s.started}, false); err != nil {
		kill(s.pid, unix.SIGKILL) // nobody would know of it
		return "", fmt.Errorf("note that it runs: %w", err)
	}
	return wordStarted, nil
}

// execute makes ready what has to be there before, and executes the program.
func (s *shim) execute() (err error) {
	o := s.order
	if s.log, err = openLog(s.tree.in(o.ID, logFile), o.Log); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if s.asks, err = bell.Listen(s.tree.in(o.ID, bellFile)); err != nil {
		return fmt.Errorf("listen to what is asked: %w", err)
	}
	if s.child, err = childrenEnd(); err != nil {
		return err
	}
	if s.alarm, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("make a timer: %w", err)
	}
	if err := s.extend(o.Until); err != nil {
		return err
	}
	if s.late {
		return errors.New("it was to run until before now")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become its reaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep it from new privileges: %w", err)
	}
	if err := o.Group.build(o.Limits); err != nil {
		return fmt.Errorf("make its cgroup: %w", err)
	}
	if err := s.fork(); err != nil {
		s.endAll()
		return err
	}
	s.started = now()
	return nil
}

// fork makes the first process, with pipes that the shim reads.
func (s *shim) fork() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	var ends [2][2]int
	for i := range ends {
		if err := unix.Pipe2(ends[i][:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		s.streams[i] = ends[i][0]
		if err := unix.SetNonblock(ends[i][0], true); err != nil {
			return err
		}
		defer unix.Close(ends[i][1])
	}
	unix.Umask(0o022)
	s.pid, err = s.launch(s.order, [3]uintptr{null.Fd(), uintptr(ends[0][1]), uintptr(ends[1][1])})
	return err
}

// extend notes until when the task may run.
func (s *shim) extend(until run.Moment) error {
	s.until, s.late = until, until != 0 && now() >= until
	// The boot clock goes on while the machine sleeps. A zero time disarms.
	err := unix.TimerfdSettime(s.alarm, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}, nil)
	return os.NewSyscallError("timerfd_settime", err)
}

// endAll ends and reaps what a launch that went wrong has left.
func (s *shim) endAll() {
	s.pid = 0
	for stop := time.Now().Add(killMax); time.Now().Before(stop); {
		s.killAll()
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR) || pid > 0:
		case err != nil: // ECHILD
			return
		default:
			_, _ = unix.Poll(nil, int(killEvery.Milliseconds()))
		}
	}
}

// Texts are lists of an Order as strings.
func Texts(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// childrenEnd tells by a descriptor that children have ended.
func childrenEnd() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	ended := make(chan os.Signal, 1) // one that waits stands for all
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // as long as the process
		for range ended {
			_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails where very many wait to be read
		}
	}()
	return fd, nil
}

// mind goes on until everything has ended.
func (s *shim) mind() {
	buffer := make([]byte, readSize)
	s.look() // it may have been asked before it listened, and may have ended before there was a handler
	for left := s.reap(); left; left = s.reap() {
		if s.killing {
			if time.Now().After(s.deadline) {
				s.ending.Survived = max(len(descendants(os.Getpid())), 1)
				break
			}
			s.killAll()
		}
		s.sleep(buffer)
	}
	for range 64 { // the rest of what it has printed: a pipe has 64 KiB
		if !s.read(0, buffer) && !s.read(1, buffer) {
			break
		}
	}
	s.log.close()
	if s.pid != 0 {
		s.ending.Cause, s.ending.At, s.ending.Words = run.Lost, now(), "the kernel does not end it"
	}
	if err := s.end(); err != nil {
		return // who looks will find that the lock is free, and no end
	}
}

// sleep waits until something happens.
func (s *shim) sleep(buffer []byte) {
	fds := []unix.PollFd{
		{Fd: int32(s.streams[0]), Events: unix.POLLIN}, {Fd: int32(s.streams[1]), Events: unix.POLLIN}, // a negative one is left out
		{Fd: int32(s.asks), Events: unix.POLLIN}, {Fd: int32(s.child), Events: unix.POLLIN}, {Fd: int32(s.alarm), Events: unix.POLLIN},
	}
	timeout := -1
	if s.killing {
		timeout = int(killEvery.Milliseconds())
	}
	if _, err := unix.Poll(fds, timeout); err != nil {
		return // a signal: look round
	}
	for i := range s.streams {
		if fds[i].Revents != 0 {
			s.read(i, buffer)
		}
	}
	if fds[2].Revents != 0 {
		bell.Quiet(s.asks)
		s.look()
	}
	if fds[3].Revents != 0 {
		_, _ = unix.Read(s.child, buffer[:8])
	}
	if fds[4].Revents != 0 {
		_, _ = unix.Read(s.alarm, buffer[:8])
		s.look() // it may just have been put off
	}
}

// read reads what the task has printed; false: there is nothing now.
func (s *shim) read(stream int, buffer []byte) bool {
	if s.streams[stream] < 0 {
		return false
	}
	n, err := unix.Read(s.streams[stream], buffer)
	switch {
	case n > 0:
		s.log.write(stream, buffer[:n])
		return true
	case errors.Is(err, unix.EINTR):
		return true
	case errors.Is(err, unix.EAGAIN):
		return false
	}
	_ = unix.Close(s.streams[stream])
	s.streams[stream] = -1
	return false
}

// look does what was asked, and what is due.
func (s *shim) look() {
	until := s.until
	if text, err := os.ReadFile(s.tree.in(s.order.ID, untilFile)); err == nil {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && n >= 0 {
			until = run.Moment(n)
		}
	}
	// Without a timer nobody would end it.
	if err := s.extend(until); err != nil || s.late {
		s.late = true
		s.killRest()
	}
	if text, err := os.ReadFile(s.tree.in(s.order.ID, stopFile)); err == nil && s.pid != 0 && !s.asked {
		if n, err := strconv.Atoi(string(text)); err == nil {
			s.asked = true
			kill(s.pid, syscall.Signal(n))
		}
	}
	if _, err := os.Lstat(s.tree.in(s.order.ID, killFile)); err == nil {
		s.killRest()
	}
}

// killRest begins to end everything; mind goes on with that.
func (s *shim) killRest() {
	if s.killing {
		return
	}
	s.killing, s.deadline = true, time.Now().Add(killMax)
	if s.pid != 0 {
		kill(s.pid, unix.SIGKILL) // before what is refused to it can make it end otherwise
	}
	s.order.Group.noMore()
}

// killAll sends SIGKILL to everything that has come from the task.
func (s *shim) killAll() {
	for _, d := range descendants(os.Getpid()) {
		kill(d.pid, unix.SIGKILL) // its number is not another's before it is reaped
	}
	for _, pid := range s.order.Group.members() {
		if pid != os.Getpid() {
			kill(pid, unix.SIGKILL)
		}
	}
}

// reap takes in all children that have ended, also those that it has got from its descendants, and reports whether any is left.
func (s *shim) reap() (left bool) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, unix.WNOHANG, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return false
		case pid == 0:
			if s.pid == 0 {
				s.killRest()
			}
			return true
		case pid == s.pid:
			s.pid = 0
			s.ended(status)
		}
	}
}

// ended notes how the task has ended.
func (s *shim) ended(status syscall.WaitStatus) {
	s.ending = run.Ending{At: now()}
	short := s.order.Group.outOfMemory()
	switch {
	case status.Signaled() && status.Signal() == unix.SIGKILL && short > 0 && !s.killing:
		s.ending.Cause = run.OutOfMemory
		s.ending.Words = fmt.Sprintf("its limit of %d bytes of memory was reached", s.order.Limits.Memory)
	case status.Signaled():
		s.ending.Cause, s.ending.Signal = run.Signaled, run.Signal(status.Signal())
	default:
		s.ending.Cause, s.ending.Code = run.Exited, status.ExitStatus()
	}
	if s.late && s.killing {
		s.ending.Words = "nobody has put off until when it may run"
	}
	if short > 0 && s.ending.Cause != run.OutOfMemory {
		s.ending.Words = fmt.Sprintf("its limit of memory was reached: the kernel has ended %d of its processes", short)
	}
}

// end says for ever how it ended. The locks go with the process.
func (s *shim) end() error {
	for tries := 0; s.order.Group.clear() != nil && tries < 100; tries++ { // what was just reaped may be in it for a moment
		runtime.Gosched()
	}
	return s.tree.put(s.order.ID, endedFile, ended{Boot: s.boot, Started: s.started, Ending: s.ending}, true)
}

package run

import (
	"context"
	"net/netip"
	"time"

	"tako.dev/tako/declare/workload"
)

// Runtime runs tasks. Its methods may be called from any goroutine, at any time, also while Run does not run. An error has a code of
// package reason: TaskUnknown where there is no such attempt, RuntimeUnfit for what Capabilities has excluded, TaskRefused for what
// cannot be right on this host, TaskNotStarted for what may go well later. No error, log line or argument of any process holds a value of
// Task.Env or the content of a File.
type Runtime interface {
	// Capabilities says what this runtime can do on this host. What it lacks may come, where that is a program that is installed.
	Capabilities() Capabilities
	// Run tells sink of every attempt that there is, and from then on of every change of one, as it is after that: of two changes shortly
	// after one another perhaps only the second, and of an end perhaps twice. It returns nil when ctx ends, otherwise why it cannot go on; calling it again begins from
	// the start. sink is called from one goroutine, and must not block. Run must not be called twice at once.
	Run(ctx context.Context, sink func(Status)) error
	// Start starts an attempt, and returns when its program runs or when it is known that it will not. When ctx ends before that, the
	// attempt may or may not be there; calling Start again is what tells. Of an attempt that is there already it returns the status, and
	// does not look at the task. A program that cannot be executed is no error but an attempt that has Ended.
	Start(ctx context.Context, t Task) (Status, error)
	// List is the status of every attempt that there is, ordered by ID.
	List(ctx context.Context) ([]Status, error)
	// Remove forgets an attempt that has ended, with what it has printed. One that has not is left alone, with TaskBusy; of one that is
	// not there nothing is to be done.
	Remove(ctx context.Context, id ID) error
	// Ender is how attempts end.
	Ender
	// Observer is what may be asked of attempts.
	Observer
}

// Ender ends attempts, or lets them go on.
type Ender interface {
	// Stop sends a signal to the first process of an attempt. Of several calls the first counts. Nothing is to be done where it has ended.
	Stop(ctx context.Context, id ID, signal Signal) error
	// Kill ends everything of an attempt at once. It does not wait for that.
	Kill(ctx context.Context, id ID) error
	// Extend says anew until when an attempt may run, as Task.Until has it; zero: for ever. The last call counts.
	Extend(ctx context.Context, id ID, until Moment) error
}

// Observer answers for attempts.
type Observer interface {
	// Usage is what an attempt takes now. Of one that does not run it is TaskUnknown.
	Usage(ctx context.Context, id ID) (Usage, error)
	// Tail is the end of what an attempt has printed: the newest lines, oldest first, of at most so many bytes, and at most TailMax.
	Tail(ctx context.Context, id ID, bytesMax int) ([]Line, error)
}

// Networked is a runtime that gives instances networks of their own.
type Networked interface {
	// Address is where an instance with a network of its own is reached from its host. known: it has one now.
	Address(instance string) (a netip.Addr, known bool)
}

// Kind is a runtime that a program has. Open makes it, with what it keeps in a directory; what it returns besides gives it back.
type Kind struct {
	Name workload.Runtime
	// Unfit is, in words, why the host can run nothing with it now: "there is no runc on the host". Empty: it can. Nil: it always can.
	Unfit func() string
	// NoNetworks is, in words, why instances can have no networks of their own with it now. Empty: they can. Nil: they never can.
	NoNetworks func() string
	Open       func(dir string) (Runtime, func() error, error)
}

// TailMax bounds an answer of Tail: what a terminal shows of a log in a moment.
const TailMax = 1 << 20

// Capabilities are what a runtime can do on this host. A task that needs something else is refused by Start; Refuse says so beforehand.
type Capabilities struct {
	// Lacks are, in words, why something cannot be done: "the agent does not run as root". What is not in it can be done.
	Lacks map[Feature]string
	// DefaultUser is, in words, who a task runs as that names no user: "a user of its own".
	DefaultUser string
}

// Feature is something that a runtime may not be able to do.
type Feature string

// The features.
const (
	OtherUsers  Feature = "users"     // running as another user than the agent's
	LimitCPU    Feature = "cpu"       // bounding processor time
	LimitMemory Feature = "memory"    // bounding memory
	LimitTasks  Feature = "processes" // bounding the number of processes and threads
	Mounts      Feature = "mounts"    // showing directories at other paths
	ConfigFiles Feature = "files"     // showing files that are not on the host
	Images      Feature = "image"     // files of an image in place of the host's
	OwnNetwork  Feature = "network"   // a network of its own
	Devices     Feature = "devices"   // devices that not every program needs
	AnyBytes    Feature = "bytes"     // arguments and variables that are not UTF-8
)

// Moment is a time of the kernel's boot clock (CLOCK_BOOTTIME): since the host was started, sleep included.
type Moment time.Duration

// Add is the moment that is later by d. It does not overflow.
func (m Moment) Add(d time.Duration) Moment {
	if sum := m + Moment(d); d < 0 || sum >= m {
		return sum
	}
	return Moment(1<<63 - 1)
}

// Sub is how long after o the moment is.
func (m Moment) Sub(o Moment) time.Duration { return time.Duration(m - o) }

// Phase is where an attempt is in its life. It only goes forward.
type Phase uint8

// The phases.
const (
	Starting Phase = iota + 1 // begun, and not known to run
	Running
	Ended
)

var phaseNames = [...]string{Starting: "starting", Running: "running", Ended: "ended"}

// String is the phase's name.
func (p Phase) String() string {
	if p >= Starting && int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Status is what is known of one attempt.
type Status struct {
	ID      ID
	Phase   Phase
	Boot    string // the boot during which it was begun: the kernel's boot ID
	PID     int    // of the first process, while it runs
	Started Moment // when the program was executed; zero where it was not
	Ending  Ending // with Ended
}

// Cause is how an attempt has ended.
type Cause uint8

// The causes.
const (
	// Exited with Code.
	Exited Cause = iota + 1
	// Signaled: ended by Signal, and not because memory was short.
	Signaled
	// OutOfMemory: the kernel has ended it, or something of it, because its limit of memory was reached, and the first process with that.
	OutOfMemory
	// NotExecuted: the program could not be executed. Words say why.
	NotExecuted
	// Lost: how it ended was not seen, because its supervisor was killed or the host was restarted. Words say which.
	Lost
)

var causeNames = [...]string{Exited: "exited", Signaled: "signaled", OutOfMemory: "outOfMemory", NotExecuted: "notExecuted", Lost: "lost"}

// String is the cause's name.
func (c Cause) String() string {
	if c >= Exited && int(c) < len(causeNames) {
		return causeNames[c]
	}
	return "unknown"
}

// Ending is how an attempt has ended.
type Ending struct {
	Cause  Cause
	Code   int    // with Exited
	Signal Signal // with Signaled
	At     Moment // when the first process ended, or when it was noticed
	Words  string // for people; empty where Cause, Code and Signal say it all
	// Survived is how many processes could not be ended: the kernel keeps those that wait for a disk or a network file system.
	Survived int
}

// Well reports whether it has ended the way a job that is done does.
func (e Ending) Well() bool { return e.Cause == Exited && e.Code == 0 }

// Usage is what an attempt takes.
type Usage struct {
	CPU       time.Duration // of all that it has run, also what has ended, since it was started
	Memory    int64         // bytes; of a cgroup with its page cache where there is one, otherwise resident sets
	Processes int           // processes, or tasks of the kernel where there is a cgroup
}

// Line is one line that a task has printed, or a part of a long one.
type Line struct {
	At     time.Time // when it was read from the task
	Stderr bool
	Part   bool // the line goes on in the next one of the same stream
	Text   []byte
}

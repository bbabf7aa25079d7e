package command

import (
	"os"
	"syscall"
	"time"
)

// Order is what a warden is to run.
type Order struct {
	Args  []string // a program without a slash is looked for in Path
	Dir   string   // absolute
	Env   []string // all that it has
	As    *Account // nil for the agent's own
	Umask uint32
	Limit time.Duration // it is ended after that time
	Grace time.Duration // from SIGTERM to SIGKILL; 0 for SIGKILL at once
	// Whole says that nothing of it goes on after its end.
	Whole bool
	// Sealed has it look and not write; see the package comment.
	Sealed bool
	// Hold, if set, is a file that the warden keeps open until everything has ended, also when the agent is gone: for a lock.
	Hold *os.File `json:"-"`
}

// Account is whom a command runs as.
type Account struct {
	UID, GID uint32
	Groups   []uint32 // besides GID
}

// Ending is how a command ended.
type Ending struct {
	Status  syscall.WaitStatus
	Output  Output
	Stopped bool // its time was over
	// WantedNetwork says that a sealed command asked for the network, which it does not have.
	WantedNetwork bool
}

// StartError says that a command was not run at all.
type StartError struct {
	Doing string // "find", "enter", "start", "seal"
	Err   error
}

func (e *StartError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// report is what a warden tells at its end.
type report struct {
	Doing    string        `json:",omitempty"` // of a StartError
	Errno    syscall.Errno `json:",omitempty"`
	Error    string        `json:",omitempty"` // where there is no Errno
	Status   syscall.WaitStatus
	Stopped  bool `json:",omitempty"`
	Hanging  bool `json:",omitempty"` // it was ended because the agent wanted that, or was gone
	Network  bool `json:",omitempty"`
	Survived int  `json:",omitempty"` // how many processes SIGKILL could not end
}

package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// Phase is where a task is in its life.
type Phase uint8

// The phases.
const (
	Waiting  Phase = iota // for the pause, or the lease; the zero State waits for nothing and starts at once
	Starting              // an attempt is to be started, or was
	Running
	Stopping // a signal was sent, and the end is waited for
	Finished // for good
	phases
)

var phaseNames = [phases]string{"waiting", "starting", "running", "stopping", "finished"}

// String is the phase's name.
func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Probe is the probe that has stopped it; ProbeKinds where none has.
func (w Why) Probe() ProbeKind {
	switch w {
	case NotStarted:
		return Startup
	case NotAlive:
		return Liveness
	}
	return ProbeKinds
}

// Why is why an attempt was stopped.
type Why uint8

// The reasons.
const (
	ByItself   Why = iota // it was not stopped
	Wanted                // somebody wants it to be over
	NotStarted            // the startup probe gave up
	NotAlive              // the liveness probe gave up
	LeaseOver             // nobody has said in time that it may go on
	whys
)

var whyNames = [whys]string{"byItself", "wanted", "notStarted", "notAlive", "leaseOver"}

// String is the reason's name.
func (w Why) String() string {
	if w < whys {
		return whyNames[w]
	}
	return fmt.Sprintf("why(%d)", uint8(w))
}

const (
	// logMax is how many attempts are remembered: as many as a person reads.
	logMax = 10
	// wordsMax bounds the words of an ending, in bytes: a line or two.
	wordsMax = 256
	// bytesMax bounds an encoded state: ten attempts with their words, and a few numbers.
	bytesMax = 8 << 10
)

// State is what is known of one task on its node. The zero State is that of a task that was never started.
type State struct {
	Boot     string     `cbor:"1,keyasint,omitempty"`  // the boot that the moments are of
	Phase    Phase      `cbor:"2,keyasint,omitempty"`  // of the newest attempt, or of what comes after it
	Attempt  uint32     `cbor:"3,keyasint,omitempty"`  // the newest; 0: none yet
	Stopped  bool       `cbor:"4,keyasint,omitempty"`  // it is to be over for good; never taken back
	Pause    int64      `cbor:"5,keyasint,omitempty"`  // ns; the pause that was made last; 0: none yet
	StartAt  run.Moment `cbor:"6,keyasint,omitempty"`  // with Waiting
	Began    run.Moment `cbor:"7,keyasint,omitempty"`  // the attempt
	StartUp  bool       `cbor:"8,keyasint,omitempty"`  // the attempt has started up
	Ready    bool       `cbor:"9,keyasint,omitempty"`  // the attempt, to be used
	Why      Why        `cbor:"10,keyasint,omitempty"` // with Stopping
	KillAt   run.Moment `cbor:"11,keyasint,omitempty"` // with Stopping
	Killed   bool       `cbor:"12,keyasint,omitempty"` // with Stopping: the grace is over
	Restarts uint32     `cbor:"13,keyasint,omitempty"` // how often it was started again after an end of its own
	Lease    run.Moment `cbor:"14,keyasint,omitempty"` // until when it may run, where it needs that
	Log      []Past     `cbor:"15,keyasint,omitempty"` // the last attempts that are over, oldest first
	// StopAt is, with Stopped, when the signal is sent to what runs; one that has passed, or 0: at once. Whoever drives this sets it before Stop.
	StopAt run.Moment `cbor:"16,keyasint,omitempty"`
	asking [ProbeKinds]asking
}

// Past is one attempt that is over.
type Past struct {
	Attempt uint32    `cbor:"1,keyasint"`
	Ran     int64     `cbor:"2,keyasint,omitempty"` // ns
	Cause   run.Cause `cbor:"3,keyasint"`
	Code    int       `cbor:"4,keyasint,omitempty"`
	Signal  int       `cbor:"5,keyasint,omitempty"`
	Why     Why       `cbor:"6,keyasint,omitempty"`
	Words   string    `cbor:"7,keyasint,omitempty"`
}

// Well reports whether it has ended by itself, and the way a job that is done does.
func (p *Past) Well() bool { return p.Cause == run.Exited && p.Code == 0 && p.Why == ByItself }

// Text is how it ended, for people: "ended with exit code 3".
func (p *Past) Text() string {
	text := ""
	switch {
	case p.Why == NotStarted:
		return "was ended: it did not start up in time"
	case p.Why == NotAlive:
		return "was ended: it was not alive any more"
	case p.Why == LeaseOver:
		return "was ended: nobody said in time that it may go on"
	case p.Why == Wanted:
		text = "was ended"
	case p.Cause == run.Exited:
		text = fmt.Sprintf("ended with exit code %d", p.Code)
	case p.Cause == run.Signaled:
		text = "was ended by " + run.Signal(p.Signal).String()
	case p.Cause == run.OutOfMemory:
		text = "ran out of memory"
	case p.Cause == run.NotExecuted:
		text = "could not be started"
	default:
		text = "was lost"
	}
	if p.Words != "" {
		text += ": " + p.Words
	}
	return text
}

// asking is where one probe is. It is not kept: an agent that was restarted asks anew.
type asking struct {
	next   run.Moment // the next question
	asked  run.Moment // the question that is open, when it was put
	open   bool
	number uint32 // of the last question
	yes    int    // answers in a row
	no     int
}

// Kept is the state without what an agent that is restarted finds out anew. Where it differs from that of the state before, it is made
// durable before the effects are carried out.
func (s State) Kept() State {
	s.asking = [ProbeKinds]asking{}
	return s
}

// Succeeded reports whether the task has finished the way a job that is done does.
func (s *State) Succeeded() bool {
	if s.Phase != Finished || len(s.Log) == 0 {
		return false
	}
	return s.Log[len(s.Log)-1].Well()
}

// valid returns what no state is.
func (s *State) valid() error {
	active := s.Phase == Starting || s.Phase == Running || s.Phase == Stopping
	switch {
	case s.Phase >= phases || s.Why >= whys:
		return errors.New("a phase or a reason that there is not")
	case len(s.Log) > logMax:
		return fmt.Errorf("%d attempts, at most %d are remembered", len(s.Log), logMax)
	case active && s.Attempt == 0:
		return errors.New("an attempt is under way, and there was none")
	case s.Ready && !s.StartUp, s.Ready && s.Phase != Running:
		return errors.New("it is ready, and does not run")
	case s.Phase != Stopping && (s.Why != ByItself || s.Killed):
		return errors.New("it is being stopped, and is not")
	case s.Pause < 0 || s.StartAt < 0 || s.KillAt < 0 || s.Began < 0 || s.Lease < 0 || s.StopAt < 0 || len(s.Boot) > wordsMax:
		return errors.New("a time before the start of the host, or a boot that is none")
	}
	for i := range s.Log {
		if p := &s.Log[i]; p.Ran < 0 || p.Why >= whys || len(p.Words) > wordsMax || p.Attempt > s.Attempt {
			return errors.New("an attempt that cannot have been")
		}
	}
	return nil
}

// encoding and decoding are the one form of a state.
var encoding, decoding = modes()

func modes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("run: encoding options of the CBOR library: %v", err))
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 4, MaxArrayElements: 16, MaxMapPairs: 64,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("run: decoding options of the CBOR library: %v", err))
	}
	return enc, dec
}

// Encode is what is kept of a state as bytes. The error is InternalFault.
func (s State) Encode() ([]byte, error) {
	b, err := encoding.Marshal(s.Kept())
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode the state of a task", Cause: err}
	}
	return b, nil
}

// Decode reads a state. What a later version has more is passed over. The error is StateCorrupt; then the zero State is where to begin: what runs
// is found, and taken over.
func Decode(data []byte) (State, error) {
	var s State
	err := error(nil)
	if len(data) > bytesMax {
		err = fmt.Errorf("%d bytes, at most %d are possible", len(data), bytesMax)
	} else if err = decoding.Unmarshal(data, &s); err == nil {
		err = s.valid()
	}
	if err != nil {
		return State{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode the state of a task", Cause: err}
	}
	return s, nil
}

// remember notes how the present attempt has ended.
func (s *State) remember(e run.Ending, ran time.Duration) {
	if len(s.Log) >= logMax {
		s.Log = s.Log[len(s.Log)-logMax+1:]
	}
	p := Past{Attempt: s.Attempt, Ran: int64(max(ran, 0)), Cause: e.Cause, Code: e.Code, Signal: int(e.Signal), Why: s.Why, Words: clip(e.Words)}
	s.Log = append(s.Log[:len(s.Log):len(s.Log)], p) // a state that was returned before keeps its own
}

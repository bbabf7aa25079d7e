package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/bell"
)

// What there is of an attempt in the directory of statuses.
const (
	begunFile = ".begun"
	endedFile = ".ended"
)

// What there is of an attempt in memory.
const (
	orderFile = "order" // what is to be executed
	wordFile  = "word"  // a pipe: closed without a word when the program was executed
	whyFile   = "why"   // holds why it could not be
	stopFile  = "stop"  // a signal was sent
	killFile  = "kill"  // all was killed
	untilFile = "until" // holds a run.Moment: until when it may run; nothing where it may for ever
	bellFile  = "bell"  // rings for who guards it, when that moment has changed, and when it has ended or was removed
	fileFile  = "file-" // and a number: a config file
)

const (
	dirMode  = 0o700 // what tasks are given may be secret
	fileMode = 0o600
	// statusMax bounds a file of a status: a few numbers and some words.
	statusMax = 4 << 10
	// orderMax bounds an order: what a start may have at most, in base64 within JSON, and as much again for its quotes and commas.
	orderMax = 4 * run.StartBytes
)

// order is what is to be executed.
type order struct {
	Boot    string
	Command [][]byte // not strings: JSON would change what is no UTF-8
	Env     [][]byte
	Dir     string
	As      account.Account
	Log     run.Log
}

// begun is what is said before the program is executed.
type begun struct {
	Boot    string
	PID     int
	Started run.Moment
	Logs    uint64 // as Started, of CLOCK_MONOTONIC in microseconds: the clock of the journal
	Log     run.Log
}

// ended is how it ended.
type ended struct {
	Boot    string
	Started run.Moment
	Ending  run.Ending
}

// tree is where everything is.
type tree struct{ dir, memory string }

func (t tree) statuses() string { return filepath.Join(t.dir, "status") }
func (t tree) status(id run.ID, kind string) string {
	return filepath.Join(t.statuses(), id.String()+kind)
}
func (t tree) attempt(id run.ID) string         { return filepath.Join(t.memory, id.String()) }
func (t tree) in(id run.ID, name string) string { return filepath.Join(t.attempt(id), name) }
func (t tree) has(id run.ID, name string) bool  { _, err := os.Lstat(t.in(id, name)); return err == nil }
func (t tree) file(id run.ID, number int) string {
	return t.in(id, fmt.Sprintf("%s%d", fileFile, number))
}
func (t tree) mark(id run.ID, name string) error { return write(t.in(id, name), nil, fileMode) }
func idOf(name, kind string) (id run.ID, found bool) {
	text, ok := strings.CutSuffix(name, kind)
	if !ok {
		return run.ID{}, false
	}
	id, err := run.ParseID(text)
	return id, err == nil
}

// write makes a file, or replaces it.
func write(name string, text []byte, mode fs.FileMode) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// put says something for ever: of several who say it, the first. lasting makes it durable. first is false where it was said before.
func (t tree) put(id run.ID, kind string, what any, lasting bool) (first bool, err error) {
	text, err := json.Marshal(what)
	if err != nil {
		return false, err
	}
	// Two may write it: what the unit starts, and an agent that finds the unit gone.
	temp := fmt.Sprintf("%s.%d", t.status(id, kind), os.Getpid())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if lasting && err == nil {
		err = disk.Fsync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, t.status(id, kind), unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.EEXIST) {
		return false, os.Remove(temp)
	}
	if err != nil {
		_ = os.Remove(temp) // the first error counts
		return false, err
	}
	if err := bell.Ring(t.in(id, bellFile)); err != nil || !lasting {
		return true, err
	}
	return true, syncDir(t.statuses())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Fsync(int(f.Fd()))
}

// get reads a file of a status; false: there is none.
func (t tree) get(id run.ID, kind string, what any) (bool, error) {
	return read(t.status(id, kind), statusMax, func(text []byte) error { return decode(text, what) })
}

// read reads a file of at most so many bytes; false: there is none.
func read(name string, most int64, decode func([]byte) error) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, disk.Fault("read", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err == nil {
		err = decode(text)
	}
	if err != nil {
		return false, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + name, Cause: err}
	}
	return true, nil
}

// decode reads the text of a status.
func decode(text []byte, what any) error {
	if err := json.Unmarshal(text, what); err != nil {
		return err
	}
	switch s := what.(type) {
	case *begun:
		if s.PID <= 0 || s.Boot == "" {
			return errors.New("it names no process")
		}
	case *ended:
		if s.Ending.Cause.String() == "unknown" || s.Boot == "" {
			return errors.New("it names no end")
		}
	}
	return nil
}

// decodeOrder reads an order.
func decodeOrder(text []byte, o *order) error {
	if err := json.Unmarshal(text, o); err != nil {
		return errors.New("it is no order") // what the decoder says may show some of it
	}
	if len(o.Command) == 0 {
		return errors.New("it names no program")
	}
	return nil
}

// clear takes away what is in memory of an attempt. Who guards it hears of that even where it has just begun to listen: it is the same bell.
func (t tree) clear(id run.ID) error {
	own, err := bell.Listen(t.in(id, bellFile))
	if err != nil { // there is no directory, or no room for a bell, so that nobody has listened
		own = -1
	} else {
		defer unix.Close(own)
	}
	if err := os.RemoveAll(t.attempt(id)); err != nil {
		return disk.Fault("remove", t.attempt(id), err)
	}
	if own < 0 {
		return nil
	}
	return bell.Strike(own)
}

// renew makes the place of an attempt in memory, with nothing in it of one that was prepared before and not started. Who guards that one already goes on
// listening to its bell.
func (t tree) renew(id run.ID) error {
	left, err := os.ReadDir(t.attempt(id))
	if errors.Is(err, fs.ErrNotExist) {
		return os.Mkdir(t.attempt(id), dirMode)
	}
	for _, e := range left {
		if e.Name() != bellFile {
			err = errors.Join(err, os.RemoveAll(t.in(id, e.Name())))
		}
	}
	return err
}

// forget takes away everything of an attempt. What says that it has ended goes last.
func (t tree) forget(id run.ID) error {
	if err := t.clear(id); err != nil {
		return err
	}
	names, err := filepath.Glob(t.status(id, ".*"))
	if err != nil {
		return err // no ID has what a pattern would be bad for
	}
	last := t.status(id, endedFile)
	for _, name := range append(without(names, last), last) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk.Fault("remove", name, err)
		}
	}
	return nil
}

func without(names []string, drop string) (rest []string) {
	for _, name := range names {
		if name != drop {
			rest = append(rest, name)
		}
	}
	return rest
}

// hasAttempts reports whether there is anything of any attempt of an instance.
func (t tree) hasAttempts(instance string) bool {
	for _, dir := range []string{t.statuses(), t.memory} {
		names, err := os.ReadDir(dir)
		if err != nil {
			return true
		}
		for _, n := range names {
			if strings.HasPrefix(n.Name(), instance+".") {
				return true
			}
		}
	}
	return false
}

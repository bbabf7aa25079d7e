package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// getentTime bounds one question to the name services, which may ask a directory server that does not answer.
	getentTime = 5 * time.Second
	// getentBytesMax bounds an answer: a group of thousands has 64 KiB.
	getentBytesMax = 64 << 10
	// getentUnknown is how long an unknown name is not asked for again: a declaration may name it a thousand times.
	getentUnknown = 5 * time.Second
	// tableBytesMax bounds what is read of a passwd or group file: a million users.
	tableBytesMax = 64 << 20
	// getentNotFound is the exit status for "One or more supplied key could not be found", getent(1).
	getentNotFound = 2
	idField        = 2 // in passwd(5) and group(5) alike
)

// table is one database of names.
type table struct {
	noun     string // for messages
	dir      string
	file     string
	database string // as getent calls it
}

// path is the file.
func (t table) path() string { return t.dir + "/" + t.file }

var (
	users  = table{noun: "user", dir: "/etc", file: "passwd", database: "passwd"}
	groups = table{noun: "group", dir: "/etc", file: "group", database: "group"}
)

// owners turns names of users and groups into numbers: by the passwd and group files below the root first, and outside of a
// sandbox by the host's name services. It may be used from several goroutines.
type owners struct {
	root *disk.Root

	mu    sync.Mutex // guards known
	known map[table]*answers
}

// answers are what was found for names, as long as the file stays the same.
type answers struct {
	file  disk.Signature
	names map[string]answer
}

// answer is what was found for one name.
type answer struct {
	id    uint32
	err   error     // nobody knows it
	until time.Time // of err
}

// newOwners makes owners for the users and groups of a root.
func newOwners(root *disk.Root) *owners {
	return &owners{root: root, known: make(map[table]*answers)}
}

// number returns the number of a name, which may be a number itself. A name that nobody knows is UnknownOwner.
func (o *owners) number(ctx context.Context, of table, name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	d, err := o.root.Dir(of.dir)
	if err != nil {
		// A sandbox may have no /etc at all.
		return o.elsewhere(ctx, of, name)
	}
	defer d.Close()
	now, err := d.Stat(of.file)
	if err != nil {
		return 0, err
	}
	if a, ok := o.recall(of, now.Signature, name); ok {
		return a.id, a.err
	}
	var a answer
	if data, _, err := d.ReadFile(of.file, tableBytesMax); err == nil {
		if id, ok := idOf(data, name); ok {
			a.id = id
			o.learn(of, now.Signature, name, a)
			return id, nil
		}
	}
	if a.id, a.err = o.elsewhere(ctx, of, name); a.err != nil {
		a.until = time.Now().Add(getentUnknown)
	}
	o.learn(of, now.Signature, name, a)
	return a.id, a.err
}

// name returns the name of a number by the file below the root, or the number where it has none there.
func (o *owners) name(of table, id uint32) string {
	if d, err := o.root.Dir(of.dir); err == nil {
		defer d.Close()
		if data, _, err := d.ReadFile(of.file, tableBytesMax); err == nil {
			if name, ok := nameOf(data, id); ok {
				return name
			}
		}
	}
	return strconv.FormatUint(uint64(id), 10)
}

// recall returns what was found for a name, if that can still be so.
func (o *owners) recall(of table, file disk.Signature, name string) (answer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.known[of]
	if known == nil || known.file != file {
		return answer{}, false
	}
	a, ok := known.names[name]
	return a, ok && (a.err == nil || time.Now().Before(a.until))
}

func (o *owners) learn(of table, file disk.Signature, name string, a answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.known[of]
	if known == nil || known.file != file {
		known = &answers{file: file, names: make(map[string]answer)}
		o.known[of] = known
	}
	known.names[name] = a
}

// elsewhere finds a name that is not in the file. Root is 0 everywhere, also where there is no file.
func (o *owners) elsewhere(ctx context.Context, of table, name string) (uint32, error) {
	if o.root.Path() == "/" {
		return getent(ctx, of, name)
	}
	if name == "root" {
		return 0, nil
	}
	return 0, unknown(of, name, nil, "the sandbox has no such "+of.noun+" in "+of.dir+"/"+of.file)
}

// getent asks the host's name services.
func getent(ctx context.Context, of table, name string) (uint32, error) {
	out, err := command.Tool{Args: []string{"getent", "--", of.database, name}, Limit: getentTime, Keep: getentBytesMax}.Run(ctx)
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped), ctx.Err() != nil:
		fault := ended("look up "+of.noun, name, cmp.Or(ctx.Err(), context.DeadlineExceeded))
		fault.Hint = "`getent " + of.database + "` waits: see the name services in /etc/nsswitch.conf"
		return 0, fault
	case errors.As(err, &exit) && exit.Status.ExitStatus() == getentNotFound:
		return 0, unknown(of, name, nil, "create the "+of.noun+", or declare the package that does")
	case err != nil:
		return 0, unknown(of, name, err, "")
	}
	if id, ok := idOf(out, name); ok {
		return id, nil
	}
	return 0, unknown(of, name, errors.New("getent gave no answer that can be read"), "")
}

func unknown(of table, name string, cause error, hint string) error {
	return &reason.Error{Code: reason.UnknownOwner, Doing: "look up " + of.noun + " " + disk.Shown(name), Cause: cause, Hint: hint}
}

// idOf finds the number of a name in a passwd or group file; the first line that has it counts.
func idOf(data []byte, name string) (uint32, bool) {
	for line := range bytes.Lines(data) {
		if have, id, ok := parseLine(line); ok && string(have) == name {
			return id, true
		}
	}
	return 0, false
}

// nameOf finds the first name of a number.
func nameOf(data []byte, id uint32) (string, bool) {
	for line := range bytes.Lines(data) {
		if name, have, ok := parseLine(line); ok && have == id {
			return string(name), true
		}
	}
	return "", false
}

// parseLine takes name and number from a line; false for what has none, such as a comment.
func parseLine(line []byte) (name []byte, id uint32, ok bool) {
	rest := bytes.TrimSuffix(line, []byte("\n"))
	for field := 0; ; field++ {
		value, after, more := bytes.Cut(rest, []byte(":"))
		switch field {
		case 0:
			name = value
		case idField:
			n, err := strconv.ParseUint(string(value), 10, 32)
			return name, uint32(n), err == nil && len(name) > 0
		}
		if !more {
			return nil, 0, false
		}
		rest = after
	}
}

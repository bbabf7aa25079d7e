package exec

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// getentTime bounds one question to the name services, which may ask a directory server that does not answer.
	getentTime = 5 * time.Second
	// getentBytesMax bounds an answer: a group of thousands has 64 KiB.
	getentBytesMax = 64 << 10
	// getentNotFound is the exit status for "One or more supplied key could not be found", getent(1).
	getentNotFound = 2
	// shellDefault is what passwd(5) says of an empty field.
	shellDefault = "/bin/sh"
)

// identity is whom a command runs as.
type identity struct {
	account *command.Account // nil for the agent's own
	name    string
	home    string
	shell   string
}

// identities finds out whom a command is to run as. A user may be made, and change, at any time, so nothing is remembered.
type identities struct {
	passwd, group string // files
	uid, gid      uint32 // the agent's own; uid 0 may run as anybody
}

func newIdentities() identities {
	return identities{passwd: "/etc/passwd", group: "/etc/group", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
}

// of returns whom a declared command runs as. A name that nobody knows is UnknownOwner.
func (ids *identities) of(ctx context.Context, e *declare.Exec) (identity, error) {
	name := e.User
	if name == "" {
		name = strconv.FormatUint(uint64(ids.uid), 10)
	}
	u, err := ids.user(ctx, name, e.Group != "" || e.User == "")
	if err != nil {
		return identity{}, err
	}
	gid := u.gid
	if e.User == "" && ids.uid != 0 {
		gid = ids.gid
	}
	if e.Group != "" {
		if gid, err = ids.groupNumber(ctx, e.Group); err != nil {
			return identity{}, err
		}
	}
	who := identity{name: u.name, home: u.home, shell: u.shell}
	if ids.uid != 0 {
		if u.uid != ids.uid || gid != ids.gid {
			return identity{}, &reason.Error{Code: reason.OwnerNeedsRoot, Doing: "run a command as " + disk.Shown(strings.TrimSuffix(e.User+":"+e.Group, ":")),
				Hint: "run the agent as root, or leave user and group out"}
		}
		return who, nil
	}
	who.account = &command.Account{UID: u.uid, GID: gid, Groups: ids.groups(ctx, u, gid)}
	return who, nil
}

// entry is a line of passwd(5).
type entry struct {
	name, home, shell string
	uid, gid          uint32
	local             bool // it is in the file
}

// user finds a user by name or number. With anyNumber a number that nobody has stands for itself.
func (ids *identities) user(ctx context.Context, name string, anyNumber bool) (entry, error) {
	data, err := os.ReadFile(ids.passwd)
	if err == nil {
		if u, ok := findUser(data, name); ok {
			u.local = true
			return u, nil
		}
	}
	number, numeric := strconv.ParseUint(name, 10, 32)
	out, err := getent(ctx, "passwd", name)
	if u, ok := findUser(out, name); err == nil && ok {
		return u, nil
	}
	if numeric == nil && anyNumber && (err == nil || reason.Is(err, reason.UnknownOwner)) {
		return entry{name: name, uid: uint32(number), home: "/", shell: shellDefault, local: true}, nil
	}
	if err == nil {
		err = unknown("user", name, errors.New("getent gave no answer that can be read"))
	}
	return entry{}, err
}

func (ids *identities) groupNumber(ctx context.Context, name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	data, err := os.ReadFile(ids.group)
	if err == nil {
		if gid, ok := findGroup(data, name); ok {
			return gid, nil
		}
	}
	out, err := getent(ctx, "group", name)
	if err != nil {
		return 0, err
	}
	if gid, ok := findGroup(out, name); ok {
		return gid, nil
	}
	return 0, unknown("group", name, errors.New("getent gave no answer that can be read"))
}

// groups are those that a user is a member of. What cannot be found out is left out: a user has fewer rights then, not more.
func (ids *identities) groups(ctx context.Context, u entry, primary uint32) []uint32 {
	groups := []uint32{primary}
	if data, err := os.ReadFile(ids.group); err == nil {
		groups = append(groups, memberships(data, u.name)...)
	}
	if !u.local {
		if out, err := getent(ctx, "initgroups", u.name); err == nil {
			for _, field := range bytes.Fields(out) {
				if n, err := strconv.ParseUint(string(field), 10, 32); err == nil {
					groups = append(groups, uint32(n))
				}
			}
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// getent asks the host's name services.
func getent(ctx context.Context, database, name string) ([]byte, error) {
	what := map[string]string{"group": "group"}[database]
	if what == "" {
		what = "user"
	}
	out, err := command.Tool{Args: []string{"getent", "--", database, name}, Limit: getentTime, Keep: getentBytesMax}.Run(ctx)
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		return nil, &reason.Error{Code: reason.OperationTimeout, Doing: "look up " + what + " " + disk.Shown(name), Cause: err,
			Hint: "`getent " + database + "` waits: see the name services in /etc/nsswitch.conf"}
	case ctx.Err() != nil:
		return nil, reason.Ended("look up "+what+" "+disk.Shown(name), ctx.Err())
	case errors.As(err, &exit) && exit.Status.ExitStatus() == getentNotFound:
		return nil, unknown(what, name, nil)
	case err != nil:
		return nil, unknown(what, name, err)
	}
	return out, nil
}

func unknown(what, name string, err error) error {
	e := &reason.Error{Code: reason.UnknownOwner, Doing: "look up " + what + " " + disk.Shown(name), Cause: err}
	if err == nil {
		e.Hint = "create the " + what + ", or declare what does"
	}
	return e
}

// The fields of passwd(5) and group(5) that are read here.
const (
	fieldName   = 0
	fieldID     = 2
	fieldGID    = 3 // in group(5), its members
	fieldHome   = 5
	fieldShell  = 6
	groupFields = 4
	userFields  = 7
)

// findUser finds a user by name, or else by number; the first line that has it counts. Lines that are none are passed over.
func findUser(data []byte, name string) (entry, bool) {
	var byNumber *entry
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
		if len(f) < userFields || f[fieldName] == "" {
			continue
		}
		uid, uidErr := strconv.ParseUint(f[fieldID], 10, 32)
		gid, gidErr := strconv.ParseUint(f[fieldGID], 10, 32)
		if uidErr != nil || gidErr != nil {
			continue
		}
		e := entry{name: f[fieldName], uid: uint32(uid), gid: uint32(gid), home: f[fieldHome], shell: f[fieldShell]}
		if e.home == "" {
			e.home = "/"
		}
		if e.shell == "" {
			e.shell = shellDefault
		}
		if e.name == name {
			return e, true
		}
		if byNumber == nil && f[fieldID] == name {
			byNumber = &e
		}
	}
	if byNumber == nil {
		return entry{}, false
	}
	return *byNumber, true
}

func findGroup(data []byte, name string) (uint32, bool) {
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
		if len(f) < groupFields-1 || f[fieldName] != name || name == "" {
			continue
		}
		if gid, err := strconv.ParseUint(f[fieldID], 10, 32); err == nil {
			return uint32(gid), true
		}
	}
	return 0, false
}

// memberships are the groups of which a line names the user as a member.
func memberships(data []byte, user string) []uint32 {
	var gids []uint32
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
		if len(f) < groupFields || user == "" || !slices.Contains(strings.Split(f[fieldGID], ","), user) {
			continue
		}
		if gid, err := strconv.ParseUint(f[fieldID], 10, 32); err == nil {
			gids = append(gids, uint32(gid))
		}
	}
	return gids
}

// environment is all that a command has: the usual variables, and those that are declared, which win.
func (who *identity) environment(e *declare.Exec) []string {
	variables := map[string]string{
		"PATH": command.Path, "HOME": who.home, "USER": who.name, "LOGNAME": who.name, "SHELL": who.shell, "LANG": "C.UTF-8",
	}
	for name, value := range e.Environment {
		variables[name] = value
	}
	out := make([]string, 0, len(variables))
	for name, value := range variables {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

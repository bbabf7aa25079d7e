package setting

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	fieldValue = "value"
	fieldBoot  = "at boot"
	// madeBy begins a file that has nothing else in it.
	madeBy = "# Kept by tako: what is changed here is undone.\n"
)

// sysctl is a parameter of the kernel.
type sysctl struct {
	key   string
	value string // with one blank between several
}

func bindSysctl(t *Type, r *declare.Resource) (thing, error) {
	s := &sysctl{key: r.Sysctl.KeyOr(r.Name), value: r.Sysctl.Value}
	if err := expanded(s.doing(), declare.SysctlValueMistake, s.value); err != nil {
		return nil, err
	}
	return t.kernelOnly(s)
}

func (s *sysctl) doing() string { return "set kernel parameter " + s.key }

// path is the parameter.
func (s *sysctl) path() string { return declare.SysctlPath(s.key) }

// file is read at boot. Its name is after that of /etc/sysctl.conf, which is 99-sysctl.conf there.
func (s *sysctl) file() string {
	return sysctlDirs[0] + "/" + ourSysctls + strings.ReplaceAll(s.key, "/", ":") + confSuffix
}

func (s *sysctl) body() string { return madeBy + s.key + " = " + s.value + "\n" }

// watches names the parameter, of which the kernel tells as long as it remembers the name, and where others have their files.
func (s *sysctl) watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: s.path()}, {Kind: host.WatchEntries, Name: sysctlDirs[0]}, {Kind: host.WatchEntries, Name: sysctlDirs[1]}}
}

func (s *sysctl) sign(to *signs) {
	live, err := readSysctl(s.path())
	to.failed = to.failed || err != nil
	to.text(live)
	to.file(s.file())
	l, err := to.laterFiles()
	to.failed = to.failed || err != nil
	to.number(l.state)
	to.newest = max(to.newest, l.newest)
}

// sysctlSight is how a parameter is.
type sysctlSight struct {
	live    string
	unknown bool       // the kernel has no such parameter
	command bool       // it can be written and not read
	closed  unix.Errno // why it cannot be written, where it has another value
	file    string
	there   bool // the file is
	later   assignment
}

func (s *sysctl) look(c *call) (any, error) {
	live, err := readSysctl(s.path())
	sight := sysctlSight{live: live}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		sight.unknown = true
		return sight, nil
	case errors.Is(err, fs.ErrPermission) && isCommand(s.path()):
		sight.command = true
		return sight, nil
	case err != nil:
		return nil, refused("read kernel parameter "+s.key, err)
	}
	f, err := c.read(s.file())
	if err != nil {
		return nil, err
	}
	sight.file, sight.there = f.body, f.there()
	if live != s.value {
		// What this does not tell, of a kernel that refuses in another way, writing does.
		errors.As(unix.Access(s.path(), unix.W_OK), &sight.closed)
	}
	l, err := c.laterFiles()
	if err != nil {
		return nil, err
	}
	sight.later = l.values[s.key]
	return sight, nil
}

// readSysctl reads a parameter, with one blank between several values. One that has none yet says EIO.
func readSysctl(p string) (string, error) {
	b, err := os.ReadFile(p)
	if errors.Is(err, unix.EIO) {
		return "", nil
	}
	return strings.Join(strings.Fields(string(b)), " "), err
}

func isCommand(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode()&0o400 == 0
}

func (s *sysctl) compare(sight any) ([]host.Change, error) {
	now := sight.(sysctlSight)
	switch {
	case now.unknown:
		return nil, s.notThere()
	case now.command:
		return nil, &reason.Error{Code: reason.SettingRefused, Doing: s.doing(), Cause: errors.New("it is a command to the kernel, and has no value"),
			Hint: "use an exec that is notified"}
	}
	if now.closed != 0 {
		return nil, refused(s.doing(), &fs.PathError{Op: "open", Path: s.path(), Err: now.closed})
	}
	var changes []host.Change
	if now.live != s.value {
		changes = append(changes, host.Change{Field: fieldValue, From: now.live, To: s.value})
	}
	if now.file != s.body() {
		from := assignments(now.file)[s.key].value
		if now.there && from == s.value {
			from = "another text"
		}
		changes = append(changes, host.Change{Field: fieldBoot, From: from, To: s.value})
	}
	if l := now.later; l.file != "" && l.value != s.value {
		return changes, &reason.Error{Code: reason.SettingOverridden, Doing: s.doing(),
			Cause: errors.New(l.String() + " sets it to " + shown(l.value) + " at boot, after " + path.Base(s.file())),
			Hint:  "take that line out, or declare its value; it is " + s.value + " until the next boot"}
	}
	return changes, nil
}

// notThere is the error for a parameter that the kernel has not.
func (s *sysctl) notThere() error {
	e := &reason.Error{Code: reason.SettingUnknown, Doing: s.doing(), Cause: errors.New("the kernel has no " + s.path())}
	dir, name := path.Split(s.path())
	var names []string
	if list, err := os.ReadDir(dir); err == nil {
		for _, entry := range list {
			names = append(names, entry.Name())
		}
	}
	near := declare.Nearest(name, names)
	switch module := declare.SysctlModule(s.key); {
	case module != "":
		e.Hint = "module " + module + " brings it: declare kernelModule: {module: " + module + "}"
	case near != "":
		e.Hint = "did you mean " + declare.SysctlKey(dir+near) + "?"
	default:
		e.Hint = "a module that is not loaded may bring it: declare that as kernelModule, and require it; `sysctl -a` lists what there is"
	}
	return e
}

func (s *sysctl) apply(ctx context.Context, t *Type, sight any) (work, error) {
	var done work
	if now := sight.(sysctlSight); now.live != s.value {
		if err := writeSysctl(s.path(), s.value); err != nil {
			return done, refused(s.doing(), err)
		}
		live, err := readSysctl(s.path())
		done.changed = err == nil && live != now.live
		if err == nil && live != s.value {
			return done, &reason.Error{Code: reason.SettingRefused, Doing: s.doing(), Cause: errors.New("the kernel makes " + shown(live) + " of " + shown(s.value)),
				Hint: "declare it as the kernel has it"}
		}
	}
	f, err := t.read(s.file())
	if err != nil {
		return done, err
	}
	changed, err := t.write(ctx, f, s.body())
	done.changed = done.changed || changed
	return done, err
}

// writeSysctl writes a value with one system call, as the kernel wants it.
func writeSysctl(p, value string) error {
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// sysctlOriginal is the stored form of what a parameter was. Later versions read it too: fields may be added, and none ever gets another
// meaning. So it is with all originals of this package.
type sysctlOriginal struct {
	Value *string `json:"value,omitempty"`
	File  *string `json:"file,omitempty"`
}

func (s *sysctl) original(t *Type, sight any) ([]byte, error) {
	now := sight.(sysctlSight)
	var o sysctlOriginal
	if !now.unknown && !now.command {
		o.Value = &now.live
	}
	if now.there {
		o.File = &now.file
	}
	return json.Marshal(o)
}

// undo leaves the kernel's value alone where nothing is known of another one: what a value was by itself is seen after the next boot.
func (s *sysctl) undo(ctx context.Context, t *Type, original []byte) error {
	var o sysctlOriginal
	if original != nil {
		if err := unmarshal(s.doing(), original, &o); err != nil {
			return err
		}
	}
	if o.Value != nil && *o.Value != "" {
		live, err := readSysctl(s.path())
		if err == nil && live != *o.Value {
			err = writeSysctl(s.path(), *o.Value)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refused(s.doing(), err)
		}
	}
	return t.put(ctx, s.file(), o.File)
}

// assignment is a line of a file of sysctl.d(5).
type assignment struct {
	file  string
	line  int
	value string
}

func (a assignment) String() string { return a.file + ":" + strconv.Itoa(a.line) }

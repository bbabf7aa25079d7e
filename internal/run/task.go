package run

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Bounds of what a task may have. They are above those of what users declare.
const (
	ArgsMax      = 4096
	EnvMax       = 1024
	StartBytes   = 1 << 20 // arguments and environment together: below what the kernel takes for a stack of 8 MiB
	MountsMax    = 128
	FilesMax     = 128
	FileBytes    = 1 << 20 // content of one file
	DevicesMax   = 64
	PortsMax     = 1024
	logFileBytes = 10 << 20
	logFiles     = 3
)

// ID is the identity of one attempt to run one task of one instance.
type ID struct {
	Instance string // UID: up to 64 of a-z, 0-9 and -, with a letter or digit first
	Task     string // name: up to 63 of the same
	Attempt  uint32 // counted from 1
}

// String is the text of an identity, which ParseID reads: it fits into the name of a file, and of a unit.
func (id ID) String() string { return fmt.Sprintf("%s.%s.%d", id.Instance, id.Task, id.Attempt) }

// ParseID reads the text of an identity.
func ParseID(text string) (ID, error) {
	parts := strings.Split(text, ".")
	if len(parts) == 3 {
		n, err := strconv.ParseUint(parts[2], 10, 32)
		id := ID{Instance: parts[0], Task: parts[1], Attempt: uint32(n)}
		if err == nil && id.Valid() == nil && id.String() == text {
			return id, nil
		}
	}
	return ID{}, &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("read the identity %q", reason.Clip([]byte(text))), Cause: errors.New("it is not INSTANCE.TASK.ATTEMPT")}
}

// Compare orders identities: attempts of one task by their number.
func (id ID) Compare(o ID) int {
	return cmp.Or(strings.Compare(id.Instance, o.Instance), strings.Compare(id.Task, o.Task), cmp.Compare(id.Attempt, o.Attempt))
}

// Valid returns what is wrong with an identity.
func (id ID) Valid() error {
	switch {
	case !plain(id.Instance, 64):
		return refused(id, "the UID of the instance is not up to 64 of a-z, 0-9 and -")
	case !plain(id.Task, 63):
		return refused(id, "the name of the task is not up to 63 of a-z, 0-9 and -")
	case id.Attempt == 0:
		return refused(id, "attempts are counted from 1")
	}
	return nil
}

func plain(s string, most int) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// Task is what an attempt runs. Everything in it is final: names are resolved, references filled in.
type Task struct {
	ID ID
	// Command is the program, an absolute path, and its arguments. With an image, left out, it is the entry point of that, and the path
	// may be a name that is looked for in its PATH.
	Command []string
	// Args stand behind the command; with an image, in place of the arguments that the image has. Without one there are none.
	Args []string
	// Env are NAME=VALUE. Each arrives as it is; a runtime adds only names that begin with TAKO_, and with an image those that the image has
	// and PATH and HOME, where they are not here.
	Env []string
	// Dir is where it starts: an absolute path. Empty, with an image: what that says, or /.
	Dir string
	// User is a name or a number, of the image where there is one. Empty: what the image says, or the default of the runtime, see Capabilities.
	User   string
	Limits Limits
	Mounts []Mount
	Files  []File
	Log    Log
	// Image is where the task's files are: the absolute path of an OCI image layout on the host, a directory or an archive of one that is not
	// compressed. Empty: the host's files.
	Image string
	// Writable makes the root of the image writable; what is written goes with the attempt.
	Writable bool
	// OwnNetwork gives the task a network of its own, in place of the host's.
	OwnNetwork bool
	// Ports are those of the whole instance that others reach at the host, where the network is its own. All tasks of an instance name the same.
	Ports []PortMap
	// Until is when everything of it is killed at the latest, though nobody asks for that: by something that needs neither the agent nor a network. It is not
	// begun after that. Zero: never.
	Until Moment
	// Devices are absolute paths of the devices of the host that the task may use beside those that every program needs.
	Devices []string
}

// Limits are what a task may take at most. Zero is no limit.
type Limits struct {
	CPU       int64 // thousandths of a processor
	Memory    int64 // bytes
	Processes int64 // processes and threads
}

// Mount shows a directory of the host at another path.
type Mount struct {
	Source, Path string // absolute
	ReadOnly     bool
}

// PortMap leads a port of the host to one of an instance.
type PortMap struct {
	Protocol  workload.Protocol
	Host, Own int32
}

// File is a file that only the task sees. Its content may be secret: it is in memory only.
type File struct {
	Path    string // absolute
	Content []byte
	Mode    uint32
}

// Log bounds what is kept of what a task prints: Files files of Bytes bytes. Zero is 3 files of 10 MiB.
type Log struct {
	Bytes int64
	Files int
}

// OrDefault is the log with its defaults.
func (l Log) OrDefault() Log {
	return Log{Bytes: cmp.Or(l.Bytes, logFileBytes), Files: cmp.Or(l.Files, logFiles)}
}

// Valid returns what is wrong with a task, whatever runs it. The error names no value of a variable and no content.
func (t *Task) Valid() error {
	if err := t.ID.Valid(); err != nil {
		return err
	}
	switch {
	case t.Image == "" && (len(t.Command) == 0 || !absolute(t.Command[0])):
		return refused(t.ID, "the command does not begin with the absolute path of a program")
	case t.Image == "" && (len(t.Args) > 0 || t.Writable):
		return refused(t.ID, "it has arguments for an image, or a writable root, and no image")
	case t.Image != "" && !absolute(t.Image):
		return refused(t.ID, "the image is not an absolute path")
	case len(t.Command)+len(t.Args) > ArgsMax || len(t.Env) > EnvMax:
		return refused(t.ID, fmt.Sprintf("more than %d arguments or %d variables", ArgsMax, EnvMax))
	case !absolute(t.Dir) && (t.Image == "" || t.Dir != ""):
		return refused(t.ID, "the working directory is not an absolute path")
	case len(t.Ports) > PortsMax || slices.ContainsFunc(t.Ports, func(p PortMap) bool {
		return p.Host < 1 || p.Host > 65535 || p.Own < 1 || p.Own > 65535 || p.Protocol != workload.TCP && p.Protocol != workload.UDP
	}):
		return refused(t.ID, fmt.Sprintf("more than %d ports, or one that is none", PortsMax))
	case !t.OwnNetwork && len(t.Ports) > 0:
		return refused(t.ID, "it has ports of its own, and the network of the host")
	case t.Limits.CPU < 0 || t.Limits.Memory < 0 || t.Limits.Processes < 0:
		return refused(t.ID, "a limit is negative")
	case t.Log.Bytes < 0 || t.Log.Files < 0:
		return refused(t.ID, "the bound of the log is negative")
	case len(t.Mounts) > MountsMax || len(t.Files) > FilesMax || len(t.Devices) > DevicesMax:
		return refused(t.ID, fmt.Sprintf("more than %d mounts, %d files or %d devices", MountsMax, FilesMax, DevicesMax))
	}
	size := 0
	for _, s := range slices.Concat(t.Command, t.Args) {
		if strings.IndexByte(s, 0) >= 0 {
			return refused(t.ID, "an argument holds a zero byte")
		}
		size += len(s) + 1
	}
	for _, s := range t.Env {
		name, _, ok := strings.Cut(s, "=")
		if !ok || name == "" || strings.IndexByte(s, 0) >= 0 {
			return refused(t.ID, "a variable has no name, or holds a zero byte")
		}
		size += len(s) + 1
	}
	if size > StartBytes {
		return refused(t.ID, fmt.Sprintf("arguments and environment have %d bytes, at most %d are possible", size, StartBytes))
	}
	return t.validPaths()
}

func (t *Task) validPaths() error {
	for _, m := range t.Mounts {
		if !absolute(m.Source) || !absolute(m.Path) {
			return refused(t.ID, "a mount is not from an absolute path to another")
		}
	}
	for _, f := range t.Files {
		if !absolute(f.Path) || len(f.Content) > FileBytes {
			return refused(t.ID, fmt.Sprintf("a file has no absolute path, or more than %d bytes", FileBytes))
		}
	}
	for _, d := range t.Devices {
		if !absolute(d) {
			return refused(t.ID, "a device has no absolute path")
		}
	}
	return nil
}

func absolute(p string) bool { return path.IsAbs(p) && strings.IndexByte(p, 0) < 0 }

func refused(id ID, why string) error {
	return &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("run task %q of instance %q", id.Task, id.Instance), Cause: errors.New(why)}
}

// text reports whether arguments and variables are UTF-8.
func (t *Task) text() bool {
	return !slices.ContainsFunc(slices.Concat(t.Command, t.Args, t.Env), func(s string) bool { return !utf8.ValidString(s) })
}

// Refuse returns why a task cannot run where the runtime has these capabilities; nil: as far as that goes it can.
func (c Capabilities) Refuse(t *Task) error {
	needs := []struct {
		feature Feature
		needed  bool
	}{
		{LimitCPU, t.Limits.CPU > 0}, {LimitMemory, t.Limits.Memory > 0}, {LimitTasks, t.Limits.Processes > 0},
		{Mounts, len(t.Mounts) > 0}, {ConfigFiles, len(t.Files) > 0}, {Images, t.Image != ""}, {OwnNetwork, t.OwnNetwork},
		{Devices, len(t.Devices) > 0}, {AnyBytes, !t.text()},
	}
	for _, n := range needs {
		if why, lacks := c.Lacks[n.feature]; lacks && n.needed {
			return &reason.Error{
				Code: reason.RuntimeUnfit, Doing: fmt.Sprintf("run task %s of instance %s", t.ID.Task, t.ID.Instance),
				Cause: fmt.Errorf("it declares %s, and %s", n.feature, why), Hint: "leave that out, or choose another runtime",
			}
		}
	}
	return nil
}

// Unknown is the error for an attempt that is not there.
func Unknown(doing string, id ID) error {
	return &reason.Error{Code: reason.TaskUnknown, Doing: doing + " " + id.String()}
}

// TailLines cuts lines to the newest that have at most so many bytes together.
func TailLines(lines []Line, bytesMax int) []Line {
	left := min(bytesMax, TailMax)
	for i := len(lines) - 1; i >= 0; i-- {
		if left -= len(lines[i].Text) + 1; left < 0 {
			return lines[i+1:]
		}
	}
	return lines
}

// Text joins lines to what the task has printed to one of its streams.
func Text(lines []Line, stderr bool) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		if l.Stderr == stderr {
			b.Write(l.Text)
			if !l.Part {
				b.WriteByte('\n')
			}
		}
	}
	return b.Bytes()
}

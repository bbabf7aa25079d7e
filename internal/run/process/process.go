package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// Options of a Runtime.
type Options struct {
	// Dir is where everything is kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Shim starts a program that calls Serve and exits with what that returns.
	Shim []string
}

// Runtime is the runtime; see the package comment.
type Runtime struct {
	tree   tree
	shim   []string
	boot   string
	home   group
	can    run.Capabilities
	events *events
	users  *users
	gone   sync.Mutex // held while an attempt is settled whose shim is gone, which kills what it has left
}

var _ run.Runtime = (*Runtime)(nil)

// New makes a Runtime. Close gives back what it holds; what it runs goes on.
func New(o Options) (*Runtime, error) {
	if !filepath.IsAbs(o.Dir) || len(o.Shim) == 0 {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "set up the runtime Process", Cause: errors.New("it needs an absolute directory and a program")}
	}
	r := &Runtime{tree: tree{o.Dir}, shim: o.Shim, users: &users{dir: filepath.Join(o.Dir, "users")}}
	for _, dir := range []string{o.Dir, r.tree.statuses(), filepath.Join(o.Dir, "attempts"), r.users.dir} {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, disk.Fault("make", dir, err)
		}
	}
	var err error
	if r.boot, err = bootNow(); err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the boot ID", Cause: err}
	}
	r.home, r.can.Lacks = ownGroup("/")
	r.can.Lacks[run.Mounts] = "the runtime Process shows tasks the directories of the host as they are"
	r.can.Lacks[run.ConfigFiles] = "the runtime Process shows tasks the files of the host only"
	r.can.DefaultUser = "a user of its instance, that has nothing else"
	if os.Geteuid() != 0 {
		r.can.DefaultUser = "the agent's user"
		r.can.Lacks[run.OtherUsers] = "the agent does not run as root"
	}
	r.events, err = newEvents(r.tree.statuses())
	return r, err
}

// Close gives back what the Runtime holds. Run must have returned.
func (r *Runtime) Close() error { return r.events.close() }

// Capabilities says what this runtime can do here.
func (r *Runtime) Capabilities() run.Capabilities {
	return run.Capabilities{Lacks: maps.Clone(r.can.Lacks), DefaultUser: r.can.DefaultUser}
}

// Start starts an attempt by a shim of its own.
func (r *Runtime) Start(ctx context.Context, t run.Task) (run.Status, error) {
	if err := t.Valid(); err != nil {
		return run.Status{}, err
	}
	if s, there, err := r.look(t.ID); there || err != nil {
		if err == nil && s.Phase != run.Starting {
			return s, nil
		}
		if err != nil {
			return run.Status{}, err
		}
	}
	if err := r.can.Refuse(&t); err != nil {
		return run.Status{}, err
	}
	doing := "start " + t.ID.String()
	if err := os.Mkdir(r.tree.attempt(t.ID), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: err}
	}
	as, err := r.account(&t) // after the directory, which keeps the user of the instance
	if err != nil {
		_ = os.Remove(r.tree.attempt(t.ID)) // it fails where somebody has started it
		return run.Status{}, err
	}
	word, err := r.spawn(ctx, &order{
		Dir: r.tree.dir, ID: t.ID, Command: bytesOf(t.Command), Env: bytesOf(append(slices.Clip(t.Env), attemptVariable+"="+t.ID.String())), WorkDir: t.Dir,
		As: as, Limits: t.Limits, Group: r.home.of(t.ID), Home: r.home, Log: t.Log.OrDefault(),
	})
	switch {
	case ctx.Err() != nil:
		return run.Status{}, reason.Ended(doing, ctx.Err())
	case err != nil:
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: err}
	case word != wordStarted && word != wordThere:
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: errors.New(strings.TrimPrefix(word, "error: "))}
	}
	s, there, err := r.look(t.ID)
	if err == nil && !there {
		err = &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: errors.New("it is gone again")}
	}
	return s, err
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// wordMax bounds what a shim says: a few words, and what an error says.
const wordMax = 4 << 10

// spawn starts a shim, and waits for its word. A shim that was started goes on when ctx ends.
func (r *Runtime) spawn(ctx context.Context, o *order) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	// A file in memory: it can be read whenever, and takes any size.
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("memfd_create", err)
	}
	in := os.NewFile(uintptr(fd), "order")
	defer in.Close()
	if _, err := in.WriteAt(text, 0); err != nil {
		return "", err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", errors.Join(err, write.Close())
	}
	defer null.Close()
	pidfd := -1
	p, err := os.StartProcess(r.shim[0], r.shim, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=20", "GODEBUG=madvdontneed=1"}, Files: []*os.File{in, null, null, write},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err = errors.Join(err, write.Close()); err != nil {
		return "", err
	}
	if pidfd < 0 { // Linux before 5.3
		killed := p.Kill()
		_, err := p.Wait()
		return "", errors.Join(errors.ErrUnsupported, killed, err)
	}
	r.events.follow(o.ID, pidfd)
	_ = p.Release() // it is reaped where its end is seen
	stop := context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, err := io.ReadAll(io.LimitReader(read, wordMax))
	if err == nil && len(word) == 0 {
		err = errors.New("the process that minds it has ended before it could begin")
	}
	return string(word), err
}

// Stop asks the shim to send a signal.
func (r *Runtime) Stop(_ context.Context, id run.ID, signal run.Signal) error {
	return r.ask(id, stopFile, strconv.Itoa(int(signal)))
}

// Kill asks the shim to end everything.
func (r *Runtime) Kill(_ context.Context, id run.ID) error { return r.ask(id, killFile, "") }

// ask puts a file where the shim sees it. The first one counts.
func (r *Runtime) ask(id run.ID, what, text string) error {
	s, there, err := r.look(id)
	if err != nil || s.Phase == run.Ended {
		return err
	}
	if !there {
		return run.Unknown(what, id)
	}
	temp, err := os.CreateTemp(r.tree.attempt(id), ".ask")
	if err == nil {
		_, err = temp.WriteString(text)
		err = errors.Join(err, temp.Close())
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temp.Name(), unix.AT_FDCWD, r.tree.in(id, what), unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			err = os.Remove(temp.Name())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed, so it has ended
	}
	if err != nil {
		return disk.Fault(what, r.tree.attempt(id), err)
	}
	return nil
}

// List is every attempt that there is.
func (r *Runtime) List(ctx context.Context) ([]run.Status, error) {
	entries, err := os.ReadDir(r.tree.statuses())
	if err != nil {
		return nil, disk.Fault("list", r.tree.statuses(), err)
	}
	seen := map[run.ID]bool{}
	var all []run.Status
	for _, e := range entries {
		id, ok := nameOf(e.Name())
		if !ok || seen[id] {
			continue
		}
		if ctx.Err() != nil {
			return nil, reason.Ended("list what runs", ctx.Err())
		}
		seen[id] = true
		s, there, err := r.look(id)
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b run.Status) int { return a.ID.Compare(b.ID) })
	return all, nil
}

// Remove forgets an attempt. What says that it has ended goes last.
func (r *Runtime) Remove(_ context.Context, id run.ID) error {
	if err := id.Valid(); err != nil {
		return err
	}
	s, there, err := r.look(id)
	switch {
	case err != nil:
		return err
	case there && (s.Phase != run.Ended || s.Ending.Survived > 0 && len(r.left(id)) > 0):
		return &reason.Error{Code: reason.TaskBusy, Doing: "remove " + id.String(), Hint: "stop it first"}
	}
	if err := r.home.of(id).clear(); err != nil {
		return &reason.Error{Code: reason.TaskBusy, Doing: "remove " + id.String(), Cause: err}
	}
	if err := os.RemoveAll(r.tree.attempt(id)); err != nil {
		return disk.Fault("remove", r.tree.attempt(id), err)
	}
	for _, kind := range []string{runningFile, begunFile, endedFile} {
		if err := os.Remove(r.tree.status(id, kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk.Fault("remove", r.tree.status(id, kind), err)
		}
	}
	return r.users.release(id.Instance, r.hasAttempts)
}

// hasAttempts reports whether there is any attempt of an instance.
func (r *Runtime) hasAttempts(instance string) bool {
	names, err := os.ReadDir(filepath.Join(r.tree.dir, "attempts"))
	return err != nil || slices.ContainsFunc(names, func(n fs.DirEntry) bool { return strings.HasPrefix(n.Name(), instance+".") })
}

// Usage is what an attempt takes: by its cgroup, or where it has none by the processes that come from its shim.
func (r *Runtime) Usage(_ context.Context, id run.ID) (run.Usage, error) {
	s, there, err := r.look(id)
	if err != nil {
		return run.Usage{}, err
	}
	var b begun
	if !there || s.Phase != run.Running {
		return run.Usage{}, run.Unknown("look at", id)
	}
	if ok, err := r.tree.get(id, begunFile, &b); err != nil || !ok {
		return run.Usage{}, errors.Join(err, run.Unknown("look at", id))
	}
	if u, ok := b.Group.usage(); ok {
		return u, nil
	}
	var u run.Usage
	shim, _ := readStat(b.PID)
	ticks := shim.reaped
	for _, d := range descendants(b.PID) {
		ticks += d.ticks + d.reaped
		if !d.zombie {
			u.Processes++
			u.Memory += d.pages * int64(os.Getpagesize())
		}
	}
	u.CPU = time.Duration(ticks) * tick
	return u, nil
}

// Tail is the end of what an attempt has printed.
func (r *Runtime) Tail(_ context.Context, id run.ID, bytesMax int) ([]run.Line, error) {
	if _, there, err := r.look(id); err != nil || !there {
		return nil, errors.Join(err, run.Unknown("read the log of", id))
	}
	lines, err := tail(r.tree.in(id, logFile), bytesMax)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: fmt.Sprintf("read the log of %s", id), Cause: err}
	}
	return lines, nil
}

package shim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/bell"
)

// Options of Shims.
type Options struct {
	// Dir is where everything is kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Program starts a program that calls Serve and exits with what that returns.
	Program []string
	// Users is where the users of instances are kept. Runtimes of one host share it. Default: DIR/users.
	Users string
}

// Shims is the agent's end; see the package comment. Its methods are those of run.Runtime, but for Start and Capabilities.
type Shims struct {
	tree    tree
	program []string
	boot    string
	home    Group
	lacks   map[run.Feature]string
	events  *events
	users   *account.Users
	gone    sync.Mutex // held while an attempt is settled whose shim is gone, which kills what it has left
}

// New makes Shims. Close gives back what it holds; what is run goes on.
func New(o Options) (*Shims, error) {
	if !filepath.IsAbs(o.Dir) || len(o.Program) == 0 {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "set up a runtime", Cause: errors.New("it needs an absolute directory and a program")}
	}
	r := &Shims{tree: tree{o.Dir}, program: o.Program}
	for _, dir := range []string{o.Dir, r.tree.statuses(), r.tree.attempts()} {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, disk.Fault("make", dir, err)
		}
	}
	var err error
	if r.users, err = account.NewUsers(cmp.Or(o.Users, filepath.Join(o.Dir, "users"))); err != nil {
		return nil, err
	}
	if r.boot, err = bootNow(); err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the boot ID", Cause: err}
	}
	r.home, r.lacks = ownGroup("/")
	r.events, err = newEvents(r.tree.statuses())
	return r, err
}

// Close gives back what Shims holds. Run must have returned.
func (r *Shims) Close() error { return r.events.close() }

// Lacks are the limits that cannot be had on this host, and why.
func (r *Shims) Lacks() map[run.Feature]string { return r.lacks }

// OwnUser is the user that nobody has but an instance, until the last attempt of that is removed. It is asked for while one is being started.
func (r *Shims) OwnUser(instance string) (uint32, error) { return r.users.Of(instance) }

// Start starts an attempt by a shim of its own, unless it is there. ready says what to run, of all but what the Order has from Shims.
func (r *Shims) Start(ctx context.Context, id run.ID, ready func() (*Order, error)) (run.Status, error) {
	if s, there, err := r.look(id); err != nil || there && s.Phase != run.Starting {
		return s, err
	}
	doing := "start " + id.String()
	if err := os.Mkdir(r.tree.attempt(id), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: err}
	}
	o, err := ready() // after the directory, which keeps the user of the instance
	if err != nil {
		_ = os.Remove(r.tree.attempt(id)) // it fails where somebody has started it
		if kept := r.users.Release(id.Instance, r.hasAttempts); kept != nil {
			return run.Status{}, errors.Join(err, kept)
		}
		return run.Status{}, err
	}
	o.Dir, o.ID, o.Group, o.Home = r.tree.dir, id, r.home.of(id), r.home
	o.Env = append(slices.Clip(o.Env), []byte(Variable(id.String())))
	word, err := r.spawn(ctx, o)
	switch {
	case ctx.Err() != nil:
		return run.Status{}, reason.Ended(doing, ctx.Err())
	case err != nil:
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: err}
	case word != wordStarted && word != wordThere:
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: errors.New(strings.TrimPrefix(word, "error: "))}
	}
	s, there, err := r.look(id)
	if err == nil && !there {
		err = &reason.Error{Code: reason.TaskNotStarted, Doing: doing, Cause: errors.New("it is gone again")}
	}
	return s, err
}

// wordMax bounds what a shim says: a few words, and what an error says.
const wordMax = 4 << 10

// spawn starts a shim, and waits for its word. A shim that was started goes on when ctx ends.
func (r *Shims) spawn(ctx context.Context, o *Order) (string, error) {
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
	p, err := os.StartProcess(r.program[0], r.program, &os.ProcAttr{
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
func (r *Shims) Stop(_ context.Context, id run.ID, signal run.Signal) error {
	return r.ask(id, stopFile, strconv.Itoa(int(signal)))
}

// Kill asks the shim to end everything.
func (r *Shims) Kill(_ context.Context, id run.ID) error { return r.ask(id, killFile, "") }

// Extend tells the shim until when the attempt may run.
func (r *Shims) Extend(_ context.Context, id run.ID, until run.Moment) error {
	s, there, err := r.look(id)
	if err != nil || s.Phase == run.Ended {
		return err
	}
	if !there {
		return run.Unknown("extend", id)
	}
	temp, err := r.temp(id, strconv.FormatInt(int64(until), 10))
	if err == nil {
		err = os.Rename(temp, r.tree.in(id, untilFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed, so it has ended
	}
	if err != nil {
		return disk.Fault("extend", r.tree.attempt(id), err)
	}
	return r.ring(id)
}

// temp makes a file for what is asked, which nobody sees yet.
func (r *Shims) temp(id run.ID, text string) (name string, err error) {
	f, err := os.CreateTemp(r.tree.attempt(id), ".ask")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

// ask puts a file where the shim sees it. The first one counts.
func (r *Shims) ask(id run.ID, what, text string) error {
	s, there, err := r.look(id)
	if err != nil || s.Phase == run.Ended {
		return err
	}
	if !there {
		return run.Unknown(what, id)
	}
	temp, err := r.temp(id, text)
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, r.tree.in(id, what), unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			err = os.Remove(temp)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed, so it has ended
	}
	if err != nil {
		return disk.Fault(what, r.tree.attempt(id), err)
	}
	return r.ring(id)
}

// ring has the shim of an attempt look at what is asked.
func (r *Shims) ring(id run.ID) error {
	if err := bell.Ring(r.tree.in(id, bellFile)); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "wake the process that minds " + id.String(), Cause: err}
	}
	return nil
}

// List is every attempt that there is.
func (r *Shims) List(ctx context.Context) ([]run.Status, error) {
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
func (r *Shims) Remove(_ context.Context, id run.ID) error {
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
	return r.users.Release(id.Instance, r.hasAttempts)
}

// There reports whether there is anything of an attempt.
func (r *Shims) There(id run.ID) bool {
	_, err := os.Lstat(r.tree.attempt(id))
	return err == nil
}

// Runs reports whether any attempt of an instance has not ended. What cannot be found out about one that may.
func (r *Shims) Runs(instance string) bool {
	names, err := os.ReadDir(r.tree.attempts())
	return err != nil || slices.ContainsFunc(names, func(n fs.DirEntry) bool {
		if !strings.HasPrefix(n.Name(), instance+".") {
			return false
		}
		id, err := run.ParseID(n.Name())
		if err != nil {
			return false
		}
		s, there, err := r.look(id)
		return err != nil || there && s.Phase != run.Ended
	})
}

// hasAttempts reports whether there is any attempt of an instance.
func (r *Shims) hasAttempts(instance string) bool {
	names, err := os.ReadDir(r.tree.attempts())
	return err != nil || slices.ContainsFunc(names, func(n fs.DirEntry) bool { return strings.HasPrefix(n.Name(), instance+".") })
}

// Usage is what an attempt takes: by its cgroup, or where it has none by the processes that come from its shim.
func (r *Shims) Usage(_ context.Context, id run.ID) (run.Usage, error) {
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
func (r *Shims) Tail(_ context.Context, id run.ID, bytesMax int) ([]run.Line, error) {
	if _, there, err := r.look(id); err != nil || !there {
		return nil, errors.Join(err, run.Unknown("read the log of", id))
	}
	lines, err := tail(r.tree.in(id, logFile), bytesMax)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: fmt.Sprintf("read the log of %s", id), Cause: err}
	}
	return lines, nil
}

// Bytes are texts as lists of an Order.
func Bytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

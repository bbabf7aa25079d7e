package systemd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
	bus "tako.dev/tako/internal/systemd"
)

// startMax bounds a start where its caller does not: systemd gives up after startTimeout, and then ends what there is of it.
const startMax = startTimeout + stopTimeout

// Options of a Runtime.
type Options struct {
	// Bus is the connection to systemd. Somebody else runs it.
	Bus *bus.Bus
	// Dir is where it is kept what attempts came to: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Memory is for what may be secret: the same, on a file system in memory, such as /run.
	Memory string
	// Program starts this program so that it calls Serve with the arguments that follow.
	Program []string
	// Users is where the users of instances are kept. Runtimes of one host share it. Default: DIR/users.
	Users string
}

// Runtime is the runtime; see the package comment.
type Runtime struct {
	bus     *bus.Bus
	tree    tree
	program []string
	boot    string
	can     run.Capabilities
	users   *account.Users
	gone    sync.Mutex // held while an end is written down that nobody has: several may look at an attempt at once

	mu    sync.Mutex               // guards what follows
	busy  map[run.ID]chan struct{} // attempts that something is done with, which closes the channel in the end
	watch *bus.Follower            // of Run, while that runs
}

var _ run.Runtime = (*Runtime)(nil)

// New makes a Runtime.
func New(o Options) (*Runtime, error) {
	const doing = "set up the runtime Systemd"
	for _, p := range append([]string{o.Dir, o.Memory}, o.Program...) {
		if !plain(p) {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("%q holds more than letters, digits and ./_-", p)}
		}
	}
	if o.Bus == nil || !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Memory) || len(o.Program) == 0 || !filepath.IsAbs(o.Program[0]) {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: errors.New("it needs a bus, two absolute directories, and the absolute path of a program")}
	}
	if os.Geteuid() != 0 {
		return nil, &reason.Error{Code: reason.PermissionDenied, Doing: doing, Cause: errors.New("the agent does not run as root"), Hint: "run it as root, or use the runtime Process"}
	}
	r := &Runtime{bus: o.Bus, tree: tree{o.Dir, o.Memory}, program: o.Program, busy: map[run.ID]chan struct{}{}}
	for _, dir := range []string{o.Dir, r.tree.statuses(), o.Memory} {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, disk.Fault("make", dir, err)
		}
	}
	if ok, err := inMemory(o.Memory); err != nil || !ok {
		return nil, errors.Join(err, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("%s is on a disk, and secrets are kept there", o.Memory)})
	}
	var err error
	if r.boot, err = bus.BootID(); err != nil {
		return nil, err
	}
	if r.users, err = account.NewUsers(cmp.Or(o.Users, filepath.Join(o.Dir, "users"))); err != nil {
		return nil, err
	}
	r.can = run.Capabilities{Lacks: lacks("/"), DefaultUser: "a user of its instance, that has nothing else"}
	for _, feature := range []run.Feature{run.Images, run.OwnNetwork, run.Devices} {
		r.can.Lacks[feature] = "the runtime Systemd gives tasks the files, the network and the devices of the host"
	}
	return r, nil
}

// plain reports whether a text means itself wherever systemd reads it.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("./_-", rune(c)) {
			return false
		}
	}
	return true
}

// inMemory reports whether what is in a directory is on no disk.
func inMemory(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, disk.Fault("look at", dir, err)
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC, nil
}

// Capabilities says what this runtime can do here.
func (r *Runtime) Capabilities() run.Capabilities {
	return run.Capabilities{Lacks: maps.Clone(r.can.Lacks), DefaultUser: r.can.DefaultUser}
}

// alone waits until nothing else is done with an attempt, and keeps it so until release is called.
func (r *Runtime) alone(ctx context.Context, id run.ID) (release func(), err error) {
	for {
		r.mu.Lock()
		other, taken := r.busy[id]
		if !taken {
			mine := make(chan struct{})
			r.busy[id] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.busy, id)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, reason.Ended("wait for what is done with "+id.String(), ctx.Err())
		}
	}
}

// Start starts an attempt as a unit.
func (r *Runtime) Start(ctx context.Context, t run.Task) (run.Status, error) {
	if err := t.Valid(); err != nil {
		return run.Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	release, err := r.alone(ctx, t.ID)
	if err != nil {
		return run.Status{}, err
	}
	defer func() {
		release()
		r.poke(t.ID) // Run looks at it, whatever came of it, and follows it no longer where it is not there
	}()
	s, there, err := r.look(ctx, t.ID)
	if err != nil || there && s.Phase != run.Starting {
		return s, err
	}
	var as account.Account
	if !there {
		if as, err = r.fit(&t); err != nil {
			return run.Status{}, err
		}
	}
	if err := r.follow(ctx, t.ID); err != nil {
		return run.Status{}, err
	}
	changes, err := r.bus.Follow(ctx)
	if err != nil {
		return run.Status{}, err
	}
	defer changes.End()
	if err := changes.Add(ctx, unitOf(t.ID)); err != nil {
		return run.Status{}, err
	}
	if there {
		return r.await(ctx, t.ID, changes, nil)
	}
	return r.launch(ctx, &t, &as, changes)
}

// fit returns whom a task runs as, or why it cannot run here.
func (r *Runtime) fit(t *run.Task) (account.Account, error) {
	if err := r.can.Refuse(t); err != nil {
		return account.Account{}, err
	}
	if why := r.unfit(t); why != "" {
		return account.Account{}, &reason.Error{Code: reason.TaskRefused, Doing: "run " + t.ID.String(), Cause: errors.New(why)}
	}
	for _, m := range t.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return account.Account{}, &reason.Error{Code: reason.TaskNotStarted, Doing: "run " + t.ID.String(), Cause: err}
		}
	}
	if t.User == "" {
		return account.Account{}, nil // given when it is sure that it is needed
	}
	as, err := account.Find(t.User)
	if err != nil {
		return as, &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("run %s as %q", t.ID, t.User), Cause: err}
	}
	return as, nil
}

// launch makes the unit.
func (r *Runtime) launch(ctx context.Context, t *run.Task, as *account.Account, changes *bus.Follower) (run.Status, error) {
	fail := func(err error) (run.Status, error) {
		_ = r.discard(t.ID) // what was put there for nothing; Remove tries again
		if reason.Of(err).Code == reason.OperationTimeout && ctx.Err() != nil {
			return run.Status{}, reason.Ended("start "+t.ID.String(), ctx.Err())
		}
		return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: "start " + t.ID.String(), Cause: err}
	}
	word, err := r.prepare(t, as)
	if err != nil {
		return fail(err)
	}
	defer func() {
		_ = word.Close()
		_ = os.Remove(r.tree.in(t.ID, wordFile)) // it went with the rest where it has ended
	}()
	if t.Until != 0 { // before the task, which nothing would end otherwise where this agent stands still from now on
		if _, err := r.bus.StartTransient(ctx, guardOf(t.ID), r.guarding(t.ID)); err != nil {
			return fail(err)
		}
	}
	made, err := r.bus.StartTransient(ctx, unitOf(t.ID), r.settings(t))
	switch {
	case reason.Is(err, reason.OperationTimeout) || reason.Is(err, reason.BusDisconnected):
		return run.Status{}, err // it may be there, and need what is in memory
	case err != nil:
		return fail(err)
	case !made: // systemd is not done with another one
		return r.await(ctx, t.ID, changes, nil)
	}
	return r.await(ctx, t.ID, changes, word)
}

// prepare puts into memory what the unit needs, and opens the pipe for the word.
func (r *Runtime) prepare(t *run.Task, as *account.Account) (*os.File, error) {
	if err := r.tree.renew(t.ID); err != nil {
		return nil, err
	}
	if t.User == "" { // after the directory, which keeps the user of the instance
		uid, err := r.users.Of(t.ID.Instance)
		if err != nil {
			return nil, err
		}
		as.UID, as.GID = uid, uid
	}
	for i, f := range t.Files {
		name := r.tree.file(t.ID, i)
		if err := errors.Join(write(name, f.Content, fileMode), os.Chown(name, int(as.UID), int(as.GID)), os.Chmod(name, fs.FileMode(f.Mode&0o777))); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(&order{Boot: r.boot, Command: bytesOf(t.Command), Env: bytesOf(t.Env), Dir: t.Dir, As: *as, Log: t.Log.OrDefault()})
	if err != nil {
		return nil, err
	}
	if err := write(r.tree.in(t.ID, orderFile), text, fileMode); err != nil {
		return nil, err
	}
	if err := r.tree.limit(t.ID, t.Until); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(r.tree.in(t.ID, wordFile), fileMode); err != nil {
		return nil, os.NewSyscallError("mkfifo", err)
	}
	return os.OpenFile(r.tree.in(t.ID, wordFile), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// await waits until an attempt is no longer starting, and where there is a pipe for the word until its program was executed.
func (r *Runtime) await(ctx context.Context, id run.ID, changes *bus.Follower, word *os.File) (run.Status, error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		if word != nil {
			_ = word.SetReadDeadline(time.Unix(1, 0)) // long ago: it ends the wait below, and fails on a closed file only
		}
		all.Wait()
	}()
	news := make(chan error, 1)
	all.Go(func() {
		for {
			_, err := changes.Next(ctx)
			select {
			case news <- err:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	words := make(chan bool, 1) // whether the program was executed
	if word != nil {
		all.Go(func() { words <- silent(word) })
	}
	executed := word == nil
	for {
		s, there, err := r.look(ctx, id)
		switch {
		case err != nil:
			return run.Status{}, err
		case !there:
			return run.Status{}, &reason.Error{Code: reason.TaskNotStarted, Doing: "start " + id.String(), Cause: errors.New("it is gone again")}
		case s.Phase == run.Ended || s.Phase == run.Running && executed:
			return s, nil
		}
		select {
		case err := <-news:
			if err != nil && ctx.Err() == nil {
				return run.Status{}, err
			}
		case executed = <-words:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return run.Status{}, reason.Ended("start "+id.String(), ctx.Err())
		}
	}
}

// silent waits until the pipe was opened and closed at the other end, and reports whether nothing was said.
func silent(word *os.File) bool {
	conn, err := word.SyscallConn()
	if err != nil {
		return false
	}
	said := false
	err = conn.Read(func(fd uintptr) bool {
		var text [64]byte
		for { // until there is nothing now: only what comes after that wakes it again
			n, err := unix.Read(int(fd), text[:])
			switch {
			case n > 0:
				said = true
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				return true
			default:
				// That is also what it is before the first one opens it: only this tells them apart.
				poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				_, err = unix.Poll(poll, 0)
				return err == nil && poll[0].Revents&unix.POLLHUP != 0
			}
		}
	})
	return err == nil && !said
}

// discard takes away what was put into memory for an attempt that is not there, and gives its user back.
func (r *Runtime) discard(id run.ID) error {
	if err := r.tree.clear(id); err != nil {
		return err
	}
	return r.users.Release(id.Instance, r.tree.hasAttempts)
}

// Stop sends a signal to the task's process.
func (r *Runtime) Stop(ctx context.Context, id run.ID, signal run.Signal) error {
	return r.signal(ctx, id, "stop", stopFile, func() error { return r.bus.Signal(ctx, unitOf(id), false, int(signal)) })
}

// Kill sends SIGKILL to the task's process. systemd ends all the rest of the unit then, and what that starts meanwhile; to signal everything
// from here would hit what notes the end, too.
func (r *Runtime) Kill(ctx context.Context, id run.ID) error {
	return r.signal(ctx, id, "kill", "", func() error {
		if err := r.tree.mark(id, killFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk.Fault("note", r.tree.in(id, killFile), err)
		}
		if err := r.bus.Signal(ctx, unitOf(id), false, int(unix.SIGKILL)); err != nil {
			return err
		}
		return r.bus.QueueStop(ctx, unitOf(id)) // for what was about to be started
	})
}

// Extend tells the guard of an attempt until when that may run, and starts it where there is none yet.
func (r *Runtime) Extend(ctx context.Context, id run.ID, until run.Moment) error {
	release, err := r.alone(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	s, there, err := r.look(ctx, id)
	switch {
	case err != nil || s.Phase == run.Ended:
		return err
	case !there:
		return run.Unknown("extend", id)
	}
	if err := r.tree.limit(id, until); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just ended
		}
		return disk.Fault("note", r.tree.in(id, untilFile), err)
	}
	if until == 0 {
		return nil
	}
	_, err = r.bus.StartTransient(ctx, guardOf(id), r.guarding(id))
	return err
}

// signal does something to an attempt that has not ended, once where there is a mark for it.
func (r *Runtime) signal(ctx context.Context, id run.ID, doing, mark string, do func() error) error {
	if mark != "" { // Kill waits for nobody
		release, err := r.alone(ctx, id)
		if err != nil {
			return err
		}
		defer release()
	}
	s, there, err := r.look(ctx, id)
	switch {
	case err != nil || s.Phase == run.Ended:
		return err
	case !there:
		return run.Unknown(doing, id)
	case mark != "" && r.tree.has(id, mark):
		return nil
	}
	if err := do(); err != nil {
		if reason.Is(err, reason.UnitNotFound) {
			return nil // it has just ended
		}
		return err
	}
	if mark == "" {
		return nil
	}
	// After it: who is killed in between sends it twice rather than not at all.
	if err := r.tree.mark(id, mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk.Fault("note", r.tree.in(id, mark), err)
	}
	return nil
}

// Remove forgets an attempt.
func (r *Runtime) Remove(ctx context.Context, id run.ID) error {
	if err := id.Valid(); err != nil {
		return err
	}
	release, err := r.alone(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	s, there, err := r.look(ctx, id)
	if err != nil {
		return err
	}
	if there {
		units, err := r.bus.Loaded(ctx, unitOf(id))
		if err != nil {
			return err
		}
		if s.Phase != run.Ended || s.Ending.Survived > 0 && len(units) > 0 {
			return &reason.Error{Code: reason.TaskBusy, Doing: "remove " + id.String(), Hint: "stop it first"}
		}
	}
	if err := r.tree.forget(id); err != nil {
		return err
	}
	return r.users.Release(id.Instance, r.tree.hasAttempts)
}

// Usage is what is in the cgroup of the unit.
func (r *Runtime) Usage(ctx context.Context, id run.ID) (run.Usage, error) {
	s, there, err := r.look(ctx, id)
	if err != nil {
		return run.Usage{}, err
	}
	if !there || s.Phase != run.Running {
		return run.Usage{}, run.Unknown("look at", id)
	}
	name, err := r.bus.ControlGroup(ctx, unitOf(id))
	if err != nil {
		return run.Usage{}, err
	}
	g := groupAt("/", name)
	if name == "" || g.members == "" {
		return run.Usage{}, run.Unknown("look at", id) // it has just ended
	}
	return g.usage(), nil
}

package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci/cni"
	"tako.dev/tako/internal/run/oci/image"
	"tako.dev/tako/internal/run/shim"
)

// Options of a Runtime.
type Options struct {
	// Dir is where attempts are kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Images is where images are unpacked: absolute, and of nobody else. It is made where it is missing.
	Images string
	// Shim starts a program that calls Serve and exits with what that returns.
	Shim []string
	// Users is where the users of instances are kept. Runtimes of one host share it. Default: DIR/users.
	Users string
	// Networks is where networks of instances are kept: absolute, and of nobody else. It is made where it is missing.
	Networks string
	// Runc is the program runc. Default: where PATH, /usr/sbin or /usr/bin has it, as soon as it is installed.
	Runc string
}

// Runtime is the runtime; see the package comment.
type Runtime struct {
	*shim.Shims
	images   *image.Store
	networks *cni.Networks
	idle     idle
	runc     string // empty: it is looked for
	can      run.Capabilities
}

var (
	_ run.Runtime   = (*Runtime)(nil)
	_ run.Networked = (*Runtime)(nil)
)

// New makes a Runtime. Close gives back what it holds; what it runs goes on. A host that has no runc, or an agent that is not root, makes
// one that lacks images, and so runs nothing.
func New(o Options) (*Runtime, error) {
	shims, err := shim.New(shim.Options{Dir: o.Dir, Program: o.Shim, Users: o.Users})
	if err != nil {
		return nil, err
	}
	r := &Runtime{Shims: shims, idle: newIdle(), runc: o.Runc, can: run.Capabilities{Lacks: maps.Clone(shims.Lacks()), DefaultUser: "whom the image names, or a user of its instance, that has nothing else"}}
	known := func(holder string) bool {
		id, err := run.ParseID(holder)
		return err == nil && shims.There(id)
	}
	if r.images, err = image.NewStore(image.Options{Dir: o.Images}, known); err != nil {
		return nil, errors.Join(err, shims.Close())
	}
	if r.networks, err = cni.New(cni.Options{Dir: o.Networks}); err != nil {
		return nil, errors.Join(err, shims.Close())
	}
	r.can.Lacks[run.AnyBytes] = "runc reads arguments and variables as UTF-8 only"
	return r, nil
}

// Unfit is, in words, why this host can run no containers now; empty: it can.
func Unfit() string { return unfit(find()) }

func unfit(runc string) string {
	switch {
	case os.Geteuid() != 0:
		return "the agent does not run as root"
	case runc == "":
		return "there is no runc on the host: install the package runc"
	}
	return ""
}

// program is runc; empty: it is not there yet.
func (r *Runtime) program() string { return cmp.Or(r.runc, find()) }

// find looks for runc. Services have no /usr/sbin in their PATH everywhere.
func find() string {
	for _, name := range []string{"runc", "/usr/sbin/runc", "/usr/bin/runc"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	return ""
}

// Capabilities says what this runtime can do here.
func (r *Runtime) Capabilities() run.Capabilities {
	can := run.Capabilities{Lacks: maps.Clone(r.can.Lacks), DefaultUser: r.can.DefaultUser}
	if why := unfit(r.program()); why != "" {
		can.Lacks[run.Images] = why
	}
	if why := r.networks.Lacks(); why != "" {
		can.Lacks[run.OwnNetwork] = why
	}
	return can
}

// Start unpacks the image where that is not there yet, makes the network of the instance where it is to have one, and starts an attempt in a
// container of its own.
func (r *Runtime) Start(ctx context.Context, t run.Task) (run.Status, error) {
	if err := t.Valid(); err != nil {
		return run.Status{}, err
	}
	if t.Image == "" {
		return run.Status{}, refused(&t, "it has no image, and the runtime OCI runs nothing else")
	}
	letGo := func() {}
	s, err := r.Shims.Start(ctx, t.ID, func() (o *shim.Order, err error) {
		if err := r.Capabilities().Refuse(&t); err != nil {
			return nil, err
		}
		var network string
		if t.OwnNetwork {
			if network, letGo, err = r.hold(ctx, &t); err != nil {
				return nil, err
			}
		}
		err = r.images.Take(ctx, t.Image, t.ID.String(), func(i image.Image) error {
			o, err = r.order(&t, i, network)
			return err
		})
		return o, err
	})
	letGo()
	if err != nil && !r.There(t.ID) {
		if kept := r.images.Forget(t.ID.String()); kept != nil {
			return s, errors.Join(err, kept)
		}
	}
	if err != nil && t.OwnNetwork {
		r.idle.add(t.ID.Instance)
	}
	return s, err
}

// Remove forgets an attempt, what it kept of images, and with the last one the network of its instance.
func (r *Runtime) Remove(ctx context.Context, id run.ID) error {
	if err := r.Shims.Remove(ctx, id); err != nil {
		return err
	}
	err := r.release(ctx, id.Instance)
	if err != nil {
		r.idle.add(id.Instance) // it is tried again
	}
	return errors.Join(r.images.Forget(id.String()), err)
}

// container is what only the shim of a container is told.
type container struct {
	Runc      string
	Image     string // its root
	Network   string `json:",omitempty"` // the file of its namespace; empty: the host's
	Writable  bool
	MakeDir   bool // the working directory is the image's: it is made where it is missing
	Processes int64
	Mounts    []run.Mount `json:",omitempty"`
	Files     []run.File  `json:",omitempty"`
	Devices   []device    `json:",omitempty"`
}

// order says what a shim is to run.
func (r *Runtime) order(t *run.Task, i image.Image, network string) (*shim.Order, error) {
	as, err := r.account(t, i)
	if err != nil {
		return nil, err
	}
	command := command(t, i.Config)
	if len(command) == 0 {
		return nil, refused(t, "neither it nor its image names a program")
	}
	c := container{
		Runc: r.program(), Image: i.Root, Network: network, Writable: t.Writable, MakeDir: t.Dir == "", Processes: t.Limits.Processes, Files: t.Files,
	}
	if c.Mounts, err = mounts(t); err != nil {
		return nil, err
	}
	for _, name := range t.Devices {
		d, err := lookAt(name)
		if err != nil {
			return nil, refused(t, err.Error())
		}
		c.Devices = append(c.Devices, d)
	}
	more, err := json.Marshal(c)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode a container", Cause: err}
	}
	limits := t.Limits
	if limits.Processes > 0 {
		limits.Processes = max(limits.Processes, startProcesses)
	}
	return &shim.Order{
		Command: shim.Bytes(command), Env: shim.Bytes(environment(t.Env, i.Config.Env)), WorkDir: directory(t.Dir, i.Config.WorkingDir),
		As: as, Limits: limits, Log: t.Log.OrDefault(), Until: t.Until, More: more,
	}, nil
}

func refused(t *run.Task, why string) error {
	return &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("run task %s of instance %s", t.ID.Task, t.ID.Instance), Cause: errors.New(why)}
}

// command is the task's, or the image's entry point; behind it the task's arguments, or those of the image where neither is given.
func command(t *run.Task, c image.Config) []string {
	switch {
	case len(t.Command) > 0:
		return slices.Concat(t.Command, t.Args)
	case len(t.Args) > 0:
		return slices.Concat(c.Entrypoint, t.Args)
	}
	return slices.Concat(c.Entrypoint, c.Cmd)
}

// pathDefault is where programs are looked for when nobody says it: as login(1) has it for root.
const pathDefault = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is that of the image, and over it that of the task.
func environment(task, image []string) (env []string) {
	names := map[string]bool{}
	for _, v := range task {
		name, _, _ := strings.Cut(v, "=")
		names[name] = true
	}
	for _, v := range append(slices.Clip(image), pathDefault) {
		if name, _, _ := strings.Cut(v, "="); !names[name] {
			names[name] = true
			env = append(env, v)
		}
	}
	return append(env, task...)
}

// directory is where a program starts.
func directory(task, image string) string {
	switch {
	case task != "":
		return path.Clean(task)
	case path.IsAbs(image):
		return path.Clean(image)
	}
	return "/"
}

// mounts are those of a task, what stands below another one behind that.
func mounts(t *run.Task) (list []run.Mount, err error) {
	seen := map[string]bool{}
	taken := func(p string) error {
		switch {
		case p == "/":
			return refused(t, "nothing can be shown in place of the root")
		case seen[p]:
			return refused(t, fmt.Sprintf("two things are to be at %s", p))
		case below(p, "/proc") || below(p, "/sys"):
			return refused(t, fmt.Sprintf("%s is the kernel's", p))
		}
		seen[p] = true
		return nil
	}
	for _, m := range t.Mounts {
		m.Path = path.Clean(m.Path)
		if err := taken(m.Path); err != nil {
			return nil, err
		}
		if _, err := os.Stat(m.Source); err != nil {
			return nil, &reason.Error{Code: reason.TaskNotStarted, Doing: "show " + m.Source + " to " + t.ID.String(), Cause: err}
		}
		list = append(list, m)
	}
	for _, f := range t.Files {
		if err := taken(path.Clean(f.Path)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b run.Mount) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// below reports whether a path is another one, or below it.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// device is one of the host that a container may use.
type device struct {
	Path         string
	Block        bool
	Major, Minor uint32
}

// lookAt is what a device is.
func lookAt(name string) (device, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return device{}, fmt.Errorf("the device %s: %w", name, err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return device{}, fmt.Errorf("%s is no device", name)
	}
	return device{Path: path.Clean(name), Block: kind == unix.S_IFBLK, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}, nil
}

package instances

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/cdi"
)

const (
	volumesName = "volumes"
	// volumeMode lets whoever a task runs as write into its volumes: nobody else comes through the directories above, which are the agent's.
	volumeMode = 0o777
)

// builder makes of a template what one attempt runs. It has what it needs, so that it may work beside the loop.
type builder struct {
	start    core.Start
	template *workload.Template
	task     *workload.Task
	sealed   *catalog.Template
	open     func(catalog.Sealed) ([]byte, error)
	images   *images
	state    string
	node     string
	address  string
	devices  func() cdi.Pieces
	others   func(namespace string, rotate uint64) []string // nil: nothing is known of others
	labels   map[string]string
}

func (k *Keeper) builder(f core.Start) *builder {
	in := &f.Record.Instance
	b := &builder{start: f, template: f.Template, sealed: k.secrets[catalog.TemplateLayer(in.Namespace, in.Revision)], open: k.opts.Open, images: k.images, state: k.opts.StateDir,
		node: k.wanted.Node, address: k.wanted.Offers.Address, labels: k.wanted.Labels, others: k.opts.Services, devices: k.devices}
	if at := slices.IndexFunc(f.Template.Tasks, func(t workload.Task) bool { return t.Name == f.ID.Task }); at >= 0 {
		b.task = &f.Template.Tasks[at]
	}
	return b
}

func (b *builder) refused(why string) error {
	return &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("run task %s of instance %s", b.start.ID.Task, b.start.Record.Instance.Name), Cause: errors.New(why)}
}

// build makes the task, and the directories that it mounts.
func (b *builder) build(can run.Capabilities) (run.Task, error) {
	if b.task == nil {
		return run.Task{}, b.refused("its template has no such task")
	}
	t := run.Task{ID: b.start.ID, Dir: b.task.WorkingDirectory, User: b.task.User, OwnNetwork: b.template.NetworkOrDefault() == workload.OwnNetwork, Until: b.start.Until}
	if t.OwnNetwork {
		t.Ports = b.ports()
	}
	var err error
	if b.task.Image == nil {
		t.Dir = cmp.Or(t.Dir, "/")
	} else {
		t.Writable = b.task.Writable
		if t.Image, err = b.images.path(b.task.Image, &catalog.Template{Namespace: b.start.Record.Instance.Namespace, Revision: b.start.Record.Instance.Revision}); err != nil {
			return t, err
		}
	}
	if t.Limits, err = b.limits(can); err != nil {
		return t, err
	}
	if t.Env, err = b.environment(); err != nil {
		return t, err
	}
	if t.Command, err = b.expand(b.task.Command, t.Env); err != nil {
		return t, err
	}
	if t.Args, err = b.expand(b.task.Args, t.Env); err != nil {
		return t, err
	}
	if b.task.Image == nil {
		t.Command, t.Args = slices.Concat(t.Command, t.Args), nil
	}
	if t.Files, err = b.files(); err != nil {
		return t, err
	}
	if t.Mounts, err = b.mounts(); err != nil {
		return t, err
	}
	devices, shown, env, err := b.hardware()
	if err != nil {
		return t, err
	}
	t.Devices, t.Mounts, t.Env = devices, append(t.Mounts, shown...), append(besides(env, t.Env), t.Env...)
	if err := can.Refuse(&t); err != nil {
		return t, err
	}
	return t, b.makeVolumes()
}

// limits are what the task may take. The bound of processes that nobody has declared is for runtimes that can set one.
func (b *builder) limits(can run.Capabilities) (l run.Limits, err error) {
	declared := &b.task.Resources.Limits
	if l.CPU, err = declared.CPU.Milli(); err == nil {
		l.Memory, err = declared.Memory.Value()
	}
	if err != nil {
		return l, b.refused("its limits cannot be read: " + err.Error())
	}
	if _, lacks := can.Lacks[run.LimitTasks]; declared.Processes != nil || !lacks {
		l.Processes = int64(declared.ProcessesOrDefault())
	}
	return l, nil
}

// environment is what the task finds in its environment: where others are, the numbers of its ports, and what is declared, in order.
func (b *builder) environment() ([]string, error) {
	values := map[string]string{}
	var list []string
	set := func(name, value string) {
		values[name] = value
		list = append(list, name+"="+value)
	}
	for _, p := range b.task.Ports {
		set(workload.PortVariable(p.Name), strconv.Itoa(int(listened(&p, b.start.Record.Ports))))
	}
	for i := range b.task.Env {
		e := &b.task.Env[i]
		var value string
		switch from := e.ValueFrom; {
		case from == nil:
			var unknown string
			value, unknown = workload.ExpandEnv(e.Value, func(name string) (string, bool) {
				v, ok := values[name]
				return v, ok
			})
			if unknown != "" {
				return nil, b.refused(fmt.Sprintf("variable %s takes $(%s), which is none above it", e.Name, unknown))
			}
		case from.Field != "":
			var ok bool
			if value, ok = b.field(from.Field); !ok {
				return nil, b.refused(fmt.Sprintf("variable %s takes %s, which is not known here", e.Name, from.Field))
			}
		default:
			secret, err := b.secret(e.Name, "")
			if err != nil {
				return nil, err
			}
			value = string(secret)
		}
		set(e.Name, value)
	}
	return append(b.services(func(name string) bool {
		_, has := values[name]
		return has
	}), list...), nil
}

// expand is words of a command, in which $(NAME) is a variable of the task's. What is none stays as it is, because shells have the same
// sign; and a Secret does not become an argument, which everybody on the host can read.
func (b *builder) expand(words, env []string) ([]string, error) {
	words, secrets, secret := slices.Clone(words), b.secretVariables(), ""
	for i := range words {
		words[i], _ = workload.ExpandEnv(words[i], func(name string) (string, bool) {
			if secrets[name] {
				secret = name
			}
			for _, is := range env {
				if value, found := strings.CutPrefix(is, name+"="); found {
					return value, true
				}
			}
			return "$(" + name + ")", true
		})
	}
	if secret != "" {
		return nil, b.refused("its command takes $(" + secret + "), which is of a Secret: arguments can be read by everybody on the host; let the program read the variable itself")
	}
	return words, nil
}

// secretVariables are the variables that have something of a Secret, also by way of others.
func (b *builder) secretVariables() map[string]bool {
	secrets := map[string]bool{}
	for i := range b.task.Env {
		e := &b.task.Env[i]
		secrets[e.Name] = e.ValueFrom != nil && e.ValueFrom.Secret != nil
		for name, is := range secrets {
			if is && strings.Contains(e.Value, "$("+name+")") {
				secrets[e.Name] = true
			}
		}
	}
	return secrets
}

// secret opens the value of a variable or the content of a file.
func (b *builder) secret(env, file string) ([]byte, error) {
	if b.sealed != nil {
		for i := range b.sealed.Secrets {
			if s := &b.sealed.Secrets[i]; s.Task == b.task.Name && s.Env == env && s.File == file {
				return b.open(s.Sealed)
			}
		}
	}
	return nil, &reason.Error{Code: reason.SecretKeyMissing, Doing: fmt.Sprintf("run task %s of instance %s", b.task.Name, b.start.Record.Instance.Name),
		Cause: fmt.Errorf("the value of %s has not come to this host", env+file)}
}

// field is what is known of the instance.
func (b *builder) field(name string) (string, bool) {
	in := &b.start.Record.Instance
	if key, ok := quoted(name, "node.labels"); ok {
		return b.labels[key], true
	}
	if port, ok := quoted(name, "ports"); ok {
		return b.port(port)
	}
	switch name {
	case "instance.name":
		return in.Name, true
	case "instance.index":
		return strconv.Itoa(in.Slot), true
	case "workload.name":
		return in.Workload, true
	case "workload.namespace":
		return in.Namespace, true
	case "node.name":
		return b.node, true
	case "node.address":
		return b.address, b.address != ""
	case "resources.cpu": // in whole processors, as programs count their threads
		milli, err := orElse(b.task.Resources.Limits.CPU.Milli, b.task.Resources.Requests.CPU.Milli)
		return strconv.FormatInt((milli+999)/1000, 10), err == nil
	case "resources.memory": // in bytes
		bytes, err := orElse(b.task.Resources.Limits.Memory.Value, b.task.Resources.Requests.Memory.Value)
		return strconv.FormatInt(bytes, 10), err == nil
	}
	return "", false
}

// ports lead ports of the host to those of the instance.
func (b *builder) ports() (list []run.PortMap) {
	for i := range b.template.Tasks {
		for _, p := range b.template.Tasks[i].Ports {
			list = append(list, run.PortMap{Protocol: p.ProtocolOrDefault(), Host: b.start.Record.Ports[p.Name], Own: listened(&p, b.start.Record.Ports)})
		}
	}
	return list
}

// port is the number that a port of the instance has, of whichever of its tasks it is.
func (b *builder) port(name string) (string, bool) {
	for i := range b.template.Tasks {
		for _, p := range b.template.Tasks[i].Ports {
			if p.Name == name {
				return strconv.Itoa(int(listened(&p, b.start.Record.Ports))), true
			}
		}
	}
	return "", false
}

func orElse(first, second func() (int64, error)) (int64, error) {
	if n, err := first(); err != nil || n != 0 {
		return n, err
	}
	return second()
}

// quoted takes the key out of name['key'].
func quoted(field, name string) (string, bool) {
	rest, ok := strings.CutPrefix(field, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

func (b *builder) files() ([]run.File, error) {
	var list []run.File
	for i := range b.task.Files {
		f := &b.task.Files[i]
		content := []byte(f.Content)
		if f.Secret != nil || f.ConfigMap != nil {
			var err error
			if content, err = b.secret("", f.Path); err != nil {
				return nil, err
			}
		}
		list = append(list, run.File{Path: f.Path, Content: content, Mode: f.ModeOrDefault()})
	}
	return list, nil
}

func (b *builder) mounts() ([]run.Mount, error) {
	var list []run.Mount
	for _, m := range b.task.Mounts {
		at := slices.IndexFunc(b.template.Volumes, func(v workload.Volume) bool { return v.Name == m.Volume })
		if at < 0 {
			return nil, b.refused("it mounts volume " + m.Volume + ", which its template does not have")
		}
		list = append(list, run.Mount{Source: b.volume(&b.template.Volumes[at]), Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return list, nil
}

// volume is where a volume is on the host.
func (b *builder) volume(v *workload.Volume) string {
	in := &b.start.Record.Instance
	switch {
	case v.Host != nil:
		return v.Host.Path
	case v.Data != nil:
		return filepath.Join(b.state, volumesName, in.Namespace, in.Workload, strconv.Itoa(in.Slot), v.Name)
	}
	return filepath.Join(b.state, "instances", in.UID, volumesName, v.Name)
}

// makeVolumes makes the directories that the task mounts, where they are missing.
func (b *builder) makeVolumes() error {
	for _, m := range b.task.Mounts {
		at := slices.IndexFunc(b.template.Volumes, func(v workload.Volume) bool { return v.Name == m.Volume })
		v := &b.template.Volumes[at]
		dir := b.volume(v)
		if v.Host != nil {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				return b.gone(v, fmt.Errorf("the host has no directory %s", disk.Shown(dir)), "make it, or mount what it is on")
			}
			continue
		}
		if err := b.makeVolume(v, dir); err != nil {
			return err
		}
		if v.Temporary != nil && v.Temporary.InMemory {
			if err := b.inMemory(dir, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeVolume makes the directory of a volume. What was there when this instance began is not made anew, empty: what is on it may be on a disk that is
// not mounted.
func (b *builder) makeVolume(v *workload.Volume, dir string) error {
	failed := func(err error) error {
		return &reason.Error{Code: reason.TaskNotStarted, Doing: "make volume " + v.Name, Cause: err}
	}
	note := filepath.Join(b.state, "instances", b.start.Record.Instance.UID, "has", v.Name)
	if v.Data != nil && exists(note) && !exists(dir) {
		return b.gone(v, fmt.Errorf("%s was there when the instance began, and is not any more", disk.Shown(dir)), "mount what it is on; or make an empty directory there, if what was in it is not needed")
	}
	if err := makeDirectory(dir); err != nil {
		return failed(err)
	}
	if v.Data == nil {
		return nil
	}
	if err := os.MkdirAll(note, 0o700); err != nil {
		return failed(err)
	}
	return nil
}

func (b *builder) gone(v *workload.Volume, why error, hint string) error {
	return &reason.Error{Code: reason.VolumeGone, Doing: fmt.Sprintf("mount volume %s of instance %s", v.Name, b.start.Record.Instance.Name), Cause: why, Hint: hint}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, os.ErrNotExist)
}

// makeDirectory makes a directory for whoever the task runs as, below directories that are the agent's alone.
func makeDirectory(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, volumeMode)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, volumeMode) // whatever the agent's umask is
}

// inMemory makes a volume a file system in memory, unless it is one already.
func (b *builder) inMemory(dir string, v *workload.Volume) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.TMPFS_MAGIC && mountPoint(dir) {
		return nil
	}
	size, err := v.Temporary.Size.Value()
	if err != nil {
		return b.refused("the size of volume " + v.Name + " cannot be read: " + err.Error())
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0777", size)); err != nil {
		return &reason.Error{Code: reason.RuntimeUnfit, Doing: "keep volume " + v.Name + " in memory", Cause: os.NewSyscallError("mount", err), Hint: "the agent must run as root, and be allowed to mount"}
	}
	return nil
}

// mountPoint reports whether something is mounted at a directory.
func mountPoint(dir string) bool {
	var here, above unix.Stat_t
	return unix.Stat(dir, &here) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}

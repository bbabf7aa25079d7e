package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci/image/imagetest"
	"tako.dev/tako/internal/run/runtest"
	"tako.dev/tako/internal/run/shim"
)

// rig is a runtime at work.
type rig struct {
	*testing.T
	dir  string
	rt   run.Runtime
	told chan run.Status
	next int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	needRunc(t)
	r := &rig{T: t, dir: filepath.Join(t.TempDir(), "run"), told: make(chan run.Status, 100)}
	rt, done, err := open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.rt = rt
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- rt.Run(ctx, func(s run.Status) { r.told <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-over, done()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, "tako-"+r.instance()+".")
	})
	return r
}

// groups are the cgroups of all hierarchies whose names begin with something.
func groups(t *testing.T, prefix string) (found []string) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(p string, e fs.DirEntry, _ error) error { // others come and go
		if e != nil && e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			found = append(found, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (r *rig) instance() string { return fmt.Sprintf("rig-%d", os.Getpid()) }

// task is a task that runs a line of shell in an image, with the host's /usr in it.
func (r *rig) task(layout, line string) run.Task {
	r.next++
	t := run.Task{
		ID:   run.ID{Instance: r.instance(), Task: strings.ToLower(strings.ReplaceAll(r.Name(), "/", "-")), Attempt: uint32(r.next)},
		User: "root", Command: []string{"/bin/sh", "-c", line},
	}
	dressed(layout)(&t, []string{"/usr"})
	return t
}

// run runs a task to its end.
func (r *rig) run(t run.Task) (run.Ending, string) {
	r.Helper()
	if _, err := r.rt.Start(r.Context(), t); err != nil {
		r.Fatalf("start: %v", err)
	}
	e := r.ended(t.ID)
	lines, err := r.rt.Tail(r.Context(), t.ID, run.TailMax)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.rt.Remove(r.Context(), t.ID); err != nil {
		r.Error(err)
	}
	return e, string(run.Text(lines, false)) + string(run.Text(lines, true))
}

func (r *rig) ended(id run.ID) run.Ending {
	r.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		select {
		case s := <-r.told:
			if s.ID == id && s.Phase == run.Ended {
				return s.Ending
			}
		case <-late.C:
			r.Fatalf("%s does not end", id)
		}
	}
}

// says runs a line of shell, which has to succeed, and compares what it prints.
func (r *rig) says(t run.Task, want string) {
	r.Helper()
	if e, out := r.run(t); !e.Well() || out != want {
		r.Errorf("%q says %q, want %q (%+v)", t.Command, out, want, e)
	}
}

// What the image says counts where the task says nothing.
func TestImageConfig(t *testing.T) {
	r := newRig(t)
	layout := small(t, map[string]any{
		"User": "web", "Env": []string{"A=image", "B=image", "PATH=/usr/bin:/bin"}, "WorkingDir": "/made/for/it", "Entrypoint": []string{"sh", "-c"},
		"Cmd": []string{"echo $A $B $C $HOME $(pwd) $(id -u):$(id -g):$(id -G)"},
	})
	task := r.task(layout, "")
	task.User, task.Command, task.Env = "", nil, []string{"B=task", "C=own"}
	r.says(task, "image task own / /made/for/it 1234:1235:1235 1300\n")
	args := r.task(layout, "")
	args.User, args.Command, args.Args, args.Dir = "65534:1300", nil, []string{"echo $0 $1 $(pwd) $(id -u):$(id -G)", "zero", "one"}, "/etc"
	r.says(args, "zero one /etc 65534:1300\n")
	whole := r.task(layout, "")
	whole.User, whole.Command, whole.Args = "77", []string{"id"}, []string{"-G"}
	r.says(whole, "77\n")
	own := r.task(small(t, nil), "id -u; id -G; echo $PATH")
	own.User = ""
	e, out := r.run(own)
	var uid, gid int
	if _, err := fmt.Sscan(out, &uid, &gid); !e.Well() || err != nil || uid < 66_000 || uid >= 99_000 || uid != gid || !strings.Contains(out, "/usr/sbin") {
		t.Errorf("who names no user runs as %q (%v)", out, err)
	}
}

// The root is read-only, or what is written goes with the attempt; the image stays as it is.
func TestRoot(t *testing.T) {
	r := newRig(t)
	layout := small(t, nil)
	const try = "for d in / /etc /tmp /run /dev/shm /usr /proc/sys/kernel; do (echo x >$d/written) 2>/dev/null && echo $d; done; rm -f /etc/group 2>/dev/null && echo removed; true"
	usr := r.task(layout, try)
	usr.Mounts[0].ReadOnly = true
	r.says(usr, "/tmp\n/run\n/dev/shm\n")
	own := r.task(layout, "echo x >/run/mine && echo x >/tmp/mine && ls -A /run")
	own.User, own.Mounts[0].ReadOnly = "", true
	r.says(own, "mine\n")
	for range 2 {
		writable := r.task(layout, "ls /written 2>/dev/null; "+try)
		writable.Writable, writable.Mounts[0].ReadOnly = true, true
		r.says(writable, "/\n/etc\n/tmp\n/run\n/dev/shm\nremoved\n")
	}
	r.says(r.task(layout, "test -e /etc/group && test ! -e /written && ls -A / | tr '\\n' ' '"), "bin dev etc lib lib64 proc run sbin sys tmp usr ")
}

// Directories and files of the task stand where it wants them, one below another, and nobody else sees them.
func TestMountsAndFiles(t *testing.T) {
	r := newRig(t)
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "there"), []byte("host"), 0o666); err != nil {
		t.Fatal(err)
	}
	secret := fmt.Sprintf("s3cr3t-%d", time.Now().UnixNano())
	task := r.task(small(t, nil), "cat /data/deep/there /etc/app/conf /data/deep/file; stat -c '%a %u' /etc/app/conf; echo x >/data/deep/new; (echo x >/data/ro/new) 2>/dev/null || echo refused; (echo x >/etc/app/conf) 2>/dev/null || echo refused; read x </data/deep/gate")
	task.User = "web"
	task.Mounts = append(task.Mounts, run.Mount{Source: shared, Path: "/data/ro", ReadOnly: true}, run.Mount{Source: shared, Path: "/data/deep"})
	task.Files = []run.File{{Path: "/etc/app/conf", Content: []byte(secret), Mode: 0o400}, {Path: "/data/deep/file", Content: []byte("\n"), Mode: 0o444}}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(shared, "gate"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.rt.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	gate, err := os.OpenFile(filepath.Join(shared, "gate"), os.O_WRONLY, 0) // as soon as it reads
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Dir(r.dir), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Base(p) == "log" {
			return err
		}
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), secret) {
			t.Errorf("the secret is in %s", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	nothingLeft(t, "tako-nothing")
	if err := gate.Close(); err != nil {
		t.Error(err)
	}
	if e := r.ended(task.ID); e.Cause != run.Exited {
		t.Errorf("%+v", e)
	}
	lines, err := r.rt.Tail(t.Context(), task.ID, run.TailMax)
	if want := "host" + secret + "\n400 1234\nrefused\nrefused\n"; err != nil || string(run.Text(lines, false)) != want {
		t.Errorf("it says %q, want %q (%v)", run.Text(lines, false), want, err)
	}
	if _, err := os.Stat(filepath.Join(shared, "new")); err != nil {
		t.Error(err)
	}
	if err := r.rt.Remove(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
}

// Root in a container is not root of the host.
func TestConfinement(t *testing.T) {
	r := newRig(t)
	for line, want := range map[string]string{
		"grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'":  "CapEff:00000000000005fb\nCapBnd:00000000000005fb\nNoNewPrivs:1\nSeccomp:2\n",
		"ls /proc/1/root/ /proc/1/cwd/ 2>/dev/null || echo refused":                       "refused\n",
		"cat /proc/1/environ 2>/dev/null || echo refused":                                 "refused\n",
		"kill -9 1; kill -TERM 1; sleep 0.1; kill -0 1 && echo lives":                     "lives\n",
		"mount -t tmpfs none /tmp 2>/dev/null || echo refused":                            "refused\n",
		"unshare --user true 2>/dev/null || echo refused":                                 "refused\n",
		"unshare --mount true 2>/dev/null || echo refused":                                "refused\n",
		"nsenter --target 1 --mount true 2>/dev/null || echo refused":                     "refused\n",
		"mknod /tmp/disk b 254 0 2>/dev/null || echo refused":                             "refused\n",
		"(echo 1 >/proc/sys/kernel/panic) 2>/dev/null || echo refused":                    "refused\n",
		"(echo b >/proc/sysrq-trigger) 2>/dev/null || echo refused":                       "refused\n",
		"head -c 1 /proc/kcore 2>/dev/null | wc -c":                                       "0\n",
		"mkdir /sys/fs/cgroup/memory/mine 2>/dev/null || echo refused":                    "refused\n",
		"ls /dev | grep -v core | tr '\\n' ' '":                                           "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero ",
		"ps -e -o comm= | sort -u | grep -v -e '^ps$' -e '^sh$' -e '^sort$' -e '^grep$'":  "exe\n",
		"(sleep 0.01 &); (sleep 0.01 &); sleep 0.2; ps -e -o stat= | grep Z || echo none": "none\n",
		"hostname":  r.instance() + "\n",
		"ulimit -n": "1024\n",
	} {
		r.says(r.task(small(t, nil), line), want)
	}
	user := r.task(small(t, nil), "grep -E '^(CapEff|CapBnd):' /proc/self/status | tr -d '\\t'; kill -0 1 2>/dev/null || echo refused")
	user.User = "nobody"
	r.says(user, "CapEff:0000000000000000\nCapBnd:0000000000000000\nrefused\n")
}

// Devices of the host are there for who declares them, and for nobody else.
func TestDevices(t *testing.T) {
	r := newRig(t)
	const name = "/dev/fuse"
	if _, err := os.Stat(name); err != nil {
		t.Skip("needs " + name)
	}
	task := r.task(small(t, nil), ": <>"+name+" && stat -c %u "+name)
	task.User, task.Devices = "web", []string{name}
	r.says(task, "1234\n")
	task = r.task(small(t, nil), "test -e "+name+" || echo absent")
	r.says(task, "absent\n")
	task.ID.Attempt, task.Devices = 100, []string{"/etc/passwd"}
	if _, err := r.rt.Start(t.Context(), task); !reason.Is(err, reason.TaskRefused) {
		t.Errorf("what is no device: %v", err)
	}
}

// Limits may be below what runc itself takes; what the kernel ends for want of memory is told, also where it is not the first process.
func TestLimits(t *testing.T) {
	r := newRig(t)
	for _, feature := range []run.Feature{run.LimitMemory, run.LimitTasks} {
		if why, lacks := r.rt.Capabilities().Lacks[feature]; lacks {
			t.Skip(why)
		}
	}
	limit := "/sys/fs/cgroup/pids/pids.max"
	if _, err := os.Stat("/sys/fs/cgroup/pids/tasks"); err != nil {
		limit = "/sys/fs/cgroup/pids.max"
	}
	one := r.task(small(t, nil), "while read n <"+limit+" && test $n != 1; do :; done; echo $n")
	one.Limits.Processes = 1
	r.says(one, "1\n")
	child := r.task(small(t, nil), "(head -c 200m /dev/zero | tail -c 200m) >/dev/null 2>&1; exit 3")
	child.Limits.Memory = 32 << 20
	if e, out := r.run(child); e.Cause != run.Exited || e.Code != 3 || !strings.Contains(e.Words, "memory") {
		t.Errorf("%+v %q", e, out)
	}
}

// What cannot be executed says so, whichever step it fails at.
func TestNotExecuted(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"no-format": "\x00\x01", "no-interpreter": "#!/no/such/shell\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"/mnt/no-format", "/mnt/no-interpreter", "/mnt/nothing", "nothing"} {
		task := r.task(small(t, nil), "")
		task.Command = []string{command}
		task.Mounts = append(task.Mounts, run.Mount{Source: dir, Path: "/mnt"})
		if e, _ := r.run(task); e.Cause != run.NotExecuted || e.Words == "" || e.Survived != 0 {
			t.Errorf("%s: %+v", command, e)
		}
	}
	for dir, there := range map[string]bool{"/etc": true, "/mnt": true, "/mnt/missing": false, "/etc/passwd": false, "/missing": false, "/tmp": true, "/tmp/missing": false, "/bin": true, "/bin/missing": false, "/usr/bin/..": true, "/dev/shm": true} {
		task := r.task(small(t, nil), "pwd -P >/dev/null")
		task.Dir, task.Mounts = dir, append(task.Mounts, run.Mount{Source: t.TempDir(), Path: "/mnt"})
		if e, out := r.run(task); e.Well() != there || !there && e.Cause != run.NotExecuted {
			t.Errorf("in %s: %+v %s", dir, e, out)
		}
	}
}

// What cannot be right is refused before anything is made.
func TestRefused(t *testing.T) {
	r := newRig(t)
	layout := small(t, nil)
	for name, row := range map[string]struct {
		change func(*run.Task)
		code   reason.Code
	}{
		"no image":        {func(t *run.Task) { t.Image = "" }, reason.TaskRefused},
		"no such image":   {func(t *run.Task) { t.Image = "/no/such/image" }, reason.TaskNotStarted},
		"no program":      {func(t *run.Task) { t.Command = nil }, reason.TaskRefused},
		"no user":         {func(t *run.Task) { t.User = "who" }, reason.TaskRefused},
		"no group":        {func(t *run.Task) { t.User = "web:who" }, reason.TaskRefused},
		"over the root":   {func(t *run.Task) { t.Mounts[0].Path = "/etc/.." }, reason.TaskRefused},
		"over proc":       {func(t *run.Task) { t.Mounts[0].Path = "/proc/sys" }, reason.TaskRefused},
		"file over sys":   {func(t *run.Task) { t.Files = []run.File{{Path: "/sys/x"}} }, reason.TaskRefused},
		"twice":           {func(t *run.Task) { t.Files = []run.File{{Path: "/usr/"}} }, reason.TaskRefused},
		"missing volume":  {func(t *run.Task) { t.Mounts[0].Source = "/no/such/volume" }, reason.TaskNotStarted},
		"ports":           {func(t *run.Task) { t.Ports = []run.PortMap{{Protocol: workload.TCP, Host: 1, Own: 1}} }, reason.TaskRefused},
		"no port":         {func(t *run.Task) { t.OwnNetwork, t.Ports = true, []run.PortMap{{Protocol: workload.TCP, Own: 1}} }, reason.TaskRefused},
		"bytes":           {func(t *run.Task) { t.Env = []string{"X=\xff"} }, reason.RuntimeUnfit},
		"no such device":  {func(t *run.Task) { t.Devices = []string{"/dev/no-such"} }, reason.TaskRefused},
		"a file as image": {func(t *run.Task) { t.Image = "/etc/passwd" }, reason.ImageRefused},
	} {
		task := r.task(layout, "true")
		row.change(&task)
		if _, err := r.rt.Start(t.Context(), task); !reason.Is(err, row.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := r.rt.List(t.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("there is %+v (%v)", list, err)
	}
	for _, dir := range []string{filepath.Join(r.dir, "attempts"), filepath.Join(r.dir, "users"), filepath.Join(r.dir+"-images", "uses")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left in %s (%v)", left, dir, err)
		}
	}
}

// An image in an archive runs as that in a directory.
func TestArchive(t *testing.T) {
	r := newRig(t)
	layout := small(t, nil)
	archive := filepath.Join(t.TempDir(), "image.tar")
	imagetest.Archive(t, layout, archive)
	r.says(r.task(archive, "cat /etc/group | wc -l"), "3\n")
}

// Who enters the mount namespace of a shim has runc look into its container.
func TestEntered(t *testing.T) {
	r := newRig(t)
	task := r.task(small(t, nil), "sleep 600")
	task.Env = []string{"MINE=yes"}
	s, err := r.rt.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(r.dir, "attempts", task.ID.String(), "box/state")
	cmd := exec.CommandContext(t.Context(), "nsenter", "--target", strconv.Itoa(runtest.Parent(t, s.PID)), "--mount",
		"runc", "--root", state, "exec", shim.GroupName(task.ID), "/bin/sh", "-c", "echo $MINE; grep Seccomp: /proc/self/status | tr -d '\\t'")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "yes\nSeccomp:2\n" {
		t.Errorf("it says %q (%v)", out, err)
	}
	if err := r.rt.Kill(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.ended(task.ID); e.Cause != run.Signaled || e.Signal != run.Signal(unix.SIGKILL) || e.Survived != 0 {
		t.Errorf("%+v", e)
	}
	if err := r.rt.Remove(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
}

// endsWithin is how long what was killed may take to end, in milliseconds, on a machine that is busy.
const endsWithin = 60_000

// A shim that is killed takes its container with it, whether or not there is an agent.
func TestShimTakesItsContainer(t *testing.T) {
	needRunc(t)
	rt, done, err := open(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t}
	task := r.task(small(t, nil), "(setsid sleep 600 &); trap '' TERM HUP INT; sleep 600")
	s, err := rt.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	shim, err := unix.PidfdOpen(runtest.Parent(t, s.PID), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(shim)
	if err := unix.PidfdSendSignal(shim, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{fd, shim} { // the last thread of the shim may end after what its first one has started
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, endsWithin)
		for errors.Is(err, unix.EINTR) { // of a child, or of the Go runtime
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, endsWithin)
		}
		if n != 1 {
			t.Errorf("it is not ended (%v)", err)
		}
	}
	list, err := rt.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Ending.Cause != run.Lost {
		t.Errorf("there is %+v (%v)", list, err)
	}
	if err := errors.Join(rt.Remove(t.Context(), task.ID), done()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, "tako-"+r.instance()+".")
}

package systemd_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/systemd"
	bus "tako.dev/tako/internal/systemd"
)

// patience bounds each wait. What is waited for takes milliseconds; the rest is for a busy machine.
const patience = time.Minute

// agent is a runtime at work, and what it tells.
type agent struct {
	*testing.T
	*systemd.Runtime
	told  chan run.Status
	ended chan error // of Run, in the end
	lost  chan error // of Run, when the bus was lost
	stop  context.CancelFunc
	close func() error
}

func newAgent(t *testing.T, dir, program string) *agent {
	t.Helper()
	b, err := bus.New(bus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := systemd.New(systemd.Options{Bus: b, Dir: dir, Memory: "/run/test/memory-" + filepath.Base(dir), Program: []string{program, serveArgument}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	connected := make(chan error, 1)
	go func() { connected <- b.Run(ctx, func(bus.Event) {}) }()
	a := &agent{T: t, Runtime: rt, told: make(chan run.Status, 1000), ended: make(chan error, 1), lost: make(chan error, 1000), close: func() error { cancel(); return <-connected }}
	told, stop := context.WithCancel(context.Background())
	a.stop = stop
	go func() { a.ended <- a.run(told) }()
	return a
}

// run is told, again and again when the bus is lost, as an agent does it.
func (a *agent) run(ctx context.Context) error {
	for {
		err := a.Runtime.Run(ctx, func(s run.Status) { a.told <- s })
		if !reason.Is(err, reason.BusDisconnected) {
			return err
		}
		a.lost <- err
		again := time.NewTimer(50 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// leave ends the agent; what it runs goes on.
func (a *agent) leave() {
	a.Helper()
	a.stop()
	if err := <-a.ended; err != nil {
		a.Errorf("run: %v", err)
	}
	if err := a.close(); err != nil {
		a.Errorf("close: %v", err)
	}
}

func task(line string) run.Task {
	id := run.ID{Instance: "i-" + strconv.FormatInt(time.Now().UnixNano(), 36), Task: "main", Attempt: 1}
	return run.Task{ID: id, Command: []string{"/bin/sh", "-c", line}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Dir: "/"}
}

func (a *agent) begin(t run.Task) run.Status {
	a.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := a.Start(ctx, t)
	if err != nil {
		a.Fatalf("start: %v", err)
	}
	return s
}

// over waits until an attempt is told to have ended, and has it forgotten.
func (a *agent) over(id run.ID) run.Status {
	a.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case s := <-a.told:
			if s.ID == id && s.Phase == run.Ended {
				if err := a.Remove(context.Background(), id); err != nil {
					a.Errorf("remove: %v", err)
				}
				return s
			}
		case <-late.C:
			list, err := a.List(context.Background())
			a.Fatalf("%s is not told to have ended; there is %+v (%v)", id, list, err)
		}
	}
}

func sh(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "timeout", "60", "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func own(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// copied is this program where it can be taken away.
func copied(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	sh(t, "cp "+own(t)+" "+name)
	return name
}

// gate makes a pipe that a task can wait at, and what lets it go on.
func gate(t *testing.T) (name string, open func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o666); err != nil {
		t.Fatal(err)
	}
	sh(t, "chmod 0666 "+name+"; chmod -R a+rx "+filepath.Dir(filepath.Dir(name)))
	return name, func() {
		if err := os.WriteFile(name, []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// More at once than the bus is asked for one by one: each is told of, while others start and end.
func TestInsideMany(t *testing.T) {
	needsHost(t)
	a := newAgent(t, filepath.Join(t.TempDir(), "run"), own(t))
	defer a.leave()
	const many = 70
	var all sync.WaitGroup
	want := map[run.ID]run.Ending{}
	for i := range many {
		one := task("exit " + strconv.Itoa(i))
		one.ID.Task = "t-" + strconv.Itoa(i)
		want[one.ID] = run.Ending{Cause: run.Exited, Code: i}
		if i%2 == 0 {
			one.Command[2] = "sleep 600"
			want[one.ID] = run.Ending{Cause: run.Signaled, Signal: run.Signal(syscall.SIGKILL)}
		}
		all.Go(func() {
			if _, err := a.Start(t.Context(), one); err != nil {
				t.Errorf("start %d: %v", i, err)
			}
			if err := a.Kill(t.Context(), one.ID); err != nil && i%2 == 0 {
				t.Errorf("kill %d: %v", i, err)
			}
		})
	}
	late := time.NewTimer(4 * patience)
	defer late.Stop()
	for len(want) > 0 {
		select {
		case s := <-a.told:
			e, ok := want[s.ID]
			if !ok || s.Phase != run.Ended {
				continue
			}
			// One that is about to exit may be killed first.
			if got := s.Ending; got.Cause != e.Cause && e.Cause == run.Signaled || got.Cause == run.Exited && got.Code != e.Code || got.Survived != 0 || got.Words != "" {
				t.Errorf("%s ended as %+v", s.ID, got)
			}
			delete(want, s.ID)
			if err := a.Remove(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		case <-late.C:
			list, err := a.List(t.Context())
			t.Fatalf("not told: %d; the bus was lost %d times; there is %+v (%v)", len(want), len(a.lost), list, err)
		}
	}
	all.Wait()
	if list, err := a.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("there is %+v (%v)", list, err)
	}
}

// What a task is given and may be secret can be read by no other user: not over the bus, not from a file, not of a process, not in the journal.
func TestInsideNobodyReadsSecrets(t *testing.T) {
	needsHost(t)
	a := newAgent(t, filepath.Join(t.TempDir(), "run"), own(t))
	defer a.leave()
	const inEnv, inFile = "s3cr3t-1n-3nv", "s3cr3t-1n-f1l3"
	one := task("sleep 600")
	one.Env = append(one.Env, "SECRET="+inEnv)
	one.Files = []run.File{{Path: "/tmp/secret", Content: []byte(inFile), Mode: 0o400}}
	s := a.begin(one)
	unit := "tako-" + one.ID.String() + ".service"
	look := strings.ReplaceAll(`systemctl show --all UNIT; systemctl cat UNIT; busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager Dump;
		cat /run/systemd/transient/UNIT; find / -xdev -newer /etc/hostname -type f -readable 2>/dev/null | grep -v ^/proc | xargs -r grep -l s3cr3t 2>/dev/null;
		find /run -type f -readable 2>/dev/null | xargs -r grep -l s3cr3t 2>/dev/null; cat /proc/PID/environ /proc/PID/cmdline; cat /proc/PID/root/tmp/secret; true`, "UNIT", unit)
	look = strings.ReplaceAll(look, "PID", strconv.Itoa(s.PID))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", look)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("ExecStart=")) {
		t.Errorf("an ordinary user looks: %v\n%.2000s", err, out)
	}
	// What it was asked to look for is in its own arguments, and not more of it.
	if bytes.Contains(out, []byte(inEnv)) || bytes.Contains(out, []byte(inFile)) {
		t.Errorf("an ordinary user can read a secret:\n%.4000s", out)
	}
	if journal := sh(t, "journalctl --no-pager --output=json --all"); strings.Contains(journal, inEnv) || strings.Contains(journal, inFile) {
		t.Error("a secret is in the journal")
	}
	if err := a.Kill(t.Context(), one.ID); err != nil {
		t.Error(err)
	}
	a.over(one.ID)
}

// A unit outlives that systemd reads its units anew and executes itself, and what it came to is told all the same.
func TestInsideSystemdReloads(t *testing.T) {
	needsHost(t)
	a := newAgent(t, filepath.Join(t.TempDir(), "run"), own(t))
	defer a.leave()
	name, open := gate(t)
	one := task("read x <" + name + "; exit 11")
	before := a.begin(one)
	for _, verb := range []string{"daemon-reload", "daemon-reexec"} {
		sh(t, "systemctl "+verb)
		list, err := a.List(t.Context())
		for late := time.Now().Add(patience); reason.Is(err, reason.BusDisconnected) && time.Now().Before(late); { // systemd is on its way to the bus
			list, err = a.List(t.Context())
		}
		if err != nil || len(list) != 1 || list[0] != before {
			t.Errorf("after %s there is %+v (%v)", verb, list, err)
		}
	}
	open()
	if s := a.over(one.ID); s.Ending.Cause != run.Exited || s.Ending.Code != 11 || s.Ending.Words != "" {
		t.Errorf("%+v", s)
	}
}

// When the bus is gone Run says so; the next one knows what has ended meanwhile.
func TestInsideBusLost(t *testing.T) {
	needsHost(t)
	a := newAgent(t, filepath.Join(t.TempDir(), "run"), own(t))
	defer a.leave()
	name, open := gate(t)
	one := task("read x <" + name + "; exit 12")
	a.begin(one)
	sh(t, "systemctl restart dbus.service")
	select {
	case <-a.lost:
	case <-time.After(patience):
		t.Fatal("Run goes on without a bus")
	}
	open()
	if s := a.over(one.ID); s.Ending.Cause != run.Exited || s.Ending.Code != 12 {
		t.Errorf("%+v", s)
	}
}

// Where the end of a task could not be written down the unit says how it was; and where that is taken away, it is lost, and said to be.
func TestInsideEndNotNoted(t *testing.T) {
	needsHost(t)
	dir := filepath.Join(t.TempDir(), "run")
	program := copied(t)
	a := newAgent(t, dir, program)
	var ids []run.ID
	var open []func()
	for _, line := range []string{"exit 7", "kill -SEGV $$", "exit 0", "exit 9"} {
		name, release := gate(t)
		one := task("read x <" + name + "; " + line)
		a.begin(one)
		ids, open = append(ids, one.ID), append(open, release)
	}
	a.leave()
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	for _, release := range open {
		release()
	}
	last := "tako-" + ids[3].String() + ".service"
	for _, id := range ids {
		sh(t, "until systemctl is-failed --quiet tako-"+id.String()+".service; do sleep 0.05; done")
	}
	sh(t, "systemctl reset-failed "+last)
	b := newAgent(t, dir, own(t))
	defer b.leave()
	for i, want := range []run.Ending{{Cause: run.Exited, Code: 7}, {Cause: run.Signaled, Signal: run.Signal(syscall.SIGSEGV)}, {Cause: run.Exited}, {Cause: run.Lost}} {
		s, err := b.Start(t.Context(), run.Task{ID: ids[i], Command: []string{"/bin/true"}, Dir: "/"})
		if e := s.Ending; err != nil || s.Phase != run.Ended || e.Cause != want.Cause || e.Code != want.Code || e.Signal != want.Signal || e.Words == "" || s.Started == 0 {
			t.Errorf("%d: %+v (%v)", i, s, err)
		}
		if err := b.Remove(t.Context(), ids[i]); err != nil {
			t.Error(err)
		}
	}
	if left := sh(t, "systemctl list-units --all --no-legend 'tako-*.main.*'"); left != "" {
		t.Errorf("units are left: %s", left)
	}
}

// A volume that disappears ends nothing, and hides no end.
func TestInsideVolumeDisappears(t *testing.T) {
	needsHost(t)
	a := newAgent(t, filepath.Join(t.TempDir(), "run"), own(t))
	defer a.leave()
	volume := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	name, open := gate(t)
	one := task("read x <" + name + "; exit 5")
	one.Mounts = []run.Mount{{Source: volume, Path: "/tmp/volume"}}
	a.begin(one)
	if err := os.Remove(volume); err != nil {
		t.Fatal(err)
	}
	open()
	if s := a.over(one.ID); s.Ending.Cause != run.Exited || s.Ending.Code != 5 {
		t.Errorf("%+v", s)
	}
	one.ID.Attempt++
	if _, err := a.Start(t.Context(), one); !reason.Is(err, reason.TaskNotStarted) {
		t.Errorf("without its volume: %v", err)
	}
}

// What cannot be as a unit is refused, and what systemd cannot prepare is said to be so.
func TestInsideRefused(t *testing.T) {
	needsHost(t)
	dir := filepath.Join(t.TempDir(), "run")
	a := newAgent(t, dir, own(t))
	defer a.leave()
	for what, spoil := range map[string]func(*run.Task){
		"few processes":  func(t *run.Task) { t.Limits.Processes = 3 },
		"over all":       func(t *run.Task) { t.Mounts = []run.Mount{{Source: "/usr", Path: "/"}} },
		"over the agent": func(t *run.Task) { t.Mounts = []run.Mount{{Source: "/usr", Path: "/root"}} },
		"over its files": func(t *run.Task) { t.Files = []run.File{{Path: dir}} },
		"a winding path": func(t *run.Task) { t.Files = []run.File{{Path: "/tmp/../etc/x"}} },
		"no text":        func(t *run.Task) { t.Files = []run.File{{Path: "/tmp/\xff"}} },
	} {
		one := task("true")
		spoil(&one)
		if _, err := a.Start(t.Context(), one); !reason.Is(err, reason.TaskRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	one := task("true")
	one.Files = []run.File{{Path: "/proc/no/such/place", Content: []byte("x"), Mode: 0o444}}
	s := a.begin(one)
	if s.Phase != run.Ended || s.Ending.Cause != run.NotExecuted || !strings.Contains(s.Ending.Words, "NAMESPACE") {
		t.Errorf("%+v", s)
	}
	a.over(one.ID)
}

// The two halves of what TestWorkloadCase62_UnitsOnHost does over a restart of the host, whose directory is on a disk.
const restartDir = "/var/lib/tako-restart"

func restartTask() run.Task {
	t := task("trap 'exit 4' TERM; echo ready >/var/lib/ready; while :; do sleep 0.05; done")
	t.ID = run.ID{Instance: "restarted", Task: "main", Attempt: 1}
	t.User = "root"
	return t
}

func TestBeforeRestart(t *testing.T) {
	needsHost(t)
	a := newAgent(t, restartDir, own(t))
	defer a.leave()
	one := restartTask()
	if s := a.begin(one); s.Phase != run.Running {
		t.Errorf("%+v", s)
	}
	sh(t, "until test -s /var/lib/ready; do sleep 0.05; done; rm /var/lib/ready")
}

func TestAfterOrderlyRestart(t *testing.T) {
	needsHost(t)
	a := newAgent(t, restartDir, own(t))
	defer a.leave()
	if s := a.over(restartTask().ID); s.Ending.Cause != run.Exited || s.Ending.Code != 4 {
		t.Errorf("it was told to end when the host was shut down, and ended as %+v", s)
	}
}

func TestAfterPowerCut(t *testing.T) {
	needsHost(t)
	a := newAgent(t, restartDir, own(t))
	defer a.leave()
	boot, err := bus.BootID()
	if err != nil {
		t.Fatal(err)
	}
	if s := a.over(restartTask().ID); s.Ending.Cause != run.Lost || s.Ending.Words != "the host was restarted" || s.Boot == boot {
		t.Errorf("it ended as %+v", s)
	}
}

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own warden, and the agent that is killed in TestAgentIsKilled.
const (
	wardenArgument = "mind-a-command"
	agentVariable  = "TAKO_COMMAND_TEST_AGENT"
)

func TestMain(m *testing.M) {
	switch {
	// Not os.Exit, before which the race detector sleeps for a second.
	case len(os.Args) == 2 && os.Args[1] == wardenArgument:
		syscall.Exit(Serve())
	case os.Getenv(agentVariable) != "":
		_, _ = testWarden().Run(context.Background(), shell(os.Getenv(agentVariable)))
		syscall.Exit(0)
	}
	os.Exit(m.Run())
}

// testWarden is a Warden whose commands have, where that is to be had, mounts and a host name of their own: what a seal that is broken
// lets through does not reach this machine.
func testWarden() *Warden {
	args := []string{"/proc/self/exe", wardenArgument}
	if self, err := os.Executable(); err == nil && os.Getuid() == 0 {
		args = []string{"/usr/bin/unshare", "--mount", "--uts", "--propagation", "private", self, wardenArgument}
	}
	return NewWarden(args)
}

// shell is an order for a line of shell.
func shell(line string) Order {
	return Order{Args: []string{"/bin/sh", "-c", line}, Dir: "/", Env: []string{"PATH=" + Path, "LC_ALL=C.UTF-8"}, Umask: 0o022, Limit: time.Minute}
}

func run(t *testing.T, o Order) Ending {
	t.Helper()
	end, err := testWarden().Run(t.Context(), o)
	if err != nil {
		t.Fatalf("run %q: %v\n%s", o.Args, err, end.Output.Text(nil))
	}
	return end
}

// eventually waits for a state.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for stop := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(stop) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// alive reports whether a process with this mark in its arguments is there.
func alive(t *testing.T, mark string) bool {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(mark)) && p != "/proc/"+strconv.Itoa(os.Getpid())+"/cmdline" {
			return true
		}
	}
	return false
}

// mark is a number of seconds to sleep that no other process has in its arguments.
func mark(n int) string { return fmt.Sprintf("86%d.%d", n, os.Getpid()) }

// stray starts a process that has left its session and lost its parent twice.
func stray(mark string) string {
	return "setsid sh -c 'setsid sleep " + mark + " & setsid sh -c \"sleep " + mark + " &\" &' & "
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	o := shell(`echo "$A:$PATH"; pwd; umask; echo err >&2; read x || echo no input; tty || :; cut -d' ' -f6 /proc/self/stat >sid; : >made; exit 7`)
	o.Dir, o.Umask, o.Env = dir, 0o027, []string{"A=b c", "PATH=" + Path}
	end := run(t, o)
	want := "b c:" + Path + "\n" + dir + "\n0027\nerr\nno input\nnot a tty"
	if got := end.Output.Text(nil); got != want || !end.Status.Exited() || end.Status.ExitStatus() != 7 || end.Stopped {
		t.Errorf("%+v, output %q, want %q", end, got, want)
	}
	st, err := os.Stat(dir + "/made")
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v %v, want mode 0640", st, err)
	}
	if end := run(t, shell("kill -9 $$")); !end.Status.Signaled() || end.Status.Signal() != syscall.SIGKILL {
		t.Errorf("killed by a signal: %v", end.Status)
	}
	if end := run(t, shell("env")); strings.Contains(end.Output.Text(nil), "GOGC") {
		t.Errorf("the environment of the warden is the command's: %s", end.Output.Text(nil))
	}
	if end := run(t, shell("ls /proc/self/fd")); end.Output.Text(nil) != "0\n1\n2\n3" { // 3 is that of ls
		t.Errorf("open files: %q", end.Output.Text(nil))
	}
	o = shell("")
	o.Args = []string{"true"}
	if end := run(t, o); end.Status != 0 {
		t.Errorf("a name alone: %v", end.Status)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, row := range []struct {
		args       []string
		dir, doing string
		errno      error
	}{
		{[]string{"no-such-program"}, "/", "find", nil},
		{[]string{dir + "/none"}, "/", "start", unix.ENOENT},
		{[]string{file("plain", "#!/bin/sh\n", 0o644)}, "/", "start", unix.EACCES},
		{[]string{file("words", "exit 0\n", 0o755)}, "/", "start", unix.ENOEXEC},
		{[]string{file("interpreter", "#!/none\n", 0o755)}, "/", "start", unix.ENOENT},
		{[]string{"true"}, dir + "/none", "enter", unix.ENOENT},
		{[]string{"true"}, file("file", "", 0o755), "enter", unix.ENOTDIR},
	} {
		o := shell("")
		o.Args, o.Dir = row.args, row.dir
		_, err := testWarden().Run(t.Context(), o)
		var start *StartError
		if !errors.As(err, &start) || start.Doing != row.doing || row.errno != nil && !errors.Is(err, row.errno) {
			t.Errorf("%q in %s: %v", row.args, row.dir, err)
		}
	}
	if _, err := NewWarden([]string{"/none"}).Run(t.Context(), shell("")); err == nil {
		t.Error("no error without a warden")
	}
	if _, err := NewWarden([]string{"/bin/true"}).Run(t.Context(), shell("")); err == nil {
		t.Error("no error of a warden that says nothing")
	}
}

func TestTimeoutEndsEverything(t *testing.T) {
	for name, tail := range map[string]string{"waits": "sleep " + mark(1), "ignores": "trap '' TERM; while :; do sleep 0.05 || :; done"} {
		o := shell(stray(mark(1)) + tail)
		o.Limit, o.Grace = 500*time.Millisecond, 200*time.Millisecond
		end := run(t, o)
		if !end.Stopped || alive(t, mark(1)) {
			t.Errorf("%s: %+v; something is left: %v", name, end, alive(t, mark(1)))
		}
	}
}

func TestTermComesFirst(t *testing.T) {
	o := shell("trap 'echo tidied up; exit 3' TERM; echo began; while :; do sleep 0.02; done")
	o.Limit, o.Grace = 2*time.Second, time.Minute // by then it has begun, also on a machine that is busy
	if end := run(t, o); !end.Stopped || !strings.HasSuffix(end.Output.Text(nil), "\ntidied up") {
		t.Errorf("%+v %q", end, end.Output.Text(nil))
	}
}

func TestContextEndsEverything(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := testWarden().Run(ctx, shell(stray(mark(2))+"sleep "+mark(2)))
		done <- err
	}()
	eventually(t, "it runs", func() bool { return alive(t, mark(2)) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || alive(t, mark(2)) {
		t.Errorf("%v; something is left: %v", err, alive(t, mark(2)))
	}
	if _, err := testWarden().Run(ctx, shell("exit 0")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that had ended: %v", err)
	}
}

// TestAgentIsKilled kills whoever has a command run: that ends with all that it has started.
func TestAgentIsKilled(t *testing.T) {
	agent := exec.CommandContext(t.Context(), "/proc/self/exe")
	agent.Env = append(os.Environ(), agentVariable+"="+stray(mark(3))+"sleep "+mark(3))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return alive(t, mark(3)) })
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	eventually(t, "nothing is left", func() bool { return !alive(t, mark(3)) })
}

// TestWhatIsLeftGoesOn: a command may start something that stays, which holds nobody up.
func TestWhatIsLeftGoesOn(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	end := run(t, shell("setsid sleep "+mark(4)+" & echo $! >"+pid+"; echo started"))
	if end.Output.Text(nil) != "started" || !alive(t, mark(4)) {
		t.Errorf("%q; it goes on: %v", end.Output.Text(nil), alive(t, mark(4)))
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 1 {
		_ = unix.Kill(n, unix.SIGKILL)
	}
	eventually(t, "it ended", func() bool { return !alive(t, mark(4)) })
}

func TestManyAtOnceAndMuchOutput(t *testing.T) {
	done := make(chan string)
	for i := range 20 {
		go func() {
			end, err := testWarden().Run(t.Context(), shell(fmt.Sprintf("echo begin %d; seq 1 200000; echo end %d; exit %d", i, i, i)))
			text := end.Output.Text(nil)
			if err != nil || end.Status.ExitStatus() != i || len(text) > textMax+100 ||
				!strings.HasPrefix(text, fmt.Sprintf("begin %d\n1\n", i)) || !strings.HasSuffix(text, fmt.Sprintf("200000\nend %d", i)) {
				done <- fmt.Sprint(err, end.Status, len(text), text)
				return
			}
			done <- ""
		}()
	}
	for range 20 {
		if fault := <-done; fault != "" {
			t.Error(fault)
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

func TestAs(t *testing.T) {
	needsRoot(t)
	o := shell("id -u; id -g; id -G; cat /etc/shadow >/dev/null 2>&1 || echo no")
	o.As = &Account{UID: 65534, GID: 65534, Groups: []uint32{65534, 12345}}
	end := run(t, o)
	if got, want := end.Output.Text(nil), "65534\n65534\n65534 12345\nno"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// sealed runs a line of shell sealed, or skips where that is not to be had.
func sealed(t *testing.T, o Order) Ending {
	t.Helper()
	needsRoot(t)
	o.Sealed, o.Whole = true, true
	end, err := testWarden().Run(t.Context(), o)
	var start *StartError
	if errors.As(err, &start) && start.Doing == doingSeal {
		t.Skipf("needs namespaces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestSealed(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "sealed") // not below /tmp, in whose place a sealed command has another
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, row := range []struct{ line, want string }{
		{"echo x >" + dir + "/made", "Read-only file system"},
		{"rm -r " + dir, "Read-only file system"},
		{"chmod 700 " + dir, "Read-only file system"},
		{"cat /proc/sys/kernel/hostname >/proc/sys/kernel/hostname", "Read-only file system"}, // what is there already
		{"mount -o remount,rw /", "permi"},
		{"umount /tmp", "superuser"},
		{"mknod /tmp/device b 8 0", "permi"},
	} {
		if end := sealed(t, shell("("+row.line+") 2>&1")); end.Status.ExitStatus() == 0 || !strings.Contains(end.Output.Text(nil), row.want) {
			t.Errorf("%s: %v %q", row.line, end.Status, end.Output.Text(nil))
		}
	}
	private := "/tmp/tako-sealed." + mark(5)
	for _, line := range []string{
		"echo x >" + private + " && cat " + private, "echo x >/dev/null", "test -r /etc/shadow", "grep -q NoNewPrivs:.1 /proc/self/status",
		"test -d " + "/proc/" + strconv.Itoa(os.Getpid()), "kill -0 " + strconv.Itoa(os.Getpid()), "test \"$(ls -A /tmp)\" = ''",
	} {
		if end := sealed(t, shell(line)); end.Status != 0 || end.WantedNetwork {
			t.Errorf("%s: %+v %q", line, end, end.Output.Text(nil))
		}
	}
	if _, err := os.Lstat(private); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was written to the private /tmp is in the host's: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestSealedNetworkIsNoticed(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	for _, family := range []string{"AF_INET, socket.SOCK_STREAM).connect(('127.0.0.1', 80))", "AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('9.9.9.9', 53))",
		"AF_INET6, socket.SOCK_STREAM).connect(('2001:db8::1', 80))", "AF_INET6, socket.SOCK_STREAM).connect(('::1', 80))"} {
		o := shell("")
		o.Args = []string{"python3", "-c", "import socket; socket.socket(socket." + family}
		if end := sealed(t, o); end.Status.ExitStatus() == 0 || !end.WantedNetwork {
			t.Errorf("%s: %+v %s", family, end, end.Output.Text(nil))
		}
	}
}

func TestSealedLeavesNothing(t *testing.T) {
	end := sealed(t, shell(stray(mark(6))+"sleep 0.2; exit 4"))
	if end.Status.ExitStatus() != 4 || end.Stopped || alive(t, mark(6)) {
		t.Errorf("%+v; something is left: %v", end, alive(t, mark(6)))
	}
}

func TestSealedAsSomebody(t *testing.T) {
	o := shell("id -u; test -r /etc/shadow || echo no")
	o.As = &Account{UID: 65534, GID: 65534}
	end := sealed(t, o)
	if got := end.Output.Text(nil); got != "65534\nno" {
		t.Errorf("got %q", got)
	}
}

func BenchmarkRun(b *testing.B) {
	o := shell("")
	o.Args = []string{"/bin/true"}
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, seal := range []bool{false, true} {
		o.Sealed = seal
		b.Run(map[bool]string{false: "minded", true: "sealed"}[seal], func(b *testing.B) {
			for b.Loop() {
				if _, err := NewWarden([]string{"/proc/self/exe", wardenArgument}).Run(b.Context(), o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package runtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/run"
)

// traced are the system calls at which an agent is killed: those that change something which somebody else can see, or wait for somebody.
// What is killed as it enters one of them has done all that comes before.
const traced = "open,openat,mkdir,mkdirat,write,pwrite64,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlinkat,fsync,clone,clone3,vfork,execve," +
	"memfd_create,pipe2,socket,connect,sendmsg,newfstatat,waitid,wait4,exit_group"

// KilledWhileItStarts kills an agent at the first, the second and so on to the last system call with which it starts a task, and has another
// one start the same attempt: there is one process, and nothing is left of it in the end.
func KilledWhileItStarts(t *testing.T, c *casetest.Case, s Subject) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	calls := startCalls(t, s)
	count, kills, begun := map[string]int{}, 0, false
	for _, name := range calls {
		count[name]++
		if begun = begun || name == ""; name == "" || !begun || s.Calls != nil && !slices.Contains(s.Calls, name) {
			continue
		}
		t.Run(fmt.Sprintf("%s %d", name, count[name]), func(t *testing.T) {
			if killedOnce(t, c.Sub(t), s, name, count[name]) {
				kills++
			}
		})
	}
	c.Check(kills > 5, "an agent was killed at %d of %d calls only", kills, len(calls))
}

// startCalls are the names of the calls of an agent's first thread; an empty one stands where the work begins.
func startCalls(t *testing.T, s Subject) (names []string) {
	t.Helper()
	b := newBench(t, s)
	log := filepath.Join(t.TempDir(), "log")
	task := b.shell("sleep 600")
	b.leave() // there is one agent at a time
	if out, err := b.agent(task, "-o", log, "-e", "trace="+traced); err != nil {
		t.Fatalf("agent: %v\n%s", err, out)
	}
	b.open()
	b.over(task.ID)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(line, "(")
		switch {
		case !ok:
		case strings.Contains(rest, marker):
			names = append(names, "")
		default:
			names = append(names, name)
		}
	}
	if !slices.Contains(names, "") {
		t.Fatalf("the agent did not begin:\n%s", text)
	}
	return names
}

// agent has an agent start a task, under strace with options.
func (b *bench) agent(task run.Task, options ...string) ([]byte, error) {
	b.Helper()
	text, err := json.Marshal(command{b.dir, task})
	if err != nil {
		b.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), "strace", append(append([]string{"-qq"}, options...), exe, agentWord, string(text))...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	return cmd.CombinedOutput()
}

// killedOnce kills an agent at the nth call of a name, and sees what the next one makes of what is left.
func killedOnce(t *testing.T, c *casetest.Case, s Subject, name string, nth int) bool {
	b := newBench(t, s)
	note := b.note()
	task := b.shell("echo x >>" + note + "; echo ready; sleep 600")
	b.leave()
	out, err := b.agent(task, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", name, nth))
	killed := false
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		killed = ok && status.Signaled() && status.Signal() == unix.SIGKILL
	}
	if !killed && err != nil {
		t.Errorf("agent: %v\n%s", err, out)
	}
	b.open()
	status := b.start(task)
	c.Check(status.Phase == run.Running, "the next agent starts it, and it is %+v", status)
	b.says(task.ID, "ready")
	list, err := b.rt.List(t.Context())
	c.NoError(err, "list")
	c.Check(len(list) == 1 && list[0] == status, "there is %+v", list)
	b.over(task.ID)
	c.Equal(lines(t, note), 1, "how often its program was executed")
	c.Equal(b.marked(), []string(nil), "processes that are left")
	return killed
}

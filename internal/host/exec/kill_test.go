package exec

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// helped is a command that shows where it is: it adds a line when it begins and one when it ends.
func (g *ground) helped() declare.Exec {
	return declare.Exec{Command: sh("echo began >>" + g.path("began") + "; echo ended >>" + g.path("ended"))}
}

func (g *ground) helper(options ...string) *exec.Cmd {
	g.Helper()
	text, err := json.Marshal(order{State: g.path("state"), Exec: g.helped()})
	if err != nil {
		g.Fatal(err)
	}
	args := append(append([]string{"-f", "-qq", "-o", "/dev/null"}, options...), "/proc/self/exe")
	cmd := exec.CommandContext(g.Context(), "strace", args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(text))
	return cmd
}

// TestAgentCase13_KillAtAnySystemCall kills the agent, the warden or the command at each system call of those that matter, and converges
// afterwards: a run that is recorded has ended, one that is not is repeated, and nothing is left in the way.
func TestAgentCase13_KillAtAnySystemCall(t *testing.T) {
	c := casetest.Start(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	// One that is killed again and again at its start tells no more.
	killsMax := 6
	if testing.Short() {
		killsMax = 3
	}
	kills := 0
	for _, call := range []string{"openat", "openat2", "mkdirat", "write", "fsync", "renameat2", "fchmod", "execve", "clone", "clone3", "wait4", "poll,epoll_pwait", "waitid", "exit_group"} {
		for n, clean := 1, 0; clean < 2 && n < killsMax; n++ {
			g := newGround(t)
			_, err := g.helper("-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n)).CombinedOutput()
			at := fmt.Sprintf("killed at %s %d", call, n)
			if err == nil {
				clean++
			} else {
				kills++
			}
			c.Check(g.runs("ended") <= g.runs("began"), "%s: ended %d times, began %d times", at, g.runs("ended"), g.runs("began"))
			r := g.bind(g.helped())
			r.record = g.recordOf("helped")
			rec, readErr := r.last()
			c.NoError(readErr, "read the record")
			c.Check(rec.Digest == "" || g.runs("ended") == 1, "%s: recorded, and ended %d times", at, g.runs("ended"))
			c.Check(err != nil || rec.Digest != "", "%s: the helper is content, and nothing is recorded", at)
			c.NoError(g.Sweep(t.Context(), nil), "sweep")
			if entries, err := os.ReadDir(g.path("state/exec")); err == nil {
				for _, e := range entries {
					c.Check(!strings.HasPrefix(e.Name(), ".tako."), "%s: %s is left after the sweep", at, e.Name())
				}
			}
			before := g.runs("ended")
			g.made(r)
			again := 1
			if rec.Digest != "" {
				again = 0
			}
			c.Check(g.runs("ended") == before+again, "%s: %d runs more, want %d", at, g.runs("ended")-before, again)
			plan := g.look(r)
			c.Check(plan.Empty(), "%s: converged, and there is something to do: %+v", at, plan)
		}
	}
	c.Check(kills > 10, "killed at %d places only", kills)
	t.Logf("killed at %d places", kills)
}

// TestKilledAgentLeavesNothing kills the agent while its command runs.
func TestKilledAgentLeavesNothing(t *testing.T) {
	g := newGround(t)
	e := declare.Exec{Command: sh("echo run >>" + g.path("runs") + "; " + stray(sleepFor(6)) + "test -e " + g.path("go") + " || sleep " + sleepFor(6))}
	text, err := json.Marshal(order{State: g.path("state"), Exec: e})
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.CommandContext(t.Context(), "/proc/self/exe")
	agent.Env = append(os.Environ(), helperVariable+"="+string(text))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return sleeping(t, sleepFor(6)) == 4 })
	if err := unix.Kill(agent.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	eventually(t, "nothing is left", func() bool { return sleeping(t, sleepFor(6)) == 0 })
	r := g.bind(e)
	r.record = g.recordOf("helped")
	if p := g.look(r); p.Empty() {
		t.Error("it is not due again")
	}
}

// TestOldRunIsWaitedFor: what an agent that was killed has left behind may take its time to end. Nothing runs beside it.
func TestOldRunIsWaitedFor(t *testing.T) {
	g := newGround(t)
	e := declare.Exec{Command: sh("trap '' TERM; mkdir " + g.path("alone") + " || { echo twice >>" + g.path("twice") + "; exit 1; }\n" +
		"echo run >>" + g.path("runs") + "; n=0; until test -e " + g.path("go") + " || test $n -gt 600; do sleep 0.05; n=$((n+1)); done; rmdir " + g.path("alone"))}
	text, err := json.Marshal(order{State: g.path("state"), Exec: e})
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.CommandContext(t.Context(), "/proc/self/exe")
	agent.Env = append(os.Environ(), helperVariable+"="+string(text))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return g.runs("runs") == 1 })
	if err := unix.Kill(agent.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	r := g.bind(e)
	r.record = g.recordOf("helped")
	_, res := g.converge(r)
	if fault := reason.Of(res.Err); fault == nil || fault.Code != reason.CommandBusy || fault.After == 0 || res.Changed {
		t.Fatalf("beside the last run: %+v", res)
	}
	g.write("go", "")
	eventually(t, "the last run has ended, and it runs again", func() bool {
		_, res := g.converge(r)
		return res.Err == nil
	})
	if g.text("twice") != "" || g.runs("runs") != 2 {
		t.Errorf("%d runs; beside one another: %q", g.runs("runs"), g.text("twice"))
	}
}

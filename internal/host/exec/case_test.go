package exec

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func TestAgentCase28_Exec(t *testing.T) {
	c := casetest.Start(t)
	for name, run := range map[string]func(*casetest.Case, *ground){
		"once": caseOnce, "creates": caseCreates, "refreshOnly": caseRefreshOnly, "timeout": caseTimeout, "stopped": caseStopped,
		"cwd, environment, umask": caseSurroundings, "exit codes": caseExitCodes, "tries": caseTries, "user": caseUser, "guards": caseGuards,
	} {
		t.Run(name, func(t *testing.T) { run(c.Sub(t), newGround(t)) })
	}
}

// caseOnce: a command without a condition runs once for its content, also over a restart of the agent.
func caseOnce(c *casetest.Case, g *ground) {
	e := declare.Exec{Command: sh("echo run >>" + g.path("runs"))}
	c.Check(g.made(g.bind(e)).Changed, "the first run changes nothing")
	p := g.look(g.bind(e))
	c.Check(p.Empty(), "after it has run: %+v", p)
	g.restart()
	p = g.look(g.bind(e))
	c.Check(p.Empty(), "after a restart: %+v", p)
	e.Timeout, e.ExitCodes = "1m", []int{0, 1}
	p = g.look(g.bind(e))
	c.Check(p.Empty(), "with another timeout: %+v", p)
	c.Equal(g.runs("runs"), 1, "runs")
	e.Environment = map[string]string{"A": "b"}
	c.Equal(g.look(g.bind(e)).Changes, []host.Change{{Field: "command", From: "run with other content", To: "run: " + commandText(e.Command)}}, "planned for another environment")
	g.made(g.bind(e))
	c.Equal(g.runs("runs"), 2, "runs after a change")
	e.Command = sh("exit 1")
	for range 2 { // what has failed is due again
		_, res := g.converge(g.bind(declare.Exec{Command: e.Command}))
		c.Check(reason.Is(res.Err, reason.CommandFailed) && !res.Changed, "a failure: %+v", res)
	}
}

func caseCreates(c *casetest.Case, g *ground) {
	e := declare.Exec{Command: sh("echo run >>" + g.path("runs") + "; : >" + g.path("made")), Creates: g.path("made")}
	r := g.bind(e)
	c.Equal(r.Watches(), []host.Watch{{Kind: host.WatchPath, Name: g.path("made")}}, "watches")
	g.made(r)
	p := g.look(r)
	c.Check(p.Empty(), "after it has run: %+v", p)
	g.remove("made")
	g.made(r)
	c.Equal(g.runs("runs"), 2, "runs after what it creates was removed")
	g.remove("made")
	if err := os.Symlink("nowhere", g.path("made")); err != nil {
		g.Fatal(err)
	}
	p = g.look(r)
	c.Check(p.Empty(), "with a link that leads nowhere there: %+v", p)

	_, res := g.converge(g.bind(declare.Exec{Command: []string{"true"}, Creates: g.path("never")}))
	c.Check(reason.Is(res.Err, reason.CommandNoEffect), "a command that does not make what it creates: %+v", res)
	// It failed, but nobody would have it run again, so whom it notifies must hear of it now.
	_, res = g.converge(g.bind(declare.Exec{Command: sh(": >" + g.path("half") + "; exit 1"), Creates: g.path("half")}))
	c.Check(reason.Is(res.Err, reason.CommandFailed) && res.Changed, "a command that failed and has made what it creates: %+v", res)
}

func caseRefreshOnly(c *casetest.Case, g *ground) {
	r := g.bind(declare.Exec{Command: sh("test ! -e " + g.path("broken") + " && echo run >>" + g.path("runs")), RefreshOnly: true})
	p := g.look(r)
	c.Check(p.Empty(), "not notified: %+v", p)
	since := now(g)
	g.write("broken", "")
	_, err := g.Refresh(g.Context(), r, since)
	c.Check(reason.Is(err, reason.CommandFailed), "a refresh that fails: %v", err)
	g.remove("broken")
	done, err := g.Refresh(g.Context(), r, since)
	c.Check(err == nil && done.Acted, "a refresh: %+v, %v", done, err)
	g.restart() // before the notification was cleared
	done, err = g.Refresh(g.Context(), r, since)
	c.Check(err == nil && !done.Acted, "a refresh that a run since then has satisfied: %+v, %v", done, err)
	done, err = g.Refresh(g.Context(), r, now(g))
	c.Check(err == nil && done.Acted, "a later notification: %+v, %v", done, err)
	done, err = g.Refresh(g.Context(), r, host.Stamp{Boot: "an earlier boot", USec: 1 << 60})
	c.Check(err == nil && !done.Acted, "a notification of an earlier boot, and a run since: %+v, %v", done, err)
	c.Equal(g.runs("runs"), 2, "runs")

	r = g.bind(declare.Exec{Command: sh("echo run >>" + g.path("guarded")), RefreshOnly: true, OnlyIf: []string{"false"}})
	done, err = g.Refresh(g.Context(), r, now(g))
	c.Check(err == nil && !done.Acted && g.runs("guarded") == 0, "a refresh that a guard keeps back: %+v, %v", done, err)

	// One that has just run because it is new serves whoever notified it before that.
	since = now(g)
	r = g.bind(declare.Exec{Command: sh("echo run >>" + g.path("both"))})
	g.made(r)
	done, err = g.Refresh(g.Context(), r, since)
	c.Check(err == nil && !done.Acted && g.runs("both") == 1, "new and notified: %+v, %v, %d runs", done, err, g.runs("both"))
	done, err = g.Refresh(g.Context(), r, now(g))
	c.Check(err == nil && done.Acted && g.runs("both") == 2, "notified later: %+v, %v, %d runs", done, err, g.runs("both"))
}

// sleepFor is a number of seconds that no other process sleeps.
func sleepFor(n int) string { return fmt.Sprintf("87%d.%d", n, os.Getpid()) }

// stray starts processes of which one has left its group, and one its session and its parents.
func stray(seconds string) string {
	return "sleep " + seconds + " & setsid sh -c 'setsid sleep " + seconds + " & setsid sh -c \"sleep " + seconds + " &\" &' & "
}

// sleeping counts who sleeps for that long.
func sleeping(t testing.TB, seconds string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if b, err := os.ReadFile(p); err == nil && bytes.Equal(b, []byte("sleep\x00"+seconds+"\x00")) {
			n++
		}
	}
	return n
}

func caseTimeout(c *casetest.Case, g *ground) {
	e := declare.Exec{Command: sh("echo began; " + stray(sleepFor(1)) + "sleep " + sleepFor(1)), Timeout: "1s"}
	_, res := g.converge(g.bind(e))
	fault := reason.Of(res.Err)
	c.Check(reason.Is(res.Err, reason.OperationTimeout) && strings.HasPrefix(fault.Evidence, "began") && fault.Hint != "", "%+v, %q", res, fault.Evidence)
	c.Equal(sleeping(g, sleepFor(1)), 0, "processes that are left")
	_, res = g.converge(g.bind(declare.Exec{Command: []string{"true"}, OnlyIf: sh(stray(sleepFor(2)) + "exit 1")}))
	c.Check(res.Err == nil && !res.Changed, "a guard that leaves something: %+v", res)
	c.Equal(sleeping(g, sleepFor(2)), 0, "processes that a guard has left")
}

// caseStopped: an agent that ends ends its commands, which run again.
func caseStopped(c *casetest.Case, g *ground) {
	ctx, cancel := context.WithCancel(g.Context())
	r := g.bind(declare.Exec{Command: sh("echo run >>" + g.path("runs") + "; " + stray(sleepFor(3)) + "test -e " + g.path("go") + " || sleep " + sleepFor(3))})
	done := make(chan host.Result, 1)
	plan := g.look(r)
	go func() { done <- g.Apply(ctx, []host.Plan{plan})[0] }()
	eventually(g.T, "it runs", func() bool { return sleeping(g, sleepFor(3)) == 4 })
	cancel()
	res := <-done
	c.Check(reason.Is(res.Err, reason.Interrupted) && !res.Changed, "%+v", res)
	c.Equal(sleeping(g, sleepFor(3)), 0, "processes that are left")
	p := g.look(r)
	c.Check(!p.Empty(), "it is not due again")
}

func caseSurroundings(c *casetest.Case, g *ground) {
	g.Setenv("TAKO_LEAK", "yes")
	e := declare.Exec{Command: sh("{ pwd; umask; env | sort; tty; cat; } >" + g.path("out") + " 2>&1; : >" + g.path("made")),
		Directory: "/usr/share", Umask: "0027", Environment: map[string]string{"A": "b c=d", "HOME": "/elsewhere"}}
	g.made(g.bind(e))
	user := strings.TrimPrefix(g.text("out"), "/usr/share\n0027\n")
	for _, want := range []string{"A=b c=d\n", "HOME=/elsewhere\n", "LANG=C.UTF-8\n", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", "not a tty\n"} {
		c.Check(strings.Contains(user, want), "%q is missing in %q", want, g.text("out"))
	}
	c.Check(!strings.Contains(user, "TAKO_LEAK"), "the agent's environment is the command's: %q", user)
	st, err := os.Stat(g.path("made"))
	c.Check(err == nil && st.Mode().Perm() == 0o640, "what it makes: %v, %v", st, err)
	_, res := g.converge(g.bind(declare.Exec{Command: []string{"true"}, Directory: g.path("none")}))
	c.Check(reason.Is(res.Err, reason.CommandNotRun) && strings.Contains(res.Err.Error(), g.path("none")), "a directory that is not there: %v", res.Err)
}

func caseExitCodes(c *casetest.Case, g *ground) {
	for _, row := range []struct {
		exit  int
		codes []int
		good  bool
	}{{0, nil, true}, {3, nil, false}, {3, []int{0, 3}, true}, {0, []int{3}, false}, {255, []int{255}, true}} {
		e := declare.Exec{Command: sh(fmt.Sprintf("echo why >&2; exit %d", row.exit)), ExitCodes: row.codes}
		_, res := g.converge(g.bind(e))
		c.Check((res.Err == nil) == row.good, "exit status %d with exitCodes %v: %v", row.exit, row.codes, res.Err)
		if fault := reason.Of(res.Err); fault != nil {
			c.Check(fault.Evidence == "why" && strings.Contains(fault.Error(), "exit status "+strconv.Itoa(row.exit)), "%v: %q", fault, fault.Evidence)
		}
	}
	_, res := g.converge(g.bind(declare.Exec{Command: sh("kill -9 $$")}))
	c.Check(reason.Is(res.Err, reason.CommandFailed) && strings.Contains(res.Err.Error(), "SIGKILL"), "ended by a signal: %v", res.Err)
}

// caseTries: one that fails is run again at once, as often as is declared, unless nothing is left to do or the agent ends.
func caseTries(c *casetest.Case, g *ground) {
	fails := "echo run >>" + g.path("runs") + "; "
	third := fails + "test $(wc -l <" + g.path("runs") + ") -ge 3"
	_, res := g.converge(g.bind(declare.Exec{Command: sh(third), Tries: 2}))
	c.Check(reason.Is(res.Err, reason.CommandFailed) && !res.Changed && g.runs("runs") == 2, "two tries, and the third would succeed: %+v, %d runs", res, g.runs("runs"))
	g.remove("runs")
	g.made(g.bind(declare.Exec{Command: sh(third), Tries: 3}))
	c.Equal(g.runs("runs"), 3, "runs until one succeeds")

	g.remove("runs")
	_, res = g.converge(g.bind(declare.Exec{Command: sh(fails + ": >" + g.path("made") + "; exit 1"), Creates: g.path("made"), Tries: 3}))
	c.Check(reason.Is(res.Err, reason.CommandFailed) && res.Changed && g.runs("runs") == 1, "nothing is left to do after the first: %+v, %d runs", res, g.runs("runs"))

	g.remove("runs")
	done, err := g.Refresh(g.Context(), g.bind(declare.Exec{Command: sh(third), RefreshOnly: true, Tries: 3}), now(g))
	c.Check(err == nil && done.Acted && g.runs("runs") == 3, "notified: %+v, %v, %d runs", done, err, g.runs("runs"))

	g.remove("runs")
	ctx, cancel := context.WithCancel(g.Context())
	plan := g.look(g.bind(declare.Exec{Command: sh(fails + "exit 1"), Tries: declare.ExecTriesMax}))
	ended := make(chan host.Result, 1)
	go func() { ended <- g.Apply(ctx, []host.Plan{plan})[0] }()
	eventually(g.T, "it has run", func() bool { return g.runs("runs") > 0 })
	cancel()
	res = <-ended
	c.Check(res.Err != nil && g.runs("runs") < declare.ExecTriesMax, "the agent ends in a pause: %+v, %d runs", res, g.runs("runs"))
}

func caseUser(c *casetest.Case, g *ground) {
	_, res := g.converge(g.bind(declare.Exec{Command: []string{"true"}, User: "tako-nobody-has-this"}))
	unknown := reason.UnknownOwner
	c.Check(reason.Is(res.Err, unknown), "an unknown user: %v", res.Err)
	if os.Getuid() != 0 {
		_, res = g.converge(g.bind(declare.Exec{Command: []string{"true"}, User: "root"}))
		c.Check(reason.Is(res.Err, reason.OwnerNeedsRoot), "root: %v", res.Err)
		g.Skip("needs root")
	}
	out := g.write("out", "")
	if err := os.Chown(out, 65534, 65534); err != nil {
		g.Fatal(err)
	}
	for _, row := range []struct{ user, group, want string }{
		{"nobody", "", "nobody 65534 65534 65534"}, {"65534", "", "nobody 65534 65534 65534"}, {"nobody", "12", "nobody 65534 12 12"},
		{"", "", "root 0 0 0"}, {"54321", "54321", "54321 54321 54321 54321"},
	} {
		if err := os.Chmod(out, 0o666); err != nil {
			g.Fatal(err)
		}
		g.made(g.bind(declare.Exec{Command: sh("echo $USER $(id -u) $(id -g) $(id -G) >" + out), User: row.user, Group: row.group}))
		c.Equal(strings.TrimSpace(g.text("out")), row.want, "as "+row.user+":"+row.group)
	}
	_, res = g.converge(g.bind(declare.Exec{Command: []string{"true"}, User: "54321"}))
	c.Check(reason.Is(res.Err, unknown), "a number without a group that nobody has: %v", res.Err)
}

// caseGuards: what guards say, sealed and for real.
func caseGuards(c *casetest.Case, g *ground) {
	g.needsSeal()
	count := "echo run >>" + g.path("runs")
	for _, row := range []struct {
		name           string
		unless, onlyIf []string
		first          string // run, unknown
		runs           bool
		then           string // the plan after that: nothing, run, unknown
	}{
		{"unless succeeds", []string{"true"}, nil, "unknown", false, "nothing"},
		{"unless fails", []string{"false"}, nil, "run", true, "run"},
		{"onlyIf succeeds", nil, []string{"true"}, "run", true, "run"},
		{"onlyIf fails", nil, []string{"false"}, "unknown", false, "nothing"},
		{"both let it", []string{"false"}, []string{"true"}, "run", true, "run"},
		{"one does not", []string{"false"}, []string{"false"}, "unknown", false, "nothing"},
		{"wants to write", nil, sh("echo x >" + g.path("written")), "unknown", true, "unknown"},
		{"wants to write, and does not say so", nil, sh("{ echo x >" + g.path("written") + "; } 2>/dev/null"), "unknown", true, "unknown"},
		{"wants to write the other way round", sh("{ echo x >" + g.path("written") + "; } 2>/dev/null"), nil, "run", false, "unknown"},
	} {
		g.remove("runs")
		r := g.bind(declare.Exec{Command: sh(count), Unless: row.unless, OnlyIf: row.onlyIf})
		p, res := g.converge(r)
		c.Check(planned(p) == row.first && res.Err == nil, "%s: planned %s, want %s: %+v %+v", row.name, planned(p), row.first, p, res)
		c.Check((g.runs("runs") == 1) == row.runs && res.Changed == row.runs, "%s: ran %d times; %+v", row.name, g.runs("runs"), res)
		p = g.look(r)
		c.Check(planned(p) == row.then, "%s: then planned %s, want %s: %+v", row.name, planned(p), row.then, p)
		g.remove("written")
	}
	for words, guard := range map[string][]string{
		"unknown": sh("echo x >" + g.path("written")), // and says so
		"nothing": {"false"},
	} {
		p := g.Check(g.Context(), []host.Resource{g.bind(declare.Exec{Command: sh(count), OnlyIf: guard})}, host.Explain)[0]
		c.Check(planned(p) == words, "a preview of onlyIf %v is %s: %+v", guard, words, p)
	}
	began := time.Now()
	p := g.look(g.bind(declare.Exec{Command: sh(count), OnlyIf: []string{"/none"}}))
	c.Check(planned(p) == "unknown" && time.Since(began) < guardTime, "a guard that is not there: %+v", p)
	_, res := g.converge(g.bind(declare.Exec{Command: sh(count), OnlyIf: []string{"/none"}}))
	c.Check(reason.Is(res.Err, reason.CommandNotRun), "a guard that is not there, for real: %v", res.Err)
}

func planned(p host.Plan) string {
	switch {
	case p.Err != nil:
		return "error"
	case p.Unknown != "":
		return "unknown"
	case len(p.Changes) > 0:
		return "run"
	}
	return "nothing"
}

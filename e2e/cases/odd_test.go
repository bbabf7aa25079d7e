package cases_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// unsafeIn finds the first character of an output that changes a terminal or is no character; a newline is a character.
func unsafeIn(out string) string {
	for i, r := range out {
		switch {
		case r == '\n' || r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError:
		default:
			return fmt.Sprintf("%+q at %d in %q", r, i, out[max(0, i-20):min(len(out), i+20)])
		}
	}
	return ""
}

func TestAgentCase38_OddNamesThroughTheWholeAgent(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	odd := []string{
		"with\nnewline", "with\x1b[31mescape", "with\ttab", "-dash", "--root=x", ".hidden", "trailing.", " space ", "quote\"'`$(x)", "*", "..dots", "\u202eevil",
		"$(node.name)", "#", ": ", "%s%n", "{}", "a,b=c", strings.Repeat("n", 255), strings.Repeat("é", 127),
	}
	resources := []declare.Resource{directory("etc", "/etc"), directory("d", "/etc/d")}
	for i, name := range odd {
		resources = append(resources, file(fmt.Sprint("f", i), "/etc/"+name, fmt.Sprintln(i)), symlink(fmt.Sprint("l", i), "/etc/d/"+name, "../"+name))
	}
	s.declare(resources...)
	plan := s.run("converge", "-f", s.conf, "--diff")
	c.Equal(plan.code, 1, "exit code of the difference")
	c.Equal(unsafeIn(plan.stdout), "", "unsafe in a difference")
	r := s.watch()
	c.Equal(len(names(s, s.path("/etc"))), len(odd)+1, "entries made")
	for i, name := range odd {
		p := "/etc/" + name
		c.Equal(s.read(p), fmt.Sprintln(i), name)
		c.Equal(s.sight("/etc/d/"+name), "-> ../"+name, name)
		s.must(os.Remove(s.path(p)))
		s.eventually(c, name+" is repaired", p, fmt.Sprintln(i))
		for _, subject := range []string{p, fmt.Sprint("file/f", i)} {
			why := s.run("why", subject)
			c.Check(why.code == 0 && strings.Contains(why.stdout, fmt.Sprint("file/f", i)), "why %q: %v", subject, why)
			c.Equal(unsafeIn(why.stdout+why.stderr), "", fmt.Sprintf("unsafe in why %q", subject))
		}
		var out result
		c.Eventually(soon, fmt.Sprintf("the history of %q", p), func() (string, bool) { // what is told is written after what is done
			out = s.run("history", p)
			return fmt.Sprint(out), out.code == 0 && strings.Count(out.stdout, fmt.Sprint("file/f", i)) >= 2
		})
		c.Equal(unsafeIn(out.stdout), "", fmt.Sprintf("unsafe in the history of %q", p))
	}
	// Each has something in its way, so that status has to name it with a path.
	host.Stop(t, r.cmd.Process.Pid)
	for _, name := range odd {
		s.must(os.Remove(s.path("/etc/" + name)))
		s.must(os.Mkdir(s.path("/etc/"+name), 0o755))
	}
	r.signal(syscall.SIGCONT)
	r.until("all have something in the way", func(rep *agent.Report) bool { return rep.Counts[reason.Failed] == len(odd) })
	out := s.run("status")
	c.Check(out.code == 1 && strings.Count(out.stdout, reason.TypeInTheWay.String()) == len(odd), "status: %v", out)
	c.Equal(unsafeIn(out.stdout), "", "unsafe in status")
	c.Equal(unsafeIn(r.out.String()), "", "unsafe in what the agent printed")
	for i := range odd {
		c.Equal(unsafeIn(s.run("why", fmt.Sprint("f", i)).stdout), "", "unsafe in why of a failure")
	}
	var rep agent.Report
	c.NoError(json.Unmarshal([]byte(s.run("status", "--json").stdout), &rep), "status as JSON")
	claims := map[string]bool{}
	for _, res := range rep.Resources {
		claims[res.Claim] = true
	}
	for _, name := range odd {
		c.Check(claims["path:/etc/"+name], "status as JSON lacks %q", name)
	}
}

func TestAgentCase38_NamesThatCannotBe(t *testing.T) {
	c := casetest.Start(t)
	s := newSandbox(t)
	s.declare(file("long", "/"+strings.Repeat("n", 256), "x"))
	out := s.once()
	c.Check(out.code == 2 && strings.Contains(out.stderr, reason.InvalidValue.String()) && strings.Contains(out.stderr, "256 bytes"), "a name of 256 bytes: %v", out)
	// What is not UTF-8 cannot stand in YAML, and is not guessed.
	for _, text := range []string{"path: \"/not-utf8-\xff\"", "path: /not-utf8-\xff", `path: "/nul-\0"`} {
		before := tree(t, s.root)
		s.write(s.conf+"/site.yaml", header+"    - name: odd\n      file:\n        "+text+"\n")
		out := s.once()
		c.Equal(out.code, 2, fmt.Sprintf("exit code of %q", text))
		c.Equal(unsafeIn(out.stderr), "", "unsafe in the fault")
		c.Equal(tree(t, s.root), before, "the tree")
	}
}

package exec

import (
	"os"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// secret is the value of a variable that every command of the suite has, and prints.
const secret = "correct-horse-battery"

// conform runs the suite on commands that make the files one, two, ...; from says why each has something to do.
func conform(g *ground, execs map[string]declare.Exec, from map[string]string, disturb func(testing.TB)) {
	g.Helper()
	var names []string
	s := hosttest.Subject{Type: g.Type, Lasting: true, Secrets: []string{secret}, Disturb: disturb,
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir) },
		Observe: func(t testing.TB, i int) any {
			_, err := os.Lstat(g.path(names[i]))
			return err == nil
		},
		Difference: func(i int, before, after any) []host.Change {
			if before == after {
				return nil
			}
			return []host.Change{{Field: "command", From: from[names[i]], To: "run: " + commandText(execs[names[i]].Command)}}
		},
		Situations: []hosttest.Situation{{Name: "nothing there", Arrange: func(testing.TB) { g.remove(append(names, "state/exec")...) }}},
	}
	for name, e := range execs {
		names = append(names, name)
		e.Environment = map[string]string{"SECRET": secret}
		execs[name] = e
		s.Declared = append(s.Declared, declared(name, e))
	}
	hosttest.Run(g.T, s)
}

func make1(p string) []string { return sh("echo $SECRET; echo made >" + p) }

func TestConformance(t *testing.T) {
	g := newGround(t)
	conform(g, map[string]declare.Exec{
		"creates": {Command: make1(g.path("creates")), Creates: g.path("creates")},
		"once":    {Command: make1(g.path("once"))},
	}, map[string]string{"creates": g.path("creates") + " is not there", "once": "not run yet"}, nil)
	conform(g, map[string]declare.Exec{
		"creates": {Command: make1(g.path("creates")), Creates: g.path("creates")},
	}, map[string]string{"creates": g.path("creates") + " is not there"}, func(testing.TB) { g.write("creates", "somebody else's\n") })
}

func TestConformanceGuards(t *testing.T) {
	g := newGround(t)
	g.needsSeal()
	conform(g, map[string]declare.Exec{
		"unless": {Command: make1(g.path("unless")), Unless: []string{"test", "-e", g.path("unless")}},
		"onlyIf": {Command: make1(g.path("onlyIf")), OnlyIf: sh("echo $SECRET; ! test -e " + g.path("onlyIf"))},
		"all": {Command: make1(g.path("all")), Creates: g.path("all"), Unless: []string{"false"}, OnlyIf: []string{"true"},
			User: "root", Group: "root", Directory: "/usr", Umask: "0077", Timeout: "1m", ExitCodes: []int{0, 3}},
	}, map[string]string{"unless": "unless: exit status 1", "onlyIf": "onlyIf: exit status 0",
		"all": g.path("all") + " is not there, onlyIf: exit status 0"}, nil)
}

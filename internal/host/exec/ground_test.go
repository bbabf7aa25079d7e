package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// wardenArgument has the test binary be the warden of its own commands.
	wardenArgument = "mind-a-command"
	// helperVariable has it apply a command in a process of its own, which is killed somewhere.
	helperVariable = "TAKO_EXEC_TEST_HELPER"
)

func TestMain(m *testing.M) {
	switch {
	// Not os.Exit, before which the race detector sleeps for a second.
	case len(os.Args) == 2 && os.Args[1] == wardenArgument:
		syscall.Exit(command.Serve())
	case os.Getenv(helperVariable) != "":
		syscall.Exit(help(os.Getenv(helperVariable)))
	}
	os.Exit(m.Run())
}

// wardenArguments start a warden whose commands have, where that is to be had, mounts and a host name of their own: what a seal that is
// broken lets through does not reach this machine.
func wardenArguments() []string {
	if self, err := os.Executable(); err == nil && os.Getuid() == 0 {
		return []string{"/usr/bin/unshare", "--mount", "--uts", "--propagation", "private", self, wardenArgument}
	}
	return []string{"/proc/self/exe", wardenArgument}
}

// order is what a helper does.
type order struct {
	State string
	Exec  declare.Exec
}

// help checks and applies a command. It ends with 0 when that was done.
func help(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		fmt.Println(err)
		return 2
	}
	typ := New(Options{Root: root, StateDir: o.State, Warden: []string{"/proc/self/exe", wardenArgument}})
	res, err := typ.Bind(context.Background(), declared("helped", o.Exec))
	if err != nil {
		fmt.Println(err)
		return 2
	}
	p := typ.Check(context.Background(), []host.Resource{res}, host.Deep)[0]
	if p.Err == nil && !p.Empty() {
		p.Err = typ.Apply(context.Background(), []host.Plan{p})[0].Err
	}
	if p.Err != nil {
		fmt.Println(p.Err)
		return 1
	}
	return 0
}

// ground is a place to run commands in. It is not below /tmp, which guards do not see.
type ground struct {
	*testing.T
	*Type
	dir string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "exec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/state", 0o700); err != nil {
		t.Fatal(err)
	}
	g := &ground{T: t, dir: dir}
	g.restart()
	return g
}

// restart makes a Type that knows nothing, as that of an agent which has just started.
func (g *ground) restart() {
	g.Helper()
	root, err := disk.OpenRoot("/")
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = root.Close() })
	g.Type = New(Options{Root: root, StateDir: g.dir + "/state", Warden: wardenArguments()})
}

func (g *ground) path(name string) string { return filepath.Join(g.dir, name) }

func declared(name string, e declare.Exec) host.Declared {
	r := declare.Resource{Name: name, Exec: &e}
	return host.Declared{Title: "exec/" + name, Key: "exec:NodeConfig//test/" + name, Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

func (g *ground) bind(e declare.Exec) *resource {
	g.Helper()
	res, err := g.Bind(g.Context(), declared(g.Name(), e))
	if err != nil {
		g.Fatal(err)
	}
	return res.(*resource)
}

// recordOf is where the record of a command of that name is.
func (g *ground) recordOf(name string) string {
	return filepath.Join(g.records, nameOf("exec:NodeConfig//test/"+name))
}

func (g *ground) look(r *resource) host.Plan {
	return g.Check(g.Context(), []host.Resource{r}, host.Deep)[0]
}

// converge checks, and applies what there is to do.
func (g *ground) converge(r *resource) (host.Plan, host.Result) {
	p := g.look(r)
	if p.Err != nil || p.Empty() {
		return p, host.Result{Err: p.Err}
	}
	return p, g.Apply(g.Context(), []host.Plan{p})[0]
}

// made converges, which must work.
func (g *ground) made(r *resource) host.Result {
	g.Helper()
	p, res := g.converge(r)
	if res.Err != nil {
		e := reason.Of(res.Err)
		g.Fatalf("converge: %v; planned %+v\n%s", res.Err, p.Changes, e.Evidence)
	}
	return res
}

func (g *ground) text(name string) string {
	g.Helper()
	b, err := os.ReadFile(g.path(name))
	if err != nil && !os.IsNotExist(err) {
		g.Fatal(err)
	}
	return string(b)
}

// runs counts the lines of a file, to which each run of a command adds one.
func (g *ground) runs(name string) int { return strings.Count(g.text(name), "\n") }

func (g *ground) write(name, text string) string {
	g.Helper()
	if err := os.WriteFile(g.path(name), []byte(text), 0o644); err != nil {
		g.Fatal(err)
	}
	return g.path(name)
}

func (g *ground) remove(names ...string) {
	g.Helper()
	for _, name := range names {
		if err := os.RemoveAll(g.path(name)); err != nil {
			g.Fatal(err)
		}
	}
}

// sh is a command line of the shell.
func sh(line string) []string { return []string{"/bin/sh", "-c", line} }

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// needsSeal skips where a guard cannot be sealed.
func (g *ground) needsSeal() {
	g.Helper()
	needsRoot(g.T)
	if p := g.look(g.bind(declare.Exec{Command: []string{"true"}, Unless: []string{"false"}})); p.Unknown != "" {
		g.Skipf("needs namespaces: %s", p.Unknown)
	}
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

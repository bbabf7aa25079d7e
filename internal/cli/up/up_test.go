package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestClaim: a directory is one process's until that gives it back; who that is can be read.
func TestClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "up")
	release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid := owner(dir); pid != os.Getpid() {
		t.Errorf("it is process %d's, want %d", pid, os.Getpid())
	}
	_, err = claim(dir)
	if of := reason.Of(err); !reason.Is(err, reason.AnotherAgent) || !strings.Contains(of.Error(), fmt.Sprint(os.Getpid())) || !strings.Contains(of.Hint, dir) {
		t.Errorf("a second claim: %v", err)
	}
	if pid := owner(dir); pid != os.Getpid() {
		t.Errorf("after a claim that was refused it is process %d's", pid)
	}
	release()
	if pid := owner(dir); pid != 0 {
		t.Errorf("after the release it is process %d's", pid)
	}
	release, err = claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestClaimAfterKill: what a process that was killed has left keeps nobody out.
func TestClaimAfterKill(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, pidName), []byte("4194304999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(dir, false); err != nil {
		t.Errorf("stop what is not there: %v", err)
	}
	release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if pid := owner(dir); pid != os.Getpid() {
		t.Errorf("it is process %d's", pid)
	}
}

// TestOwner: what is no number is nobody.
func TestOwner(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{"": 0, "12\n": 12, "twelve\n": 0, "12 13\n": 0} {
		if err := os.WriteFile(filepath.Join(dir, pidName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid := owner(dir); pid != want {
			t.Errorf("%q is process %d, want %d", text, pid, want)
		}
	}
}

// TestDown: the process that has the directory is asked to end, and it is waited for.
func TestDown(t *testing.T) {
	dir := t.TempDir()
	release, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, syscall.SIGTERM) // it is this process
	defer signal.Stop(asked)
	go func() {
		defer close(done)
		<-asked
		release()
	}()
	if err := Down(dir, true); err != nil {
		t.Fatal(err)
	}
	<-done
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := Down(dir, true); err != nil {
		t.Errorf("what is gone is stopped: %v", err)
	}
}

// TestPurgeOfOthers: a directory that tako up has not made is left alone.
func TestPurgeOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(dir, true); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("purge of somebody else's: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := Down(dir, false); err != nil {
		t.Errorf("nothing runs there: %v", err)
	}
}

// TestPorts: two different ports that are free, the same at each start.
func TestPorts(t *testing.T) {
	dir := t.TempDir()
	first, err := portsOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.API == first.Transfer {
		t.Errorf("both listen on %s", first.API)
	}
	for _, at := range []string{first.API, first.Transfer} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		defer l.Close()
	}
	again, err := portsOf(dir) // they are taken now, by us
	if err != nil || again != first {
		t.Errorf("then they are %v (%v), want %v", again, err, first)
	}
	if err := os.WriteFile(filepath.Join(dir, "ports.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := portsOf(dir); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a torn file: %v", err)
	}
}

// TestApply: what was applied is waited for, and only that for which waiting has a meaning.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		name    string
		files   []string
		applied string
		want    [][]string
	}{
		{name: "nothing"},
		{name: "configs and others", files: []string{"a.yaml", "b"},
			applied: "namespace/prod\nnodeconfig.tako.dev/web\nclusternodeconfig.tako.dev/all\nconfigmap/nodeconfig\n",
			want: [][]string{
				{"apply", "-n", "qa", "-o", "name", "-f", "a.yaml", "-f", "b"},
				{"wait", "-n", "qa", "--timeout", "1m0s", "nodeconfig.tako.dev/web", "clusternodeconfig.tako.dev/all"},
			}},
		{name: "no configs", files: []string{"a.yaml"}, applied: "namespace/prod\n",
			want: [][]string{{"apply", "-n", "qa", "-o", "name", "-f", "a.yaml"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked [][]string
			o := Options{Files: c.files, Environment: "qa", Command: func(_ context.Context, kubeconfig string, args ...string) (string, error) {
				if kubeconfig != "admin" {
					t.Errorf("asked with %q", kubeconfig)
				}
				asked = append(asked, args)
				if args[0] == "apply" {
					return c.applied, nil
				}
				return "", nil
			}}
			if err := o.apply(t.Context(), "admin"); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(asked, c.want, slices.Equal) {
				t.Errorf("asked %q\nwant  %q", asked, c.want)
			}
		})
	}
}

// TestApplyRefused: what cannot be applied is not waited for.
func TestApplyRefused(t *testing.T) {
	refused := errors.New("refused")
	o := Options{Files: []string{"a.yaml"}, Command: func(_ context.Context, _ string, args ...string) (string, error) {
		if args[0] != "apply" {
			t.Errorf("asked %q", args)
		}
		return "", refused
	}}
	if err := o.apply(t.Context(), "admin"); !errors.Is(err, refused) {
		t.Errorf("it says %v", err)
	}
}

// TestJoinOnce: a host that has joined does not join again, and asks for no token.
func TestJoinOnce(t *testing.T) {
	o := Options{Dir: t.TempDir(), Agent: "/nowhere/tako-agent", Environment: "qa", Node: "one"}
	var asked []string
	o.Command = func(_ context.Context, _ string, args ...string) (string, error) {
		asked = args
		return "tako://127.0.0.1:1/sha256:0/tako_join_0\n", nil
	}
	if err := o.join(t.Context(), "admin"); !reason.Is(err, reason.AgentNotRunning) {
		t.Errorf("without a program: %v", err)
	} else if strings.Contains(err.Error(), "tako_join") {
		t.Errorf("the token is in what is said: %v", err)
	}
	if want := []string{"token", "create", "join", "--environment", "qa", "--name", "one", "--expires", "10m"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if err := os.MkdirAll(filepath.Join(o.root(), "var/lib/tako/identity"), 0o700); err != nil {
		t.Fatal(err)
	}
	asked = nil
	if err := o.join(t.Context(), "admin"); err != nil || asked != nil {
		t.Errorf("again: %v, asked %q", err, asked)
	}
}

// TestTell: what was made is shown, bounded, without the agent's own; the commands that are named are whole.
func TestTell(t *testing.T) {
	for _, c := range []struct {
		name     string
		files    int
		has, not []string
	}{
		{name: "nothing", has: []string{"nothing is declared yet", "rm a file below"}, not: []string{"  /var"}},
		{name: "some", files: 2, has: []string{"\n  /etc\n", "\n  /etc/file-00\n", "\n  /etc/file-01\n", "/host/etc/file-00; sleep 0.1; cat "}, not: []string{"more", "/var", "/run"}},
		{name: "many", files: 30, has: []string{"\n  /etc/file-18\n", "… and 11 more"}, not: []string{"file-19"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			o := Options{Dir: t.TempDir(), Node: "one", Out: &out}
			for _, dir := range []string{"var/lib/tako/state", "run/tako"} {
				if err := os.MkdirAll(filepath.Join(o.root(), dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for i := range c.files {
				path := filepath.Join(o.root(), "etc", fmt.Sprintf("file-%02d", i))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.tell("/kube/config", nil); err != nil {
				t.Fatal(err)
			}
			said := out.String()
			for _, want := range append(c.has, "node one as declared", "export KUBECONFIG=/kube/config\n", "history node/one", " down --purge --dir "+o.Dir) {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
			for _, not := range c.not {
				if strings.Contains(said, not) {
					t.Errorf("it says %q:\n%s", not, said)
				}
			}
		})
	}
}

// TestDefaults: a node is called as its machine, in lower case, as names of objects are.
func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if o.Environment != "default" || o.Node == "" || o.Node != strings.ToLower(o.Node) {
		t.Errorf("defaults are %q and %q", o.Environment, o.Node)
	}
	if o := (Options{Environment: "qa", Node: "Web"}).withDefaults(); o.Environment != "qa" || o.Node != "Web" {
		t.Errorf("what was said became %q and %q", o.Environment, o.Node)
	}
}

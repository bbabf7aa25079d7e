//go:build e2e

package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/e2e/server"
)

// stepTime bounds one command of a person, which takes a fraction of a second on an idle machine, or waits for hosts.
const stepTime = 5 * time.Minute

// person is somebody in a shell: with tako and kubectl, in a directory with copies of what is applied.
type person struct {
	dir    string
	env    []string
	server *server.Server
}

// newPerson starts a server of its own. A test whose person needs kubectl is skipped where there is none.
func newPerson(t *testing.T, needsKubectl bool) *person {
	t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil && needsKubectl {
		t.Skip("needs kubectl: it is in no Debian package; see kubernetes.io/docs/tasks/tools")
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"applyset": "testdata/applyset", "kustomize": "../../examples/kustomize"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	s := server.New(t, host.TakoBinary(t), filepath.Join(t.TempDir(), "data"))
	return &person{dir: dir, server: s, env: []string{
		"PATH=" + rig.Programs(t) + ":" + os.Getenv("PATH"), "HOME=" + dir, "KUBECONFIG=" + s.Kubeconfig(), "LC_ALL=C.UTF-8",
	}}
}

func (p *person) shell(ctx context.Context, script string) *exec.Cmd {
	// A pipe that fails in its first part is no success.
	c := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script)
	c.Dir, c.Env = p.dir, p.env
	c.WaitDelay = stepTime // a grandchild may hold the output open
	return c
}

// run runs a script to its end.
func (p *person) run(t *testing.T, script string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTime)
	defer cancel()
	var o, e strings.Builder
	c := p.shell(ctx, script)
	c.Stdout, c.Stderr = &o, &e
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", script, err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// step is what a person types, and gets to see.
type step struct {
	name string
	run  string // for bash
	exit int
	out  string // standard output, exactly, with HASH for what kustomize adds to names
	errs string // regular expression that standard error must match; "" is nothing at all
}

var hash = regexp.MustCompile(`\b(motd)-[2456789bcdfghkmt]{10}\b`)

// play plays steps one after the other; each builds on those before it.
func (p *person) play(t *testing.T, steps []step) {
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			out, errs, code := p.run(t, s.run)
			out = hash.ReplaceAllString(out, "$1-HASH")
			if want := strings.TrimPrefix(s.out, "\n"); code != s.exit || out != want {
				t.Errorf("$ %s\nexit %d, want %d\n%swant\n%s%s", s.run, code, s.exit, out, want, errs)
			}
			if s.errs == "" && errs != "" || !regexp.MustCompile("(?s)"+s.errs).MatchString(errs) {
				t.Errorf("$ %s\nsays on standard error\n%swant %q", s.run, errs, s.errs)
			}
		})
	}
}

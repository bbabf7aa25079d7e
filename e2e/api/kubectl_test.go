//go:build e2e

package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

const (
	// operationsMin is how many operations of kubectl must have worked.
	operationsMin = 80
	// operationTime bounds one of them.
	operationTime = time.Minute
)

// operation is what a person types, and what he must get to see.
type operation struct {
	name string
	run  string // for sh, in testdata/kubectl
	exit int
	out  string // regular expression that standard output must match; "" is any
	err  string // the same of standard error
	none string // regular expression that neither may match; "" is none
	wait bool   // tried again until it is as expected: what is asked for happens by itself
}

// TestKubectl drives the real kubectl. The operations of a group build on those before them.
func TestKubectl(t *testing.T) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("needs kubectl: it is in no Debian package; see kubernetes.io/docs/tasks/tools")
	}
	s := newServer(t)
	k := newKubectl(t, s)
	ran := 0
	for _, g := range operationGroups() {
		t.Run(g.name, func(t *testing.T) {
			for _, o := range g.operations {
				t.Run(o.name, func(t *testing.T) {
					k.try(t, o)
					if !t.Failed() {
						ran++
					}
				})
			}
		})
	}
	version, _, _ := command(t, k.shell(t.Context(), "kubectl version --client"))
	t.Logf("%s (%s): %d operations as expected", path, strings.SplitN(version, "\n", 2)[0], ran)
	if ran < operationsMin {
		t.Errorf("%d operations were as expected, and at least %d must be", ran, operationsMin)
	}
}

// kubectl is a person's shell.
type kubectl struct {
	dir string // the working directory, with a copy of testdata/kubectl
	env []string
}

func newKubectl(t *testing.T, s *server) *kubectl {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "kubectl"))); err != nil {
		t.Fatal(err)
	}
	return &kubectl{dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + t.TempDir(), "KUBECONFIG=" + s.kubeconfig(), "SERVER=" + s.url, "LC_ALL=C.UTF-8",
	}}
}

func (k *kubectl) shell(ctx context.Context, script string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", script)
	c.Dir, c.Env = k.dir, k.env
	c.WaitDelay = operationTime // a grandchild may hold the output open
	return c
}

// try does one operation, and checks what comes of it.
func (k *kubectl) try(t *testing.T, o operation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), operationTime)
	defer cancel()
	attempt := func() (string, bool) {
		stdout, stderr, code := command(t, k.shell(ctx, o.run))
		fault := o.fault(stdout, stderr, code)
		return fault + "\n$ " + o.run + "\n" + stdout + stderr, fault == ""
	}
	if o.wait {
		host.Eventually(t, settleTime, o.name, attempt)
		return
	}
	if state, ok := attempt(); !ok {
		t.Error(state)
	}
}

// fault says what is not as expected, "" when everything is.
func (o operation) fault(stdout, stderr string, code int) string {
	switch {
	case code != o.exit:
		return "exit code " + itoa(code) + ", want " + itoa(o.exit)
	case !regexp.MustCompile("(?s)" + o.out).MatchString(stdout):
		return "standard output does not match " + o.out
	case !regexp.MustCompile("(?s)" + o.err).MatchString(stderr):
		return "standard error does not match " + o.err
	case o.none != "" && regexp.MustCompile("(?s)"+o.none).MatchString(stdout+stderr):
		return "the output matches " + o.none
	}
	return ""
}

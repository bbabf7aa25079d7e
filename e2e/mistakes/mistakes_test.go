//go:build e2e

package mistakes

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
)

const (
	// documentsOfPresent are the documents whose words internal/present shows.
	documentsOfPresent = "../../internal/present/testdata/mistakes"
	// identicalMin is how many mistakes must have the same words everywhere. Issue 3 wants 60.
	identicalMin = 80
	// commandTime bounds one run of a program, which takes a fraction of a second on an idle machine.
	commandTime = time.Minute
)

// tools are the three programs that tell of mistakes, and the one server of which two of them ask.
type tools struct {
	kubectl, tako, agent string
	kubeconfig           string
	cache                string // kubectl's own
	root                 string // the agent's
}

// said is what a program has said, and how it ended.
type said struct {
	text string
	code int
}

// TestMistakesHaveTheSameWords makes every mistake with each of the three programs. What tako and the agent say is compared
// whole: words, place, excerpt and exit code. Of kubectl, which knows no lines, path, code, message and hint of each mistake.
func TestMistakesHaveTheSameWords(t *testing.T) {
	s := start(t)
	differ := differences()
	identical := 0
	files := documents(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want, differs := differ[name]
			delete(differ, name)
			ofAgent := s.run(t, s.agent, "converge", "-f", file, "--root", s.root)
			ofTako := s.run(t, s.tako, "apply", "-f", file, "--kubeconfig", s.kubeconfig)
			ofKubectl := s.run(t, s.kubectl, "apply", "-f", file, "--kubeconfig", s.kubeconfig, "--cache-dir", s.cache)
			if ofKubectl.code == 0 {
				s.run(t, s.kubectl, "delete", "-f", file, "--kubeconfig", s.kubeconfig, "--cache-dir", s.cache)
			}
			faults := mistakesIn(t, file)
			checkAgent(t, ofAgent, faults)
			checkTako(t, ofTako, ofAgent, want)
			checkKubectl(t, ofKubectl, faults, want)
			if !differs {
				identical++ // or the test has failed
			}
		})
	}
	for name := range differ {
		t.Errorf("no document %s", name)
	}
	t.Logf("%d mistakes, %d of them in identical words from kubectl, tako and tako-agent", len(files), identical)
	if !t.Failed() && identical < identicalMin {
		t.Errorf("%d mistakes are told in identical words, want at least %d", identical, identicalMin)
	}
}

func start(t *testing.T) *tools {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("needs kubectl 1.32: without it nothing is known of what its users are told")
	}
	s := &tools{kubectl: kubectl, tako: host.TakoBinary(t), agent: host.AgentBinary(t), cache: t.TempDir(), root: t.TempDir()}
	s.kubeconfig = server.Start(t, s.tako)
	return s
}

// run runs a program to its end.
func (s *tools) run(t *testing.T, program string, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return said{string(out), cmd.ProcessState.ExitCode()}
}

// documents returns the files with mistakes: those of present, and those of the table, written to a directory of the test.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(documentsOfPresent, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents in %s: %v", documentsOfPresent, err)
	}
	dir := t.TempDir()
	for _, m := range further() {
		kind := "NodeConfig"
		if m.cluster {
			kind = "ClusterNodeConfig"
		}
		file := filepath.Join(dir, m.name+".yaml")
		text := "apiVersion: tako.dev/v1alpha1\nkind: " + kind + "\nmetadata:\n  name: web\nspec:\n" + indented(m.spec)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// mistakesIn returns the mistakes of a document with their paths, as a host finds them.
func mistakesIn(t *testing.T, file string) []declare.Fault {
	t.Helper()
	read, err := declare.Load([]string{file})
	var faults declare.Faults
	if errors.As(err, &faults) {
		return faults
	}
	if err != nil {
		t.Fatal(err)
	}
	return orderMistakes(t, read)
}

// checkAgent sees that the agent refuses, and says each mistake.
func checkAgent(t *testing.T, agent said, faults []declare.Fault) {
	t.Helper()
	if agent.code == 0 || len(faults) == 0 {
		t.Fatalf("the agent exits with %d, and there are %d mistakes:\n%s", agent.code, len(faults), agent.text)
	}
	for _, f := range faults {
		if !strings.Contains(agent.text, "error["+f.Code.String()+"]: "+f.Message+"\n") || f.Hint != "" && !strings.Contains(agent.text, "help: "+f.Hint+"\n") {
			t.Errorf("the agent says\n%s\nwant %v", agent.text, f)
		}
	}
}

// checkTako sees that tako says what the agent says, or what is wanted instead.
func checkTako(t *testing.T, tako, agent said, want difference) {
	t.Helper()
	switch {
	case want.tako == "" && tako != agent:
		t.Errorf("tako exits with %d and says\n%s\nthe agent exits with %d and says\n%s", tako.code, tako.text, agent.code, agent.text)
	case want.tako != "" && tako == agent:
		t.Errorf("tako says the same as the agent: it is not to differ")
	case !strings.Contains(tako.text, want.tako):
		t.Errorf("tako says\n%s\nwant %q in it: %s", tako.text, want.tako, want.why)
	}
}

// checkKubectl sees that kubectl says each mistake, and nothing else, or what is wanted instead.
func checkKubectl(t *testing.T, kubectl said, faults []declare.Fault, want difference) {
	t.Helper()
	got, ours := linesOf(kubectl.text), linesFor(faults)
	switch same := slices.Equal(got, ours); {
	case want.kubectl == "" && !same:
		t.Errorf("kubectl says\n%s\nwant\n%s", kubectl.text, strings.Join(ours, "\n"))
	case want.kubectl != "" && same:
		t.Errorf("kubectl says the same as the agent: it is not to differ")
	case !strings.Contains(kubectl.text, want.kubectl):
		t.Errorf("kubectl says\n%s\nwant %q in it: %s", kubectl.text, want.kubectl, want.why)
	}
}

// linesFor is how kubectl shows mistakes that the server has found, sorted.
func linesFor(faults []declare.Fault) []string {
	var lines []string
	for _, f := range faults {
		line := f.Path + ": Invalid value: " + f.Code.String() + ": " + f.Message
		if f.Hint != "" {
			line += "; " + f.Hint
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

var invalid = regexp.MustCompile(`^The (?:(?:Cluster)?NodeConfig|Workload) "[^"]*" is invalid: `)

// linesOf are the mistakes that kubectl shows, sorted: one on the first line, or each on its own.
func linesOf(text string) []string {
	rest := invalid.ReplaceAllString(strings.TrimSpace(text), "")
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(rest), "\n") {
		lines = append(lines, strings.TrimPrefix(line, "* "))
	}
	slices.Sort(lines)
	return lines
}

package cases_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

const (
	// runTimeout bounds one command. The longest converges 100,000 resources.
	runTimeout = 5 * time.Minute
	// soon is within which a running agent does what it does at once; the rest is for a busy machine.
	soon = 5 * time.Minute
)

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// agentProgram is the path of the built agent. Short runs leave out what works with it.
func agentProgram(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the built agent, which -short leaves out")
	}
	return host.AgentBinary(t)
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

func needsTool(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s: %v", name, err)
	}
}

// sandbox is a directory that stands for / and is kept by an agent, with the declarations and the agent's state beside it.
type sandbox struct {
	testing.TB
	dir   string   // holds all that follows
	root  string   // stands for /
	conf  string   // the declarations
	state string   // the agent's
	front []string // runs the agent: strace or unshare with their options
	agent string   // its program
	user  uint32   // runs it, where that is not 0
	brief bool     // reports are without the resources that are as declared
}

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	program := agentProgram(t)
	dir := t.TempDir()
	s := &sandbox{TB: t, agent: program, dir: dir, root: filepath.Join(dir, "root"), conf: filepath.Join(dir, "conf"), state: filepath.Join(dir, "state")}
	for _, d := range []string{s.root, s.conf, s.state} {
		s.must(os.Mkdir(d, 0o755))
	}
	return s
}

func (s *sandbox) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// path is where something of the sandbox lies on this machine.
func (s *sandbox) path(p string) string { return filepath.Join(s.root, p) }

// declare makes resources the whole content of a declaration, at once.
func (s *sandbox) declare(resources ...declare.Resource) {
	s.Helper()
	s.declareAs("site", resources...)
}

// declareAs declares a config of that name in a file of its own.
func (s *sandbox) declareAs(name string, resources ...declare.Resource) {
	s.Helper()
	s.write(filepath.Join(s.conf, name+".yaml"), config(s, name, resources...))
}

// config is a declaration as text. JSON is YAML.
func config(t testing.TB, name string, resources ...declare.Resource) string {
	t.Helper()
	text, err := json.Marshal(declare.NodeConfig{APIVersion: declare.APIVersion, Kind: declare.KindNodeConfig,
		Metadata: declare.Metadata{Name: name}, Spec: declare.NodeConfigSpec{Resources: resources}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write replaces a file of this machine by a rename.
func (s *sandbox) write(p, content string) {
	s.Helper()
	other := filepath.Join(s.dir, "other")
	s.must(os.WriteFile(other, []byte(content), 0o644))
	s.must(os.Rename(other, p))
}

// read is the content of a file of the sandbox; what cannot be read is its error.
func (s *sandbox) read(p string) string {
	b, err := os.ReadFile(s.path(p))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// result is what a command came to.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string { return fmt.Sprintf("exit %d\n%s%s", r.code, r.stdout, r.stderr) }

// command prepares a command of the agent on the sandbox.
func (s *sandbox) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{s.agent}, args...)
	args = append(args, "--root", s.root, "--state", s.state)
	args = append(append([]string(nil), s.front...), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	if s.user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.user, Gid: s.user}}
	}
	return cmd
}

// asNobody has the agent run without rights, and a copy of its program: the tree where that is built may be root's alone.
func (s *sandbox) asNobody() {
	s.Helper()
	needsRoot(s)
	program, err := os.ReadFile(s.agent)
	s.must(err)
	s.agent, s.user = filepath.Join(s.dir, "tako-agent"), nobody
	s.must(os.WriteFile(s.agent, program, 0o755))
	for _, p := range []string{s.root, s.conf, s.state, s.dir, filepath.Dir(s.dir)} {
		s.must(os.Chmod(p, 0o755))
	}
	s.must(os.Chown(s.root, nobody, nobody))
	s.must(os.Chown(s.state, nobody, nobody))
}

// run runs a command of the agent to its end.
func (s *sandbox) run(args ...string) result {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), runTimeout)
	defer cancel()
	cmd := s.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.Fatalf("%q: %v\n%s%s", cmd.Args, err, &stdout, &stderr)
	}
	return result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// once converges once.
func (s *sandbox) once() result {
	s.Helper()
	return s.run("converge", "-f", s.conf)
}

// made converges once, and everything must be as declared then.
func (s *sandbox) made() {
	s.Helper()
	if r := s.once(); r.code != 0 {
		s.Fatalf("converge: %v", r)
	}
}

// report is what status says, of all resources unless the sandbox is brief.
func (s *sandbox) report() *agent.Report {
	s.Helper()
	r, err := s.tryReport()
	s.must(err)
	return r
}

func (s *sandbox) tryReport() (*agent.Report, error) {
	front := s.front
	s.front = nil
	defer func() { s.front = front }()
	ask := []string{"status", "--json"}
	if !s.brief {
		ask = append(ask, "--all")
	}
	out := s.run(ask...)
	var r agent.Report
	if err := json.Unmarshal([]byte(out.stdout), &r); err != nil {
		return nil, fmt.Errorf("status: %w: %v", err, out)
	}
	return &r, nil
}

// history is what happened, newest first.
func (s *sandbox) history(of ...string) []store.Happening {
	s.Helper()
	out := s.run(append([]string{"history", "--json"}, of...)...)
	var list []store.Happening
	if err := json.Unmarshal([]byte(out.stdout), &list); err != nil {
		s.Fatalf("history: %v: %v", err, out)
	}
	return list
}

// resourceOf finds a resource in a report by its title; the zero one is not there.
func resourceOf(r *agent.Report, title string) agent.Resource {
	for _, res := range r.Resources {
		if res.Title == title {
			return res
		}
	}
	return agent.Resource{}
}

// codeOf is the code of a resource's problem; 0 where it has none.
func codeOf(r agent.Resource) reason.Code {
	if r.Problem == nil {
		return 0
	}
	return r.Problem.Code
}

// has reports whether a list of problems has one with the code.
func has(list []agent.Problem, code reason.Code) bool {
	for _, p := range list {
		if p.Code == code {
			return true
		}
	}
	return false
}

// show is a report in a few words.
func show(r *agent.Report) string {
	text := fmt.Sprintf("converged %t, settled %t, %v, totals %+v", r.Converged, r.Settled, r.Counts, r.Totals)
	for _, res := range r.Resources {
		if !res.Outcome.Converged() || res.Removal != "" || len(res.Owes) > 0 {
			text += fmt.Sprintf("\n%s %v %v owes %v", res.Title, res.Outcome, res.Problem, res.Owes)
		}
	}
	return text + fmt.Sprintf("\ndegraded %v, refused %v", r.Degraded, r.Refused)
}

// resident is an agent that stays.
type resident struct {
	s     *sandbox
	cmd   *exec.Cmd
	out   *syncBuffer
	ended chan struct{}
}

// syncBuffer is a buffer that is read while a command writes to it.
type syncBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// watch starts an agent that stays, and waits until it has settled for the first time. It ends with the test.
func (s *sandbox) watch(args ...string) *resident {
	s.Helper()
	r := s.begin(args...)
	r.until("settled", func(rep *agent.Report) bool { return rep.Settled && rep.PID == r.cmd.Process.Pid })
	return r
}

// begin starts an agent that stays, and waits for nothing. It ends with the test.
func (s *sandbox) begin(args ...string) *resident {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.command(ctx, append([]string{"converge", "-f", s.conf, "--watch"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = soon
	r := &resident{s: s, cmd: cmd, out: &syncBuffer{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.out, r.out
	s.must(cmd.Start())
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // how it ends is for the test to judge, by the state of cmd
	}()
	s.Cleanup(func() {
		cancel()
		<-r.ended
		if s.Failed() {
			s.Logf("the agent said:\n%s", r.out)
		}
	})
	return r
}

// until waits until the report of the running agent is as wanted.
func (r *resident) until(what string, want func(*agent.Report) bool) {
	r.s.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		rep, err := r.s.tryReport()
		if err == nil && want(rep) {
			return
		}
		select {
		case <-tick.C:
		case <-r.ended:
			r.s.Fatalf("%s: the agent ended: %v\n%s", what, r.cmd.ProcessState, r.out)
		case <-deadline.C:
			seen := fmt.Sprint(err)
			if err == nil {
				seen = show(rep)
			}
			r.s.Fatalf("%s: not so after %v; last seen: %s", what, soon, seen)
		}
	}
}

// check makes the agent look at everything, and returns what it reports then.
func (r *resident) check() *agent.Report {
	r.s.Helper()
	out := r.s.run("status", "--check", "deep", "--json")
	var rep agent.Report
	if err := json.Unmarshal([]byte(out.stdout), &rep); err != nil {
		r.s.Fatalf("status --check: %v: %v", err, out)
	}
	return &rep
}

// signal sends a signal to the agent.
func (r *resident) signal(sig syscall.Signal) {
	r.s.Helper()
	r.s.must(r.cmd.Process.Signal(sig))
}

// end sends a signal that ends the agent, and waits until it has.
func (r *resident) end(sig syscall.Signal) {
	r.s.Helper()
	r.signal(sig)
	late := time.NewTimer(soon)
	defer late.Stop()
	select {
	case <-r.ended:
	case <-late.C:
		r.s.Fatalf("the agent did not end after %v", sig)
	}
}

// eventually waits for a state of the sandbox's files.
func (s *sandbox) eventually(c *casetest.Case, what, p, content string) bool {
	s.Helper()
	return c.Eventually(soon, what, func() (string, bool) {
		now := s.read(p)
		return fmt.Sprintf("%.100q", now), now == content
	})
}

// tree lists what is below a directory with type, mode and content, so that two of them can be compared.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %d %s", info.ModTime().UnixNano(), b)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			what += " -> " + target
		}
		all[strings.TrimPrefix(p, dir)] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Resources of the cases, in short.

func file(name, p, content string) declare.Resource {
	return declare.Resource{Name: name, File: &declare.File{Path: p, Content: content}}
}

func directory(name, p string) declare.Resource {
	return declare.Resource{Name: name, Directory: &declare.Directory{Path: p}}
}

func symlink(name, p, target string) declare.Resource {
	return declare.Resource{Name: name, Symlink: &declare.Symlink{Path: p, Target: target}}
}

func onRemove(how declare.OnRemove, resources ...declare.Resource) []declare.Resource {
	for i := range resources {
		resources[i].OnRemove = how
	}
	return resources
}

// settledAndConverged is what every host should be.
func settledAndConverged(r *agent.Report) bool { return r.Settled && r.Converged }

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"tako.dev/tako/bench/load"
)

// What is declared: small files, as gen.sh makes them for the peers, so many in one directory at most.
const (
	fileMode    = 0o640
	perDir      = 1000
	managedDir  = "/etc/bench"
	settleMax   = 3 * time.Minute // for an agent to converge
	stopMax     = 10 * time.Second
	commandMax  = 5 * time.Minute // for a command
	statusPause = 20 * time.Millisecond
)

// build builds both binaries of the agent.
func (b *bench) build(ctx context.Context) error {
	b.agent, b.nofsync = filepath.Join(b.scratch, "tako-agent"), filepath.Join(b.scratch, "tako-agent-nofsync")
	for binary, tags := range map[string]string{b.agent: "", b.nofsync: "nofsync"} {
		if err := compile(ctx, binary, tags, "./cmd/tako-agent"); err != nil {
			return err
		}
	}
	return nil
}

// compile builds a program as it is shipped.
func compile(ctx context.Context, binary, tags, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", binary, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (go run ./bench works at the top of the repository only): %w\n%s", program, err, out)
	}
	return nil
}

// site is one scratch root with its declaration. The declaration has a directory of its own: an agent watches it, and is
// to be woken by nothing else.
type site struct {
	dir   string // with all of it
	root  string // what stands for /
	base  string // what the paths of the files begin with: where the root is that of the machine, they are in dir all the same
	decl  string
	files int
}

// content is what file i holds.
func content(i int) string {
	return fmt.Sprintf("# managed file %d\nkey = value-%d\nlisten = 127.0.0.1:%d\n", i, i, 10_000+i)
}

func dirOf(i int) string { return fmt.Sprintf("%s/d%03d", managedDir, i/perDir) }

// declared is the path of file i as it is declared.
func (s *site) declared(i int) string {
	return fmt.Sprintf("%s%s/f%05d.conf", s.base, dirOf(i), i%perDir)
}

// path is where file i is.
func (s *site) path(i int) string { return filepath.Join(s.root, s.declared(i)) }

// newDir makes a directory in the scratch directory.
func (b *bench) newDir() (string, error) {
	b.made++
	dir := filepath.Join(b.scratch, strconv.Itoa(b.made))
	return dir, os.Mkdir(dir, 0o755)
}

// newSite makes an empty root and a declaration of n files for it.
func (b *bench) newSite(n int) (*site, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	return (&site{dir: dir, root: filepath.Join(dir, "root"), decl: filepath.Join(dir, "declared", "site.yaml"), files: n}).create()
}

// newOwnSite makes a declaration of n files that has the root of the machine, as the agent of a host has it, and lies among the files.
func (b *bench) newOwnSite(n int) (*site, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	return (&site{dir: dir, root: "/", base: dir, decl: filepath.Join(dir, dirOf(0), "site.yaml"), files: n}).create()
}

// flags tell the agent and its commands where it works.
func (s *site) flags() []string {
	return []string{"--root", s.root, "--state", filepath.Join(s.dir, "state")}
}

// log is where an agent that keeps the site says what it does.
func (s *site) log() string { return filepath.Join(s.dir, "log") }

func (s *site) create() (*site, error) {
	// The directories of the files are there, as they are for the peers: 100,000 resources, all of them files, are the most
	// that a node acts on.
	dirs := []string{s.root, filepath.Dir(s.decl)}
	for i := 0; i < s.files; i += perDir {
		dirs = append(dirs, filepath.Dir(s.path(i)))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	return s, s.declare()
}

func (s *site) declare() (err error) {
	f, err := os.Create(s.decl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: bench}\nspec:\n  resources:\n")
	for i := range s.files {
		fmt.Fprintf(w, "    - {name: f%05d, file: {path: %s, mode: \"%04o\", content: %q}}\n", i, s.declared(i), fileMode, content(i))
	}
	return w.Flush()
}

// once runs an agent until everything is converged and returns how long that took, from its start to its end.
func (b *bench) once(ctx context.Context, binary string, s *site) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"converge", "-f", s.decl}, s.flags()...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("converge %d files: %w: %s", s.files, err, said.String())
	}
	return took, nil
}

// resident is an agent that keeps a site.
type resident struct {
	load.Process
	*site
	binary string
	cmd    *exec.Cmd
}

// keep starts an agent on a site, waits until everything is converged, and hands it to do; then it ends the agent.
func (b *bench) keep(ctx context.Context, s *site, do func(*resident) error) (err error) {
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close()
	// It is ended below, and waited for; the context only sees to it that it ends.
	cmd := exec.CommandContext(ctx, b.agent, append([]string{"converge", "-f", s.decl, "--watch"}, s.flags()...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if os.Getuid() == 0 {
		// In a network of its own: an agent takes in every address that comes or goes, which whatever else runs on the
		// machine would then measure.
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	cmd.WaitDelay = stopMax
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &resident{Process: load.Process(cmd.Process.Pid), site: s, binary: b.agent, cmd: cmd}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.converged(ctx); err != nil {
		return err
	}
	return do(r)
}

func (r *resident) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	if err := r.cmd.Wait(); err != nil {
		said, _ := os.ReadFile(r.log())
		return fmt.Errorf("the agent ended with %w: %s", err, tail(said))
	}
	return nil
}

// tail is the end of what a program said.
func tail(said []byte) []byte { return said[max(0, len(said)-1000):] }

// status is the part of the agent's report that is of interest here.
type status struct {
	Converged bool           `json:"converged"`
	Settled   bool           `json:"settled"`
	Counts    map[string]int `json:"counts"`
	Totals    struct {
		Missed    int `json:"missed"`
		Overflows int `json:"overflows"`
	} `json:"totals"`
}

// ask asks the agent for its report; args are further arguments of the command.
func (r *resident) ask(ctx context.Context, args ...string) (status, error) {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	var s status
	cmd := exec.CommandContext(ctx, r.binary, append(append([]string{"status", "--json"}, r.flags()...), args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	// A report comes with exit code 1 while not everything is converged.
	if jsonErr := json.Unmarshal(out, &s); jsonErr != nil {
		return s, fmt.Errorf("ask the agent: %w: %s", errors.Join(err, jsonErr), said.String())
	}
	return s, nil
}

// converged waits until everything is as declared and nothing is due.
func (r *resident) converged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	for {
		s, err := r.ask(ctx)
		if err == nil && s.Converged && s.Settled {
			return nil
		}
		if waitErr := load.Pause(ctx, statusPause); waitErr != nil {
			return fmt.Errorf("the agent does not converge: %w; its last report: %+v", errors.Join(err, waitErr), s)
		}
	}
}

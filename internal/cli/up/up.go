package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/internal/apiserver"
	"tako.dev/tako/internal/reason"
)

// Options say what runs.
type Options struct {
	Dir         string   // absolute; made where it is missing
	Agent       string   // path of the program tako-agent
	Files       []string // what is applied, as for tako apply -f
	Listen      string   // where the API is served; default a port that was free at the first start
	Node        string   // name of the node; default that of this machine
	Environment string   // namespace whose configs are for it; default "default"
	Watch       string   // absolute path of a directory that is kept applied, a repository or not; default none
	Kustomize   []string // program with its arguments that builds kustomizations, as for a server
	Out         io.Writer
	// Command runs a command of tako against a server, and returns what it writes.
	Command func(ctx context.Context, kubeconfig string, args ...string) (string, error)
}

// How long things may take.
const (
	// convergeMax is how long files that were applied may take: a fraction of a second as a rule, and this is for busy machines.
	convergeMax = time.Minute
	// stopMax is how long the agent may take to stop: it finishes the write that it is in.
	stopMax = 10 * time.Second
	// readyMax is how long the server may take to start.
	readyMax = time.Minute
)

const doing = "start server and agent"

// Run runs server and agent until the context ends or one of them does. It tells where they are once everything is converged.
func Run(ctx context.Context, o Options) (err error) {
	o = o.withDefaults()
	release, err := claim(o.Dir)
	if err != nil {
		return err
	}
	defer release()
	ports, err := portsOf(o.Dir)
	if err != nil {
		return err
	}
	o.Listen = cmp.Or(o.Listen, ports.API)
	var files *watched
	if o.Watch != "" {
		if files, err = o.repositoryOf(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	server, err := startServer(ctx, o, ports.Transfer, files)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, server.wait())
	}()
	kubeconfig, err := server.ready(ctx)
	if err != nil {
		return err
	}
	if err := o.join(ctx, kubeconfig); err != nil {
		return err
	}
	agent, err := o.startAgent(ctx)
	if err != nil {
		return err
	}
	defer agent.stop()
	if err := o.apply(ctx, kubeconfig); err != nil {
		return ended(ctx, err)
	}
	if err := o.follow(ctx, kubeconfig, files); err != nil {
		return ended(ctx, err)
	}
	if err := o.tell(kubeconfig, files); err != nil {
		return err
	}
	stopWatching := files.keep(ctx)
	defer stopWatching()
	select {
	case <-ctx.Done():
		return nil
	case <-server.stopped:
		return nil // its error comes with wait
	case <-agent.ended:
		return &reason.Error{Code: reason.AgentNotRunning, Doing: "run the agent", Cause: agent.err(), Hint: "see " + o.log("agent")}
	}
}

func (o Options) withDefaults() Options {
	if o.Environment == "" {
		o.Environment = "default"
	}
	if o.Node == "" {
		o.Node = "localhost"
		if name, err := os.Hostname(); err == nil && name != "" {
			o.Node = strings.ToLower(name)
		}
	}
	return o
}

func (o *Options) log(of string) string { return filepath.Join(o.Dir, of+".log") }

func (o *Options) root() string { return filepath.Join(o.Dir, "host") }

// ended is nil where a step failed because everything is to stop.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// serving is a server that runs in this process.
type serving struct {
	kubeconfig chan string
	stopped    chan struct{} // closed when it has
	err        error         // set before that
	log        *os.File
}

func startServer(ctx context.Context, o Options, transfer string, files *watched) (*serving, error) {
	log, err := os.OpenFile(o.log("server"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	s := &serving{kubeconfig: make(chan string, 1), stopped: make(chan struct{}), log: log}
	options := apiserver.Options{
		DataDir: filepath.Join(o.Dir, "server"), Listen: o.Listen, TransferListen: transfer, Log: slog.New(slog.NewTextHandler(log, nil)),
		OnReady: func(_, kubeconfig string) { s.kubeconfig <- kubeconfig }, Kustomize: o.Kustomize,
	}
	if files != nil {
		options.SourceDirs = []string{files.repository}
	}
	server, err := apiserver.New(options)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() { // ends with the context
		defer close(s.stopped)
		s.err = server.Run(ctx)
	}()
	return s, nil
}

func (s *serving) ready(ctx context.Context) (string, error) {
	select {
	case kubeconfig := <-s.kubeconfig:
		return kubeconfig, nil
	case <-s.stopped:
		return "", nil // its error comes with wait
	case <-time.After(readyMax):
		return "", &reason.Error{Code: reason.DeadlineOver, Doing: doing, Cause: fmt.Errorf("the server does not answer after %s", readyMax), Hint: "see " + s.log.Name()}
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *serving) wait() error {
	<-s.stopped
	return errors.Join(s.err, s.log.Close())
}

// join makes the host a node, once. The line with the token goes through a pipe: arguments can be seen by everybody.
func (o *Options) join(ctx context.Context, kubeconfig string) error {
	if _, err := os.Lstat(filepath.Join(o.root(), "var/lib/tako/identity")); err == nil {
		return nil
	}
	if err := os.MkdirAll(o.root(), 0o700); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	line, err := o.Command(ctx, kubeconfig, "token", "create", "join", "--environment", o.Environment, "--name", o.Node, "--expires", "10m")
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, o.Agent, "join", "-", "--root", o.root(), "--name", o.Node)
	c.Stdin = strings.NewReader(line)
	if out, err := c.CombinedOutput(); err != nil {
		return &reason.Error{Code: reason.AgentNotRunning, Doing: "join", Cause: err, Evidence: string(out)}
	}
	return nil
}

// running is the agent's process.
type running struct {
	command *exec.Cmd
	ended   chan struct{} // closed when it has been waited for
	exit    error         // set before that
	log     *os.File
}

func (o *Options) startAgent(ctx context.Context) (*running, error) {
	log, err := os.OpenFile(o.log("agent"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	c := exec.CommandContext(ctx, o.Agent, "run", "--root", o.root())
	c.Stdout, c.Stderr = log, log
	// Ctrl-C on a terminal goes to the whole group: the agent is stopped by us, and by the kernel where we are killed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopMax
	if err := c.Start(); err != nil {
		return nil, &reason.Error{Code: reason.AgentNotRunning, Doing: "start " + o.Agent, Cause: errors.Join(err, log.Close())}
	}
	r := &running{command: c, ended: make(chan struct{}), log: log}
	go func() { // ends with the process
		defer close(r.ended)
		r.exit = c.Wait()
	}()
	return r, nil
}

func (r *running) err() error {
	if r.exit == nil {
		return errors.New("it has ended by itself")
	}
	return r.exit
}

func (r *running) stop() {
	_ = r.command.Process.Signal(syscall.SIGTERM) // it may have gone
	<-r.ended                                     // it is killed after stopMax, since the context ends too
	_ = r.log.Close()
}

// apply declares the files, and waits until the host is so.
func (o *Options) apply(ctx context.Context, kubeconfig string) error {
	if len(o.Files) == 0 {
		return nil
	}
	args := []string{"apply", "-n", o.Environment, "-o", "name"}
	for _, f := range o.Files {
		args = append(args, "-f", f)
	}
	applied, err := o.Command(ctx, kubeconfig, args...)
	if err != nil {
		return err
	}
	wait := []string{"wait", "-n", o.Environment, "--timeout", convergeMax.String()}
	for name := range strings.FieldsSeq(applied) {
		if kind, _, _ := strings.Cut(name, "/"); strings.HasPrefix(kind, "nodeconfig") || strings.HasPrefix(kind, "clusternodeconfig") {
			wait = append(wait, name)
		}
	}
	const fixed = 5 // arguments that are no names
	if len(wait) == fixed {
		return nil
	}
	_, err = o.Command(ctx, kubeconfig, wait...)
	return err
}

// made lists what the agent has made: its own state, and the folders that lead to it, are no part of what was declared.
func (o *Options) made() ([]string, error) {
	var list []string
	err := filepath.WalkDir(o.root(), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(o.root(), path)
		switch {
		case err != nil:
			return err
		case name == "var/lib/tako" || name == "run/tako":
			return fs.SkipDir
		case name == "." || name == "var" || name == "var/lib" || name == "run":
			return nil
		}
		list = append(list, "/"+name)
		return nil
	})
	return list, err
}

// shownMax is how much of what was made is shown: a screen.
const shownMax = 20

// tell says where everything is, and what to try.
func (o *Options) tell(kubeconfig string, files *watched) error {
	made, err := o.made()
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "look at what was made", Cause: err}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Server and agent run. The agent keeps node %s as declared, in %s:\n\n", o.Node, o.root())
	for i, name := range made {
		if i == shownMax {
			fmt.Fprintf(&b, "  … and %d more\n", len(made)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", name)
	}
	switch {
	case len(made) > 0:
	case files == nil:
		b.WriteString("  nothing is declared yet: tako apply -f FILE\n")
	default:
		b.WriteString("  nothing yet\n")
	}
	files.tell(&b)
	fmt.Fprintf(&b, "\nThe kubeconfig is %s. For tako and kubectl in another terminal:\n\n  export KUBECONFIG=%s\n", kubeconfig, kubeconfig)
	tako, err := os.Executable()
	if err != nil {
		tako = "tako"
	}
	fmt.Fprintf(&b, "\nThree things to try there:\n\n  1. Delete something that is managed, and see it back:\n       %s\n", o.deletion(made))
	fmt.Fprintf(&b, "\n  2. See the fleet on one page, and why a host is as it is:\n       %s status; %s why node/%s\n", tako, tako, o.Node)
	fmt.Fprintf(&b, "\n  3. See what happened on the host:\n       %s history node/%s\n", tako, o.Node)
	fmt.Fprintf(&b, "\nCtrl-C stops both; %s down --purge --dir %s removes them with all that they made.\n", tako, o.Dir)
	_, err = io.WriteString(o.Out, b.String())
	return err
}

// deletion is a command that deletes a file that is managed and shows it again.
func (o *Options) deletion(made []string) string {
	for _, name := range made {
		path := filepath.Join(o.root(), name)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return fmt.Sprintf("rm %s; sleep 0.1; cat %s", path, path)
		}
	}
	return "rm a file below " + o.root()
}

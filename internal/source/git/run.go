package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/internal/reason"
)

// command is one run of git.
type command struct {
	doing  string  // for errors: what is tried, on what
	target *target // nil: it stays on this machine
	gitDir string  // empty: it needs no repository
	filter string  // partial clone filter
	args   []string
	stdin  []byte
	stdout io.Writer // nil: what it prints is dropped
	// fileBytes bounds a file that it writes, and memoryBytes its address space; 0 is that of Limits.
	fileBytes, memoryBytes int64
}

// killWait bounds the wait for the output of a group of processes that was killed: they cannot hold it for long.
const killWait = 2 * time.Second

// run runs git to its end, or to the deadline of Limits. Its errors are *reason.Error.
func (g *Git) run(ctx context.Context, c command) error {
	deadline, cancel := context.WithTimeoutCause(ctx, g.limits.Timeout, errDeadline)
	defer cancel()
	return g.withScratch(func(scratch string) error {
		return withAgent(deadline, scratch, c.agentKey(), func(socket string) error {
			said := &tail{}
			out := &refusing{to: c.stdout}
			cmd, release, err := g.prepare(deadline, c, scratch, socket)
			if err != nil {
				return err
			}
			defer release()
			cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), out, said
			err = cmd.Run()
			endGroup(cmd, err)
			switch {
			case out.err != nil:
				return out.err // it was ended because what it printed is refused
			case err == nil:
				return nil
			}
			return g.failure(deadline, c, err, said.text())
		})
	})
}

var errDeadline = errors.New("deadline of one command")

func (c command) agentKey() Auth {
	if c.target == nil || c.target.protocol != overSSH {
		return Auth{}
	}
	return c.target.auth
}

// withScratch gives use a private directory that is gone afterwards. It is git's home, and stays empty but for the socket
// of the ssh agent and the known hosts.
func (g *Git) withScratch(use func(dir string) error) error {
	parent := g.scratchDir()
	// A socket's path has at most 107 bytes (unix(7)), and this adds some 15.
	if len(parent) > 85 || strings.ContainsAny(parent, " \"'%") {
		parent = os.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "g")
	if err != nil {
		return unwritable(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return use(dir)
}

// limitScript sets limits and becomes git, so that not one instruction of git runs without them. The units are those of the
// POSIX shell: 512 bytes for files; 1024 for memory, as every shell on Linux has it. Processor time stops what spins
// without printing.
const limitScript = `ulimit -c 0; ulimit -f "$1" && ulimit -v "$2" && ulimit -t "$3" && shift 3 && exec "$@"`

// prepare makes the command of the sandbox. release closes what only the child needs.
func (g *Git) prepare(ctx context.Context, c command, scratch, socket string) (*exec.Cmd, func(), error) {
	broken := func(err error) (*exec.Cmd, func(), error) {
		return nil, nil, &reason.Error{Code: reason.GitUnusable, Doing: c.doing, Cause: err}
	}
	config, err := memoryFile([]byte(configuration(c.target, c.filter)))
	if err != nil {
		return broken(err)
	}
	files := []*os.File{config}
	release := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	if c.target != nil && len(c.target.auth.CA) > 0 {
		ca, err := memoryFile(c.target.auth.CA)
		if err != nil {
			release()
			return broken(err)
		}
		files = append(files, ca)
	}
	seconds := int64(g.limits.Timeout/time.Second) + 1
	args := []string{"-c", limitScript, "git", fmt.Sprint(cmp.Or(c.fileBytes, g.limits.PackBytes) / 512), fmt.Sprint(cmp.Or(c.memoryBytes, g.limits.MemoryBytes) / 1024), fmt.Sprint(seconds), g.program}
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, c.args...)...)
	cmd.Dir, cmd.ExtraFiles, cmd.WaitDelay = scratch, files, killWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = g.environment(c, scratch)
	if c.target != nil && c.target.protocol == overSSH {
		known := filepath.Join(scratch, "known_hosts")
		if err := writePrivate(known, c.target.auth.KnownHosts); err != nil {
			release()
			return nil, nil, err
		}
		cmd.Env = append(cmd.Env, "GIT_SSH_VARIANT=ssh", "GIT_SSH_COMMAND="+sshCommand(known, socket))
	}
	return cmd, release, nil
}

// environment is all that git inherits.
func (g *Git) environment(c command, scratch string) []string {
	env := []string{
		"PATH=" + filepath.Dir(g.program) + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + scratch, "XDG_CONFIG_HOME=" + scratch, "TMPDIR=" + scratch,
		"LC_ALL=C", "LANGUAGE=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + configPath, "GIT_ATTR_NOSYSTEM=1", "GIT_TEMPLATE_DIR=",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_LITERAL_PATHSPECS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_PROTOCOL_FROM_USER=0", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(scratch), "GIT_ADVICE=0",
	}
	if c.gitDir != "" {
		env = append(env, "GIT_DIR="+c.gitDir)
	}
	allowed := "none"
	if c.target != nil {
		allowed = string(c.target.protocol)
	}
	return append(env, "GIT_ALLOW_PROTOCOL="+allowed)
}

// endGroup kills what a command left behind. A command whose output somebody still held, or that was killed, may have.
func endGroup(cmd *exec.Cmd, err error) {
	if cmd.Process != nil && err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// refusing remembers that what git printed was refused, and has it ended by a broken pipe.
type refusing struct {
	to  io.Writer
	err error
}

func (r *refusing) Write(p []byte) (int, error) {
	if r.to == nil {
		return len(p), nil
	}
	n, err := r.to.Write(p)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

// records cuts what git prints at a separator, and hands on each record as it comes. It refuses records that are longer
// than recordMax, so that memory is bounded whatever is printed.
type records struct {
	separator byte
	each      func(record []byte) error
	part      []byte
}

// recordMax is a path of PATH_MAX (4096) bytes, with mode, type and id before it, twice.
const recordMax = 16 << 10

// Write implements io.Writer.
func (r *records) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, r.separator)
		if i < 0 {
			break
		}
		record := p[:i]
		if len(r.part) > 0 {
			record = append(r.part, record...)
		}
		if len(record) > recordMax {
			return 0, errRecord
		}
		if err := r.each(record); err != nil {
			return 0, err
		}
		r.part, p = r.part[:0], p[i+1:]
	}
	if len(r.part)+len(p) > recordMax {
		return 0, errRecord
	}
	r.part = append(r.part, p...)
	return n, nil
}

var errRecord = &reason.Error{Code: reason.RepositoryLimit, Doing: "read what git lists", Cause: fmt.Errorf("a name has more than %d bytes", recordMax)}

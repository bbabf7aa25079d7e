package kustomize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Options say how the child is run.
type Options struct {
	// Command is the program with its arguments that does nothing but Serve on its standard input and output.
	Command []string
	// Timeout is how long one Build may take; default 30 s. The library's time grows with the square of the objects of one
	// kustomization: 1,000 take half a second, 2,000 two, and more than 5,000 belong into several or into plain directories.
	Timeout time.Duration
	// MemoryBytes is how much the child may allocate; default 1 GiB, ten times what 2,000 objects take.
	MemoryBytes int64
	// Processes is how many children run at once, over all callers; default 2.
	Processes int
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	fill(&o.MemoryBytes, 1<<30)
	fill(&o.Processes, 2)
	return o
}

// Process builds kustomizations in children. It may be used by several goroutines at once.
type Process struct {
	options Options
	places  chan struct{} // one taken for each child
}

// New returns a Process. It starts nothing.
func New(o Options) (*Process, error) {
	if len(o.Command) == 0 {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "build kustomizations", Cause: errors.New("no command is given")}
	}
	o = o.withDefaults()
	return &Process{options: o, places: make(chan struct{}, o.Processes)}, nil
}

// request is what the child reads, as JSON.
type request struct {
	Roots       []string
	Files       map[string][]byte
	MemoryBytes int64
	Seconds     uint64 // of processor time
}

// resultBytesMax bounds what is read of a child: 20,000 objects of 10 kB, in base64.
const resultBytesMax = 256 << 20

// Build makes the objects of the roots of a tree, in their order. Where the child was stopped because of a bound, the error
// has code RenderLimit.
func (p *Process) Build(ctx context.Context, t *Tree) ([]Built, error) {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	seconds := uint64(p.options.Timeout/time.Second) + 1
	input, err := json.Marshal(request{Roots: t.Roots, Files: t.Files, MemoryBytes: p.options.MemoryBytes, Seconds: seconds})
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "build kustomizations", Cause: err}
	}
	output, err := p.run(ctx, input)
	if err != nil {
		return nil, err
	}
	var built []Built
	if err := json.Unmarshal(output, &built); err != nil || len(built) != len(t.Roots) {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "build kustomizations", Cause: fmt.Errorf("the child answered for %d of %d: %w", len(built), len(t.Roots), err)}
	}
	return built, nil
}

// run starts a child, gives it its input and returns its output.
func (p *Process) run(ctx context.Context, input []byte) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, p.options.Command[0], p.options.Command[1:]...)
	cmd.Env = []string{} // nil would be ours
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(input)
	out, words := &bounded{max: resultBytesMax}, &bounded{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // for what could still hold its output open
	err := cmd.Run()
	doing := "build kustomizations"
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, &reason.Error{Code: reason.RenderLimit, Doing: doing, Cause: fmt.Errorf("it takes more than %s", p.options.Timeout)}
	case out.full:
		return nil, &reason.Error{Code: reason.RenderLimit, Doing: doing, Cause: fmt.Errorf("the objects have more than %d bytes together", resultBytesMax)}
	case err != nil && isLimit(err, words.String()):
		return nil, &reason.Error{Code: reason.RenderLimit, Doing: doing, Cause: fmt.Errorf("it takes more than %d bytes of memory or %s of processor time", p.options.MemoryBytes, p.options.Timeout)}
	case err != nil:
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err, Evidence: reason.Clip(words.Bytes())}
	}
	return out.Bytes(), nil
}

// isLimit tells whether a child ended because of a limit: Go programs say so when they get no memory, and the kernel ends one
// whose time is over.
func isLimit(err error, words string) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL) {
		return true
	}
	for _, said := range []string{"out of memory", "cannot allocate memory", "errno=12", "failed to create new OS thread", "goroutine stack exceeds"} {
		if strings.Contains(words, said) {
			return true
		}
	}
	return false
}

// bounded keeps the beginning of what is written to it, and fails behind it.
type bounded struct {
	bytes.Buffer
	max  int
	full bool
}

// Write fails where more is written than may be kept, so that the writer ends.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		b.full = true
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// Serve is the child: it reads a request, shuts itself in, builds, and writes what came of it. The caller exits after it.
func Serve(in io.Reader, out io.Writer) error {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if err := shutIn(r.MemoryBytes, r.Seconds); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	built := make([]Built, len(r.Roots))
	for i, root := range r.Roots {
		built[i] = build(r.Files, root)
	}
	return json.NewEncoder(out).Encode(built)
}

// shutIn takes from this process what a build must not have. Descriptors that are open stay; no more can be opened, which
// leaves no way to a file, the network or another program.
func shutIn(memoryBytes int64, seconds uint64) error {
	<-time.NewTimer(0).C // the runtime opens descriptors for timers when the first one is used
	debug.SetMemoryLimit(memoryBytes / 4 * 3)
	for _, limit := range []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_DATA, uint64(memoryBytes)}, // and not _AS: a Go program reserves addresses that it never uses
		{unix.RLIMIT_CPU, seconds},
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 3},
	} {
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: limit.value, Max: limit.value}); err != nil {
			return err
		}
	}
	return nil
}

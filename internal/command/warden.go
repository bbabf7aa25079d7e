package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killMax is how long SIGKILL may take; a process that waits for a disk or a network file system cannot be ended sooner.
	killMax = 10 * time.Second
	// wardenMax is how much longer than a command its warden may take before it is killed itself: it only starts and counts.
	wardenMax = 15 * time.Second
	// drainMax is how long the rest of an output is read after the end, while something that goes on holds it open: what was
	// printed before is there already.
	drainMax = 100 * time.Millisecond
	// reportBytesMax bounds a report, which has less than 200 bytes.
	reportBytesMax = 4 << 10
	// reportFD is where a warden finds the pipe for its report: the first after the standard ones. Behind it is what it holds.
	reportFD = 3
	holdFD   = 4
)

// ErrSurvived says that something of a command could not be ended.
var ErrSurvived = errors.New("not everything that it has started could be ended: the kernel keeps a process that waits for a disk or a network file system")

// Warden runs commands, each with a process between that and the agent; see the package comment.
type Warden struct{ args []string }

// NewWarden makes a Warden. args starts a program that calls Serve and exits with what that returns.
func NewWarden(args []string) *Warden { return &Warden{args: args} }

// Run runs a command to its end. The error is nil when it has run, however it ended; otherwise a *StartError, ErrSurvived, the
// context's, or says that the warden failed. When the context ends the command is ended with all that it has started.
func (w *Warden) Run(ctx context.Context, o Order) (Ending, error) {
	if err := ctx.Err(); err != nil {
		return Ending{}, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return Ending{}, err
	}
	ending := o.Grace + killMax + wardenMax
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Limit+ending)
	defer cancel()
	r, err := w.start(limited, o)
	if err != nil {
		return Ending{}, err
	}
	defer r.close()
	out, got := r.attend(ctx, text, ending, cancel)
	end := Ending{Status: got.Status, Output: out, Stopped: got.Stopped, WantedNetwork: got.Network}
	switch {
	case got.Doing != "" && got.Errno != 0:
		return end, &StartError{Doing: got.Doing, Err: got.Errno}
	case got.Doing != "":
		return end, &StartError{Doing: got.Doing, Err: errors.New(got.Error)}
	case got.Survived > 0:
		return end, ErrSurvived
	case ctx.Err() != nil && (got.Hanging || r.err != nil): // it may just have ended by itself
		return end, ctx.Err()
	case r.err != nil:
		return end, fmt.Errorf("the process that minds it: %w", r.err)
	}
	return end, nil
}

// running is a warden at work.
type running struct {
	cmd     *exec.Cmd
	order   *os.File // write end; its end tells the warden to end
	output  *os.File // read end
	report  *os.File // read end
	waiting sync.WaitGroup
	err     error // how the warden failed
}

// start starts a warden, sealed off where the order asks for that. It is killed with its session when the context ends.
func (w *Warden) start(ctx context.Context, o Order) (*running, error) {
	r := &running{}
	var theirs [3]*os.File // order, output, report
	for i, ours := range []**os.File{&r.order, &r.output, &r.report} {
		read, write, err := os.Pipe()
		if err != nil {
			r.close()
			closeAll(theirs[:])
			return nil, err
		}
		*ours, theirs[i] = read, write
		if i == 0 {
			*ours, theirs[i] = write, read
		}
	}
	defer closeAll(theirs[:])
	r.cmd = exec.CommandContext(ctx, w.args[0], w.args[1:]...)
	r.cmd.Cancel = func() error { return unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) }
	r.cmd.Dir = "/"
	// It allocates little. With one thread for Go it would start 10 ms later on a busy machine.
	r.cmd.Env = []string{"PATH=" + Path, "LC_ALL=C.UTF-8", "GOMAXPROCS=2", "GOGC=off"}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = theirs[0], theirs[1], theirs[1]
	r.cmd.ExtraFiles = theirs[2:]
	if o.Hold != nil {
		r.cmd.ExtraFiles = append(slices.Clip(r.cmd.ExtraFiles), o.Hold)
	}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Sealed {
		r.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET
	}
	if err := r.cmd.Start(); err != nil {
		r.close()
		if o.Sealed {
			return nil, &StartError{Doing: doingSeal, Err: err}
		}
		return nil, err
	}
	return r, nil
}

// attend gives the warden its order and waits for its end. When the context ends the warden is told, and killed if it is not over after
// the time that an ending may take.
func (r *running) attend(ctx context.Context, order []byte, ending time.Duration, kill func()) (out Output, got report) {
	ended := make(chan error, 1)
	told := make(chan report, 1)
	r.waiting.Go(func() { ended <- r.cmd.Wait() })
	r.waiting.Go(func() { _, _ = io.Copy(&out, r.output) }) // ends at the end, or at the deadline below
	r.waiting.Go(func() {
		var rep report
		if err := json.NewDecoder(io.LimitReader(r.report, reportBytesMax)).Decode(&rep); err == nil {
			told <- rep
		}
		close(told)
	})
	r.waiting.Go(func() { _, _ = r.order.Write(order) }) // a warden that does not read it ends without a report
	late := time.NewTimer(ending)
	late.Stop()
	defer late.Stop()
	over := ctx.Done()
	for waiting := true; waiting; {
		select {
		case r.err = <-ended:
			waiting = false
		case <-over:
			_ = r.order.Close()
			over = nil
			late.Reset(ending)
		case <-late.C:
			kill()
		}
	}
	stop := time.Now().Add(drainMax)
	_, _ = r.output.SetReadDeadline(stop), r.report.SetReadDeadline(stop)
	_ = r.order.Close()
	r.waiting.Wait()
	rep, ok := <-told
	if !ok && r.err == nil {
		r.err = errors.New("it ended without a report")
	} else if ok {
		r.err = nil
	}
	return out, rep
}

func (r *running) close() { closeAll([]*os.File{r.order, r.output, r.report}) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

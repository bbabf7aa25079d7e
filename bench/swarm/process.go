package swarm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

const (
	// stopMax is how long the process may take to end.
	stopMax = 30 * time.Second
	// pollPause is between two looks at how the hosts stand: fine against what is measured, and no load.
	pollPause = 20 * time.Millisecond
)

// Process is a process of hosts.
type Process struct {
	PID int

	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// Argument is what the program is called with to be that process; Main says what follows.
const Argument = "swarm"

// Start starts this very program as a process of hosts: before says what is to start it, such as a program that chooses its network. The
// caller ends it with Stop.
func Start(ctx context.Context, o Options, before ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append(before, self, Argument, o.File, strconv.Itoa(o.Count))
	if o.Net.IsValid() {
		args = append(args, o.Net.String())
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = stopMax
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{PID: cmd.Process.Pid, cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
	var ready Standing
	if err := p.out.Decode(&ready); err != nil {
		return nil, errors.Join(fmt.Errorf("the simulated hosts do not start: %w", err), p.Stop())
	}
	return p, nil
}

// Do does a command, and returns how the hosts stand then.
func (p *Process) Do(c Command) (Standing, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return Standing{}, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return Standing{}, fmt.Errorf("the simulated hosts have ended: %w", err)
	}
	var s Standing
	if err := p.out.Decode(&s); err != nil {
		return Standing{}, fmt.Errorf("the simulated hosts have ended: %w", err)
	}
	return s, nil
}

// Await waits until the hosts stand as they should, and returns how they do.
func (p *Process) Await(ctx context.Context, what string, most time.Duration, so func(Standing) bool) (Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		s, err := p.Do(Command{Do: Tell})
		if err != nil || so(s) {
			return s, err
		}
		if err := wait(ctx, pollPause); err != nil {
			return s, fmt.Errorf("%s: not so after %v: %+v: %w", what, most, s, err)
		}
	}
}

// Stop ends the process.
func (p *Process) Stop() error {
	err := p.in.Close()
	if waitErr := p.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("the simulated hosts ended with %w", waitErr))
	}
	return err
}

// ConnectAll connects all of so many hosts to a server, and waits until each has acted on its state.
func (p *Process) ConnectAll(ctx context.Context, address string, count int, most time.Duration) error {
	if _, err := p.Do(Command{Do: Mark}); err != nil {
		return err
	}
	if _, err := p.Do(Command{Do: Connect, Server: address}); err != nil {
		return err
	}
	_, err := p.Await(ctx, "all hosts are connected, and have a state", most, func(s Standing) bool { return s.Watching == count && s.Acted == count })
	return err
}

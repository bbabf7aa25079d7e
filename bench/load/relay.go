package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/api/v1alpha1"
)

// Relay is a running tako relay.
type Relay struct {
	PID     int
	Address string // where hosts are served

	metrics string // address
	cmd     *exec.Cmd
	said    *awaited
	ended   chan error // gets one value, when it has ended
}

// What a relay says of where it is, before and when it is ready.
var (
	relayMetrics = regexp.MustCompile(`msg="metrics are served" address=(\S+)`)
	relayReady   = regexp.MustCompile(`msg=ready .*address=(\S+)`)
)

// StartRelay makes a relay of a server, the program at a path with its state in a directory, as people do it, and starts it. The caller ends
// it with Stop; the end of the context stops it too.
func (s *Server) StartRelay(ctx context.Context, program, dir string) (*Relay, error) {
	line, err := s.token(ctx, "relay", v1alpha1.JoinToken{Relay: true})
	if err != nil {
		return nil, err
	}
	join := exec.CommandContext(ctx, program, "relay", "join", "-", "--state", dir)
	join.Stdin = strings.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("relay join: %w: %s", err, out)
	}
	said := &awaited{prefix: "msg=ready", at: make(chan time.Time, 1)}
	cmd := exec.CommandContext(ctx, program, "relay", "--state", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = serverStopMax
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Relay{PID: cmd.Process.Pid, cmd: cmd, said: said, ended: make(chan error, 1)}
	go func() { r.ended <- cmd.Wait() }()
	late := time.NewTimer(readyMax)
	defer late.Stop()
	select {
	case <-said.at:
	case err := <-r.ended:
		return nil, fmt.Errorf("the relay ended before it was ready: %v: %s", errors.Join(err, ctx.Err()), said)
	case <-late.C:
		return nil, errors.Join(fmt.Errorf("the relay is not ready after %v", readyMax), r.Stop())
	}
	text := said.String()
	metrics, ready := relayMetrics.FindStringSubmatch(text), relayReady.FindStringSubmatch(text)
	if metrics == nil || ready == nil {
		return nil, errors.Join(fmt.Errorf("the relay does not say where it is: %s", text), r.Stop())
	}
	r.metrics, r.Address = metrics[1], ready[1]
	return r, nil
}

// Client reads the metrics of the relay.
func (r *Relay) Client() *Client { return &Client{url: "http://" + r.metrics} }

// Stop stops the relay as systemd does.
func (r *Relay) Stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the relay: %v: %s", errors.Join(err, <-r.ended), r.said)
	}
	late := time.NewTimer(serverStopMax)
	defer late.Stop()
	select {
	case err := <-r.ended:
		if err != nil {
			return fmt.Errorf("the relay ended with %w: %s", err, r.said)
		}
		return nil
	case <-late.C:
		err := r.cmd.Process.Kill()
		<-r.ended // a killed process always ends with an error
		return errors.Join(fmt.Errorf("the relay does not stop within %v: %s", serverStopMax, r.said), err)
	}
}

// ConnectionsTo counts the connections of the process, of TCP over IPv4, that it has open to an address; proc_pid_net(5).
func (p Process) ConnectionsTo(address string) (int, error) {
	sockets, err := p.sockets()
	if err != nil {
		return 0, err
	}
	table, err := os.ReadFile(p.proc("net/tcp"))
	if err != nil {
		return 0, err
	}
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return 0, err
	}
	return connectionsTo(string(table), to, sockets), nil
}

// sockets are the numbers of the sockets that the process has open.
func (p Process) sockets() (map[string]bool, error) {
	list, err := os.ReadDir(p.proc("fd"))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, fd := range list {
		to, _ := os.Readlink(p.proc("fd/" + fd.Name())) // one that was closed meanwhile is none
		if inode, is := strings.CutPrefix(to, "socket:["); is {
			all[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return all, nil
}

// connectionsTo counts in the kernel's table of connections those to an address that are established, and are one of some sockets.
func connectionsTo(table string, to *net.TCPAddr, sockets map[string]bool) (n int) {
	const remote, state, inode, established = 2, 3, 9, "01"
	ip := to.IP.To4()
	// The address is a number in the order of bytes of the processor, which is the other way round on all that tako runs on.
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], to.Port)
	for l := range strings.Lines(table) {
		if f := strings.Fields(l); len(f) > inode && f[remote] == want && f[state] == established && sockets[f[inode]] {
			n++
		}
	}
	return n
}

package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// bootTimeout bounds a boot: it takes a second on an idle machine.
	bootTimeout = 3 * time.Minute
	// poweroffTimeout bounds a clean shutdown: systemd gives a stuck service 90 s before it kills it.
	poweroffTimeout = 100 * time.Second
	// dumpLines is how much of console and journal a failed test shows.
	dumpLines = 200
)

// startScript is the first process of a host's namespaces.
//
//go:embed start.sh
var startScript string

var errHostOff = errors.New("the host is off")

// Host is one host of a lab. Its disk keeps its state over Reboot, Poweroff and PowerCut. The methods may be used from
// several goroutines, except those that switch it on or off.
type Host struct {
	name    string
	address string
	dir     string // the disk and the console's log
	lab     *Lab
	machine *machine // nil while the host is off
}

// machine is one boot of a host: a process that is the first of a PID namespace.
type machine struct {
	process *os.Process
	ended   chan struct{} // closed when it is gone
}

// Name returns the host's hostname.
func (h *Host) Name() string { return h.name }

// Address returns the host's IPv4 address on the bridge.
func (h *Host) Address() string { return h.address }

// Disk returns the directory of this machine that is the host's root file system without /usr: for a look at it, or a
// change, while the host is off. A symbolic link in it with an absolute target leads out of it.
func (h *Host) Disk() string { return filepath.Join(h.dir, "disk") }

// Boot switches a host on that is off and waits until systemd has started everything.
func (h *Host) Boot(t testing.TB) {
	t.Helper()
	if h.machine != nil {
		t.Fatalf("boot host %s: it is on", h.name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	if err := h.start(); err != nil {
		t.Fatalf("start host %s: %v", h.name, err)
	}
	if err := h.awaitRunning(ctx); err != nil {
		t.Fatalf("boot host %s: %v; console:\n%s", h.name, err, h.console())
	}
}

// Poweroff shuts the host down in an orderly way.
func (h *Host) Poweroff(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poweroffTimeout)
	defer cancel()
	if _, err := h.Run(ctx, "systemctl", "poweroff"); err != nil {
		t.Fatalf("power off host %s: %v", h.name, err)
	}
	if err := h.awaitEnd(ctx); err != nil {
		t.Fatalf("power off host %s: %v; console:\n%s", h.name, err, h.console())
	}
}

// Reboot shuts the host down in an orderly way and boots it again.
func (h *Host) Reboot(t testing.TB) {
	t.Helper()
	h.Poweroff(t)
	h.Boot(t)
}

// Rebooted waits until the host reboots by itself, and boots it again: nspawn, which keeps its unit, ends for that.
func (h *Host) Rebooted(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poweroffTimeout)
	defer cancel()
	if err := h.awaitEnd(ctx); err != nil {
		t.Fatalf("host %s does not reboot: %v; journal:\n%s", h.name, err, h.Journal(t.Context(), ""))
	}
	h.Boot(t)
}

// PowerCut ends every process of the host at once, with SIGKILL, and leaves it off. What programs had written stays, as the
// machine that carries the host goes on: a missing fsync does not show.
func (h *Host) PowerCut(t testing.TB) {
	t.Helper()
	if h.machine == nil {
		t.Fatalf("cut power of host %s: %v", h.name, errHostOff)
	}
	ctx, cancel := context.WithTimeout(t.Context(), teardownTimeout)
	defer cancel()
	if err := h.kill(ctx); err != nil {
		t.Fatalf("cut power of host %s: %v", h.name, err)
	}
}

// CutLink takes the host off the network, as if the cable were pulled at the bridge.
func (h *Host) CutLink(t testing.TB) {
	t.Helper()
	h.setLink(t, "down")
}

// RestoreLink puts the cable back.
func (h *Host) RestoreLink(t testing.TB) {
	t.Helper()
	h.setLink(t, "up")
}

func (h *Host) setLink(t testing.TB, state string) {
	t.Helper()
	if err := h.lab.network.ip(t.Context(), "link", "set", "vb-"+h.name, state); err != nil {
		t.Fatalf("set link of host %s %s: %v", h.name, state, err)
	}
}

// Journal returns what a unit of the host has logged, or the end of the whole journal for "". It returns the error where there is none.
func (h *Host) Journal(ctx context.Context, unit string) string {
	text, err := h.journal(ctx, unit)
	if err != nil {
		return err.Error()
	}
	return text
}

func (h *Host) journal(ctx context.Context, unit string) (string, error) {
	args := []string{"journalctl", "--no-pager", "--lines=" + strconv.Itoa(dumpLines)}
	if unit != "" {
		args = append(args, "--unit="+unit)
	}
	result, err := h.Run(ctx, args...)
	if err != nil {
		return "", err
	}
	return result.Stdout + result.Stderr, nil
}

// start starts the machine on the lab's thread: its parent death signal and its network come from there.
func (h *Host) start() error {
	groups, err := createCgroups(cgroupPrefix + filepath.Base(h.lab.dir) + "-" + h.name)
	if err != nil {
		return fmt.Errorf("create control groups: %w", err)
	}
	console, err := os.OpenFile(h.consolePath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	// No context ends a machine: Poweroff, PowerCut and the end of the lab do, each with a deadline.
	cmd := exec.CommandContext(context.Background(), "sh", append([]string{"-c", startScript, "start", h.name, h.dir, h.lab.root.usr(), bridgeName}, groups...)...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true, // an interrupt from the terminal is for the test, which then takes the host down
	}
	if err := h.lab.network.do(cmd.Start); err != nil {
		return err
	}
	m := &machine{process: cmd.Process, ended: make(chan struct{})}
	h.machine = m
	go func() {
		defer close(m.ended)
		_ = cmd.Wait() // how nspawn ends says nothing: the console does
	}()
	return nil
}

// awaitRunning waits until the host's systemd says that it has started everything, or has failed to start some units,
// which is for the test to judge.
func (h *Host) awaitRunning(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		result, err := h.Run(ctx, "systemctl", "is-system-running", "--wait")
		state := strings.TrimSpace(result.Stdout)
		if err == nil && (state == "running" || state == "degraded") {
			return nil
		}
		select {
		case <-tick.C:
		case <-h.machine.ended:
			h.machine = nil
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("systemd says %q (%v): %w", state, err, ctx.Err())
		}
	}
}

// awaitEnd waits until the machine is gone.
func (h *Host) awaitEnd(ctx context.Context) error {
	select {
	case <-h.machine.ended:
		h.machine = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("still on: %w", ctx.Err())
	}
}

// kill ends the machine, if there is one. The kernel kills a PID namespace with its first process, all at once.
func (h *Host) kill(ctx context.Context) error {
	if h.machine == nil {
		return nil
	}
	if err := h.machine.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return h.awaitEnd(ctx)
}

// leader returns the process number, as seen from here, of the host's systemd. It is the child of the machine's process
// that is number 1 in a namespace of its own.
func (h *Host) leader() (int, error) {
	if h.machine == nil {
		return 0, errHostOff
	}
	pid := h.machine.process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, errHostOff
	}
	for _, child := range strings.Fields(string(children)) {
		status, err := os.ReadFile("/proc/" + child + "/status")
		if err != nil {
			continue // it was a helper of nspawn, and has ended
		}
		if isNamespaceInit(string(status)) {
			return strconv.Atoi(child)
		}
	}
	return 0, errors.New("the host's systemd has not started")
}

// isNamespaceInit tells from /proc/PID/status whether the process is number 1 in its innermost PID namespace (see
// proc_pid_status(5), NSpid).
func isNamespaceInit(status string) bool {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			return len(fields) > 1 && fields[len(fields)-1] == "1"
		}
	}
	return false
}

// dump writes the end of the journal into the log of a failed test, and where there is none what the host has printed.
func (h *Host) dump(ctx context.Context, t testing.TB) {
	journal, err := h.journal(ctx, "")
	if err != nil {
		t.Logf("host %s: no journal: %v; its console:\n%s", h.name, err, h.console())
		return
	}
	t.Logf("host %s: journal:\n%s", h.name, journal)
}

func (h *Host) consolePath() string { return filepath.Join(h.dir, "console.log") }

// console returns the end of what the host has printed over all its boots.
func (h *Host) console() string {
	text, err := os.ReadFile(h.consolePath())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), dumpLines)
}

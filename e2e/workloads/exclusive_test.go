//go:build e2e

package workloads

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/e2e/server"
)

// fenceTime bounds the wait for another copy: the 90 s in which a server that has just begun gives nobody up, and a fence of a minute, on a busy machine.
const fenceTime = 5 * time.Minute

// leaseOver is how a host tells that it has ended a copy.
const leaseOver = "no server was heard for 15 s"

// exclusive declares a workload of which one copy runs, on hosts with a label of its name, with the shortest lease there is.
func exclusive(name, program, marks, template string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: 1
  selector: {matchLabels: {%[1]s: "yes"}}
  onUnreachable: {action: Fence, after: 15s}
  rollout: {maxSurge: "0", maxUnavailable: "1"}
  template:
    terminationGrace: 5s
%[5]s
    tasks:
    - name: marker
      command: [%[3]s]
      resources: {requests: {cpu: 10m, memory: 16Mi}}
      env:
      - {name: MARKS, value: %[4]s}
      - {name: NODE, valueFrom: {field: node.name}}
`, name, environment, program, marks, template)
}

// mark is one process of an exclusive workload, as it has noted it.
type mark struct {
	node        string
	pid         int
	begin, last int64 // ns of the boot clock
}

// parseMark reads what a marker has noted in a file of a name; false: it has noted nothing yet.
func parseMark(t *testing.T, name, text string) (m mark, noted bool) {
	t.Helper()
	node, pid, _ := strings.Cut(name, ".")
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("mark %s: %v", name, err)
	}
	m = mark{node: node, pid: number}
	_, err = fmt.Sscan(text, &m.begin, &m.last)
	return m, err == nil
}

// neverTwo fails a test of which two copies have run at once.
func neverTwo(t *testing.T, marks []mark) {
	t.Helper()
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.begin, b.begin) })
	for i := 1; i < len(marks); i++ {
		if m := marks[i]; m.begin <= marks[i-1].last {
			t.Errorf("two have run for %v at once: %+v and %+v", time.Duration(marks[i-1].last-m.begin), marks[i-1], m)
		}
	}
}

// isOn reports whether any copy has run on a node.
func isOn(marks []mark, node string) bool {
	return slices.ContainsFunc(marks, func(m mark) bool { return m.node == node })
}

// alone is a fleet whose hosts are each reached in another way, and what runs there in one copy.
type alone struct {
	*fleet
	marker, marks string
}

// on lets a host join on which a workload may run, and waits until a copy does.
func (f *alone) on(name, workload string, flags ...string) *rig.Host {
	f.Helper()
	h := f.Join(name, append(flags, "--environment", environment, "--label", workload+"=yes")...)
	h.Start()
	f.hosts[name] = h
	dir := filepath.Join(f.marks, workload)
	if err := os.Mkdir(dir, 0); err != nil {
		f.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // a task may run as anybody
		f.Fatal(err)
	}
	f.Apply(exclusive(workload, f.marker, dir, "    runtime: Process"))
	f.begun(workload, name)
	return h
}

// marked is what the copies of a workload have noted.
func (f *alone) marked(workload string) (all []mark) {
	f.Helper()
	files, err := os.ReadDir(filepath.Join(f.marks, workload))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(f.marks, workload, file.Name()))
		if err != nil {
			f.Fatal(err)
		}
		if m, noted := parseMark(f.T, file.Name(), string(text)); noted {
			all = append(all, m)
		}
	}
	return all
}

// begun waits until a copy of a workload has begun on a node, and returns all that there were.
func (f *alone) begun(workload, node string) []mark {
	f.Helper()
	var all []mark
	host.Eventually(f.T, fenceTime, "a copy of "+workload+" has begun on "+node, func() (string, bool) {
		all = f.marked(workload)
		return fmt.Sprintf("%+v\n%s", all, shown(f.instances(workload))), isOn(all, node)
	})
	return all
}

// says waits until an answer has some words.
func (f *alone) says(words string, args ...string) {
	f.Helper()
	host.Eventually(f.T, fenceTime, strings.Join(args, " ")+" says "+words, func() (string, bool) {
		out, _ := f.Try(args...)
		return out, strings.Contains(out, words)
	})
}

// relay starts a relay that reaches the server by a way, and returns where it serves.
func (f *alone) relay(way *rig.Way) string {
	f.Helper()
	tako, state := filepath.Join(f.Bin, "tako"), filepath.Join(f.Dir, "edge")
	line := f.Tako("token", "create", "relay", "edge")
	ctx, cancel := context.WithTimeout(f.Context(), rig.InTime)
	defer cancel()
	join := exec.CommandContext(ctx, tako, "relay", "join", "-", "--state", state)
	join.Stdin = strings.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		f.Fatalf("relay join: %v\n%s", err, out)
	}
	p := server.Launch(f.T, tako, "relay", "--state", state, "--listen", "127.0.0.1:0", "--upstream", way.Address())
	f.Cleanup(func() {
		p.End(syscall.SIGTERM)
		if f.Failed() {
			f.Logf("the relay said:\n%s", p.Log.Tail())
		}
	})
	return p.AwaitReady(f.T)
}

// TestExclusive: of what may run in one copy only never two run, whoever is cut off or stands still.
func TestExclusive(t *testing.T) {
	t.Parallel()
	f := &alone{fleet: newFleet(t, 0), marker: host.Program(t, "marker", "tako.dev/tako/e2e/workloads/marker")}
	var err error
	if f.marks, err = os.MkdirTemp("", "marks"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(f.marks) })
	if err := os.Chmod(f.marks, 0o755); err != nil {
		t.Fatal(err)
	}
	up, across := rig.NewWay(t, f.Transfer), rig.NewWay(t, f.Transfer)
	f.on("behind", "relayed", "--through", f.relay(up))
	apart := f.on("apart", "severed", "--through", across.Address())
	still := f.on("still", "frozen")
	workloads := []string{"relayed", "severed", "frozen"}
	spare := f.Join("spare", "--environment", environment, "--label", "relayed=yes", "--label", "severed=yes", "--label", "frozen=yes")
	spare.Start()
	f.heard("behind", "apart", "still", "spare")

	up.Lose()
	freeze(t, apart)
	across.Lose()
	freeze(t, still)

	t.Run("behind a relay that is cut off", func(t *testing.T) {
		neverTwo(t, f.begun("relayed", "spare"))
		up.Heal()
		f.says(leaseOver, "history", "node/behind")
	})
	t.Run("agent frozen and cut off", func(t *testing.T) {
		neverTwo(t, f.begun("severed", "spare"))
		across.Heal()
		thaw(t, apart)
		f.says(leaseOver, "history", "node/apart")
	})
	t.Run("agent frozen", func(t *testing.T) {
		neverTwo(t, f.begun("frozen", "spare")) // its host answers, and is not gone
		thaw(t, still)
		f.says(leaseOver, "history", "node/still")
	})
	if t.Failed() {
		return
	}
	for _, name := range workloads {
		f.oneRuns(name)
		neverTwo(t, f.marked(name))
	}
	f.end(workloads...)
}

// oneRuns waits until a workload is complete, of which there is one process then: what is left of others would be found.
func (f *alone) oneRuns(workload string) {
	f.Helper()
	host.Eventually(f.T, fenceTime, workload+" is complete", func() (string, bool) {
		w := f.workload(workload)
		return shown(w.Status), complete(1)(&w)
	})
	var running []mark
	for _, m := range f.marked(workload) {
		if runs(m.pid, "marker") {
			running = append(running, m)
		}
	}
	if len(running) != 1 {
		f.Errorf("of %s run %+v", workload, running)
	}
}

// freeze has an agent stand still, as one does that the kernel does not let go on. Its tasks do not.
func freeze(t *testing.T, h *rig.Host) {
	t.Helper()
	if err := h.Agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func thaw(t *testing.T, h *rig.Host) {
	t.Helper()
	if err := h.Agent.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

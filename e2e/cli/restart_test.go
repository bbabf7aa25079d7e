//go:build e2e

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
)

const (
	// settleTime bounds the wait for what a watch tells: the server may be starting, and the watch tries once a second.
	settleTime = time.Minute
	// restarts is how often the server ends under the watches.
	restarts = 4
)

// watch is a command that tells of changes until it is ended.
type watch struct {
	cmd  *exec.Cmd
	mu   sync.Mutex // guards said
	said []string   // lines
}

// watch starts a command, which ends with the test. One goroutine reads what it says, until it has ended.
func (p *person) watch(t *testing.T, script string) *watch {
	t.Helper()
	w := &watch{cmd: p.shell(t.Context(), "exec "+script)}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		w.read(out)
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // it may have ended
		<-read
		_ = w.cmd.Wait() // it was killed
	})
	return w
}

func (w *watch) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		w.mu.Lock()
		w.said = append(w.said, lines.Text())
		w.mu.Unlock()
	}
}

// lines returns each line that holds a text.
func (w *watch) lines(with string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, line := range w.said {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

// awaitLines waits until a watch has said as many lines with a text as it should.
func (w *watch) awaitLines(t *testing.T, with string, want int) {
	t.Helper()
	host.Eventually(t, settleTime, fmt.Sprintf("%d lines with %q", want, with), func() (string, bool) {
		got := w.lines(with)
		return strings.Join(got, "\n"), len(got) >= want
	})
}

// TestWatchesOverRestarts: what is watched is told once each, however often the server ends, gracefully or killed; what
// happens while it starts, before the watch is back, too.
func TestWatchesOverRestarts(t *testing.T) {
	p := newPerson(t, true)
	must := func(script string) {
		t.Helper()
		if out, errs, code := p.run(t, script); code != 0 {
			t.Fatalf("%s: exit %d: %s%s", script, code, out, errs)
		}
	}
	must("kubectl create configmap seen-0 && kubectl create configmap goes")
	objects := p.watch(t, "tako get configmaps -w -o ndjson")
	table := p.watch(t, "tako get configmaps -w")
	events := p.watch(t, "tako events -w")
	waiting := p.watch(t, "tako wait configmap/last --for=create --timeout=5m")
	table.awaitLines(t, "seen-0", 1)
	objects.awaitLines(t, "seen-0", 1)
	events.awaitLines(t, "LAST SEEN", 1)
	// The wait says nothing meanwhile; a command that begins while there is no server ends with that.
	must(watched)
	for i := 1; i <= restarts; i++ {
		if i%2 == 0 {
			p.server.Stop(t)
		} else {
			p.server.Kill()
		}
		p.server.Start(t)
		must(fmt.Sprintf("kubectl create configmap seen-%d", i))
		must("kubectl create -f - <<END\n" + event(i) + "END")
	}
	must("kubectl delete configmap goes && kubectl create configmap last")
	table.awaitLines(t, "last", 1)
	objects.awaitLines(t, `"last"`, 1)
	events.awaitLines(t, fmt.Sprintf("reason-%d", restarts), 1)
	if code := ended(t, waiting); code != 0 {
		t.Errorf("the wait ended with %d", code)
	}
	for i := range restarts + 1 {
		for _, w := range []*watch{objects, table} {
			if got := w.lines(fmt.Sprintf("seen-%d", i)); len(got) != 1 {
				t.Errorf("seen-%d is told in %d lines: %q", i, len(got), got)
			}
		}
		if got := events.lines(fmt.Sprintf("reason-%d ", i)); i > 0 && len(got) != 1 {
			t.Errorf("event %d is told in %d lines: %q", i, len(got), got)
		}
	}
	if got := objects.lines(`"DELETED"`); len(got) != 1 || !strings.Contains(got[0], "goes") {
		t.Errorf("the end of an object is told as %q", got)
	}
	if got := table.lines("(deleted)"); len(got) != 1 || !strings.Contains(got[0], "goes") {
		t.Errorf("the end of an object is told as %q", got)
	}
}

// watched waits until three watches of ConfigMaps are open.
const watched = `for i in $(seq 300); do
	n=$(kubectl get --raw /metrics | awk '/^apiserver_longrunning_requests\{.*resource="configmaps"/ { n += $2 } END { print n+0 }')
	[ "$n" -ge 3 ] && exit 0
	sleep 0.1
done
echo "$n watches of configmaps are open, not 3"
exit 1`

func event(i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Event
metadata: {name: happened-%d}
involvedObject: {kind: ConfigMap, name: seen-%d, namespace: default, apiVersion: v1}
reason: reason-%d
type: Normal
message: it happened
source: {component: test}
`, i, i, i)
}

// ended waits for the end of a command.
func ended(t *testing.T, w *watch) int {
	t.Helper()
	end := make(chan error, 1)
	go func() { end <- w.cmd.Wait() }()
	select {
	case <-end:
	case <-time.After(settleTime):
		_ = w.cmd.Process.Kill()
		<-end
		t.Errorf("the command has not ended")
	}
	return w.cmd.ProcessState.ExitCode()
}

// TestWatchAfterCompaction: where the server has forgotten the place of a watch, because it was away while much happened,
// what is different is told once, the end of an object too, and what is the same is not told again.
func TestWatchAfterCompaction(t *testing.T) {
	p := newPerson(t, true)
	must := func(script string) {
		t.Helper()
		if out, errs, code := p.run(t, script); code != 0 {
			t.Fatalf("%s: exit %d: %s%s", script, code, out, errs)
		}
	}
	must("for name in same changes goes again; do kubectl create configmap $name --from-literal=a=b; done")
	objects := p.watch(t, "tako get configmaps -w -o ndjson")
	table := p.watch(t, "tako get configmaps -w")
	for _, w := range []*watch{objects, table} {
		w.awaitLines(t, "same", 1)
		host.Stop(t, w.cmd.Process.Pid) // it is away
	}
	must("kubectl label configmap changes x=y && kubectl delete configmap goes again && kubectl create configmap again && kubectl create configmap new")
	compact(t, p.server)
	p.server.Kill()
	p.server.Start(t)
	for _, w := range []*watch{objects, table} {
		w.signal(t, syscall.SIGCONT)
		w.awaitLines(t, "new", 1)
	}
	must("kubectl create configmap last")
	for _, c := range []struct {
		watch *watch
		with  string
		want  map[string]int // lines by name
	}{
		{objects, `"ADDED"`, map[string]int{"same": 1, "changes": 1, "goes": 1, "again": 2, "new": 1, "last": 1}},
		{objects, `"MODIFIED"`, map[string]int{"changes": 1}},
		{objects, `"DELETED"`, map[string]int{"goes": 1, "again": 1}},
		{table, "", map[string]int{"same": 1, "changes": 2, "goes": 2, "again": 3, "new": 1, "last": 1}},
		{table, "(deleted)", map[string]int{"goes": 1, "again": 1}},
	} {
		c.watch.awaitLines(t, "last", 1)
		got := c.watch.lines(c.with)
		for _, name := range []string{"same", "changes", "goes", "again", "new", "last"} {
			of := slices.DeleteFunc(slices.Clone(got), func(line string) bool {
				return !strings.HasPrefix(line, name+" ") && !strings.Contains(line, fmt.Sprintf("%q", name))
			})
			if len(of) != c.want[name] {
				t.Errorf("%s with %q is told in %d lines, want %d: %q", name, c.with, len(of), c.want[name], of)
			}
		}
	}
}

// TestDeleteOfWhatComesBack: a wait for the end of an object ends when another one has its name.
func TestDeleteOfWhatComesBack(t *testing.T) {
	p := newPerson(t, true)
	step := func(script string) string {
		t.Helper()
		out, errs, code := p.run(t, script)
		if code != 0 {
			t.Fatalf("%s: exit %d: %s%s", script, code, out, errs)
		}
		return out
	}
	step("kubectl create configmap returns && kubectl patch configmap returns --type merge -p '{\"metadata\": {\"finalizers\": [\"test/held\"]}}'")
	deletion := p.watch(t, "tako delete configmap/returns --timeout=5m")
	host.Eventually(t, settleTime, "the deletion", func() (string, bool) {
		out := step("tako get configmap returns -o jsonpath='{.metadata.deletionTimestamp}'")
		return out, strings.TrimSpace(out) != ""
	})
	deletion.awaitLines(t, "deleted", 1)
	host.Stop(t, deletion.cmd.Process.Pid) // it does not see what happens now
	step("kubectl patch configmap returns --type merge -p '{\"metadata\": {\"finalizers\": null}}' && kubectl create configmap returns")
	p.server.Stop(t)
	p.server.Start(t)
	deletion.signal(t, syscall.SIGCONT)
	if code := ended(t, deletion); code != 0 {
		t.Errorf("the deletion ended with %d", code)
	}
}

func (w *watch) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// compact makes the server's own etcd forget everything but the present.
func compact(t *testing.T, s *server.Server) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(s.Dir, "etcd", "client.sock")}, DialTimeout: settleTime})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Get(t.Context(), "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = c.Compact(t.Context(), got.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

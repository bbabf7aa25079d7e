//go:build e2e

package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

const (
	// kills is how often the server is killed under load, and killsSoak in a long run.
	kills, killsSoak = 20, 200
	// writesPerLife is how many writes are acknowledged before the server is killed again.
	writesPerLife = 40
)

// TestKilledUnderLoad kills the server while it is written to. Whatever it has acknowledged is there afterwards, and a watch
// that is resumed, by a list where the server says so, has neither a gap nor a duplicate.
func TestKilledUnderLoad(t *testing.T) {
	rounds := kills
	if os.Getenv("TAKO_SOAK") != "" {
		rounds = killsSoak
	}
	s := newServer(t)
	c := s.client(t)
	l := newLoad(t, c)
	r, stop := startRecord(t, c)
	defer stop()
	l.start(t.Context())
	for range rounds {
		l.awaitMore(t, writesPerLife)
		s.kill(t)
		s.start(t)
	}
	l.awaitMore(t, writesPerLife)
	l.end()
	l.check(t, r)
}

// TestStop asks a server to stop that is watched and written to. It goes soon, and what it has acknowledged is there.
func TestStop(t *testing.T) {
	s := newServer(t)
	c := s.client(t)
	l := newLoad(t, c)
	r, stop := startRecord(t, c)
	defer stop()
	l.start(t.Context())
	l.awaitMore(t, writesPerLife)
	s.stop(t)
	s.start(t)
	l.awaitMore(t, writesPerLife)
	l.end()
	l.check(t, r)
}

// TestDisagreements breaks a history in every way that the check must notice.
func TestDisagreements(t *testing.T) {
	event := func(kind watch.EventType, name, value string, version uint64) entry {
		return entry{change: change{event: kind, name: name, value: value, version: version}}
	}
	add, mod, del, other := event(watch.Added, "a", "1", 5), event(watch.Modified, "a", "2", 6), event(watch.Deleted, "a", "2", 7), event(watch.Added, "b", "3", 8)
	list := func(version uint64, is map[string]string) entry {
		return entry{change: change{version: version}, relisted: is}
	}
	there := map[string]string{"b": "3"}
	untold := del.change
	untold.version, untold.after = 0, mod.version
	acked := []change{add.change, mod.change, untold, other.change}
	tried := map[string]bool{}
	for _, a := range acked {
		tried[a.wrote()] = true
	}
	for _, test := range []struct {
		name    string
		history []entry
		there   map[string]string
		want    string // "" is none
	}{
		{"good", []entry{add, mod, del, other}, there, ""},
		{"gap", []entry{add, del, other}, there, "acknowledged"},
		{"duplicate", []entry{add, mod, mod, del, other}, there, "seen twice"},
		{"order", []entry{add, mod, other, del}, there, "came after"},
		{"invented", []entry{add, mod, del, other, event(watch.Modified, "b", "9", 9)}, there, "nobody wrote"},
		{"lost deletion", []entry{add, mod, other}, there, "there is"},
		{"lost object", []entry{add, mod, del, other}, nil, "there is"},
		{"another version", []entry{add, event(watch.Modified, "a", "2", 7), event(watch.Deleted, "a", "2", 8), event(watch.Added, "b", "3", 9)}, there, "acknowledged"},
		{"list of all", []entry{list(8, there)}, there, ""},
		{"list in between", []entry{add, list(6, map[string]string{"a": "2"}), del, other}, there, ""},
		{"list after all", []entry{add, mod, list(8, there)}, there, ""},
		{"list of the past", []entry{add, mod, del, other, list(7, map[string]string{})}, nil, "listed at version"},
		{"list without an update", []entry{add, list(6, map[string]string{"a": "1"}), del, other}, there, "acknowledged"},
		{"list without an object", []entry{add, mod, list(9, map[string]string{})}, there, "there is"},
		{"list before a deletion", []entry{list(4, map[string]string{}), add, mod, del, other}, there, ""},
		{"list with what was deleted", []entry{add, mod, list(8, map[string]string{"a": "2", "b": "3"})}, there, "acknowledged"},
		{"duplicate after a list", []entry{add, list(6, map[string]string{"a": "2"}), mod, del, other}, there, "seen twice"},
	} {
		got := strings.Join(disagreements(tried, acked, test.history, test.there), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestOneServerPerDirectory: a second server on the same data directory goes, and the first does not notice.
func TestOneServerPerDirectory(t *testing.T) {
	s := newServer(t)
	second := startTako(t, "server", "--data-dir", s.dir, "--listen", "127.0.0.1:0")
	code := second.wait(readyTime)
	wantRefusal(t, second, code, reason.AnotherServer, "another server uses it: process "+itoa(s.run.cmd.Process.Pid))
	if _, err := s.client(t).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the first server: %v", err)
	}
	// The lock is of the process, not of a file that a killed one leaves.
	s.kill(t)
	s.start(t)
}

// TestDataOfAnotherFormat: a data directory of a later version, or one whose format nobody can read, is left alone.
func TestDataOfAnotherFormat(t *testing.T) {
	s := newServer(t)
	s.stop(t)
	for _, test := range []struct {
		name, format, words string
		code                reason.Code
	}{
		{"newer", "2\n", "it has format 2, and this version knows up to 1", reason.StateNewer},
		{"no number", "x\n", "restore the data directory from a backup", reason.StateCorrupt},
		{"empty", "", "restore the data directory from a backup", reason.StateCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(s.dir, "format")
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(test.format), 0o600); err != nil {
				t.Fatal(err)
			}
			p := startTako(t, "server", "--data-dir", s.dir, "--listen", s.listen)
			code := p.wait(readyTime)
			wantRefusal(t, p, code, test.code, test.words)
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	s.start(t)
}

// wantRefusal checks that a server has ended with the words and the exit code of a reason.
func wantRefusal(t *testing.T, p *process, code int, why reason.Code, words string) {
	t.Helper()
	said := p.log.tail()
	if entry, _ := reason.Lookup(why); code != int(entry.Exit) {
		t.Errorf("exit code %d, want %d of %v", code, entry.Exit, why)
	}
	if !strings.Contains(said, why.String()) || !strings.Contains(said, words) {
		t.Errorf("want %v and %q in:\n%s", why, words, said)
	}
	_ = p.end(syscall.SIGKILL)
}

const (
	// askers create at the same time, over a server that is restarted.
	askers = 32
	// restarts is how often it is asked to stop and started again.
	restarts = 5
	// createsPerLife is how many creations are acknowledged before it is asked to stop again.
	createsPerLife = 200
)

// TestRestartsUnderLoad restarts a server under many writers, as an upgrade does. What it has accepted it answers: a writer gets an
// answer, or was never connected. So nobody who tries again finds that the first try was done after all.
func TestRestartsUnderLoad(t *testing.T) {
	s := newServer(t)
	l := newLoad(t, s.client(t))
	var created atomic.Int64
	faults := make(chan string, askers)
	for i := range askers {
		l.all.Go(func() {
			for n := 0; !l.stopped(t.Context()); n++ {
				name := fmt.Sprintf("a%d-%d", i, n)
				if fault := l.createUntilAnswered(t.Context(), name); fault != "" {
					faults <- name + ": " + fault
					return
				}
				created.Add(1)
			}
		})
	}
	for range restarts {
		want := created.Load() + createsPerLife
		host.Eventually(t, settleTime, "more objects are created", func() (string, bool) {
			n := created.Load()
			return itoa(int(want-n)) + " are missing", n >= want || len(faults) > 0
		})
		s.stop(t)
		s.start(t)
	}
	l.end()
	close(faults)
	for f := range faults {
		t.Error(f)
	}
	list, err := l.objects.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d objects", len(list.Items)); int64(len(list.Items)) != created.Load() {
		t.Errorf("%d objects are there, and %d creations were acknowledged", len(list.Items), created.Load())
	}
}

// createUntilAnswered creates an object, and tries again as long as nobody is there to ask. It returns what else happened, "" when it
// was created.
func (l *load) createUntilAnswered(ctx context.Context, name string) (fault string) {
	for {
		_, err := l.objects.Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			return ""
		case !utilnet.IsConnectionRefused(err):
			return fmt.Sprintf("%T %v", err, err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return "the test is over"
		}
	}
}

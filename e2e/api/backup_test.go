//go:build e2e

package api_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"tako.dev/tako/e2e/host"
)

// TestBackupUnderLoad takes a backup while much is written, and restores it: everything is as it was at one moment between the
// beginning and the end of the backup, and the fleet has a new epoch.
func TestBackupUnderLoad(t *testing.T) {
	s := newServer(t)
	c := s.client(t)
	l := newLoad(t, c)
	r, stop := startRecord(t, c)
	defer stop()
	l.start(t.Context())
	l.awaitMore(t, writesPerLife)
	began := l.latest()
	file := filepath.Join(t.TempDir(), "backup.tar")
	mustRun(t, "server", "backup", file, "--data-dir", s.dir)
	l.awaitMore(t, writesPerLife)
	ended := l.latest()
	l.end()
	l.check(t, r) // the record has everything, so it can be compared with
	epoch := chainOf(t, s).Current().Epoch
	s.stop(t)

	dir := filepath.Join(t.TempDir(), "restored")
	mustRun(t, "server", "restore", file, "--data-dir", dir, "--machine-secret", filepath.Join(s.dir, "machine-secret"), "--root-key", filepath.Join(s.dir, "trust", "root-key"))
	restored := newServerIn(t, dir)
	list, err := restored.client(t).CoreV1().ConfigMaps(loadNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := r.momentOf(values(list.Items), began, ended)
	if t.Logf("written up to version %d before, %d after; the backup is of %d", began, ended, at); at == 0 {
		t.Errorf("there is %v, which was so at no moment in between", values(list.Items))
	}
	if now := chainOf(t, restored).Current().Epoch; now != epoch+1 {
		t.Errorf("epoch %d, was %d", now, epoch)
	}
}

// mustRun runs tako.
func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if _, said, code := command(t, exec.CommandContext(t.Context(), host.TakoBinary(t), args...)); code != 0 {
		t.Fatalf("tako %v: %d, %s", args, code, said)
	}
}

// latest is the highest version that was acknowledged.
func (l *load) latest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var at uint64
	for _, a := range l.acked {
		at = max(at, a.version)
	}
	return at
}

// momentOf is a version at which everything was as it is here, not before the first and not much after the last; 0 when there is
// none.
func (r *record) momentOf(here map[string]string, first, last uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := map[string]string{}
	for i, e := range r.history {
		if e.relisted != nil {
			state = maps.Clone(e.relisted)
		} else if state[e.name] = e.value; e.event == watch.Deleted {
			delete(state, e.name)
		}
		until := last // of what is after this entry
		if i+1 < len(r.history) {
			until = r.history[i+1].version
		}
		if until > first && e.version <= last && maps.Equal(state, here) {
			return e.version
		}
	}
	return 0
}

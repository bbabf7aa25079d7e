//go:build e2e

package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
)

const (
	// diskBytes is the size of the small disk. A new server takes 170 MiB of it, leaves 93 MiB free, and has the rest.
	diskBytes = 448 << 20
	// leftBytes is what a nearly full disk has left: nothing is written with it, and objects are deleted.
	leftBytes = 24 << 20
	// largeBytes is the size of the objects that fill it, below what an object may have.
	largeBytes = 512 << 10
	// quotaBytes is a quota that a few large objects exceed, and the empty database does not.
	quotaBytes = 12 << 20
	// largeMax is more objects than either limit has room for.
	largeMax = 600
	// diskWriters write at once while the disk gets full.
	diskWriters = 8
	// fullTime is how long the disk stays full: longer than anything that etcd does by itself waits.
	fullTime = 30 * time.Second
)

// fullWords are what a writer must be told, in any of these words: that there is no room, not that something failed.
var fullWords = regexp.MustCompile(`(?i)no space left|quota`)

// TestDiskFull: somebody fills the disk to the last byte under a server that eight clients write to. It refuses writes in words and
// goes on answering reads and watches; when there is room again it takes writes, and has lost nothing.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	s := newServerIn(t, filepath.Join(dir, "data"))
	f := newFiller(t, s)
	f.write(t, "before")
	seen := f.watch(t)
	writers := f.hammer(t)
	host.Eventually(t, settleTime, "all write", func() (string, bool) {
		n := f.count()
		return itoa(n), n > 2*diskWriters
	})
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	for range diskWriters {
		if refused := <-writers; !isFull(refused) {
			t.Errorf("refused with %v, which does not say that there is no room", refused)
		}
	}
	tick, over := time.NewTicker(time.Second), time.NewTimer(fullTime)
	defer tick.Stop()
	defer over.Stop()
	for full := true; full; {
		f.wantReads(t, s)
		select {
		case <-tick.C:
		case <-over.C:
			full = false
		}
	}
	if err := f.create(t.Context(), "late"); !isFull(err) {
		t.Errorf("created on a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.wantWrites(t)
	f.wantReads(t, s)
	f.wantSeen(t, seen)
}

// TestDiskWasFull fills the disk under a server and kills it. Without room it does not start, and says why. With room it has
// everything that it has acknowledged, and takes writes.
func TestDiskWasFull(t *testing.T) {
	dir := smallDisk(t)
	s := newServerIn(t, filepath.Join(dir, "data"))
	f := newFiller(t, s)
	f.write(t, "before")
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	f.untilRefused(t)
	s.kill(t)
	p := startTako(t, "server", "--data-dir", s.dir, "--listen", s.listen)
	code := p.wait(readyTime)
	if words := p.log.tail(); code != 1 || !fullWords.MatchString(words) || strings.Contains(words, "goroutine ") {
		t.Errorf("started on a full disk it ends with %d and says\n%s", code, words)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	f = f.again(t, s)
	f.wantReads(t, s)
	f.wantWrites(t)
}

// TestDiskNearlyFull: with a bit of room nothing is written, and objects are deleted, those too that somebody has to finish.
func TestDiskNearlyFull(t *testing.T) {
	dir := smallDisk(t)
	s := newServerIn(t, filepath.Join(dir, "data"))
	f := newFiller(t, s)
	f.write(t, "plain")
	held := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	if _, err := f.objects.Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	st, err := os.Stat(ballast)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ballast, st.Size()-leftBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.create(t.Context(), "new"); !isFull(err) {
		t.Errorf("created on a nearly full disk: %v", err)
	}
	for _, name := range []string{"plain", "held"} {
		if err := f.objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete %s on a nearly full disk: %v", name, err)
		}
	}
	if _, err := f.objects.Get(t.Context(), "plain", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get what was deleted: %v", err)
	}
}

// TestDiskTooFull: somebody writes past the server, to its etcd, which ends for want of room. The server ends with it, soon and in
// words; started again with room it has everything that it has acknowledged.
func TestDiskTooFull(t *testing.T) {
	dir := smallDisk(t)
	s := newServerIn(t, filepath.Join(dir, "data"))
	f := newFiller(t, s)
	f.write(t, "before")
	past, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: []string{"unix://" + filepath.Join(s.dir, "etcd", "client.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	defer past.Close()
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	for i := 0; err == nil && i < largeMax; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), requestTime)
		_, err = past.KV.Put(ctx, "/past", f.text)
		cancel()
	}
	code, words := s.run.wait(readyTime), s.run.log.tail()
	if code != 1 || !strings.Contains(words, reason.DiskFull.String()) || strings.Contains(words, "goroutine ") {
		t.Errorf("the server ends with %d and says\n%s", code, words)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	f = f.again(t, s)
	f.wantReads(t, s)
	f.wantWrites(t)
}

// isFull says whether a write was refused since there is no room, in words.
func isFull(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage && fullWords.MatchString(status.Status().Message)
}

// TestQuota fills the database to its quota. The server refuses writes in words and goes on answering reads; when objects were
// deleted it makes room of them by itself.
func TestQuota(t *testing.T) {
	s := newServer(t, "--quota-bytes", itoa(quotaBytes))
	f := newFiller(t, s)
	f.write(t, "before")
	refused := f.untilRefused(t)
	if !isFull(refused) {
		t.Errorf("refused with %v, which does not say that the quota is reached", refused)
	}
	f.wantReads(t, s)
	for _, name := range f.written[1:] {
		if err := f.objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("delete while the quota is exceeded: %v", err)
		}
	}
	t.Run("room", func(t *testing.T) {
		f.wantWrites(t)
	})
}

// smallDisk is a directory on a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a small file system is mounted")
	}
	dir := t.TempDir()
	mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+itoa(diskBytes), "tako-e2e", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("needs permission to mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		if _, err = f.Write(block); err != nil && len(block) > 1 {
			block, err = block[:len(block)/2], nil // to the last byte
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// filler writes large objects.
type filler struct {
	client  rest.Interface
	objects corev1.ConfigMapInterface
	text    string

	mu      sync.Mutex // guards written
	written []string
}

func newFiller(t *testing.T, s *server) *filler {
	t.Helper()
	f := &filler{text: strings.Repeat("x", largeBytes)}
	return f.again(t, s)
}

// again is a filler that knows of the same objects, for a server that was started again.
func (f *filler) again(t *testing.T, s *server) *filler {
	t.Helper()
	c := s.client(t).CoreV1()
	return &filler{client: c.RESTClient(), objects: c.ConfigMaps(metav1.NamespaceDefault), text: f.text, written: f.written}
}

// create writes an object. It does not ask again when the server says that it may.
func (f *filler) create(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	o := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": f.text}}
	err := f.client.Post().Namespace(metav1.NamespaceDefault).Resource("configmaps").MaxRetries(0).Body(o).Do(ctx).Error()
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.written = append(f.written, name)
	}
	return err
}

// count is how many objects were acknowledged.
func (f *filler) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.written)
}

// hammer lets clients write until each is refused, and tells in which words.
func (f *filler) hammer(t *testing.T) <-chan error {
	t.Helper()
	refused := make(chan error, diskWriters)
	var all sync.WaitGroup
	for w := range diskWriters {
		all.Go(func() {
			for i := range largeMax {
				if err := f.create(t.Context(), fmt.Sprintf("writer-%d-%03d", w, i)); err != nil {
					refused <- err
					return
				}
			}
			refused <- nil
		})
	}
	t.Cleanup(all.Wait)
	return refused
}

// watch tells the names of objects that are made, as one watch sees them that is never begun anew.
func (f *filler) watch(t *testing.T) <-chan string {
	t.Helper()
	w, err := f.objects.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	names := make(chan string, largeMax*diskWriters)
	go func() { // ends with the watch
		defer close(names)
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*core.ConfigMap); ok && e.Type == apiwatch.Added {
				names <- o.Name
			}
		}
	}()
	return names
}

// wantSeen waits until a watch has told of everything that was acknowledged, once.
func (f *filler) wantSeen(t *testing.T, seen <-chan string) {
	t.Helper()
	missing := map[string]bool{}
	for _, name := range f.written {
		missing[name] = true
	}
	late := time.NewTimer(settleTime)
	defer late.Stop()
	told := map[string]bool{}
	for len(missing) > 0 {
		select {
		case name, ok := <-seen:
			if !ok || told[name] {
				t.Fatalf("the watch ended (%v) or told of %q again; %d are missing", !ok, name, len(missing))
			}
			told[name] = true
			delete(missing, name)
		case <-late.C:
			t.Fatalf("the watch has not told of %d objects", len(missing))
		}
	}
}

func (f *filler) write(t *testing.T, name string) {
	t.Helper()
	if err := f.create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// untilRefused writes until that is refused, and returns in which words.
func (f *filler) untilRefused(t *testing.T) error {
	t.Helper()
	for i := range largeMax {
		if err := f.create(t.Context(), fmt.Sprintf("large-%03d", i)); err != nil {
			t.Logf("refused after %d objects: %v", i, err)
			return err
		}
	}
	t.Fatalf("%d objects of %d bytes were taken", largeMax, largeBytes)
	return nil
}

// wantReads reads everything that was acknowledged.
func (f *filler) wantReads(t *testing.T, s *server) {
	t.Helper()
	select {
	case <-s.run.ended:
		t.Fatalf("the server has ended (%v):\n%s", s.run.cmd.ProcessState, s.run.log.tail())
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.written {
		ctx, cancel := context.WithTimeout(t.Context(), requestTime)
		o, err := f.objects.Get(ctx, name, metav1.GetOptions{})
		cancel()
		if err != nil || len(o.Data["x"]) != largeBytes {
			t.Fatalf("read %s while there is no room: %v", name, err)
		}
	}
}

// wantWrites waits until writes are taken again.
func (f *filler) wantWrites(t *testing.T) {
	t.Helper()
	host.Eventually(t, settleTime, "writes are taken again", func() (string, bool) {
		err := f.create(t.Context(), "after")
		return fmt.Sprint(err), err == nil
	})
	for _, name := range []string{"before", "after"} {
		if _, err := f.objects.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("read %s when there is room again: %v", name, err)
		}
	}
}

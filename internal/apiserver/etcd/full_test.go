package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"tako.dev/tako/internal/reason"
)

const (
	// diskBytes is room for a member with the six segments that etcd may keep of its log, for the floor of writes, and for a bit.
	diskBytes = 512 << 20
	// settleTime bounds the wait for what a member does by itself.
	settleTime = time.Minute
	// pollTime is how often it is looked for.
	pollTime = 50 * time.Millisecond
)

// smallDisk is a directory on a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a small file system is mounted")
	}
	dir := t.TempDir()
	mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(diskBytes), "tako-test", dir)
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

// fill takes all of a disk but so many bytes, which others may take meanwhile, and returns what gives it back.
func fill(t *testing.T, dir string, but int64) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "other")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bytes, _, err := look(dir)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for more := bytes - but; more > 0; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, size, more); {
		case err == nil:
			size += more
		case errors.Is(err, syscall.ENOSPC):
			more /= 2
		default:
			t.Fatal(err)
		}
		if but > 0 && size >= bytes-but {
			break
		}
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// onDisk is a member on a small disk, with a client that is attached and one that nothing guards.
type onDisk struct {
	dir      string
	member   *Member
	attached *kubernetes.Client
	raw      *kubernetes.Client
}

func startOnDisk(t *testing.T) *onDisk {
	t.Helper()
	d := &onDisk{dir: smallDisk(t)}
	var err error
	if d.member, err = Start(t.Context(), Options{Dir: filepath.Join(d.dir, "etcd")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.member.Close() })
	for _, c := range []**kubernetes.Client{&d.attached, &d.raw} {
		if *c, err = Connect(t.Context(), Connection{Endpoints: d.member.Endpoints()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*c).Close() })
	}
	d.member.Attach(d.attached)
	return d
}

// maintain maintains the member until the test ends.
func (d *onDisk) maintain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() { d.member.Maintain(ctx, d.attached.Client, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	tick, late := time.NewTicker(pollTime), time.NewTimer(settleTime)
	defer tick.Stop()
	defer late.Stop()
	for {
		err := is()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s: not within %v: %v", what, settleTime, err)
		}
	}
}

// TestDiskFull: a disk that others fill to the last byte, while eight write. Nothing ends, what was acknowledged can be read, and
// there are writes as soon as there is room.
func TestDiskFull(t *testing.T) {
	d := startOnDisk(t)
	d.maintain(t)
	const writers, valueBytes = 8, 64 << 10
	value := strings.Repeat("x", valueBytes)
	var (
		mu           sync.Mutex // guards acknowledged
		acknowledged []string
		all          sync.WaitGroup
	)
	started := make(chan struct{}, writers)
	for w := range writers {
		all.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("/%d/%d", w, i)
				if _, err := d.attached.KV.Put(t.Context(), key, value); err != nil {
					if !reason.Is(err, reason.DiskFull) {
						t.Errorf("put %s: %v", key, err)
					}
					return
				}
				if i == 0 {
					started <- struct{}{}
				}
				mu.Lock()
				acknowledged = append(acknowledged, key)
				mu.Unlock()
			}
		})
	}
	for range writers {
		<-started
	}
	free := fill(t, d.dir, 0)
	all.Wait()
	if err := d.member.Writable(); !reason.Is(err, reason.DiskFull) {
		t.Errorf("writable: %v", err)
	}
	if _, err := d.attached.KV.Delete(t.Context(), "/0/0"); !reason.Is(err, reason.DiskFull) {
		t.Errorf("deleted without any room: %v", err)
	}
	if _, err := d.attached.Lease.Grant(t.Context(), 60); !reason.Is(err, reason.DiskFull) {
		t.Errorf("leased without any room: %v", err)
	}
	for _, key := range acknowledged {
		if got, err := d.attached.KV.Get(t.Context(), key); err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) != valueBytes {
			t.Fatalf("read %s: %v", key, err)
		}
	}
	free()
	if _, err := d.attached.KV.Put(t.Context(), "/after", value); err != nil && !d.member.stuck.Load() {
		t.Errorf("put when there is room: %v", err)
	}
	eventually(t, "there are writes", func() error {
		_, err := d.attached.KV.Put(t.Context(), "/after", value)
		return err
	})
	if err := d.member.Err(); err != nil {
		t.Error(err)
	}
}

// TestDeleteOnFullDisk: between the floors there are deletions and no writes.
func TestDeleteOnFullDisk(t *testing.T) {
	d := startOnDisk(t)
	if _, err := d.attached.KV.Put(t.Context(), "/key", "value"); err != nil {
		t.Fatal(err)
	}
	fill(t, d.dir, shrinkBytesMin+1<<20)
	if _, err := d.attached.KV.Put(t.Context(), "/key", "other"); !reason.Is(err, reason.DiskFull) {
		t.Errorf("put: %v", err)
	}
	if _, err := d.attached.KV.Delete(t.Context(), "/key"); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// TestLogGoesOn: the disk was full when the log needed its next segment, so that etcd would end when the last one is full. With
// room it gets one: the member is opened again, and neither readers, writers nor watches see anything of it.
func TestLogGoesOn(t *testing.T) {
	d := startOnDisk(t)
	events := d.attached.Watch(t.Context(), "/watched", clientv3.WithPrefix())
	free := fill(t, d.dir, wal.SegmentSizeBytes/2)
	d.write(t, wal.SegmentSizeBytes) // into the second segment
	eventually(t, "the log has no next segment", func() error {
		s, err := lookAtLog(logDir(d.member.opts.Dir))
		if err == nil && s.spare {
			err = fmt.Errorf("it has: %+v", s)
		}
		return err
	})
	d.maintain(t)
	eventually(t, "it is seen", func() error {
		if !d.member.stuck.Load() {
			return errors.New("not stuck")
		}
		return nil
	})
	if _, err := d.attached.KV.Put(t.Context(), "/watched/1", "early"); !reason.Is(err, reason.DiskFull) {
		t.Errorf("put: %v", err)
	}
	// The watch goes on from here; before is history that was cut.
	if _, err := d.raw.KV.Put(t.Context(), "/watched/0", "value"); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, events, "/watched/0")
	free()
	eventually(t, "there are writes", func() error {
		_, err := d.attached.KV.Put(t.Context(), "/watched/1", "value")
		return err
	})
	wantEvent(t, events, "/watched/1")
	d.write(t, 2*wal.SegmentSizeBytes)
	if _, err := d.attached.KV.Put(t.Context(), "/watched/2", "value"); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, events, "/watched/2")
	if err := d.member.Err(); err != nil {
		t.Error(err)
	}
}

// wantEvent reads the next event, which must be about a key.
func wantEvent(t *testing.T, events clientv3.WatchChan, key string) {
	t.Helper()
	select {
	case r := <-events:
		if len(r.Events) != 1 || string(r.Events[0].Kv.Key) != key {
			t.Fatalf("told %+v (%v), want %s", r, r.Err(), key)
		}
	case <-time.After(settleTime):
		t.Fatalf("not told of %s within %v", key, settleTime)
	}
}

// write writes so many bytes to the log, unguarded. The database grows by next to nothing.
func (d *onDisk) write(t *testing.T, bytes int64) {
	t.Helper()
	const valueBytes, together = 1 << 20, 8
	value := strings.Repeat("x", valueBytes)
	for i := range bytes/valueBytes + 1 {
		r, err := d.raw.KV.Put(t.Context(), "/key", value)
		if err == nil && i%together == together-1 {
			_, err = d.raw.KV.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// TestEtcdEnds: when etcd cannot go on for want of room, the process has time to say so.
func TestEtcdEnds(t *testing.T) {
	d := startOnDisk(t)
	fill(t, d.dir, 0)
	value := strings.Repeat("x", 1<<20)
	for ended := false; !ended; {
		ctx, cancel := context.WithTimeout(t.Context(), settleTime)
		_, err := d.raw.KV.Put(ctx, "/key", value)
		cancel()
		select {
		case <-d.member.Ended():
			ended = true
		default:
			if err != nil {
				t.Fatalf("put: %v, and it has not ended", err)
			}
		}
	}
	if err := d.member.Err(); !reason.Is(err, reason.DiskFull) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("ended: %v", err)
	}
	if _, err := d.attached.KV.Put(t.Context(), "/key", value); !reason.Is(err, reason.DiskFull) {
		t.Errorf("put after the end: %v", err)
	}
}

// TestStartOnFullDisk: a start without room is refused in words, and is possible with room. One that has started before needs less.
func TestStartOnFullDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "etcd")
	for run, left := range []int64{growBytesMin(), shrinkBytesMin} {
		free := fill(t, disk, left)
		_, err := Start(t.Context(), Options{Dir: dir})
		if !reason.Is(err, reason.DiskFull) || !strings.Contains(fmt.Sprint(err), dir) {
			t.Errorf("start %d: %v", run, err)
		}
		free()
		m, err := Start(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatalf("start %d with room: %v", run, err)
		}
		m.Close()
	}
	fill(t, disk, growBytesMin()+growBytesSpare) // of which it takes a segment
	m, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatalf("start on a nearly full disk: %v", err)
	}
	if err := m.Writable(); !reason.Is(err, reason.DiskFull) {
		t.Errorf("writable: %v", err)
	}
	m.Close()
}

package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk/disktest"
)

// eventually waits for a state, with a deadline; look says what it is when it is not the one that is wanted.
func eventually(t *testing.T, look func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		state := look()
		if state == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("gave up waiting: %s", state)
		case <-tick.C:
		}
	}
}

// running calls run in the background for the time of the test.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	})
}

func TestWriters(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	w, err := NewWriters(r, func(_, name string) bool { return name != "boring" })
	if err != nil {
		t.Skip("needs fanotify:", err)
	}
	t.Cleanup(func() { w.Close() })
	disktest.Must(t, w.Add(dir))
	running(t, w.Run)

	disktest.Must(t, os.WriteFile(dir+"/f", []byte("ours"), 0o644))
	// Nothing that this process runs is somebody else, however deep below it.
	disktest.Must(t, exec.Command("/bin/sh", "-c", `sh -c 'echo ours >"$0/f"; sleep 0.1' "$0"; :`, dir).Run())
	if v, ok := w.Last(dir, "f"); ok {
		t.Errorf("what this process runs is remembered as %+v", v)
	}
	// A shell that has lost its parent is. It writes, and stays until it is told to end, so that it can still be looked at.
	pipes := t.TempDir()
	disktest.Must(t, unix.Mkfifo(pipes+"/begin", 0o600))
	disktest.Must(t, unix.Mkfifo(pipes+"/end", 0o600))
	script := `read go <"$1/begin"; echo theirs >"$0/boring"; echo theirs >"$0/f"; read go <"$1/end"`
	disktest.Must(t, exec.Command("setsid", "--fork", "/bin/sh", "-c", script, dir, pipes).Run())
	disktest.Must(t, os.WriteFile(pipes+"/begin", []byte("\n"), 0))
	eventually(t, func() string {
		v, ok := w.Last(dir, "f")
		if ok && v.PID > 1 && v.UID == 0 && v.Comm == "sh" && v.Exe != "" {
			return ""
		}
		return fmt.Sprintf("%+v, %v", v, ok)
	})
	disktest.Must(t, os.WriteFile(pipes+"/end", []byte("\n"), 0))
	if _, ok := w.Last(dir, "boring"); ok {
		t.Error("an entry that nobody wants is remembered")
	}

	w.Remove(dir)
	disktest.Must(t, os.Rename(dir+"/f", dir+"/g"))
	disktest.Must(t, w.Add(dir))
	disktest.Must(t, exec.Command("setsid", "--fork", "/bin/sh", "-c", `read go <"$1/begin"; touch "$0/h"`, dir, pipes).Run())
	disktest.Must(t, os.WriteFile(pipes+"/begin", []byte("\n"), 0))
	eventually(t, func() string {
		if v, ok := w.Last(dir, "h"); !ok || v.PID == 0 {
			return "h is not there"
		}
		return ""
	})
}

// TestOrdinaryUser: who may not ask the kernel for the writers is told so, and still hears of changes.
func TestOrdinaryUser(t *testing.T) {
	dir, inside := disktest.AsNobody(t)
	if !inside {
		return
	}
	r := hostRoot(t)
	w, err := New(r)
	disktest.Must(t, err)
	disktest.Must(t, w.Watch(dir+"/f", 1))
	disktest.Must(t, w.Close())
	if _, err := NewWriters(r, nil); err == nil {
		t.Error("fanotify without the right to it")
	}
}

func TestWritersAreBounded(t *testing.T) {
	w := &Writers{wanted: func(string, string) bool { return true }, dirs: map[string]string{"k": "/d"}, last: map[entryKey]Writer{}}
	for i := range 2 * writersKept {
		w.note(written{pid: 1, dir: "k", name: fmt.Sprint(i)}, time.Unix(int64(i), 0))
	}
	_, first := w.Last("/d", "0")
	_, last := w.Last("/d", fmt.Sprint(2*writersKept-1))
	if len(w.last) != writersKept || first || !last {
		t.Errorf("%d kept, oldest %v, newest %v", len(w.last), first, last)
	}
}

func TestParseStatus(t *testing.T) {
	comm, parent, uid := parseStatus([]byte("Name:\tsome name\nState:\tS\nPPid:\t7\nUid:\t1\t22\t3\t4\nGid:\t9\t9\t9\t9\n"))
	if comm != "some name" || parent != 7 || uid != 22 {
		t.Errorf("%q, %d, %d", comm, parent, uid)
	}
	parseStatus(nil)
	parseStatus([]byte("Uid:\t\nName:"))
}

// fanotifyEvent makes an event as the kernel does.
func fanotifyEvent(pid int32, dir, name string) []byte {
	record := append([]byte(dir), append([]byte(name), 0)...)
	for len(record)%4 != 0 {
		record = append(record, 0)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(fanotifyHeader+fanotifyRecord+len(record)))
	b = append(b, unix.FANOTIFY_METADATA_VERSION, 0)
	b = binary.NativeEndian.AppendUint16(b, fanotifyHeader)
	b = binary.NativeEndian.AppendUint64(b, unix.FAN_MODIFY)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0))
	b = binary.NativeEndian.AppendUint32(b, uint32(pid))
	b = append(b, unix.FAN_EVENT_INFO_TYPE_DFID_NAME, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(fanotifyRecord+len(record)))
	return append(b, record...)
}

func FuzzParseWrites(f *testing.F) {
	handle := string(append(binary.NativeEndian.AppendUint32(make([]byte, 8), 4), 1, 0, 0, 0, 'h', 'a', 'n', 'd'))
	good := append(fanotifyEvent(7, handle, "name"), fanotifyEvent(8, handle, "")...)
	var names []string
	if err := parseWrites(good, func(w written) { names = append(names, fmt.Sprintf("%d %v %s", w.pid, w.dir == handle, w.name)) }); err != nil || fmt.Sprint(names) != "[7 true name 8 true ]" {
		f.Fatalf("%q, %v", names, err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:30])
	f.Add(bytes.Replace(good, []byte{4, 0, 0, 0}, []byte{255, 255, 255, 255}, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0
		_ = parseWrites(b, func(w written) { size += len(w.dir) + len(w.name) })
		if size > len(b) {
			t.Errorf("%d bytes out of %d", size, len(b))
		}
	})
}

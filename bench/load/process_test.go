package load

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCountCalls(t *testing.T) {
	table := `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 54.70    1.032299        1470       702        44 futex
  7.01    0.132282          14        13         9 statx
  0.10    0.000100          10         2           readlinkat
------ ----------- ----------- --------- --------- ------------------
100.00    1.164681                   717        53 total
`
	if got, want := countCalls(table), (Calls{All: 717, Stats: 15, Waits: 702}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestInotify counts what this process has, and then has more of.
func TestInotify(t *testing.T) {
	count := func() (instances, watches int) {
		instances, watches, err := Process(os.Getpid()).Inotify()
		if err != nil {
			t.Fatal(err)
		}
		return instances, watches
	}
	instances, watches := count()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 2 {
		if _, err := unix.InotifyAddWatch(fd, t.TempDir(), unix.IN_CREATE); err != nil {
			t.Fatal(err)
		}
	}
	if i, w := count(); i != instances+1 || w != watches+2 {
		t.Errorf("%d instances and %d watches, want %d and %d", i, w, instances+1, watches+2)
	}
}

// TestConnectionsTo counts the connections of this process to a listener of its own.
func TestConnectionsTo(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for want := range 3 {
		if got, err := Process(os.Getpid()).ConnectionsTo(l.Addr().String()); err != nil || got != want {
			t.Errorf("%d connections, want %d: %v", got, want, err)
		}
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
}

func TestSample(t *testing.T) {
	var s Sample
	for i := 100; i > 0; i-- {
		s = append(s, time.Duration(i)*time.Millisecond)
	}
	if s.Median() != 51*time.Millisecond || s.At(0.99) != 100*time.Millisecond || s.At(1) != 100*time.Millisecond {
		t.Errorf("%v", s)
	}
	if s[0] != 100*time.Millisecond {
		t.Error("the sample was sorted in place")
	}
}

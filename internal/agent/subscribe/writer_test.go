package subscribe

import (
	"testing"
	"time"

	"tako.dev/tako/internal/disk/watch"
	"tako.dev/tako/internal/host"
)

// TestNewestWriter: who wrote before the resource was as declared last has not changed it, and of several the newest has.
func TestNewestWriter(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	last := func(dir, name string) (watch.Writer, bool) {
		w, ok := map[string]watch.Writer{"/etc|group": {PID: 1, At: at(10)}, "/srv|d": {PID: 2, At: at(20)}, "|top": {PID: 3, At: at(30)}}[dir+"|"+name]
		return w, ok
	}
	path := func(p string) host.Watch { return host.Watch{Kind: host.WatchPath, Name: p} }
	for _, c := range []struct {
		after   int64
		watches []host.Watch
		pid     int // 0: none
	}{
		{5, []host.Watch{path("/etc/group"), path("/srv/d")}, 2},
		{5, []host.Watch{path("/srv/d"), path("/etc/group")}, 2},
		{15, []host.Watch{path("/etc/group")}, 0},
		{20, []host.Watch{path("/srv/d")}, 0},
		{0, []host.Watch{path("/top"), path("/none")}, 3},
		{0, []host.Watch{{Kind: host.WatchUnit, Name: "/srv/d"}}, 0},
		{0, nil, 0},
	} {
		if w, known := newestWriter(last, c.watches, at(c.after)); w.PID != c.pid || known != (c.pid != 0) {
			t.Errorf("after %d, %v: %+v, %v; want pid %d", c.after, c.watches, w, known, c.pid)
		}
	}
}

package watch

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

// TestNamesLeaveWatchesToOthers: a large tree does not take the watches that everything else of the user needs, of this program and of
// others: without them systemd does not hear of a service that has ended. The limit is that of a user namespace of the test's own.
func TestNamesLeaveWatchesToOthers(t *testing.T) {
	const limit, directories = 40, 60
	if dir := os.Getenv(disktest.AgainEnv); dir != "" {
		inLimit(t, dir, limit, directories)
		return
	}
	disktest.NeedRoot(t)
	dir := t.TempDir()
	for i := range directories {
		disktest.Must(t, os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755))
	}
	disktest.Must(t, os.Mkdir(dir+"/other", 0o755))
	script := fmt.Sprintf(`echo %d >/proc/sys/user/max_inotify_watches && exec "$0" -test.run='^TestNamesLeaveWatchesToOthers$' -test.v`, limit)
	cmd := exec.Command("unshare", "--user", "--map-root-user", "sh", "-c", script, os.Args[0])
	cmd.Env = append(os.Environ(), disktest.AgainEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if !strings.Contains(string(out), "=== RUN") {
		t.Skipf("needs user namespaces: %v\n%s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func inLimit(t *testing.T, dir string, limit, directories int) {
	w, k := watching(t, hostRoot(t))
	refused := 0
	for i := range directories {
		if err := w.WatchNames(fmt.Sprintf("%s/%d", dir, i), ID(i)); err != nil {
			disktest.WantCode(t, err, reason.WatchLimit)
			refused++
		}
	}
	if used := w.Stats().Watches; used != limit/2 || len(w.Unwatched()) != refused || used+refused < directories {
		t.Errorf("%d watches of %d are in use, %d were refused, %d are unwatched", used, limit, refused, len(w.Unwatched()))
	}
	disktest.Must(t, w.Watch(dir+"/other/f", 100))
	disktest.Must(t, os.WriteFile(dir+"/other/f", nil, 0o644))
	eventually(t, func() string {
		if k.has(100) {
			return ""
		}
		return "a file beside the tree is not told"
	})
	last := ID(directories - 1)
	entry := fmt.Sprintf("%s/%d/f", dir, last)
	disktest.Must(t, w.Watch(entry, last)) // it is wanted by itself now
	disktest.Must(t, os.WriteFile(entry, nil, 0o644))
	eventually(t, func() string {
		if k.has(last) {
			return ""
		}
		return "a file below the tree is not told"
	})
	if got := w.Retry(); len(got) != 0 {
		t.Errorf("watched although nothing has changed: %v", got)
	}
	disktest.Must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", fmt.Append(nil, 10*directories), 0o644))
	if got := w.Retry(); len(got) == 0 || len(w.Unwatched()) != 0 {
		t.Errorf("with a higher limit: %v, unwatched %v", got, w.Unwatched())
	}
}

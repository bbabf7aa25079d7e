package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// controllers are of cgroups v1, and read-only in a host.
var controllers = []string{"memory", "pids", "cpu", "cpuacct"}

// GiveControllers lets a host bound what its processes take, where this machine has cgroups v1. ForgetGroups is to be called before the lab is
// made.
func (h *Host) GiveControllers(t testing.TB) {
	t.Helper()
	for _, controller := range controllers {
		h.MustRun(t, "mount", "-o", "remount,bind,rw", "/sys/fs/cgroup/"+controller)
	}
	h.MustRun(t, "systemctl", "daemon-reexec") // it looks for controllers when it begins
}

// ForgetGroups removes, when the test ends, the cgroups that hosts have made since in the controllers of this machine: labs have groups in the
// hierarchies of systemd only. The kernel refuses to remove one that is in use.
func ForgetGroups(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{}
	var parents []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && slices.Contains(controllers, fields[1]) {
			parents = append(parents, filepath.Join(cgroupRoot, fields[1], fields[2]))
		}
	}
	each := func(do func(dir string)) {
		for _, parent := range parents {
			entries, err := os.ReadDir(parent)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				if e.IsDir() {
					do(filepath.Join(parent, e.Name()))
				}
			}
		}
	}
	each(func(dir string) { before[dir] = true })
	t.Cleanup(func() {
		each(func(dir string) {
			if !before[dir] {
				removeGroups(dir)
			}
		})
	})
}

// removeGroups removes a cgroup and what is below it, as far as nothing is in them.
func removeGroups(dir string) {
	entries, _ := os.ReadDir(dir) // of one that is gone there is nothing to do
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir) // one that somebody else uses stays
}

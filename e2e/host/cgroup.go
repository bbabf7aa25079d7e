package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where every Linux distribution mounts control groups (systemd's file-hierarchy).
const cgroupRoot = "/sys/fs/cgroup"

// cgroupParents returns the directories of the control groups that the test process is in, of the hierarchies that systemd
// manages: the unified one, and in the older layouts "name=systemd" beside it.
func cgroupParents() ([]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var parents []string
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		hierarchy, group, _ := strings.Cut(rest, ":")
		var mounts []string
		switch hierarchy {
		case "":
			mounts = []string{filepath.Join(cgroupRoot, "unified"), cgroupRoot}
		case "name=systemd":
			mounts = []string{filepath.Join(cgroupRoot, "systemd")}
		}
		for _, mount := range mounts {
			parent := filepath.Join(mount, group)
			if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err == nil {
				parents = append(parents, parent)
				break
			}
		}
	}
	return parents, nil
}

// createCgroups makes a control group of that name in each hierarchy of systemd and returns their directories.
func createCgroups(name string) ([]string, error) {
	parents, err := cgroupParents()
	if err != nil {
		return nil, err
	}
	groups := make([]string, len(parents))
	for i, parent := range parents {
		groups[i] = filepath.Join(parent, name)
		if err := os.Mkdir(groups[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return groups, nil
}

// removeCgroups removes the control groups whose name begins with prefix, with what is below, and kills what runs in them.
func removeCgroups(ctx context.Context, prefix string) error {
	parents, err := cgroupParents()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		groups, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
		if err != nil {
			return err
		}
		for _, group := range groups {
			if err := removeCgroup(ctx, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroup removes a group with its children. It tries until the last process in them has ended: the kernel refuses to
// remove the group of a process.
func removeCgroup(ctx context.Context, group string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := removeCgroupTree(group)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// removeCgroupTree kills the processes of a group and its children, and removes the groups, deepest first. The files in
// them cannot and need not be removed.
func removeCgroupTree(group string) error {
	entries, err := os.ReadDir(group)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroupTree(filepath.Join(group, entry.Name())); err != nil {
				return err
			}
		}
	}
	processes, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, process := range strings.Fields(string(processes)) {
		pid, err := strconv.Atoi(process)
		// 0 is a process that cannot be named from here, and to kill it would be to kill ourselves.
		if err != nil || pid <= 0 {
			return fmt.Errorf("control group %s holds process %q of another PID namespace", group, process)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d of control group %s: %w", pid, group, err)
		}
	}
	return os.Remove(group)
}

package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	inotifyFile = "/proc/sys/fs/inotify/max_user_instances"
	// inotifyInstances is how many root has to be allowed so that the hosts of all tests that run at the same time boot: systemd and what it
	// starts take about ten for each host, and the kernel's default is 128 for all of them together.
	inotifyInstances = 1024
)

// raiseLimits raises what this machine allows root, where it is less than hosts need. It stays so until the machine is booted again: tests in
// other processes may count on it.
func raiseLimits() error {
	text, err := os.ReadFile(inotifyFile)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %s: %w", inotifyFile, err)
	}
	if now >= inotifyInstances {
		return nil
	}
	if err := os.WriteFile(inotifyFile, []byte(strconv.Itoa(inotifyInstances)), 0o644); err != nil {
		return fmt.Errorf("%w: where root may have %d inotify instances, hosts of several tests do not boot at the same time: sysctl -w fs.inotify.max_user_instances=%d", err, now, inotifyInstances)
	}
	return nil
}

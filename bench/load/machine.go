package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ScratchDir makes the directory that everything happens in. It must be on a disk: on a tmpfs fsync costs nothing.
func ScratchDir(parent string) (string, error) {
	if parent == "" {
		parent = ".scratch"
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", err
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(parent, &st); err != nil {
		return "", fmt.Errorf("look at the file system of %s: %w", parent, err)
	}
	if st.Type == unix.TMPFS_MAGIC {
		return "", errors.New(parent + " is on a tmpfs, where fsync costs nothing; name a directory on a disk with -dir")
	}
	return os.MkdirTemp(parent, "bench-")
}

// Machine describes where the numbers come from.
func Machine(scratch string) string {
	var uts unix.Utsname
	kernel := "unknown"
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return fmt.Sprintf("machine: %s, %d cores, Linux %s, %s, %s, load %s", processor(), runtime.NumCPU(), kernel, fileSystem(scratch),
		runtime.Version(), Average())
}

// Average is how many threads ran or waited for the disk in the last minute.
func Average() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for l := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// fileSystem names the type of the file system that holds a directory: the longest mount point above it counts.
func fileSystem(dir string) string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown file system"
	}
	best, name := "", "unknown file system"
	for l := range strings.Lines(string(data)) {
		f := strings.Fields(l)
		if len(f) < 3 || len(f[1]) < len(best) {
			continue
		}
		if at := strings.TrimSuffix(f[1], "/"); dir == at || strings.HasPrefix(dir, at+"/") {
			best, name = f[1], f[2]
		}
	}
	return name
}

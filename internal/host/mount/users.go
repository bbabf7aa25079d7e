package mount

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/disk"
)

const (
	// usersMax is how many of those that use a file system are named.
	usersMax = 5
	// usersTime bounds the search: a host of 10,000 processes with 100 files each takes a second.
	usersTime = 2 * time.Second
	// openMax bounds how many open files of one process are looked at.
	openMax = 10_000
)

// users says who uses a mount: what is mounted on it, processes by their directory, program and open files, areas that are swapped to, and
// images of loop devices. Names are compared and nothing is opened, so that a server that does not answer holds nothing up.
func (t *Type) users(ctx context.Context, top mounted) string {
	ctx, cancel := context.WithTimeout(ctx, usersTime)
	defer cancel()
	var found []string
	if body, _, err := t.list.read(); err == nil {
		for _, p := range parseTable(body).below(top.id) {
			found = append(found, disk.Shown(p)+" is mounted on it")
		}
	}
	if b, err := os.ReadFile(swapsFile); err == nil {
		for _, a := range parseSwaps(string(b)) {
			if isWithin(a.path, top.path) {
				found = append(found, disk.Shown(a.path)+" is swapped to")
			}
		}
	}
	found = append(found, loopsOn(top.path)...)
	found = append(found, processesOn(ctx, top.path)...)
	switch {
	case len(found) == 0 && ctx.Err() != nil:
		return "it is in use; who uses it was not found in " + usersTime.String()
	case len(found) == 0:
		return "it is in use, by nothing that /proc shows: the kernel's NFS server, or another mount namespace"
	case len(found) > usersMax:
		more := len(found) - usersMax
		return strings.Join(found[:usersMax], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(found, "; ")
}

func loopsOn(p string) (found []string) {
	const blocks = "/sys/block"
	list, err := os.ReadDir(blocks)
	if err != nil {
		return nil
	}
	for _, entry := range list {
		b, err := os.ReadFile(blocks + "/" + entry.Name() + "/loop/backing_file")
		if file := strings.TrimSuffix(string(b), "\n"); err == nil && isWithin(file, p) {
			found = append(found, "/dev/"+entry.Name()+" has its image "+disk.Shown(file)+" on it")
		}
	}
	return found
}

func processesOn(ctx context.Context, p string) (found []string) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range list {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || ctx.Err() != nil {
			continue
		}
		if how := usesOf(pid, p); how != "" {
			found = append(found, fmt.Sprintf("%s %s", processName(pid), how))
		}
	}
	return found
}

func processName(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("pid %d", pid)
	}
	return fmt.Sprintf("pid %d (%s)", pid, disk.Shown(strings.TrimSpace(string(b))))
}

// usesOf says how a process uses a path; "" if it does not.
func usesOf(pid int, p string) string {
	dir := fmt.Sprintf("/proc/%d/", pid)
	for _, way := range []struct{ name, words string }{{"cwd", "works in "}, {"root", "has as its root "}, {"exe", "was started from "}} {
		if target, err := os.Readlink(dir + way.name); err == nil && isWithin(target, p) {
			return way.words + disk.Shown(target)
		}
	}
	d, err := os.Open(dir + "fd")
	if err != nil {
		return ""
	}
	defer d.Close()
	names, _ := d.Readdirnames(openMax) // what it did not read it does not name
	for _, n := range names {
		if target, err := os.Readlink(dir + "fd/" + n); err == nil && isWithin(target, p) {
			return "has open " + disk.Shown(target)
		}
	}
	return ""
}

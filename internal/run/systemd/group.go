package systemd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
)

// cgroups is where systemd has them.
const cgroups = "sys/fs/cgroup"

// lacks are, in words, the limits that the host whose files are below root cannot set.
func lacks(root string) map[run.Feature]string {
	missing := map[run.Feature]string{}
	unified, err := os.ReadFile(filepath.Join(root, cgroups, "cgroup.controllers"))
	for feature, controller := range map[run.Feature]string{run.LimitCPU: "cpu", run.LimitMemory: "memory", run.LimitTasks: "pids"} {
		if err == nil {
			if !contains(strings.Fields(string(unified)), controller) {
				missing[feature] = fmt.Sprintf("the host has no cgroup controller %s", controller)
			}
			continue
		}
		if unix.Access(filepath.Join(root, cgroups, controller), unix.W_OK) != nil {
			missing[feature] = fmt.Sprintf("the host has no cgroup controller %s that can be written to", controller)
		}
	}
	return missing
}

func contains(list []string, one string) bool {
	for _, s := range list {
		if s == one {
			return true
		}
	}
	return false
}

// group is where the cgroups of a unit are; empty: there is none of the kind.
type group struct {
	members string // of the hierarchy by which systemd knows what belongs to a unit
	cpu     string
	memory  string
	pids    string
}

// groupAt is the group of a name, on the host whose files are below root. Each hierarchy has it that systemd uses for the unit.
func groupAt(root, name string) (g group) {
	at := func(hierarchy string) string {
		dir := filepath.Join(root, cgroups, hierarchy, filepath.Clean("/"+name))
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			return ""
		}
		return dir
	}
	if all := at(""); all != "" { // v2
		return group{members: all, cpu: all, memory: all, pids: all}
	}
	g = group{members: at("unified"), cpu: at("unified"), memory: at("memory"), pids: at("pids")} // any group of v2 counts processor time
	if g.members == "" {
		g.members, g.cpu = at("systemd"), at("cpuacct")
	}
	return g
}

// nameOfGroup reads from /proc/self/cgroup the name of a unit's group: systemd has the unified hierarchy, one of its own, or both.
func nameOfGroup(text []byte) string {
	name := ""
	for line := range bytes.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) == 3 && (fields[0] == "0" || fields[1] == "name=systemd") {
			name = fields[2]
		}
	}
	return name
}

// number is a number in a file of a group, alone or behind a key; -1 where there is none.
func number(dir, name, key string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if dir == "" || err != nil {
		return -1
	}
	for line := range bytes.Lines(text) {
		value, ok := bytes.CutPrefix(line, []byte(key))
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// usage is what is in a group. Where the host counts no memory or processes of groups, it is what the processes have.
func (g group) usage() run.Usage {
	cpu := time.Duration(max(number(g.cpu, "cpu.stat", "usage_usec "), 0)) * time.Microsecond
	if n := number(g.cpu, "cpuacct.usage", ""); n >= 0 {
		cpu = time.Duration(n)
	}
	u := run.Usage{CPU: cpu, Memory: max(number(g.memory, "memory.current", ""), number(g.memory, "memory.usage_in_bytes", "")), Processes: int(number(g.pids, "pids.current", ""))}
	members := g.list()
	if u.Processes < 0 {
		u.Processes = len(members)
	}
	if u.Memory < 0 {
		u.Memory = 0
		for _, pid := range members {
			u.Memory += resident(pid)
		}
	}
	return u
}

// resident is the memory that a process has, as proc_pid_statm(5) says it in pages.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0 // it has ended
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// outOfMemory is how many processes the kernel has ended in a group because its memory was short.
func (g group) outOfMemory() int64 {
	const key = "oom_kill "
	return max(number(g.memory, "memory.events", key), number(g.memory, "memory.oom_control", key), 0) // v2, v1
}

// list are the processes of a group.
func (g group) list() (pids []int) {
	if g.members == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(g.members, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, field := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

const (
	// killEvery is how often SIGKILL goes round while something is left: what was started just before is found the next time.
	killEvery = 5 * time.Millisecond
	// killMax is how long that goes on; a process that waits for a disk or a network file system cannot be ended sooner.
	killMax = 10 * time.Second
)

// endRest ends everything in the group of this process but itself, and returns how many that could not be. systemd does that before it has the
// end noted when a task has ended by itself, and after it when it was stopped.
func (g group) endRest() (left int) {
	for late := time.Now().Add(killMax); ; {
		left = 0
		for _, pid := range g.list() {
			if pid != os.Getpid() && pid > 0 { // 0 is one that cannot be named from here
				left++
				_ = unix.Kill(pid, unix.SIGKILL) // it fails for what has just ended
			}
		}
		if left == 0 || time.Now().After(late) {
			return left
		}
		_, _ = unix.Poll(nil, int(killEvery.Milliseconds())) // a signal only ends it sooner
	}
}

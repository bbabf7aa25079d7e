package shim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
)

// The controllers that are used. In cgroups v1 each has a hierarchy, in v2 all have one.
const (
	memoryController = "memory"
	cpuController    = "cpu"
	acctController   = "cpuacct" // of v1
	pidsController   = "pids"
)

// Group is the cgroup of an attempt, or the one that it is made in: for each controller its directory. One directory for all of them is v2.
type Group struct {
	V2   bool              `json:",omitempty"`
	Dirs map[string]string `json:",omitempty"`
	// More are directories of hierarchies that are not used here, but by what a runtime starts: they are only taken away.
	More []string `json:",omitempty"`
	// Partial says that there are hierarchies in which no cgroups can be made.
	Partial bool `json:",omitempty"`
}

// ownGroup finds the cgroup that this process is in and may make others in. lacks says what is not to be had, and why.
func ownGroup(root string) (g Group, lacks map[run.Feature]string) {
	g = Group{Dirs: map[string]string{}}
	why := map[string]string{}
	paths, err := cgroupsOf(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		why["all"] = "the cgroups of the agent cannot be read: " + err.Error()
	}
	mounts := cgroupMounts(filepath.Join(root, "proc/self/mountinfo"))
	if len(paths) > 1 {
		g.More, g.Partial = others(root, paths, mounts)
		delete(paths, "") // where v1 has the controllers, v2 has none
	}
	for _, c := range used() {
		path, ok := paths[c]
		mount, mounted := mounts[c].of(path)
		if !ok || !mounted {
			continue
		}
		if dir := filepath.Join(root, mount); unix.Access(dir, unix.W_OK) == nil {
			g.Dirs[c] = dir
		} else {
			why[c], g.Partial = "the agent may not make cgroups in "+dir, true
		}
	}
	if mount, mounted := mounts[""].of(delegated(paths[""])); mounted && len(paths) == 1 && paths[""] != "" {
		g.V2 = true
		dir := filepath.Join(root, mount)
		for c, reason := range enable(dir) {
			if reason == "" {
				g.Dirs[c] = dir
			} else {
				why[c] = reason
			}
		}
	}
	return g, g.lacks(why)
}

// subgroup is what DelegateSubgroup= in the agent's unit names.
const subgroup = "agent"

// delegated is the cgroup of v2 in which others may be made by who is in the one of that path: where systemd has put a service into a group of
// its own below that of the unit, it is that of the unit, which has no processes.
func delegated(path string) string {
	if unit, is := strings.CutSuffix(path, "/"+subgroup); is && strings.HasSuffix(unit, ".service") {
		return unit
	}
	return path
}

func (g Group) lacks(why map[string]string) map[run.Feature]string {
	lacks := map[run.Feature]string{}
	for c, feature := range map[string]run.Feature{memoryController: run.LimitMemory, cpuController: run.LimitCPU, pidsController: run.LimitTasks} {
		if g.Dirs[c] != "" {
			continue
		}
		lacks[feature] = "the host has no cgroup controller " + c
		for _, w := range []string{why["all"], why[c]} {
			if w != "" {
				lacks[feature] = w
			}
		}
	}
	return lacks
}

// enable has the cgroups below one of v2 have the controllers. What it returns of each is why that is not so.
func enable(dir string) map[string]string {
	why := map[string]string{}
	have, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, c := range []string{memoryController, cpuController, pidsController} {
		if !slices.Contains(strings.Fields(string(have)), c) {
			why[c] = "the controller " + c + " is not delegated to " + dir
			continue
		}
		why[c] = ""
		// EBUSY is the rule that a cgroup has processes or such controllers, and not both.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); errors.Is(err, unix.EBUSY) {
			why[c] = dir + " has processes of its own: the agent's unit needs Delegate= and DelegateSubgroup=" + subgroup + ", which systemd has since version 254"
		} else if err != nil {
			why[c] = fmt.Sprintf("the agent may not have cgroups below %s use %s: %v", dir, c, err)
		}
	}
	return why
}

// cgroupsOf reads proc_pid_cgroup(5): the path for each controller; that of v2 is at "".
func cgroupsOf(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			paths[c] = parts[2]
		}
	}
	return paths, nil
}

// used are the controllers that are used.
func used() []string {
	return []string{memoryController, cpuController, acctController, pidsController}
}

// others are the directories of this process in hierarchies that are not used. partial: in some of them no cgroups can be made.
func others(root string, paths map[string]string, mounts map[string]cgroupMount) (dirs []string, partial bool) {
	for _, c := range slices.Sorted(maps.Keys(paths)) {
		mount, mounted := mounts[c].of(paths[c])
		if !mounted || slices.Contains(used(), c) {
			continue
		}
		if c == "" {
			// Beside v1, runc makes those of v2 at the top, whatever its own is (GetOwnCgroupPath of its libcontainer).
			mount = mounts[c].dir
		}
		if dir := filepath.Join(root, mount); unix.Access(dir, unix.W_OK) == nil {
			dirs = append(dirs, dir)
		} else {
			partial = true
		}
	}
	return dirs, partial
}

// cgroupMount is where a part of a hierarchy is mounted: in a container it may begin below the root of the hierarchy.
type cgroupMount struct{ dir, begins string }

// of is where a cgroup is; false: it is in no part that is mounted.
func (m cgroupMount) of(path string) (string, bool) {
	if m.dir == "" || path == "" {
		return "", false
	}
	rest, err := filepath.Rel(m.begins, path)
	return filepath.Join(m.dir, rest), err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// cgroupMounts reads proc_pid_mountinfo(5): where the hierarchy of each controller is mounted; that of v2 is at "".
func cgroupMounts(file string) map[string]cgroupMount {
	mounts := map[string]cgroupMount{}
	f, err := os.Open(file)
	if err != nil {
		return mounts
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		before, after, ok := strings.Cut(scan.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			mounts[""] = cgroupMount{fields[4], fields[3]}
		case "cgroup":
			for c := range strings.SplitSeq(kind[2], ",") {
				mounts[c] = cgroupMount{fields[4], fields[3]}
			}
		}
	}
	return mounts
}

// GroupName is the name of an attempt's cgroup below that of the agent.
func GroupName(id run.ID) string { return "tako-" + id.String() }

// of is the cgroup of an attempt below this one.
func (g Group) of(id run.ID) Group {
	its := Group{V2: g.V2, Partial: g.Partial, Dirs: map[string]string{}}
	for c, dir := range g.Dirs {
		its.Dirs[c] = filepath.Join(dir, GroupName(id))
	}
	for _, dir := range g.More {
		its.More = append(its.More, filepath.Join(dir, GroupName(id)))
	}
	return its
}

// unique are the directories, each once.
func (g Group) unique() []string {
	var dirs []string
	for _, c := range used() {
		if dir := g.Dirs[c]; dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (g Group) write(controller, file, text string) error {
	dir := g.Dirs[controller]
	if dir == "" {
		return fmt.Errorf("there is no cgroup of the controller %s", controller)
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

func (g Group) number(controller, file string) (int64, bool) {
	dir := g.Dirs[controller]
	if dir == "" {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// keyed reads one number of a file that has a name and a number in each line.
func (g Group) keyed(controller, file, key string) (int64, bool) {
	dir := g.Dirs[controller]
	if dir == "" {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) == 2 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// period is that over which processor time is bounded: the kernel's default, 100 ms.
const period = 100 * time.Millisecond

// build makes the cgroup of an attempt with its limits.
func (g Group) build(l run.Limits) error {
	for _, dir := range g.unique() {
		_ = unix.Rmdir(dir) // one that is left over from before the state was lost has other limits
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	quota := strconv.FormatInt(l.CPU*period.Microseconds()/1000, 10)
	memory, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Processes, 10)
	var err error
	if l.Memory > 0 && g.V2 {
		err = errors.Join(g.write(memoryController, "memory.max", memory), optional(g.write(memoryController, "memory.swap.max", "0")))
	} else if l.Memory > 0 {
		err = errors.Join(g.write(memoryController, "memory.limit_in_bytes", memory), optional(g.write(memoryController, "memory.memsw.limit_in_bytes", memory)))
	}
	if l.CPU > 0 && g.V2 {
		err = errors.Join(err, g.write(cpuController, "cpu.max", quota+" "+strconv.FormatInt(period.Microseconds(), 10)))
	} else if l.CPU > 0 {
		err = errors.Join(err, g.write(cpuController, "cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)), g.write(cpuController, "cpu.cfs_quota_us", quota))
	}
	if l.Processes > 0 {
		err = errors.Join(err, g.write(pidsController, "pids.max", pids))
	}
	return err
}

// LimitProcesses changes how many processes and threads there may be.
func (g Group) LimitProcesses(most int64) error {
	return g.write(pidsController, "pids.max", strconv.FormatInt(most, 10))
}

// optional passes over a file that kernels without accounting of swap do not have.
func optional(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// Enter moves this thread, and no other, into the cgroups of v1: what it starts is there from its first moment. To move a whole process, or
// another, the kernel would stop all forks of the host for a moment.
func (g Group) Enter() error {
	if g.V2 {
		return nil // what is started there says so itself: see Into
	}
	for _, dir := range g.unique() {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// Into opens the cgroup of v2 for what is to be started in it; nil: there is none.
func (g Group) Into() (*os.File, error) {
	if !g.V2 || len(g.Dirs) == 0 {
		return nil, nil
	}
	return os.Open(g.unique()[0])
}

// outOfMemory is how many processes the kernel has ended because the limit was reached.
func (g Group) outOfMemory() int64 {
	file := "memory.oom_control"
	if g.V2 {
		file = "memory.events"
	}
	n, _ := g.keyed(memoryController, file, "oom_kill")
	return n
}

// usage is what everything in the cgroup takes; false: it cannot be said of all of it.
func (g Group) usage() (run.Usage, bool) {
	var u run.Usage
	var cpu int64
	var ok1, ok2, ok3 bool
	if g.V2 {
		cpu, ok1 = g.keyed(cpuController, "cpu.stat", "usage_usec")
		u.CPU = time.Duration(cpu) * time.Microsecond
		u.Memory, ok2 = g.number(memoryController, "memory.current")
	} else {
		cpu, ok1 = g.number(acctController, "cpuacct.usage")
		u.CPU = time.Duration(cpu)
		u.Memory, ok2 = g.number(memoryController, "memory.usage_in_bytes")
	}
	n, ok3 := g.number(pidsController, "pids.current")
	u.Processes = int(n)
	return u, ok1 && ok2 && ok3
}

// members are the processes in the cgroup.
func (g Group) members() (pids []int) {
	for _, dir := range g.unique() {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // it is not there any more
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// noMore has the kernel refuse further processes: what starts some as fast as it can is then ended all the same.
func (g Group) noMore() { _ = g.write(pidsController, "pids.max", "0") } // where there is none, rounds of signals have to do

// clear takes the cgroup away. It fails while a process is in it.
func (g Group) clear() error {
	var errs []error
	for _, dir := range slices.Concat(g.unique(), g.More) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

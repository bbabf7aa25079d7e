package systemd

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
	bus "tako.dev/tako/internal/systemd"
)

const (
	// slice is the unit that all units of attempts are below, so that the host's own are not among them.
	slice = "tako.slice"
	// startTimeout is how long systemd gives a unit until its program is executed. That takes milliseconds; it may wait for a mount.
	startTimeout = 30 * time.Second
	// stopTimeout is how long systemd gives a task when the host is shut down, after SIGTERM, and what is left of a task to end after SIGKILL.
	stopTimeout = 30 * time.Second
	// processesMin is the lowest bound of processes that a unit works with: what executes the task, and what notes its end, are of it, and
	// have some threads.
	processesMin = 16
)

// The words for Serve.
const (
	executeWord = "execute"
	recordWord  = "record"
	guardWord   = "guard"
)

// settings are the properties of a task's unit. Every user of the host can read them.
func (r *Runtime) settings(t *run.Task) []bus.Property {
	id := t.ID
	serve := func(word string, more ...string) bus.Command {
		args := append(append([]string{}, r.program...), word, r.tree.dir, r.tree.memory, id.String())
		return bus.Command{Path: r.program[0], Args: append(args, more...)}
	}
	// It is sealed off as the task is: without that it would have the task's mounts all the same, but in the host's own /tmp.
	record := serve(recordWord, r.boot, strconv.FormatInt(t.Limits.Memory, 10))
	all := []bus.Property{
		{Name: "Description", Value: fmt.Sprintf("task %s of instance %s, attempt %d", id.Task, id.Instance, id.Attempt)},
		{Name: "Slice", Value: slice},
		{Name: "Type", Value: "notify"},
		{Name: "NotifyAccess", Value: "main"},
		{Name: "ExecStart", Value: []bus.Command{serve(executeWord)}},
		{Name: "ExecStopPost", Value: []bus.Command{record}},
		{Name: "Environment", Value: []string{"GOMAXPROCS=1"}}, // of Serve; the task has its own
		{Name: "TimeoutStartUSec", Value: uint64(startTimeout.Microseconds())},
		{Name: "TimeoutStopUSec", Value: uint64(stopTimeout.Microseconds())},
		// When the first process has ended the rest gets SIGKILL at once; when the host is shut down the first one gets SIGTERM first.
		{Name: "KillMode", Value: "mixed"},
		{Name: "OOMPolicy", Value: "continue"}, // a task that outlives one of its processes goes on, with every version of cgroups
		{Name: "OOMScoreAdjust", Value: int32(0)},
		{Name: "IgnoreSIGPIPE", Value: false},
		{Name: "UMask", Value: uint32(0o022)},
		{Name: "StandardInput", Value: "null"},
		{Name: "StandardOutput", Value: "journal"},
		{Name: "StandardError", Value: "journal"},
		{Name: "SyslogIdentifier", Value: id.Task},
		{Name: "SyslogLevelPrefix", Value: false}, // what a line begins with belongs to it
		{Name: "CPUAccounting", Value: true},
		{Name: "MemoryAccounting", Value: true},
		{Name: "TasksAccounting", Value: true},
	}
	for _, name := range []string{
		"NoNewPrivileges", "PrivateTmp", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
		"RestrictSUIDSGID", "LockPersonality",
	} {
		all = append(all, bus.Property{Name: name, Value: true})
	}
	all = append(all, bus.Property{Name: "ProtectSystem", Value: "full"})
	all = append(all, limits(t.Limits)...)
	var writable, readOnly []bus.Bind
	for _, m := range t.Mounts {
		b := bus.Bind{Source: m.Source, Path: m.Path, Flags: unix.MS_REC}
		if m.ReadOnly {
			readOnly = append(readOnly, b)
		} else {
			writable = append(writable, b)
		}
	}
	for i, f := range t.Files {
		readOnly = append(readOnly, bus.Bind{Source: r.tree.file(id, i), Path: f.Path})
	}
	if len(writable) > 0 {
		all = append(all, bus.Property{Name: "BindPaths", Value: writable})
	}
	if len(readOnly) > 0 {
		all = append(all, bus.Property{Name: "BindReadOnlyPaths", Value: readOnly})
	}
	return all
}

// guarding are the properties of the unit that ends a task's one when that may run no longer.
func (r *Runtime) guarding(id run.ID) []bus.Property {
	args := append(append([]string{}, r.program...), guardWord, r.tree.dir, r.tree.memory, id.String())
	return []bus.Property{
		{Name: "Description", Value: fmt.Sprintf("guard of task %s of instance %s, attempt %d", id.Task, id.Instance, id.Attempt)},
		{Name: "Slice", Value: slice},
		{Name: "Type", Value: "exec"},
		{Name: "ExecStart", Value: []bus.Command{{Path: r.program[0], Args: args}}},
		{Name: "Environment", Value: []string{"GOMAXPROCS=1"}},
		{Name: "Restart", Value: "on-failure"},
		{Name: "CollectMode", Value: "inactive-or-failed"},
		{Name: "OOMScoreAdjust", Value: int32(-900)}, // without it the task may run on
		{Name: "NoNewPrivileges", Value: true},
		{Name: "StandardInput", Value: "null"},
	}
}

// limits are the properties of bounds.
func limits(l run.Limits) (all []bus.Property) {
	if l.CPU > 0 {
		all = append(all, bus.Property{Name: "CPUQuotaPerSecUSec", Value: uint64(l.CPU) * 1000})
	}
	if l.Memory > 0 {
		// What is swapped out is taken as well. Without cgroups v2 systemd knows no bound of that.
		all = append(all, bus.Property{Name: "MemoryMax", Value: uint64(l.Memory)}, bus.Property{Name: "MemorySwapMax", Value: uint64(0)})
	}
	if l.Processes > 0 {
		all = append(all, bus.Property{Name: "TasksMax", Value: uint64(l.Processes)})
	}
	return all
}

// unfit says why a task cannot run as a unit; empty: it can.
func (r *Runtime) unfit(t *run.Task) string {
	if n := t.Limits.Processes; n > 0 && n < processesMin {
		return fmt.Sprintf("a limit of %d processes is too low: as a unit a task needs %d to be started", n, processesMin)
	}
	paths := make([]string, 0, 2*len(t.Mounts)+len(t.Files))
	for _, m := range t.Mounts {
		paths = append(paths, m.Path, m.Source)
		if why := r.hides(m.Path); why != "" {
			return why
		}
	}
	for _, f := range t.Files {
		paths = append(paths, f.Path)
		if why := r.hides(f.Path); why != "" {
			return why
		}
	}
	for _, p := range paths {
		if !utf8.ValidString(p) || path.Clean(p) != p || strings.ContainsAny(p, "\n\r") {
			return fmt.Sprintf("the path %q is not in its shortest form, or is no text", p)
		}
	}
	return ""
}

// hides says that what is shown at a path would hide what starts the task.
func (r *Runtime) hides(p string) string {
	for _, needed := range []string{r.program[0], r.tree.statuses(), r.tree.memory, "/proc/self", "/run/systemd/journal"} {
		if p == "/" || needed == p || strings.HasPrefix(needed, p+"/") || strings.HasPrefix(p, r.tree.memory+"/") {
			return fmt.Sprintf("what is shown at %s would hide %s, which starts the task", p, needed)
		}
	}
	return ""
}

// describe puts into words why systemd has not got as far as the program. The numbers are those of systemd.exec(5).
func describe(result string, status int) string {
	names := map[int]string{200: "CHDIR", 203: "EXEC", 209: "STDOUT", 218: "CAPABILITIES", 219: "CGROUP", 226: "NAMESPACE", 228: "SECCOMP"}
	if name := names[status]; name != "" {
		return fmt.Sprintf("%s, exit status %d/%s", result, status, name)
	}
	return fmt.Sprintf("%s, exit status %d", result, status)
}

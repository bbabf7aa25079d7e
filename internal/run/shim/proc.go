package shim

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// tick is how long one of the kernel's clock ticks is in files of /proc: USER_HZ is 100 on every architecture that Go knows.
const tick = 10 * time.Millisecond

// stat is what is needed of proc_pid_stat(5).
type stat struct {
	pid, parent int
	ticks       uint64 // of processor time, its own
	reaped      uint64 // and of the children that it has waited for
	since       uint64 // start, in ticks since the host was started
	pages       int64  // resident
	zombie      bool
}

// readStat reads the stat file of a process.
func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	s, ok := parseStat(text)
	s.pid = pid
	return s, ok
}

// parseStat reads the fields behind the name in parentheses, which may hold anything.
func parseStat(text []byte) (stat, bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, false
	}
	f := bytes.Fields(text[end+1:])
	if len(f) < 22 { // the third field of the file is the first of these
		return stat{}, false
	}
	ok := true
	number := func(i int) int64 {
		n, err := strconv.ParseInt(string(f[i-3]), 10, 64)
		ok = ok && err == nil
		return n
	}
	s := stat{
		zombie: string(f[0]) == "Z", parent: int(number(4)), ticks: uint64(number(14) + number(15)), reaped: uint64(number(16) + number(17)),
		since: uint64(number(22)), pages: number(24),
	}
	return s, ok
}

// processes are all that there are.
func processes() (all []stat) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // as far as it goes: it is asked again
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if s, ok := readStat(pid); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

// descendants are the processes that come from one, the nearest first. What one of them starts meanwhile may be missing.
func descendants(of int) (found []stat) {
	children := map[int][]stat{}
	for _, s := range processes() {
		children[s.parent] = append(children[s.parent], s)
	}
	found = children[of]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// attemptVariable is in the environment of every task, and so of what that starts.
const attemptVariable = "TAKO_ATTEMPT"

// Variable is the variable of an attempt, for what is started for it beside the task.
func Variable(id string) string { return attemptVariable + "=" + id }

// marked are the processes that have been given the variable of an attempt, and have not taken it out.
func marked(id string) (found []int) {
	want := []byte(Variable(id))
	for _, s := range processes() {
		if s.zombie {
			continue
		}
		env, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/environ")
		if err != nil {
			continue // it is somebody else's, or has ended
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, want) {
				found = append(found, s.pid)
				break
			}
		}
	}
	return found
}

// kill sends a signal; a process that has just ended is no error.
func kill(pid int, signal syscall.Signal) { _ = syscall.Kill(pid, signal) }

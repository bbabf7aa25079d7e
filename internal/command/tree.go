package command

import (
	"bytes"
	"os"
	"strconv"
)

// descendants returns the processes that come from one, the nearest first. What one of them starts meanwhile may be missing.
func descendants(of int) []int {
	children := map[int][]int{}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // as far as it goes: it is asked again
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile("/proc/" + name + "/stat"); err == nil {
			if parent, ok := parentOf(stat); ok {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	found := children[of]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// parentOf reads the parent of a process from its stat file, proc_pid_stat(5): it follows the state, which follows the name in
// parentheses, which may hold anything.
func parentOf(stat []byte) (int, bool) {
	close := bytes.LastIndexByte(stat, ')')
	if close < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[close+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

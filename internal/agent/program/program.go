// Package program gives back what a process has in its memory of its own program: code and constants, which the kernel counts to the process as they
// are used, and takes back by itself only when memory is short. An agent that has begun, loaded and converged has used most of its code, and needs
// little of it to wait.
//
// Nothing is lost by it: the pages stay in the kernel's cache of the file, and come back one by one when they are used, a microsecond each.
package program

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// mapping is a part of the address space.
type mapping struct{ from, to uint64 }

// GiveBack gives it back. It is advice, and says nothing where that is not taken.
func GiveBack() {
	for _, m := range own() {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.from), uintptr(m.to-m.from), unix.MADV_DONTNEED)
	}
}

// own are the parts of the program's file that are mapped and that nobody can have written into. They are the same as long as the process runs. None are
// found where /proc is not mounted.
var own = sync.OnceValue(func() (all []mapping) {
	var exe unix.Stat_t
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	if unix.Stat("/proc/self/exe", &exe) != nil {
		return nil
	}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if m, of, ok := parse(lines.Text()); ok && of == exe.Ino {
			all = append(all, m)
		}
	}
	return all
})

// parse reads a line of /proc/PID/maps, proc_pid_maps(5), and returns the inode of the file; false is for a part that can be written into. That the file
// is looked for by its inode alone does no harm: nothing is lost of any other file's either.
func parse(line string) (m mapping, inode uint64, ok bool) {
	var may, device string
	var offset uint64
	if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.from, &m.to, &may, &offset, &device, &inode); err != nil {
		return m, 0, false
	}
	return m, inode, inode != 0 && m.from < m.to && !strings.Contains(may, "w")
}

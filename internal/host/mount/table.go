package mount

import (
	"strconv"
	"strings"
)

const (
	mountinfo = "/proc/self/mountinfo"
	kindAuto  = "autofs"
)

// mounted is a line of mountinfo, proc_pid_mountinfo(5).
type mounted struct {
	id, parent int
	dev        string // MAJOR:MINOR
	root       string // the part of the file system that is seen
	path       string
	flags      string // of this mount
	kind       string
	source     string
	super      string // options of the file system
}

// table is all that is mounted.
type table struct {
	all  []mounted
	upon map[int][]int // by id, what is mounted on something of it
	root int           // -1 where there is none
}

// parseTable reads mountinfo. A line that makes no sense is left out.
func parseTable(body string) *table {
	t := &table{upon: map[int][]int{}, root: -1}
	known := map[int]bool{}
	for line := range strings.Lines(body) {
		if m, ok := parseMounted(strings.TrimSuffix(line, "\n")); ok {
			t.all = append(t.all, m)
			known[m.id] = true
		}
	}
	for i, m := range t.all {
		switch {
		case m.parent != m.id && known[m.parent]:
			t.upon[m.parent] = append(t.upon[m.parent], i)
		case m.path == "/" && t.root < 0:
			t.root = i
		}
	}
	return t
}

func parseMounted(line string) (m mounted, ok bool) {
	head, tail, ok := strings.Cut(line, " - ")
	f, rest := strings.Split(head, " "), strings.SplitN(tail, " ", 3)
	if !ok || len(f) < 6 || len(rest) < 3 {
		return m, false
	}
	id, err := strconv.Atoi(f[0])
	parent, err2 := strconv.Atoi(f[1])
	if err != nil || err2 != nil {
		return m, false
	}
	return mounted{id: id, parent: parent, dev: f[2], root: unescape(f[3]), path: unescape(f[4]), flags: f[5],
		kind: unescape(rest[0]), source: unescape(rest[1]), super: rest[2]}, true
}

// on returns what is mounted on the way to a path, as the kernel goes it: from the root; the last one is what the path is on. What something
// else has been mounted over is not on it.
func (t *table) on(p string) []mounted {
	if t.root < 0 {
		return nil
	}
	at := t.root
	way := []mounted{t.all[at]}
	for range t.all {
		next := -1
		for _, i := range t.upon[t.all[at].id] {
			m := &t.all[i]
			if isWithin(p, m.path) && isWithin(m.path, t.all[at].path) && (next < 0 || len(m.path) < len(t.all[next].path)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		at = next
		way = append(way, t.all[at])
	}
	return way
}

// at returns what is mounted at a path and can be seen, the last one on top.
func (t *table) at(p string) []mounted {
	var stack []mounted
	for _, m := range t.on(p) {
		if m.path == p {
			stack = append(stack, m)
		}
	}
	return stack
}

// below lists the places in a mount at which others are mounted.
func (t *table) below(id int) []string {
	var places []string
	for _, i := range t.upon[id] {
		places = append(places, t.all[i].path)
	}
	return places
}

// isWithin reports whether a clean path is another or below it.
func isWithin(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// area is a line of /proc/swaps.
type area struct {
	path     string
	size     int64 // bytes
	used     int64
	priority int
}

// parseSwaps reads /proc/swaps. A line that makes no sense is left out, as its head is.
func parseSwaps(body string) []area {
	var areas []area
	for line := range strings.Lines(body) {
		f := strings.Fields(line)
		if len(f) != 5 {
			continue
		}
		size, err := strconv.ParseInt(f[2], 10, 50)
		used, err2 := strconv.ParseInt(f[3], 10, 50)
		priority, err3 := strconv.Atoi(f[4])
		if err == nil && err2 == nil && err3 == nil && f[0] != "" {
			areas = append(areas, area{path: unescape(f[0]), size: size << 10, used: used << 10, priority: priority})
		}
	}
	return areas
}

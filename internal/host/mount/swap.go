package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	swapsFile     = "/proc/swaps"
	memoryFile    = "/proc/meminfo"
	fieldFile     = "file"
	fieldMode     = "mode"
	fieldPriority = "priority"
	wordOn        = string(declare.SwapOn)
	wordOff       = "off"
	optPriority   = "pri="
	// swapMode is what a swap file has: it holds what was in the memory of others.
	swapMode = 0o600
)

// swap is an area that is swapped to.
type swap struct {
	path     string
	bytes    int64  // of a file that is made; 0 for none
	size     string // as it was declared
	priority int    // -1 for the kernel's choice
	gone     bool
}

func bindSwap(r *declare.Swap) *swap {
	s := &swap{path: r.Path, bytes: r.Bytes(), size: r.Size, priority: -1, gone: r.Absent()}
	if r.Priority != nil {
		s.priority = *r.Priority
	}
	return s
}

func (s *swap) doing() string {
	if s.gone {
		return "stop swapping to " + disk.Shown(s.path)
	}
	return "swap to " + disk.Shown(s.path)
}

// mine takes lines that name the path. One that names its device in another way is somebody else's.
func (s *swap) mine(l fstabLine) bool { return l.kind == kindSwap && l.source == s.path }

// unit is what systemd makes of the line.
func (s *swap) unit() string {
	if s.gone {
		return ""
	}
	return unitOf(s.path, ".swap")
}

// file is where it is, unless that is a device.
func (s *swap) file() string {
	if strings.HasPrefix(s.path, "/dev/") {
		return ""
	}
	return s.path
}

// line is what fstab shall say: what it says already of other things stays.
func (s *swap) line(now *fstabLine) fstabLine {
	l := fstabLine{source: s.path, path: "none", kind: kindSwap, options: optDefaults, dump: "0"}
	if now.isEntry() {
		l.path, l.options, l.dump, l.pass = now.path, now.options, now.dump, now.pass
	}
	list := slices.DeleteFunc(optionList(l.options), func(o string) bool {
		return o == optNoAuto || s.priority >= 0 && strings.HasPrefix(o, optPriority)
	})
	if s.priority >= 0 {
		list = append(slices.DeleteFunc(list, func(o string) bool { return o == optDefaults }), optPriority+strconv.Itoa(s.priority))
		if len(list) == 1 {
			list = []string{"sw", list[0]}
		}
	}
	if l.options = strings.Join(list, ","); l.options == "" {
		l.options = optDefaults
	}
	return l
}

// swapSight is how it is.
type swapSight struct {
	lines    string
	count    int
	line     fstabLine
	kind     string // of what is at the path
	perm     uint32
	uid      uint32
	own      bool // it is a file that only root may read
	on       bool
	priority int
	used     int64  // bytes that are swapped out, where that is too much to turn it off
	room     int64  // bytes that there are for them elsewhere
	prepared bool   // it has a swap area
	blank    bool   // it has nothing at all
	length   int64  // of a file
	unfit    string // why the file system cannot swap to files
	free     int64  // what is free there
	unsafe   string
}

func (s *swap) look(c *call) (any, error) {
	var now swapSight
	for _, l := range c.lines {
		if !s.mine(l) {
			continue
		}
		if now.count++; now.count == 1 {
			now.line = l
		}
		now.lines += l.raw
	}
	var err error
	if now.unsafe, err = c.unsafe(s.path, s.file() == ""); err != nil || now.unsafe != "" {
		return now, err
	}
	if a, ok := s.active(c.areas); ok {
		now.on, now.priority = true, a.priority
		if n := room(c.areas, a); a.used > n && (s.gone || s.priority >= 0 && s.priority != a.priority) {
			now.used, now.room = a.used, n
		}
	}
	return now, s.lookAt(&now)
}

// lookAt looks at what is at the path.
func (s *swap) lookAt(now *swapSight) error {
	st, err := os.Stat(s.path) // the way there is safe
	if errors.Is(err, fs.ErrNotExist) {
		now.kind = "nothing"
		if s.bytes > 0 && !s.gone {
			now.unfit, now.free, err = swapPlace(filepath.Dir(s.path), s.bytes)
			return s.fault(err)
		}
		return nil
	}
	if err != nil {
		return s.fault(err)
	}
	sys := st.Sys().(*unixStat)
	now.kind = disk.Signature{Mode: sys.Mode}.Kind()
	if st.Mode().IsRegular() {
		now.perm, now.uid, now.length = sys.Mode&disk.PermMask, sys.Uid, st.Size()
		now.own = now.perm&0o177 == 0 && now.uid == uint32(os.Geteuid())
	}
	if now.on || s.gone || now.kind != "file" && now.kind != "device" {
		return nil
	}
	now.prepared, now.blank, err = inspect(s.path, st.Mode().IsRegular())
	if err == nil && now.blank && s.bytes > 0 {
		now.unfit, now.free, err = swapPlace(filepath.Dir(s.path), s.bytes)
	}
	return s.fault(err)
}

func (s *swap) fault(err error) error {
	if err == nil {
		return nil
	}
	return disk.Fault("look at", s.path, err)
}

// active finds the area in the kernel's list.
func (s *swap) active(areas []area) (area, bool) {
	real, err := filepath.EvalSymlinks(s.path)
	if err != nil {
		real = s.path
	}
	var own, other unix.Stat_t
	isDevice := unix.Stat(real, &own) == nil && own.Mode&unix.S_IFMT == unix.S_IFBLK
	for _, a := range areas {
		if a.path == s.path || a.path == real || isDevice && unix.Stat(a.path, &other) == nil && other.Mode&unix.S_IFMT == unix.S_IFBLK && other.Rdev == own.Rdev {
			return a, true
		}
	}
	return area{}, false
}

// room is how much of what is swapped out to one area fits elsewhere: into memory that is available, and into other areas.
func room(areas []area, but area) int64 {
	var n int64
	if b, err := os.ReadFile(memoryFile); err == nil {
		n = available(string(b))
	}
	for _, a := range areas {
		if a.path != but.path {
			n += a.size - a.used
		}
	}
	return n
}

// available reads MemAvailable, in bytes.
func available(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 50)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

func (s *swap) compare(sight any) ([]host.Change, error) {
	now := sight.(swapSight)
	if err := s.obstacle(&now); err != nil {
		return nil, err
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	if s.gone {
		if now.on {
			add(fieldState, wordOn, wordOff)
		}
		if now.count > 0 {
			add(fieldBoot, s.shownLines(&now), wordAbsent)
		}
		return changes, nil
	}
	switch {
	case s.makes(&now) && now.kind == "nothing":
		add(fieldFile, wordAbsent, s.size)
	case s.makes(&now):
		add(fieldFile, "without a swap area", s.size)
	case now.kind == "file" && !now.own:
		add(fieldMode, fmt.Sprintf("%04o of %d", now.perm, now.uid), fmt.Sprintf("%04o of %d", swapMode, os.Geteuid()))
	}
	if !now.on {
		add(fieldState, wordOff, wordOn)
	} else if s.priority >= 0 {
		add(fieldPriority, strconv.Itoa(now.priority), strconv.Itoa(s.priority))
	}
	if want := s.line(&now.line); now.count != 1 || !now.line.says(want) {
		add(fieldBoot, s.shownLines(&now), want.text())
	}
	return changes, nil
}

func (s *swap) shownLines(now *swapSight) string {
	return shownLines(&mountSight{count: now.count, lines: now.lines})
}

// makes reports whether the file is to be made: there is none, or one with nothing in it.
func (s *swap) makes(now *swapSight) bool {
	return s.bytes > 0 && !now.on && (now.kind == "nothing" || now.kind == "file" && now.blank && !now.prepared)
}

// obstacle says what keeps it from being changed.
func (s *swap) obstacle(now *swapSight) error {
	if now.unsafe != "" {
		return unsafeError(s.doing(), now.unsafe)
	}
	switch {
	case now.used > now.room:
		return &reason.Error{Code: reason.SwapNoRoom, Doing: s.doing(), Cause: fmt.Errorf("%d MiB are swapped out to it, and there is room for %d MiB in memory and elsewhere", now.used>>20, now.room>>20),
			Hint: "stop what needs the memory, or add other swap first"}
	case s.gone || now.on:
		return nil
	case now.kind == "nothing" && s.bytes == 0:
		return &reason.Error{Code: reason.MountSourceMissing, Doing: s.doing(), Cause: errors.New(disk.Shown(s.path) + " is not there"), Hint: `a file is made with a size: size: 2Gi`}
	case now.kind != "nothing" && now.kind != "file" && now.kind != "device":
		return &reason.Error{Code: reason.SwapUnprepared, Doing: s.doing(), Cause: errors.New(disk.Shown(s.path) + " is a " + now.kind)}
	case s.makes(now) && now.unfit != "":
		return &reason.Error{Code: reason.SwapUnprepared, Doing: s.doing(), Cause: errors.New(now.unfit), Hint: "put the file on ext4 or xfs, or use a partition; on btrfs, make it with btrfs filesystem mkswapfile"}
	case s.makes(now) && now.free >= 0:
		return &reason.Error{Code: reason.DiskFull, Doing: s.doing(), Cause: fmt.Errorf("a file of %d MiB is declared, and %d MiB are free", s.bytes>>20, now.free>>20)}
	case !s.makes(now) && !now.prepared:
		e := &reason.Error{Code: reason.SwapUnprepared, Doing: s.doing(), Cause: errors.New(disk.Shown(s.path) + " has no swap area, and is not formatted: it may hold something"),
			Hint: "see what it is (blkid " + s.path + "), and run mkswap by hand"}
		if now.blank && now.kind == "file" {
			e.Cause, e.Hint = errors.New(disk.Shown(s.path)+" has no swap area"), "declare its size, and it is made anew; or run mkswap by hand"
		}
		return e
	}
	return nil
}

// swapOriginal is what was there.
type swapOriginal struct {
	There    bool   `json:"there,omitempty"`
	Perm     uint32 `json:"perm,omitempty"`
	UID      uint32 `json:"uid,omitempty"`
	Blank    bool   `json:"blank,omitempty"` // it held nothing but zeros, so many
	Length   int64  `json:"length,omitempty"`
	On       bool   `json:"on,omitempty"`
	Priority int    `json:"priority,omitempty"`
}

func (s *swap) original(sight any) any {
	now := sight.(swapSight)
	o := swapOriginal{There: now.kind != "nothing", Perm: now.perm, UID: now.uid, On: now.on, Priority: now.priority, Blank: now.blank}
	if o.Blank {
		o.Length = now.length
	}
	return o
}

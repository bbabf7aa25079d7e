package setting

import (
	"bytes"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// ourSysctls begins the names of our files.
	ourSysctls = "99-tako-"
	confSuffix = ".conf"
	// sysctlFilesMax bounds a directory of settings, far above any real one.
	sysctlFilesMax = 10_000
)

// sysctlDirs are where files of parameters are, sysctl.d(5): of files of one name the one in the first of these counts, and then all are
// read in the order of their names.
var sysctlDirs = [...]string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"}

// later is what files say that are read after ours.
type later struct {
	stale  bool   // nobody has looked since the last Check began
	state  uint64 // tells one state of the files from another; 0 for never read
	newest int64
	values map[string]assignment // by key

	dirs  uint64   // the signs of the directories when files was made; 0 for not to be relied on
	files []string // in the order in which they are read
}

// laterFiles returns what files say that are read after ours. It looks at the files once in a call of Check, and reads them when one has
// changed. The caller changes nothing in it.
func (t *Type) laterFiles() (later, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.later.stale && t.later.state != 0 {
		return t.later, nil
	}
	if err := t.listLaterLocked(); err != nil {
		return later{}, err
	}
	s := (&call{Type: t}).newSigns()
	for _, p := range t.later.files {
		s.text(p)
		s.file(p)
		if real, _, err := t.follow(p); err == nil && real != p {
			s.file(real)
		}
	}
	if state := s.result(); state != t.later.state {
		values := map[string]assignment{}
		for _, p := range t.later.files {
			if err := t.readAssignments(p, values); err != nil {
				return later{}, err
			}
		}
		t.later.state, t.later.values = state, values
	}
	t.later.stale, t.later.newest = false, s.newest
	return t.later, nil
}

// listLaterLocked lists the files anew where a directory has changed.
func (t *Type) listLaterLocked() error {
	now, s := disk.Tick(), (&call{Type: t}).newSigns()
	for _, dir := range sysctlDirs {
		s.file(dir)
	}
	if dirs := s.result(); dirs == t.later.dirs && !s.failed {
		return nil
	}
	files, err := t.filesAfterOurs()
	if err != nil {
		return err
	}
	t.later.files, t.later.dirs = files, 0
	if s.newest < now { // every later change of a directory shows
		t.later.dirs = s.result()
	}
	return nil
}

// filesAfterOurs lists the files in the order in which they are read.
func (t *Type) filesAfterOurs() ([]string, error) {
	byName := map[string]string{}
	for _, dir := range sysctlDirs {
		d, err := t.root.Dir(dir)
		if reason.Is(err, reason.ParentMissing) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names, err := d.Names(sysctlFilesMax)
		_ = d.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if _, hidden := byName[name]; !hidden && strings.HasSuffix(name, confSuffix) && name > ourSysctls && !strings.HasPrefix(name, ourSysctls) {
				byName[name] = disk.Join(dir, name)
			}
		}
	}
	var files []string
	for _, name := range sortedNames(byName) {
		files = append(files, byName[name])
	}
	return files, nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (t *Type) readAssignments(p string, into map[string]assignment) error {
	real, st, err := t.follow(p)
	if err != nil || st.Kind() != "file" { // a link to /dev/null hides those of its name
		return err
	}
	f, err := t.read(real)
	if err != nil {
		return err
	}
	for key, a := range assignments(f.body) {
		a.file = p
		into[key] = a
	}
	return nil
}

// assignments reads a file of sysctl.d(5): the last value of each key. A pattern for many keys gives way to what is written for one, and so
// says nothing here.
func assignments(body string) map[string]assignment {
	values := map[string]assignment{}
	number := 0
	for line := range bytes.Lines([]byte(body)) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		key = strings.TrimSpace(strings.TrimPrefix(key, "-"))
		if !ok || key == "" || strings.ContainsAny(key, "*?[") {
			continue
		}
		values[declare.CanonicalSysctl(key)] = assignment{line: number, value: strings.Join(strings.Fields(value), " ")}
	}
	return values
}

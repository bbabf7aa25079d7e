package mount

import (
	"errors"
	"path"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	fieldState   = "state"
	fieldSource  = "source"
	fieldType    = "type"
	fieldOptions = "options"
	fieldBoot    = "boot"
	wordAbsent   = "absent"
	wordMounted  = string(declare.MountMounted)
	wordNot      = "not mounted"
)

// mount is a file system at a path.
type mount struct {
	path    string
	source  string
	kind    string
	options []string
	state   declare.MountState
	pass    int
}

func bindMount(r *declare.Mount) *mount {
	return &mount{path: r.Path, source: r.Source, kind: r.TypeOrDefault(), options: slices.Clone(r.Options), state: r.StateOrDefault(), pass: r.Pass}
}

func (m *mount) doing() string {
	verb := map[declare.MountState]string{declare.MountMounted: "mount " + disk.Shown(m.source) + " at ", declare.MountUnmounted: "unmount ", declare.MountAbsent: "unmount and forget "}[m.state]
	return verb + disk.Shown(m.path)
}

func (m *mount) mine(l fstabLine) bool { return l.isEntry() && l.path == m.path && l.kind != kindSwap }

// unit is what systemd makes of the line.
func (m *mount) unit() string {
	if m.state == declare.MountAbsent {
		return ""
	}
	return unitOf(m.path, ".mount")
}

// line is what fstab shall say. What is not to be mounted is not mounted at boot either.
func (m *mount) line() fstabLine {
	options := m.options
	if m.state == declare.MountUnmounted && !slices.Contains(options, optNoAuto) {
		options = append(slices.Clone(options), optNoAuto)
	}
	l := fstabLine{source: m.source, path: m.path, kind: m.kind, options: strings.Join(options, ","), pass: m.pass, dump: "0"}
	if l.options == "" {
		l.options = optDefaults
	}
	return l
}

func (m *mount) binds() bool { return isBind(m.options) }

// mountSight is how a path is.
type mountSight struct {
	lines   string    // of fstab, as they are there
	count   int       // how many
	line    fstabLine // the first
	top     mounted   // what is mounted; nothing where its path is empty
	waiting bool      // that is systemd's, which mounts what is declared when somebody goes there
	ours    bool      // that is what is declared
	ofLine  bool      // that is what fstab says
	missing string    // why what is declared is not to be had
	point   string    // what there is to mount at, while nothing is mounted
	wanted  string    // what there should be: a directory, or a file
	unsafe  string    // why the way there is not to be trusted
}

func (s *mountSight) isMounted() bool { return s.top.path != "" }

func (m *mount) look(c *call) (any, error) {
	var s mountSight
	for _, l := range c.lines {
		if !m.mine(l) {
			continue
		}
		if s.count++; s.count == 1 {
			s.line = l
		}
		s.lines += l.raw
	}
	s.wanted = "directory"
	if stack := c.table.at(m.path); len(stack) > 0 {
		s.top = stack[len(stack)-1]
		s.waiting = s.top.kind == kindAuto && m.automounts(s.line)
	}
	if s.isMounted() && s.count > 0 {
		o := c.originOf(s.line.source, s.line.kind, optionList(s.line.options))
		s.ofLine = s.waiting || o.is(s.top, s.line.kind)
	}
	if m.state != declare.MountAbsent {
		o := c.originOf(m.source, m.kind, m.options)
		s.missing = o.missing
		s.ours = s.isMounted() && (s.waiting || o.is(s.top, m.kind))
		if o.bound != nil && o.isFile {
			s.wanted = "file"
		}
	}
	way := m.path
	if s.isMounted() { // it holds the mount point where it is
		way = path.Dir(m.path)
	}
	var err error
	if way != "/" {
		s.unsafe, err = c.unsafe(way, false)
	}
	if err == nil && s.unsafe == "" && !s.isMounted() {
		s.point, err = c.point(m.path)
	}
	return s, err
}

// automounts reports whether systemd mounts it when somebody goes there, so that something of systemd's stands there before.
func (m *mount) automounts(l fstabLine) bool {
	return slices.Contains(m.options, optAutomount) || slices.Contains(optionList(l.options), optAutomount)
}

// point says what there is at a mount point.
func (c *call) point(p string) (string, error) {
	st, err := c.root.Stat(p)
	if reason.Is(err, reason.ParentMissing) {
		return disk.Signature{}.Kind(), nil
	}
	return st.Kind(), err
}

func (m *mount) compare(sight any) ([]host.Change, error) {
	now := sight.(mountSight)
	if err := m.obstacle(&now); err != nil {
		return nil, err
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	switch {
	case m.state != declare.MountMounted:
		if now.isMounted() {
			add(fieldState, wordMounted, wordNot)
		}
	case !now.isMounted():
		add(fieldState, wordNot, wordMounted)
	case !now.ours:
		add(fieldSource, now.line.source, m.source)
		if !sameKind(now.top.kind, m.kind) || len(changes) == 0 {
			add(fieldType, now.top.kind, m.kind)
		}
	default:
		is, want := m.unlike(&now)
		add(fieldOptions, shownOptions(is), shownOptions(want))
	}
	if m.state == declare.MountAbsent {
		if now.count > 0 {
			add(fieldBoot, shownLines(&now), wordAbsent)
		}
	} else if want := m.line(); now.count != 1 || !now.line.says(want) {
		want.dump = now.line.dump
		if now.count == 0 {
			want.dump = "0"
		}
		add(fieldBoot, shownLines(&now), want.text())
	}
	if m.state == declare.MountMounted && now.ours && frozen(m.options, now.top) && !m.binds() {
		return changes, &reason.Error{Code: reason.MountReadOnly, Doing: m.doing(), Cause: errors.New("it is mounted to be written, and the kernel takes no writes"),
			Hint: "`dmesg` says why; check it with fsck while it is not mounted; what cannot be written at all is declared with options: [ro]"}
	}
	return changes, nil
}

// unlike says which options are not in effect: those that the kernel shows, and those that fstab said otherwise until now.
func (m *mount) unlike(now *mountSight) (is, want []string) {
	if now.waiting {
		return nil, nil
	}
	is, want = unlike(m.options, m.binds(), now.top)
	if old := optionList(now.line.options); len(want) == 0 && now.count > 0 && now.ofLine && reaches(old, m.options) {
		return old, m.options
	}
	return is, want
}

// shownLines is what fstab says, for a person.
func shownLines(now *mountSight) string {
	if now.count == 0 {
		return wordAbsent
	}
	var list []string
	for raw := range strings.Lines(now.lines) {
		l := parseFstabLine(raw)
		l.options = shownOptions(optionList(l.options))
		list = append(list, l.text())
	}
	return strings.Join(list, "; ")
}

// shownOptions is options for a person, without the secrets that somebody has written into fstab.
func shownOptions(options []string) string {
	shown := slices.Clone(options)
	for i, o := range shown {
		if name, _, ok := strings.Cut(o, "="); ok && strings.HasPrefix(strings.ToLower(name), "pass") {
			shown[i] = name + "=(hidden)"
		}
	}
	return strings.Join(shown, ",")
}

// obstacle says what keeps it from being changed at all.
func (m *mount) obstacle(now *mountSight) error {
	if now.unsafe != "" && (m.state == declare.MountMounted || now.isMounted()) {
		return unsafeError(m.doing(), now.unsafe)
	}
	if now.isMounted() && !now.ours && !now.ofLine && m.state != declare.MountAbsent {
		e := &reason.Error{Code: reason.MountPointTaken, Doing: m.doing(), Cause: errors.New(shownMount(now.top) + " is mounted there"),
			Hint: "unmount it by hand (umount " + m.path + "), or declare it"}
		if now.missing != "" {
			e.Hint = now.missing + "; " + e.Hint
		}
		return e
	}
	if m.state != declare.MountMounted || now.isMounted() && now.ours {
		return nil
	}
	if now.missing != "" {
		return &reason.Error{Code: reason.MountSourceMissing, Doing: m.doing(), Cause: errors.New(now.missing), Hint: "`lsblk --fs` lists what there is"}
	}
	if now.isMounted() || now.point == now.wanted {
		return nil
	}
	e := &reason.Error{Code: reason.MountPointMissing, Doing: m.doing(), Cause: errors.New("there is no " + now.wanted + " " + disk.Shown(m.path)),
		Hint: "declare it: " + now.wanted + ": {path: " + m.path + "}; the mount comes after it"}
	if now.point != "nothing" {
		e.Cause, e.Hint = errors.New(disk.Shown(m.path)+" is a "+now.point+", and not a "+now.wanted), ""
	}
	return e
}

// shownMount is a mount for a person.
func shownMount(m mounted) string {
	s := disk.Shown(m.source)
	if m.root != "/" {
		s += " (" + disk.Shown(m.root) + ")"
	}
	return s + " of type " + m.kind
}

// mountOriginal is what was mounted.
type mountOriginal struct {
	Mounted bool   `json:"mounted,omitempty"`
	Source  string `json:"source,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Options string `json:"options,omitempty"` // as they were given
	Flags   string `json:"flags,omitempty"`   // as the kernel shows them
}

func (m *mount) original(sight any) any {
	now := sight.(mountSight)
	o := mountOriginal{Mounted: now.isMounted()}
	if !o.Mounted {
		return o
	}
	o.Source, o.Kind, o.Options, o.Flags = now.top.source, now.top.kind, now.top.flags, now.top.flags
	if now.top.kind == kindTmpfs {
		o.Flags += "," + now.top.super
	}
	switch {
	case now.ofLine:
		o.Source, o.Kind, o.Options = now.line.source, now.line.kind, now.line.options
	case now.ours:
		o.Source, o.Kind = m.source, m.kind
		if m.binds() {
			o.Options = "bind," + o.Flags
		}
	}
	return o
}

package setting

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	localtime    = "/etc/localtime"
	timezoneFile = "/etc/timezone" // of Debian
	zoneInfo     = "/usr/share/zoneinfo"
	// zonesMax and zoneDepthMax bound the search for a near name: there are about 600 zones, three deep.
	zonesMax, zoneDepthMax = 5000, 3
	fieldZone              = "zone"
)

// timezone is the host's time zone.
type timezone struct{ zone string }

func bindTimezone(_ *Type, r *declare.Resource) (thing, error) {
	z := &timezone{zone: r.Timezone.Zone}
	if err := expanded(z.doing(), declare.ZoneMistake, z.zone); err != nil {
		return nil, err
	}
	return z, nil
}

func (z *timezone) doing() string { return "set time zone " + z.zone }

func (z *timezone) watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: localtime}, {Kind: host.WatchPath, Name: timezoneFile}}
}

func (z *timezone) sign(s *signs) {
	s.file(localtime)
	s.file(timezoneFile)
}

// zoneSight is how the time zone is set.
type zoneSight struct {
	kind   string // of /etc/localtime
	target string // of the link, or what the file holds
	file   string // /etc/timezone
	has    bool
	known  bool // the zone is in the database
	near   string
	empty  bool // there is no database
}

func (z *timezone) look(c *call) (any, error) {
	var s zoneSight
	st, err := c.root.Stat(localtime)
	if err != nil {
		return nil, err
	}
	s.kind = st.Kind()
	switch st.Type() {
	case unix.S_IFLNK:
		d, name, err := c.root.Parent(localtime)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		if s.target, err = d.Readlink(name); err != nil {
			return nil, err
		}
	case unix.S_IFREG:
		f, err := c.read(localtime)
		if err != nil {
			return nil, err
		}
		s.target = f.body
	}
	f, err := c.read(timezoneFile)
	if err != nil {
		return nil, err
	}
	s.file, s.has = f.body, f.there()
	s.known, s.empty, s.near = c.zone(z.zone)
	return s, nil
}

// zone looks a zone up in the database: a sandbox's own, or the host's where it has none.
func (t *Type) zone(name string) (known, empty bool, near string) {
	db := path.Join(t.root.Path(), zoneInfo)
	if _, err := os.Stat(db); err != nil {
		db = zoneInfo
	}
	if isZone(db + "/" + name) {
		return true, false, ""
	}
	var names []string
	listZones(db, "", zoneDepthMax, &names)
	empty = len(names) == 0
	names = slices.DeleteFunc(names, func(n string) bool { return n == name }) // it is there, and is no zone
	return false, empty, declare.Nearest(name, names)
}

// isZone reports whether a file begins as tzfile(5) says.
func isZone(p string) bool {
	fd, err := disk.OpenAt(unix.AT_FDCWD, p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	b := make([]byte, 4)
	n, err := f.Read(b)
	return err == nil && string(b[:n]) == "TZif"
}

// listZones lists names of zones below a directory, without the copies with other clocks.
func listZones(db, below string, depth int, names *[]string) {
	list, err := os.ReadDir(path.Join(db, below))
	if err != nil || depth == 0 {
		return
	}
	for _, entry := range list {
		name := path.Join(below, entry.Name())
		switch {
		case len(*names) >= zonesMax:
			return
		case entry.IsDir() && name != "posix" && name != "right":
			listZones(db, name, depth-1, names)
		case !entry.IsDir() && !strings.Contains(name, "."):
			*names = append(*names, name)
		}
	}
}

// zoneOf is the zone of a link's target; "" where it leads elsewhere.
func zoneOf(target string) string {
	for _, prefix := range []string{zoneInfo + "/", ".." + zoneInfo + "/"} {
		if zone, ok := strings.CutPrefix(target, prefix); ok {
			return zone
		}
	}
	return ""
}

func (z *timezone) compare(sight any) ([]host.Change, error) {
	now := sight.(zoneSight)
	if !now.known {
		e := &reason.Error{Code: reason.SettingUnknown, Doing: z.doing(), Cause: errors.New("there is no such zone in " + zoneInfo), Hint: "`timedatectl list-timezones` lists them"}
		switch {
		case now.empty:
			e.Hint = "there are no zones at all: declare the package tzdata"
		case now.near != "":
			e.Hint = "did you mean " + now.near + "?"
		}
		return nil, e
	}
	var changes []host.Change
	if now.kind != "symlink" || zoneOf(now.target) != z.zone {
		from := now.kind
		if now.kind == "symlink" {
			from = shown(now.target)
			if zone := zoneOf(now.target); zone != "" {
				from = zone
			}
		}
		changes = append(changes, host.Change{Field: fieldZone, From: from, To: z.zone})
	}
	if text := strings.TrimSpace(now.file); now.has && text != z.zone {
		changes = append(changes, host.Change{Field: timezoneFile, From: text, To: z.zone})
	}
	return changes, nil
}

func (z *timezone) apply(ctx context.Context, t *Type, sight any) (work, error) {
	now := sight.(zoneSight)
	var done work
	if now.kind != "symlink" || zoneOf(now.target) != z.zone {
		// As the distribution has it: Debian's links are absolute, and those of others relative.
		target := ".." + zoneInfo + "/" + z.zone
		if strings.HasPrefix(now.target, "/") && now.kind == "symlink" || now.kind != "symlink" && t.isDebian() {
			target = zoneInfo + "/" + z.zone
		}
		if err := t.link(ctx, localtime, target); err != nil {
			return done, err
		}
		done.changed = true
	}
	if now.has && strings.TrimSpace(now.file) != z.zone {
		f, err := t.read(timezoneFile)
		if err != nil {
			return done, err
		}
		changed, err := t.write(ctx, f, z.zone+"\n")
		done.changed = done.changed || changed
		if err != nil {
			return done, err
		}
	}
	if done.changed {
		done.note = "a program that runs already goes on with the zone that it has read, until it is started anew"
	}
	return done, nil
}

func (t *Type) isDebian() bool {
	st, err := t.root.Stat("/etc/debian_version")
	return err == nil && st.Exists()
}

// link makes a link, in the place of a file too.
func (t *Type) link(ctx context.Context, p, target string) error {
	if err := t.makeDirectory(ctx, path.Dir(p)); err != nil {
		return err
	}
	st, err := t.root.Stat(p)
	if err == nil {
		err = t.Beside(ctx, p)
	}
	if err != nil {
		return err
	}
	_, err = durable.Symlink(ctx, t.root, durable.SymlinkSpec{Path: p, Target: target, UID: durable.Keep, GID: durable.Keep, Expect: &st.Signature, Force: true})
	return err
}

type zoneOriginal struct {
	Kind   string  `json:"kind"`
	Target []byte  `json:"target,omitempty"`
	File   *string `json:"file,omitempty"`
}

func (z *timezone) original(_ *Type, sight any) ([]byte, error) {
	now := sight.(zoneSight)
	o := zoneOriginal{Kind: now.kind, Target: []byte(now.target)}
	if now.has {
		o.File = &now.file
	}
	return json.Marshal(o)
}

// undo with delete takes the link away: the host then has UTC, localtime(5). The other file stays where it is Debian's.
func (z *timezone) undo(ctx context.Context, t *Type, original []byte) error {
	var o zoneOriginal
	if original != nil {
		if err := unmarshal(z.doing(), original, &o); err != nil {
			return err
		}
	}
	st, err := t.root.Stat(localtime)
	if err != nil {
		return err
	}
	switch o.Kind {
	case "symlink":
		err = t.relink(ctx, string(o.Target))
	case "file":
		body := string(o.Target)
		if st.Kind() == "symlink" {
			err = durable.Remove(ctx, t.root, durable.RemoveSpec{Path: localtime, Expect: &st.Signature})
		}
		if err == nil {
			err = t.put(ctx, localtime, &body)
		}
	default:
		if k := st.Kind(); k == "symlink" || k == "file" {
			err = durable.Remove(ctx, t.root, durable.RemoveSpec{Path: localtime, Expect: &st.Signature})
		}
	}
	if err != nil {
		return err
	}
	if original == nil {
		f, err := t.read(timezoneFile)
		if err != nil || !f.there() {
			return err
		}
		_, err = t.write(ctx, f, "Etc/UTC\n")
		return err
	}
	return t.put(ctx, timezoneFile, o.File)
}

// relink makes the link lead where it led.
func (t *Type) relink(ctx context.Context, target string) error {
	d, name, err := t.root.Parent(localtime)
	if err != nil {
		return err
	}
	have, err := d.Readlink(name)
	_ = d.Close() // nothing was written
	if err == nil && have == target {
		return nil
	}
	return t.link(ctx, localtime, target)
}

package mount

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	optReadOnly, optReadWrite = "ro", "rw"
	optNoAuto, optRemount     = "noauto", "remount"
	optAutomount              = "x-systemd.automount"
	kindTmpfs                 = "tmpfs"
)

// opposites are the options that the kernel shows for each mount, by the words that turn them off.
var opposites = map[string]string{
	"suid": "nosuid", "dev": "nodev", "exec": "noexec", "symfollow": "nosymfollow", "diratime": "nodiratime",
}

// atimes are the options of which the kernel shows one, or none for strictatime.
var atimes = []string{"noatime", "relatime", "strictatime"}

// implied are options that stand for others, mount(8).
var implied = map[string][]string{
	"user": {"nosuid", "nodev", "noexec"}, "users": {"nosuid", "nodev", "noexec"}, "owner": {"nosuid", "nodev"}, "group": {"nosuid", "nodev"},
}

// wish is what options say of one mount, as far as the kernel shows it.
type wish struct {
	readOnly, writable bool
	flags              map[string]bool // "nosuid": whether it is wanted
	atime              string
	values             map[string]string // of tmpfs
}

// wishOf reads options in their order: the last word counts.
func wishOf(options []string, kind string) wish {
	w := wish{flags: map[string]bool{}, values: map[string]string{}}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch {
		case o == optReadOnly || o == optReadWrite:
			w.readOnly, w.writable = o == optReadOnly, o == optReadWrite
		case opposites[o] != "":
			w.flags[opposites[o]] = false
		case isOpposite(o):
			w.flags[o] = true
		case slices.Contains(atimes, o):
			w.atime = o
		case implied[o] != nil:
			for _, f := range implied[o] {
				w.flags[f] = true
			}
		case kind == kindTmpfs && slices.Contains([]string{"size", "nr_inodes", "mode", "uid", "gid"}, name):
			w.values[name] = value
		}
	}
	return w
}

func isOpposite(o string) bool {
	for _, no := range opposites {
		if o == no {
			return true
		}
	}
	return false
}

// unlike returns how a mount differs from what options say: what is, and what is declared, word by word. Of what the kernel does not show, or
// shows in other words, nothing can be said. A bind has the flags of what it shows unless others are declared.
func unlike(options []string, bind bool, m mounted) (is, want []string) {
	w := wishOf(options, m.kind)
	flags, super := strings.Split(m.flags, ","), strings.Split(m.super, ",")
	add := func(from, to string) { is, want = append(is, from), append(want, to) }
	readOnly := slices.Contains(flags, optReadOnly)
	switch {
	case w.readOnly && !readOnly:
		add(optReadWrite, optReadOnly)
	case !w.readOnly && readOnly && (w.writable || !bind):
		add(optReadOnly, optReadWrite)
	}
	for _, yes := range []string{"suid", "dev", "exec", "symfollow", "diratime"} {
		no := opposites[yes]
		wanted, said := w.flags[no]
		switch has := slices.Contains(flags, no); {
		case said && wanted && !has:
			add(yes, no)
		case said && !wanted && has:
			add(no, yes)
		}
	}
	if now := atimeOf(flags); w.atime != "" && now != w.atime {
		add(now, w.atime)
	}
	for _, name := range []string{"size", "nr_inodes", "mode", "uid", "gid"} {
		declared, said := w.values[name]
		if now := valueOf(super, name); said && !sameValue(name, now, declared) {
			add(name+"="+now, name+"="+declared)
		}
	}
	return is, want
}

func atimeOf(flags []string) string {
	for _, a := range atimes {
		if slices.Contains(flags, a) {
			return a
		}
	}
	return "strictatime"
}

// valueOf is the value of an option that the kernel shows; "" where it shows none.
func valueOf(super []string, name string) string {
	for _, o := range super {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

// sameValue compares a value of tmpfs(5) as the kernel shows it with a declared one. Of a share of the memory nothing can be said.
func sameValue(name, now, declared string) bool {
	base := 10
	if name == "mode" {
		base = 8
	}
	if strings.HasSuffix(declared, "%") {
		return true
	}
	a, okA := number(now, base)
	b, okB := number(declared, base)
	if name == "size" { // the kernel counts pages
		const page = 4096
		b = (b + page - 1) / page * page
		a = (a + page - 1) / page * page
	}
	if now == "" { // the kernel does not show what is as it would be anyway
		return name == "uid" && b == 0 || name == "gid" && b == 0 || name == "mode" && b == 0o1777 || name == "size" || name == "nr_inodes"
	}
	return okA && okB && a == b
}

// number reads a number with k, m or g.
func number(s string, base int) (uint64, bool) {
	shift := 0
	if s != "" && base == 10 {
		switch s[len(s)-1] | 0x20 {
		case 'k':
			shift = 10
		case 'm':
			shift = 20
		case 'g':
			shift = 30
		}
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseUint(s, base, 64-shift)
	return n << shift, err == nil
}

// frozen reports whether the kernel has made a file system read-only that is mounted to be written.
func frozen(options []string, m mounted) bool {
	if wishOf(options, m.kind).readOnly || slices.Contains(strings.Split(m.flags, ","), optReadOnly) {
		return false
	}
	return slices.ContainsFunc(strings.Split(m.super, ","), func(o string) bool {
		return o == optReadOnly || o == "emergency_ro" || o == "shutdown" // ext4 from Linux 6.15 on has words of its own
	})
}

// forBoot reports whether an option matters to fstab only, and not to a mount that is there.
func forBoot(o string) bool {
	return slices.Contains([]string{optDefaults, "auto", optNoAuto, "nofail", "_netdev", "user", "nouser", "users", "owner", "group", "loop"}, o) ||
		strings.HasPrefix(strings.ToLower(o), "x-") || strings.HasPrefix(o, "comment=")
}

// reaches reports whether a change of options is one for the kernel, as far as the words tell.
func reaches(old, now []string) bool {
	live := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), forBoot)
	}
	return !slices.Equal(live(old), live(now))
}

// remountOptions are those that turn what is mounted into what is declared, with the words for what is not: mount(8) of today changes only what
// it is told.
func remountOptions(options []string, bind bool) string {
	list := []string{optRemount}
	if !bind {
		list = append(list, optReadWrite, "suid", "dev", "exec")
	}
	return strings.Join(append(list, options...), ",")
}

// unitOf is the unit that systemd makes of a path, systemd.unit(5): "String Escaping for Inclusion in Unit Names".
func unitOf(p, suffix string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	text := strings.Trim(path.Clean(p), "/")
	for i := range len(text) {
		switch c := text[i]; {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ':', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String() + suffix
}

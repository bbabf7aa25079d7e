package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
)

// tagDirs are where udev finds devices by a tag.
var tagDirs = map[string]string{
	"UUID": "/dev/disk/by-uuid", "LABEL": "/dev/disk/by-label", "PARTUUID": "/dev/disk/by-partuuid", "PARTLABEL": "/dev/disk/by-partlabel", "ID": "/dev/disk/by-id",
}

// origin is what a source means on this host.
type origin struct {
	text    string // as it is declared
	device  string // MAJOR:MINOR of a block device
	image   string // the path of a file with a file system in it
	bound   *mounted
	root    string // with bound: the part of that file system
	isFile  bool   // with bound: it is no directory
	missing string // why there is nothing
}

// originOf finds out what a source means. It opens nothing.
func (c *call) originOf(source, kind string, options []string) origin {
	o := origin{text: source}
	p := source
	if tag, value, ok := strings.Cut(source, "="); ok && tagDirs[tag] != "" {
		p = tagDirs[tag] + "/" + tagName(value)
	}
	switch {
	case isBind(options):
		c.bound(&o)
		return o
	case !strings.HasPrefix(p, "/"), strings.HasPrefix(p, "//"), strings.HasPrefix(kind, "fuse"):
		return o
	}
	st, err := os.Stat(p)
	switch {
	case err != nil && p != source:
		o.missing = "no device has " + source + ", as far as udev has seen (" + p + ")"
	case errors.Is(err, fs.ErrNotExist):
		o.missing = disk.Shown(p) + " is not there"
	case err != nil:
		o.missing = err.Error()
	case st.Mode().IsRegular():
		if o.image, err = filepath.EvalSymlinks(p); err != nil {
			o.missing = err.Error()
		}
	case st.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice:
		var sys unix.Stat_t
		if err := unix.Stat(p, &sys); err != nil {
			o.missing = err.Error()
			break
		}
		o.device = deviceText(sys.Rdev)
	default:
		o.missing = disk.Shown(p) + " is neither a device nor a file; a directory is bound with options: [bind]"
	}
	return o
}

func isBind(options []string) bool {
	return slices.Contains(options, "bind") || slices.Contains(options, "rbind")
}

// bound finds out which part of which file system a bind shows.
func (c *call) bound(o *origin) {
	real, err := filepath.EvalSymlinks(o.text)
	if err != nil {
		o.missing = disk.Shown(o.text) + " is not there"
		return
	}
	st, err := os.Stat(real)
	way := c.table.on(real)
	if err != nil || len(way) == 0 {
		o.missing = disk.Shown(o.text) + " cannot be looked at"
		return
	}
	m := way[len(way)-1]
	o.bound, o.root, o.isFile = &m, path.Join(m.root, strings.TrimPrefix(real, m.path)), !st.IsDir()
}

func deviceText(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// tagName is a name as udev writes it below /dev/disk: what is neither plain nor UTF-8 is \xNN.
func tagName(value string) string {
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("#+-.:=@_", c) >= 0, c >= 0x80:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// is reports whether a mount is of a source and a kind.
func (o *origin) is(m mounted, kind string) bool {
	switch {
	case o.missing != "":
		return false
	case o.bound != nil:
		return m.dev == o.bound.dev && m.root == o.root
	case !sameKind(m.kind, kind):
		return false
	case o.image != "":
		return isLoopOf(m, o.image)
	case o.device != "":
		if m.root != "/" && m.kind != "btrfs" {
			return false // a bind of a part of it
		}
		var sys unix.Stat_t
		return m.dev == o.device || unix.Stat(m.source, &sys) == nil && deviceText(sys.Rdev) == o.device && sys.Mode&unix.S_IFMT == unix.S_IFBLK
	case !strings.ContainsAny(o.text, "/:"):
		return m.root == "/" // the word says nothing: it is the kind that counts
	}
	return strings.TrimRight(m.source, "/") == strings.TrimRight(o.text, "/")
}

// isLoopOf reports whether a mount is of the loop device of a file.
func isLoopOf(m mounted, image string) bool {
	if !strings.HasPrefix(m.source, "/dev/loop") {
		return false
	}
	b, err := os.ReadFile("/sys/dev/block/" + m.dev + "/loop/backing_file")
	return err == nil && strings.TrimSuffix(string(b), "\n") == image
}

// sameKind reports whether what the kernel calls a kind is what was declared.
func sameKind(now, declared string) bool {
	switch declared {
	case now, "auto", "none":
		return true
	case "nfs", "nfs4":
		return now == "nfs" || now == "nfs4"
	case "ntfs", "ntfs-3g", "ntfs3":
		return now == "fuseblk" || now == "ntfs3"
	case "cifs", "smb3":
		return now == "cifs" || now == "smb3"
	}
	return now == "fuse."+declared
}

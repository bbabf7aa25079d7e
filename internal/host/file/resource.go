package file

import (
	"errors"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	permMask = 0o7777
	// symlinkMode is what every symlink has, symlink(7).
	symlinkMode = 0o777
)

// thing is what stands, or shall stand, at a path.
type thing struct {
	mode     uint32 // type and permissions as in stat; 0 is nothing at all
	uid, gid uint32
	size     int64          // of a file, bytes
	digest   content.Digest // of a file
	target   string         // of a symlink
}

// kind is the thing's S_IF type.
func (t *thing) kind() uint32 { return t.mode & unix.S_IFMT }

// perm returns the permissions with setuid, setgid and sticky.
func (t *thing) perm() uint32 { return t.mode & permMask }

// permBeside returns the permissions that are wanted where found is: some bits may stay as they are.
func (r *resource) permBeside(found disk.Signature) uint32 {
	if found.Type() != r.kind() {
		return r.perm()
	}
	keeps := r.left
	if uid, gid := r.ownersBeside(found); found.Type() == unix.S_IFREG && (uid != found.UID || gid != found.GID) {
		// The bits of who had the file are not for who gets it: what he has put there would run as somebody else.
		keeps &^= unix.S_ISUID | unix.S_ISGID
	}
	return r.perm()&^r.left | found.Perm()&keeps
}

// ownersBeside returns the owner and group that are wanted where found is: either may be left to others once something is there.
func (r *resource) ownersBeside(found disk.Signature) (uid, gid uint32) {
	uid, gid = r.uid, r.gid
	if found.Type() != r.kind() {
		return uid, gid
	}
	if r.anyOwner {
		uid = found.UID
	}
	if r.anyGroup {
		gid = found.GID
	}
	return uid, gid
}

// grants reports whether who runs the file gets rights by it: set-id bits, or a capability.
func (r *resource) grants() bool {
	return r.kind() == unix.S_IFREG && (r.perm()&(unix.S_ISUID|unix.S_ISGID) != 0 || r.capable())
}

// grantsOwners reports whether these rights are none but its owner's.
func (r *resource) grantsOwners() bool {
	return r.perm()&(unix.S_ISUID|unix.S_ISGID) == unix.S_ISUID && !r.capable()
}

func (r *resource) capable() bool {
	return slices.ContainsFunc(r.wanted(), func(a durable.Attribute) bool { return a.Name == capabilityAttribute && a.Value != nil })
}

// leaveToOthers notes which fields are not compared any more once the thing is there.
func (r *resource) leaveToOthers(d *declare.Resource) {
	if d.Ignores("mode") {
		r.left = permMask
	}
	r.onlyNew = r.onlyNew || d.Ignores("content")
	r.anyOwner, r.anyGroup = d.Ignores("owner"), d.Ignores("group")
}

// resource is one bound resource. There may be 100,000, so it is small and keeps no content.
type resource struct {
	thing
	path string
	// body reads the declaration again, for the content. It is nil for what is being restored: that content is in the
	// content store.
	body func() (declare.Resource, error)
	// seen is what was last known to be as declared; zero when nothing is.
	seen disk.Signature
	// settled says that no later change can leave the signature seen.
	settled bool
	// left are the bits of the mode that stay as they are where the thing is there.
	left    uint32
	force   bool
	inPlace bool
	onlyNew bool // the content is for where nothing is; one that is there stays
	// anyOwner and anyGroup say that those of what is there stay.
	anyOwner, anyGroup bool
	private            bool // its content is not shown
	secret             bool // nor is what was there before kept
	// some is what few have; nil where there is nothing of it. It is read by rare, and filled by Bind.
	some *rare
}

// rare is what few resources have.
type rare struct {
	names  *names   // behind uid and gid, which may come to mean other numbers; nil for numbers and root
	extras *extras  // nil where no attributes are declared
	check  []string // the command that must accept the content
	from   *origin  // where a content comes from that is not declared; nil where it is
}

// nothing is the rare of a resource that has nothing of it.
var nothing rare

func (r *resource) rare() *rare {
	if r.some == nil {
		return &nothing
	}
	return r.some
}

// fill is rare in order to fill it.
func (r *resource) fill() *rare {
	if r.some == nil {
		r.some = &rare{}
	}
	return r.some
}

// declaredContent reads the declared content of a file again. The declaration may have been replaced since Bind; then the
// plan that asks for it is void.
func (r *resource) declaredContent() (string, error) {
	declared, err := r.body()
	if err != nil {
		return "", err
	}
	f := fileOf(&declared)
	if f == nil || content.DigestOf([]byte(f.Content)) != r.digest {
		return "", &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errReplaced}
	}
	return f.Content, nil
}

var errReplaced = errors.New("its declaration has just been replaced")

// names are those of a user and a group; empty where a number, root or nothing is declared.
type names struct{ owner, group string }

// namesOf are the names that have to be looked up again; nil for none.
func namesOf(owner, group string) *names {
	n := names{named(owner), named(group)}
	if n == (names{}) {
		return nil
	}
	return &n
}

func named(name string) string {
	if _, err := strconv.ParseUint(name, 10, 32); err == nil || name == "root" {
		return ""
	}
	return name
}

// Watches returns the path, because the kernel tells of its type, owner, mode, attributes and content, and the files that say which number the
// names of its owner, its group and those in its access list have.
func (r *resource) Watches() []host.Watch {
	watches := append([]host.Watch{{Kind: host.WatchPath, Name: r.path}}, r.accountWatches()...)
	return append(watches, r.rare().from.watches()...)
}

// remember notes what is known to be as declared.
func (r *resource) remember(sig disk.Signature, settled bool) {
	r.seen, r.settled = mark(sig), settled
}

// remembers reports whether sig is what is remembered.
func (r *resource) remembers(sig disk.Signature) bool { return sig.Exists() && mark(sig) == r.seen }

// mark is the part of a signature that belongs to the thing: times and size of a directory change with its entries.
func mark(sig disk.Signature) disk.Signature {
	if sig.Type() == unix.S_IFDIR {
		sig.Ctime, sig.Size = 0, 0
	}
	return sig
}

// doing is what an error of this resource begins with.
func (r *resource) doing() string { return "make " + kindName(r.kind()) + " " + disk.Shown(r.path) }

// inTheWay is the error for something of another type, which may not be replaced.
func (r *resource) inTheWay(now disk.Stat, hint string) error {
	return &reason.Error{Code: reason.TypeInTheWay, Doing: r.doing(), Cause: isThere(now.Kind()), Hint: hint}
}

// isThere says what stands somewhere, as the cause of an error.
type isThere string

func (s isThere) Error() string { return "a " + string(s) + " is there" }

// kindName names a type as disk.Signature.Kind does.
func kindName(kind uint32) string { return disk.Signature{Mode: kind}.Kind() }

// modeText writes permissions as people declare them.
func modeText(perm uint32) string {
	s := strconv.FormatUint(uint64(perm&permMask), 8)
	for len(s) < 4 {
		s = "0" + s
	}
	return s
}

// contentText tells contents apart in a few words. Of a private content only its length is told: from a digest a short
// secret can be guessed.
func contentText(size int64, digest content.Digest, private bool) string {
	s := strconv.FormatInt(size, 10) + " B"
	switch {
	case private:
		return s + ", not shown"
	case digest.IsZero():
		return s
	}
	return s + " " + digest.String()[:len("sha256:")+shortDigits]
}

// shortDigits is how much of a digest people compare by eye.
const shortDigits = 8

func split(p string) (dir, name string) { return path.Dir(p), path.Base(p) }

package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// bytesMax is what the layers of an image may unpack to: more than those with a whole machine learning stack have.
	bytesMax = 64 << 30
	// entriesMax is ten times what a large distribution has in files.
	entriesMax = 1_000_000
	// windowMax is how far back zstd may refer, in bytes: what `zstd --long` takes.
	windowMax = 128 << 20
	// spareEvery is after how many bytes it is looked again whether the disk has room.
	spareEvery = 16 << 20
	// opaqueMark and whiteout are of the specification: a directory that shows nothing of the layers below, and a name that is not there.
	opaqueMark = ".wh..wh..opq"
	whiteout   = ".wh."
)

// unpacking is one image on its way into a directory.
type unpacking struct {
	root    *root
	at      string // the directory, for looking at the room on its disk
	bytes   int64  // of the layers that may yet come
	room    int64  // of files that may yet be written: of a sparse one the layer has less
	entries int
	unseen  int64 // bytes since it was looked for room
	seed    maphash.Seed
	layer   map[uint64]struct{} // the paths that the present layer has
}

// unpack puts the layers of an image into an empty directory.
func (l *layout) unpack(ctx context.Context, dir string, bytes int64) error {
	r, err := openRoot(dir)
	if err != nil {
		return err
	}
	u := &unpacking{root: r, at: dir, bytes: bytes, room: bytes, entries: entriesMax}
	for i, d := range l.manifest.Layers {
		if err = u.one(ctx, l, d, l.document.RootFS.DiffIDs[i]); err != nil {
			err = fmt.Errorf("layer %d: %w", i+1, err)
			break
		}
	}
	return errors.Join(err, r.close())
}

// one unpacks a layer, and compares it with both of its digests.
func (u *unpacking) one(ctx context.Context, l *layout, d descriptor, diffID string) error {
	want, err := parseDigest(diffID)
	if err != nil {
		return err
	}
	f, digest, err := l.blob(d)
	if err != nil {
		return err
	}
	defer f.Close()
	packed := summed{from: f, sum: sha256.New()}
	how, err := packing(d.MediaType)
	if err != nil {
		return err
	}
	open, done, err := unpacked(how, &packed)
	if err != nil {
		return err
	}
	defer done()
	plain := summed{from: &budgeted{open, &u.bytes}, sum: sha256.New()}
	if err := u.apply(ctx, &plain); err != nil {
		return err
	}
	// What stands behind the end of the archive counts, too.
	if _, err := io.Copy(io.Discard, &plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, &packed); err != nil {
		return err
	}
	if got := packed.digest(); got != digest {
		return fmt.Errorf("it has other content than its digest says: %s, not %s", got, digest)
	}
	if got := plain.digest(); got != want {
		return fmt.Errorf("it unpacks to other content than the configuration says: %s, not %s", got, want)
	}
	return nil
}

// unpacked reads what a compressed stream holds.
func unpacked(how string, from io.Reader) (io.Reader, func(), error) {
	switch how {
	case "gzip":
		z, err := gzip.NewReader(from)
		return z, func() {}, err
	case "zstd":
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowMax))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return from, func() {}, nil
}

// summed computes the digest of what is read.
type summed struct {
	from io.Reader
	sum  hash.Hash
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	_, _ = s.sum.Write(p[:n]) // it cannot fail
	return n, err
}

func (s *summed) digest() Digest { return Digest(hex.EncodeToString(s.sum.Sum(nil))) }

// errTooLarge is that of what unpacks to more than is taken.
var errTooLarge = errors.New("it unpacks to more than an image may have")

// budgeted ends with an error when there is more than is left.
type budgeted struct {
	from io.Reader
	left *int64
}

func (b *budgeted) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// apply puts the entries of a layer over what there is.
func (u *unpacking) apply(ctx context.Context, from io.Reader) error {
	u.seed, u.layer = maphash.MakeSeed(), map[uint64]struct{}{}
	r := tar.NewReader(from)
	for {
		if err := ctx.Err(); err != nil {
			return reason.Ended("unpack an image", err)
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are judged below
			return err
		}
		if u.entries--; u.entries < 0 {
			return fmt.Errorf("it has more than %d entries", entriesMax)
		}
		if err := u.entry(h, r); err != nil {
			return err
		}
	}
}

// entry puts one entry in its place.
func (u *unpacking) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= 1<<32-1 || int64(h.Gid) >= 1<<32-1 {
		return fmt.Errorf("%.80q belongs to %d:%d", name, h.Uid, h.Gid)
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root of the image is no directory")
		}
		return u.own(u.root.fd, "", h)
	}
	dir, err := u.root.dir(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if strings.HasPrefix(base, whiteout) {
		return u.white(dir, path.Dir(name), base)
	}
	for p := name; p != "."; p = path.Dir(p) { // what is above it is of this layer, too
		u.layer[u.hash(p)] = struct{}{}
	}
	if err := u.place(dir, base, h, r); err != nil {
		return fmt.Errorf("unpack %.80q: %w", name, err)
	}
	return nil
}

func (u *unpacking) hash(name string) uint64 { return maphash.String(u.seed, name) }

// white takes away what a layer hides of those below.
func (u *unpacking) white(dir int, parent, base string) error {
	if base != opaqueMark {
		name := strings.TrimPrefix(base, whiteout)
		if strings.HasPrefix(name, whiteout) || u.has(path.Join(parent, name)) {
			return nil // what a union file system keeps for itself; or what this layer has put there
		}
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%.80q hides nothing that can be", base)
		}
		return u.root.removeAll(dir, name)
	}
	names, err := u.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if u.has(path.Join(parent, name)) {
			continue
		}
		if err := removeAt(dir, name); err != nil {
			return err
		}
	}
	u.root.forget()
	return nil
}

func (u *unpacking) has(name string) bool {
	_, ok := u.layer[u.hash(name)]
	return ok
}

func (u *unpacking) names(dir int) ([]string, error) {
	f, err := os.Open(disk.ProcPath(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// place makes one thing. What stands there is taken away, but for a directory in whose place one comes.
func (u *unpacking) place(dir int, base string, h *tar.Header, r io.Reader) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if there && (h.Typeflag != tar.TypeDir || st.Mode&unix.S_IFMT != unix.S_IFDIR) {
		if dir, err = u.cleared(dir, base); err != nil {
			return err
		}
		there = false
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(dir, base, h, r)
	case tar.TypeDir:
		if !there {
			if err := unix.Mkdirat(dir, base, 0o700); err != nil {
				return err
			}
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > nameMax {
			return errors.New("the target of the link is empty, or too long")
		}
		if err := unix.Symlinkat(h.Linkname, dir, base); err != nil {
			return err
		}
	case tar.TypeLink:
		return u.link(dir, base, h.Linkname)
	case tar.TypeFifo:
		if err := unix.Mkfifoat(dir, base, 0o600); err != nil {
			return err
		}
	case tar.TypeChar, tar.TypeBlock:
		return nil // containers have their own /dev, and nothing of the host's hardware
	default:
		return fmt.Errorf("it is of the kind %q, which is not known", h.Typeflag)
	}
	return u.own(dir, base, h)
}

// cleared takes away what has a name, and returns a descriptor of the directory that is good after that.
func (u *unpacking) cleared(dir int, base string) (int, error) {
	last := u.root.last
	if err := u.root.removeAll(dir, base); err != nil || dir == u.root.fd {
		return dir, err
	}
	return u.root.dir(last)
}

// file writes a regular file.
func (u *unpacking) file(dir int, base string, h *tar.Header, r io.Reader) error {
	if u.room -= h.Size; u.room < 0 || h.Size < 0 {
		return errTooLarge
	}
	if u.unseen += h.Size; u.unseen >= spareEvery {
		u.unseen = 0
		if err := content.Spare(u.at, max(h.Size, spareEvery)); err != nil {
			return err
		}
	}
	fd, err := disk.OpenAt(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chown(h.Uid, h.Gid)
	}
	if err == nil {
		err = unix.Fchmod(fd, mode(h))
	}
	if err == nil && !h.ModTime.IsZero() {
		at := unix.NsecToTimeval(h.ModTime.UnixNano())
		err = unix.Futimes(fd, []unix.Timeval{at, at})
	}
	return errors.Join(err, f.Close())
}

// link gives another name to what there is.
func (u *unpacking) link(dir int, base, target string) error {
	to, err := clean(strings.TrimPrefix(target, "/")) // some programs write it absolute: it is of the image
	if err != nil {
		return err
	}
	up, err := u.root.within(path.Dir(to), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open the directory of what it is a link to: %w", err)
	}
	defer unix.Close(up)
	return unix.Linkat(up, path.Base(to), dir, base, 0)
}

// mode are the permissions of a thing. Who runs it has no rights by it: setuid and setgid are left out, but for a directory's sticky bit.
func mode(h *tar.Header) uint32 {
	if h.Typeflag == tar.TypeDir {
		return uint32(h.Mode) & 0o1777
	}
	return uint32(h.Mode) & 0o777
}

// own gives a thing its owner and permissions; with no name, the directory itself.
func (u *unpacking) own(dir int, base string, h *tar.Header) error {
	name := base
	if base == "" {
		name = "."
	}
	if err := unix.Fchownat(dir, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeSymlink {
		return nil // it has none
	}
	// What was just made, or seen to be a directory, is no link.
	return unix.Fchmodat(dir, filepath.Clean(name), mode(h), 0)
}

package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// archiveMax bounds the entries of an archive: layers and documents of many images.
const archiveMax = 20_000

// layout is an image in an OCI image layout.
type layout struct {
	path     string
	files    source
	digest   Digest // of the manifest
	manifest manifest
	document document
}

// source has the files of a layout.
type source interface {
	// open opens a file by its path in the layout.
	open(name string) (io.ReadCloser, int64, error)
	io.Closer
}

// refused is the error of a layout that cannot be used.
func refused(path string, why error) error {
	return &reason.Error{
		Code: reason.ImageRefused, Doing: "read the image " + path, Cause: why,
		Hint: "it must be an OCI image layout, as `skopeo copy ... oci:DIR` or `oci-archive:FILE` writes it",
	}
}

// open reads what is needed of a layout: which image it is.
func open(name string) (*layout, error) {
	l := &layout{path: name}
	if err := l.find(); err != nil {
		if l.files != nil {
			err = errors.Join(err, l.files.Close())
		}
		return nil, err
	}
	return l, nil
}

func (l *layout) find() error {
	st, err := os.Stat(l.path)
	switch {
	case err != nil:
		return &reason.Error{Code: reason.TaskNotStarted, Doing: "read the image " + l.path, Cause: err}
	case foreign(st):
		return refused(l.path, errForeign)
	case st.IsDir():
		l.files = directory(l.path)
	default:
		a, err := openArchive(l.path)
		if err != nil {
			return refused(l.path, err)
		}
		l.files = a
	}
	// What it names is what its digest says, whoever may write it.
	text, err := l.readAll("index.json")
	if err != nil {
		return refused(l.path, err)
	}
	found := map[Digest]descriptor{}
	if err := l.choose(text, found, indexDepth); err != nil {
		return refused(l.path, fmt.Errorf("index.json: %w", err))
	}
	if len(found) != 1 {
		return refused(l.path, fmt.Errorf("it holds %d images for this machine, and one is needed", len(found)))
	}
	for digest, d := range found {
		l.digest = digest
		if err := l.describe(d); err != nil {
			return refused(l.path, err)
		}
	}
	return nil
}

// errForeign is that of what somebody else may put another image in place of.
var errForeign = errors.New("somebody other than root and the agent's user may change it")

// foreign reports whether somebody else may change a file or directory.
func foreign(st fs.FileInfo) bool {
	is, ok := st.Sys().(*syscall.Stat_t)
	return !ok || is.Uid != 0 && int(is.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0
}

// choose collects the images of an index that are for this machine.
func (l *layout) choose(text []byte, found map[Digest]descriptor, depth int) error {
	i, err := parseIndex(text)
	if err != nil {
		return err
	}
	for _, d := range i.Manifests {
		digest, err := parseDigest(d.Digest)
		if err != nil {
			return err
		}
		switch {
		case !d.Platform.here():
		case kind(d.MediaType) == "manifest":
			found[digest] = d
		case kind(d.MediaType) == "index" && depth > 1:
			text, err := l.described(d)
			if err == nil {
				err = l.choose(text, found, depth-1)
			}
			if err != nil {
				return err
			}
		case kind(d.MediaType) == "index":
			return fmt.Errorf("indexes stand in one another more than %d deep", indexDepth)
		}
	}
	return nil
}

// describe reads the manifest and the configuration.
func (l *layout) describe(d descriptor) error {
	text, err := l.described(d)
	if err == nil {
		l.manifest, err = parseManifest(text)
	}
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if text, err = l.described(l.manifest.Config); err == nil {
		l.document, err = parseConfig(text, len(l.manifest.Layers))
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// size is how many bytes its layers have, as they are packed.
func (l *layout) size() (sum int64) {
	for _, d := range l.manifest.Layers {
		sum += min(max(d.Size, 0), bytesMax-sum)
	}
	return sum
}

// blob opens what a descriptor names, when it has the size that this says.
func (l *layout) blob(d descriptor) (io.ReadCloser, Digest, error) {
	digest, err := parseDigest(d.Digest)
	if err != nil {
		return nil, "", err
	}
	f, size, err := l.files.open("blobs/sha256/" + string(digest))
	if err != nil {
		return nil, "", err
	}
	if size != d.Size {
		return nil, "", errors.Join(fmt.Errorf("%s has %d bytes, and should have %d", digest, size, d.Size), f.Close())
	}
	return f, digest, nil
}

// described reads one document as a descriptor has it.
func (l *layout) described(d descriptor) ([]byte, error) {
	if d.Size < 0 || d.Size > documentMax {
		return nil, fmt.Errorf("a document has %d bytes, at most %d are read", d.Size, documentMax)
	}
	f, digest, err := l.blob(d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, documentMax))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != string(digest) {
		return nil, fmt.Errorf("%s has other content than its digest says", digest)
	}
	return text, nil
}

func (l *layout) readAll(name string) ([]byte, error) {
	f, size, err := l.files.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > documentMax {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", name, size, documentMax)
	}
	return io.ReadAll(io.LimitReader(f, documentMax))
}

// directory is a layout on the host.
type directory string

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	// Without O_NONBLOCK a pipe of that name would be waited for.
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", name)
	case foreign(st):
		err = errForeign
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

func (d directory) Close() error { return nil }

// archive is a layout in an archive.
type archive struct {
	file  *os.File
	parts map[string]part
}

type part struct{ from, size int64 }

func openArchive(name string) (*archive, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	a := &archive{file: f, parts: map[string]part{}}
	if err := a.list(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

// compressed are the beginnings of what people may take for an archive.
var compressed = [][]byte{{0x1f, 0x8b}, {0x28, 0xb5, 0x2f, 0xfd}, []byte("BZh"), {0xfd, '7', 'z', 'X', 'Z'}}

// list notes where the files of the archive are. Only headers are read.
func (a *archive) list() error {
	head := make([]byte, 8)
	n, err := a.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if slices.ContainsFunc(compressed, func(magic []byte) bool { return bytes.HasPrefix(head[:n], magic) }) {
		return errors.New("the archive is compressed, which those of image layouts are not: their layers are")
	}
	r := tar.NewReader(a.file)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are only compared
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if len(a.parts) >= archiveMax {
			return fmt.Errorf("the archive has more than %d files", archiveMax)
		}
		from, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		a.parts[strings.TrimPrefix(path.Clean(h.Name), "/")] = part{from, h.Size}
	}
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	p, ok := a.parts[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.file, p.from, p.size)), p.size, nil
}

func (a *archive) Close() error { return a.file.Close() }

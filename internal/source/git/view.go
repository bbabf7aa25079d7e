package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Tree as a file system.
var (
	_ fs.ReadDirFS  = (*Tree)(nil)
	_ fs.ReadFileFS = (*Tree)(nil)
	_ fs.StatFS     = (*Tree)(nil)
)

// linksMax bounds the symlinks on the way to one file: what Linux follows (path_resolution(7)).
const linksMax = 40

// node is what a name leads to: a file, or a directory when file is nil.
type node struct {
	name string
	file *File
}

// Open implements fs.FS. A file's content is read at once.
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return &openDir{info: dirInfo(n.name), rest: t.dirs[n.name]}, nil
	}
	content, err := t.read(*n.file)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{info: fileInfo(*n.file), Reader: bytes.NewReader(content)}, nil
}

// ReadFile implements fs.ReadFileFS. The caller owns the content. Errors are *fs.PathError around *reason.Error, or around
// fs.ErrNotExist.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	n, err := t.resolve("read", name)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errIsDirectory}
	}
	content, err := t.read(*n.file)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return content, nil
}

var (
	errIsDirectory  = errors.New("is a directory")
	errNotDirectory = errors.New("is not a directory")
)

// ReadDir implements fs.ReadDirFS. Symlinks are entries of their own type. The caller owns the slice.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.resolve("readdir", name)
	if err != nil {
		return nil, err
	}
	if n.file != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errNotDirectory}
	}
	return append([]fs.DirEntry(nil), t.dirs[n.name]...), nil
}

// Stat implements fs.StatFS; it follows symlinks. Sys of what it returns is a File, for files.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.resolve("stat", name)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return dirInfo(n.name), nil
	}
	return fileInfo(*n.file), nil
}

// resolve follows a name through directories and symlinks.
func (t *Tree) resolve(op, name string) (node, error) {
	fail := func(err error) (node, error) { return node{}, &fs.PathError{Op: op, Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	at, rest, links := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return fail(outside("it leads out of the repository"))
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if _, isDir := t.dirs[next]; isDir {
			at = next
			continue
		}
		f, ok := t.files[next]
		switch {
		case !ok:
			return fail(t.absent(next))
		case f.Mode&fs.ModeSymlink != 0:
			if links++; links > linksMax {
				return fail(outside(fmt.Sprintf("more than %d symlinks lead to it", linksMax)))
			}
			target, err := t.linkTarget(f)
			if err != nil {
				return fail(err)
			}
			rest = append(strings.Split(target, "/"), rest...)
		case len(rest) > 0:
			return fail(fs.ErrNotExist)
		default:
			return node{name: next, file: &f}, nil
		}
	}
	return node{name: at}, nil
}

// absent says why a name is not there: a submodule is told apart from nothing.
func (t *Tree) absent(name string) error {
	for _, r := range t.refused {
		if r.Name == name {
			return r.Err
		}
	}
	return fs.ErrNotExist
}

func (t *Tree) linkTarget(f File) (string, error) {
	if f.Size < 0 || f.Size > nameMax {
		return "", outside(fmt.Sprintf("its target has more than %d bytes", nameMax))
	}
	content, err := t.read(f)
	switch target := string(content); {
	case err != nil:
		return "", err
	case target == "" || !printable(target):
		return "", outside("its target is empty, not valid UTF-8, or has control characters")
	case path.IsAbs(target):
		return "", outside("it leads to " + quote(target) + ", out of the repository")
	default:
		return target, nil
	}
}

func outside(why string) error {
	return &reason.Error{Code: reason.RepositoryContent, Doing: "follow a symlink", Cause: errors.New(why), Hint: "symlinks may lead to files of the same repository only"}
}

// info implements fs.FileInfo. Git keeps no times.
type info struct {
	name string
	size int64
	mode fs.FileMode
	sys  any
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return i.sys }

func fileInfo(f File) fs.FileInfo {
	return info{name: path.Base(f.Name), size: f.Size, mode: f.Mode, sys: f}
}

func fileEntry(f File) fs.DirEntry { return fs.FileInfoToDirEntry(fileInfo(f)) }

func dirInfo(name string) fs.FileInfo { return info{name: path.Base(name), mode: fs.ModeDir | 0o755} }

// openFile is a file with its content.
type openFile struct {
	info fs.FileInfo
	*bytes.Reader
}

// Stat implements fs.File.
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close implements fs.File.
func (f *openFile) Close() error { return nil }

// openDir is a directory, of which rest is still to be read.
type openDir struct {
	info fs.FileInfo
	rest []fs.DirEntry
}

// Stat implements fs.File.
func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read implements fs.File.
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.Name(), Err: errIsDirectory}
}

// Close implements fs.File.
func (d *openDir) Close() error { return nil }

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(d.rest) {
		if n > 0 && len(d.rest) == 0 {
			return nil, io.EOF
		}
		n = len(d.rest)
	}
	list := append([]fs.DirEntry(nil), d.rest[:n]...)
	d.rest = d.rest[n:]
	return list, nil
}

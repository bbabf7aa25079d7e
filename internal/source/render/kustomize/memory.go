package kustomize

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// memory is a file system of the library that holds the files of a tree below "/", and takes nothing. The library's own refuses
// file names that are fine in a repository.
type memory struct {
	files map[string][]byte
	dirs  map[string]bool
}

func newMemory(files map[string][]byte) *memory {
	m := &memory{files: map[string][]byte{}, dirs: map[string]bool{"/": true}}
	for name, data := range files {
		m.files["/"+name] = data
		for dir := path.Dir("/" + name); !m.dirs[dir]; dir = path.Dir(dir) {
			m.dirs[dir] = true
		}
	}
	return m
}

func clean(name string) string { return path.Clean("/" + name) }

func absent(op, name string) error {
	return &fs.PathError{Op: op, Path: strings.TrimPrefix(clean(name), "/"), Err: fs.ErrNotExist}
}

func readOnly(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

// CleanedAbs splits the path of a file into directory and name; a directory has no name.
func (m *memory) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	name = clean(name)
	switch _, isFile := m.files[name]; {
	case isFile:
		return filesys.ConfirmedDir(path.Dir(name)), path.Base(name), nil
	case m.dirs[name]:
		return filesys.ConfirmedDir(name), "", nil
	}
	return "", "", absent("open", name)
}

// ReadFile returns the content of a file.
func (m *memory) ReadFile(name string) ([]byte, error) {
	if data, ok := m.files[clean(name)]; ok {
		return data, nil
	}
	return nil, absent("read", name)
}

// Exists tells whether there is a file or directory.
func (m *memory) Exists(name string) bool {
	_, isFile := m.files[clean(name)]
	return isFile || m.IsDir(name)
}

// IsDir tells whether there is a directory.
func (m *memory) IsDir(name string) bool { return m.dirs[clean(name)] }

// What follows is of the library's interface, and no part of the library that is used here needs it.

// Create refuses.
func (m *memory) Create(name string) (filesys.File, error) { return nil, readOnly("create", name) }

// Mkdir refuses.
func (m *memory) Mkdir(name string) error { return readOnly("mkdir", name) }

// MkdirAll refuses.
func (m *memory) MkdirAll(name string) error { return readOnly("mkdir", name) }

// RemoveAll refuses.
func (m *memory) RemoveAll(name string) error { return readOnly("remove", name) }

// WriteFile refuses.
func (m *memory) WriteFile(name string, _ []byte) error { return readOnly("write", name) }

// Open refuses: files are read as a whole.
func (m *memory) Open(name string) (filesys.File, error) { return nil, readOnly("open", name) }

// ReadDir refuses: nothing is read that no kustomization names.
func (m *memory) ReadDir(name string) ([]string, error) { return nil, readOnly("list", name) }

// Glob finds nothing.
func (m *memory) Glob(string) ([]string, error) { return nil, nil }

// Walk finds nothing.
func (m *memory) Walk(name string, _ filepath.WalkFunc) error {
	return &os.PathError{Op: "walk", Path: name, Err: fs.ErrPermission}
}

package documents

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Stdin is the name of standard input in messages.
const Stdin = "<stdin>"

// Source is what was read: the documents, and the bytes of standard input for excerpts.
type Source struct {
	Documents []Document
	// Below are directories with documents that were not read, because they are below a directory that was meant alone.
	Below []string
	stdin []byte
}

// Bytes returns the content of a file by the name that a Document has; it serves excerpts.
func (s *Source) Bytes(file string) ([]byte, error) {
	if file == Stdin {
		return s.stdin, nil
	}
	return os.ReadFile(file)
}

// Load reads files and directories; "-" is standard input. Of a directory it reads every *.yaml, *.yml and *.json right in
// it, and with recursive everything below it, without hidden files. It returns every mistake, two documents for one object
// among them; the error is declare.Faults or nil, and the Source is there for excerpts in either case.
func Load(paths []string, recursive bool, stdin io.Reader) (*Source, error) {
	source := &Source{}
	var faults []declare.Fault
	read := func(name string, data []byte, err error) {
		if err != nil {
			faults = append(faults, unread(name, err))
			return
		}
		ds, fs := Read(name, data)
		source.Documents, faults = append(source.Documents, ds...), append(faults, fs...)
	}
	seen := map[string]bool{}
	for _, path := range paths {
		if path == "-" {
			if !seen[Stdin] {
				var err error
				source.stdin, err = bounded(stdin)
				read(Stdin, source.stdin, err)
			}
			seen[Stdin] = true
			continue
		}
		files, below, err := list(path, recursive)
		source.Below = append(source.Below, below...)
		if err != nil {
			faults = append(faults, unread(path, err))
		}
		for _, name := range files {
			if clean := filepath.Clean(name); !seen[clean] {
				seen[clean] = true
				data, err := readFile(name)
				read(name, data, err)
			}
		}
	}
	faults = append(faults, Duplicates(source.Documents, "")...)
	if len(source.Documents) == 0 && len(faults) == 0 {
		faults = append(faults, declare.Fault{Code: reason.NothingDeclared, Message: "no document in " + strings.Join(paths, ", "),
			Hint: "a document is in a .yaml, .yml or .json file and begins with apiVersion and kind"})
	}
	if len(faults) > 0 {
		return source, declare.Faults(declare.SortFaults(faults))
	}
	return source, nil
}

// bounded reads one byte more than the limit at most, which Read then refuses.
func bounded(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, declare.DocumentBytesMax+1))
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f)
}

func unread(name string, err error) declare.Fault {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "check the path"
	case errors.Is(err, fs.ErrPermission):
		hint = "make it readable for this user"
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err // the place says the path already
	}
	return declare.Fault{Code: reason.DeclarationUnread, File: name, Message: fmt.Sprintf("cannot be read: %v", err), Hint: hint}
}

// list returns the files of documents of a directory, and which directories right in it have some that are left out.
func list(path string, recursive bool) (files, below []string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, nil, nil // what cannot be read is said by reading it
	}
	err = filepath.WalkDir(path+string(filepath.Separator), func(name string, entry fs.DirEntry, err error) error {
		switch root := filepath.Clean(name) == filepath.Clean(path); {
		case err != nil:
			return err
		case root:
		case strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir() && !recursive:
			if hasDocuments(name) {
				below = append(below, name)
			}
			return fs.SkipDir
		case !entry.IsDir() && IsDocument(entry.Name()):
			files = append(files, name)
		}
		return nil
	})
	slices.Sort(files)
	return files, below, err
}

// hasDocuments tells whether a file of a document is anywhere below a directory. What cannot be looked into may hold one.
func hasDocuments(path string) bool {
	found := errors.New("found")
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != path:
			return fs.SkipDir
		case !entry.IsDir() && IsDocument(entry.Name()):
			return found
		}
		return nil
	})
	return err != nil
}

// IsDocument tells whether a file in a directory holds documents, by its name without the directory.
func IsDocument(name string) bool {
	return !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "#") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// Duplicates finds two documents for one object: the second would silently win. A document that names no namespace is in the
// given one.
func Duplicates(documents []Document, namespace string) []declare.Fault {
	type identity struct{ group, kind, namespace, name string }
	first := map[identity]*Document{}
	var faults []declare.Fault
	for i := range documents {
		d := &documents[i]
		kind := d.Kind()
		id := identity{kind.Group, kind.Kind, cmp.Or(d.Object.GetNamespace(), namespace), d.Object.GetName()}
		other, twice := first[id]
		if !twice {
			first[id] = d
			continue
		}
		place, related := d.Place("metadata.name"), other.Place("metadata.name")
		related.Note = "first declared here"
		faults = append(faults, declare.Fault{Code: reason.DuplicateDeclaration, File: place.File, Line: place.Line, Column: place.Column, Path: place.Path,
			Message: fmt.Sprintf("%s %q is declared twice", id.kind, id.name), Hint: "rename one, or make them one", Related: []declare.Place{related}})
	}
	return faults
}

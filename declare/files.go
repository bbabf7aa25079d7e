package declare

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Load reads and validates everything that paths name: what ReadFiles returns, the mistakes that Validate finds, with
// their places, and two declarations of one kind and name. The error is Faults or nil. With an error the documents are of
// no use but for looking at.
func Load(paths []string) ([]Document, error) {
	documents, faults := ReadFiles(paths)
	for i := range documents {
		faults = append(faults, documents[i].Validate()...)
	}
	faults = append(faults, duplicateDeclarations(documents)...)
	if len(documents) == 0 && len(faults) == 0 {
		faults = append(faults, Fault{Code: reason.NothingDeclared, Message: "no declaration in " + joinWords(paths),
			Hint: "a declaration is a .yaml, .yml or .json file with apiVersion: " + APIVersion})
	}
	if len(faults) > 0 {
		return documents, Faults(SortFaults(faults))
	}
	return documents, nil
}

// ReadFiles reads files and directories. Of a directory it reads every *.yaml, *.yml and *.json below it, in the order of
// their paths, without hidden files and directories, editors' backups and what is not a regular file; symbolic links are
// followed to files only. A file that cannot be read is a fault of code DeclarationUnread.
func ReadFiles(paths []string) ([]Document, []Fault) {
	var documents []Document
	var faults []Fault
	seen := map[string]bool{}
	for _, p := range paths {
		files, unread := declarationFiles(p)
		faults = append(faults, unread...)
		for _, name := range files {
			if clean := filepath.Clean(name); seen[clean] {
				continue
			} else {
				seen[clean] = true
			}
			data, err := readBounded(name)
			if err != nil {
				faults = append(faults, unreadFault(name, err))
				continue
			}
			ds, fs := Read(name, data)
			documents, faults = append(documents, ds...), append(faults, fs...)
		}
	}
	return documents, SortFaults(faults)
}

// readBounded reads a file, one byte more than the limit at most, which Read then refuses.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return io.ReadAll(io.LimitReader(f, DocumentBytesMax+1))
}

func unreadFault(name string, err error) Fault {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err // the place says the path already
	}
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "check the path"
	case errors.Is(err, fs.ErrPermission):
		hint = "make it readable for this user"
	}
	return Fault{Code: reason.DeclarationUnread, File: name, Message: fmt.Sprintf("cannot be read: %v", err), Hint: hint}
}

// declarationFiles lists the files that a path stands for, sorted.
func declarationFiles(path string) ([]string, []Fault) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, []Fault{unreadFault(path, err)}
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	var faults []Fault
	root := path + string(filepath.Separator) // so that a symbolic link to a directory is one
	_ = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		hidden := name != root && strings.HasPrefix(filepath.Base(name), ".")
		switch {
		case hidden && entry != nil && entry.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case err != nil:
			faults = append(faults, unreadFault(name, err))
			return nil
		case isDeclarationFile(name, entry):
			files = append(files, name)
		}
		return nil // so WalkDir itself never fails
	})
	slices.Sort(files)
	return files, faults
}

func isDeclarationFile(name string, entry fs.DirEntry) bool {
	base := filepath.Base(name)
	if strings.HasPrefix(base, "#") {
		return false // Emacs' autosave; other editors' backups end in ~, .swp, .bak or .orig and so are none of ours
	}
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(base)) {
		return false
	}
	if entry.Type()&fs.ModeSymlink != 0 {
		info, err := os.Stat(name)
		return err != nil || info.Mode().IsRegular() // a dangling link is said when it is read
	}
	return entry.Type().IsRegular()
}

// duplicateDeclarations finds two documents of one kind, namespace and name: the second would silently be another config.
func duplicateDeclarations(documents []Document) []Fault {
	type identity struct{ kind, namespace, name string }
	first := map[identity]*Document{}
	var faults []Fault
	for i := range documents {
		d := &documents[i]
		id := identity{d.Config.Kind, d.Config.Metadata.Namespace, d.Config.Metadata.Name}
		if id.name == "" {
			continue
		}
		other, twice := first[id]
		if !twice {
			first[id] = d
			continue
		}
		place, related := d.Place("metadata.name"), other.Place("metadata.name")
		related.Note = "first declared here"
		faults = append(faults, Fault{Code: reason.DuplicateDeclaration, File: place.File, Line: place.Line, Column: place.Column, Path: place.Path,
			Message: fmt.Sprintf("%s %q is declared twice", id.kind, id.name), Hint: "rename one, or move its resources into the other", Related: []Place{related}})
	}
	return faults
}

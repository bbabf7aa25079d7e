package kustomize

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Names lists the files in order.
func (t *Tree) Names() []string { return slices.Sorted(maps.Keys(t.Files)) }

// KustomizationOf returns the file of the kustomization of a root.
func (t *Tree) KustomizationOf(root string) string {
	if k := t.kustomizations[root]; k != nil {
		return k.file
	}
	return root
}

// IsComponent tells whether a root is a component, which makes nothing alone.
func (t *Tree) IsComponent(root string) bool {
	k := t.kustomizations[root]
	return k != nil && k.component
}

// PlaceOf returns where a field of the kustomization in a file stands, for objects that a generator has made.
func (t *Tree) PlaceOf(file, field string) (line, column int) {
	for _, k := range t.kustomizations {
		if k.file == file {
			return k.place(field, -1)
		}
	}
	return 1, 1
}

// Load reads the files that Collect has named. It refuses what is too large, and kustomizations that include others so often
// that too many objects would be made of them.
func (t *Tree) Load(view fs.FS) []declare.Fault {
	var faults []declare.Fault
	size := int64(0)
	for _, name := range t.Names() {
		if t.Files[name] == nil {
			data, err := ReadFile(view, name, t.limits.FileBytes)
			if err != nil {
				faults = append(faults, unread(name, err))
				continue
			}
			t.Files[name] = append([]byte{}, data...)
		}
		if size += int64(len(t.Files[name])); size > t.limits.TreeBytes {
			return append(faults, declare.Fault{Code: reason.RenderLimit, File: name, Message: fmt.Sprintf("the files have more than %d bytes together", t.limits.TreeBytes),
				Hint: "split the Source into several"})
		}
	}
	memo := map[string]int{}
	for _, root := range t.Roots {
		if t.objects(root, memo) > t.limits.Objects {
			faults = append(faults, declare.Fault{Code: reason.RenderLimit, File: t.KustomizationOf(root), Line: 1, Column: 1,
				Message: fmt.Sprintf("more than %d objects would be made", t.limits.Objects), Hint: "a base that is included twice counts twice; split the Source into several"})
		}
	}
	return faults
}

// objects counts what a kustomization makes, each base as often as it is included. Collect has refused circles.
func (t *Tree) objects(dir string, memo map[string]int) int {
	k := t.kustomizations[dir]
	if k == nil {
		return 0
	}
	if n, ok := memo[dir]; ok {
		return n
	}
	n := 0
	for _, name := range k.resources {
		n += 1 + bytes.Count(t.Files[name], []byte("\n---"))
	}
	for _, d := range k.included {
		n = min(n+t.objects(d, memo), t.limits.Objects+1)
	}
	memo[dir] = n
	return n
}

// errTooLarge says that a file has more bytes than are read.
type errTooLarge struct{ limit int64 }

func (e errTooLarge) Error() string { return fmt.Sprintf("it has more than %d bytes", e.limit) }

// ReadFile reads a file of a tree up to a limit. A pointer of Git LFS is an error: what it stands for was meant.
func ReadFile(view fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(view, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, errTooLarge{limit}
	}
	f, err := view.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > limit:
		return nil, errTooLarge{limit}
	case bytes.HasPrefix(data, []byte(pointerBegin)):
		return nil, errPointer
	}
	return data, nil
}

// pointerBegin is how the file begins that Git LFS commits instead of another one (docs/spec.md of git-lfs).
const pointerBegin = "version https://git-lfs.github.com/spec/v1\n"

var errPointer = errors.New("it is a pointer of Git LFS: what it stands for is not in the repository, and is not fetched")

// cause takes the path off an error, where the place says it already.
func cause(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// Unread is the fault of a file that ReadFile could not read.
func Unread(name string, err error) declare.Fault { return unread(name, err) }

func unread(name string, err error) declare.Fault {
	f := declare.Fault{Code: reason.DeclarationUnread, File: name, Message: fmt.Sprintf("cannot be read: %v", cause(err)), Hint: "check the path"}
	var known *reason.Error
	if errors.As(err, &known) { // the view knows more than that it cannot be read
		f.Message, f.Hint = fmt.Sprintf("cannot be read: %v", cmp.Or(known.Cause, error(known))), cmp.Or(known.Hint, f.Hint)
	}
	var large errTooLarge
	if errors.As(err, &large) {
		f.Code, f.Message, f.Hint = reason.RenderLimit, large.Error(), "split it into several files"
	}
	if errors.Is(err, errPointer) {
		f.Message, f.Hint = errPointer.Error(), "take it out of LFS (git lfs migrate export), or have it ignored"
	}
	return f
}

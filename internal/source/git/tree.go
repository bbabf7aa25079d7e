package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"tako.dev/tako/internal/reason"
)

// File is a file of a tree: regular, executable or a symlink.
type File struct {
	Name string // relative to the root of the repository
	ID   ID     // of its content
	Size int64  // bytes; -1 where it is larger than Limits.FileBytes and was not fetched
	Mode fs.FileMode
}

// Refusal is something in a tree that is not offered as a file, and why. Who reads a tree decides whether it matters.
type Refusal struct {
	Name string // as far as it can be shown
	Err  error  // *reason.Error with code RepositoryContent
}

// Tree is the files of a commit, as an fs.FS whose root is that of the repository. Symlinks are followed inside of the tree
// and nowhere else. It is valid, and safe for concurrent use, until the function that was given it returns.
type Tree struct {
	files   map[string]File
	dirs    map[string][]fs.DirEntry // by name; the root is "."; sorted
	refused []Refusal
	read    func(File) ([]byte, error) // asks the batch
}

// Tree lists the files of a fetched commit below the paths, none meaning all, and gives them to use. Nothing is read before
// use asks for it; one git process answers, and ends with the call. A path that is not there is RefUnknown; a commit that is
// not there is RepositoryCopy, after which it is to be fetched again. The files of submodules are there as far as the commit
// comes from a Fetch that has followed them, for the same paths.
func (r *Repository) Tree(ctx context.Context, commit Commit, paths []string, use func(*Tree) error) error {
	cleaned, err := cleanPaths(paths)
	if err != nil {
		return err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !commit.ID.Valid() || !isDirectory(r.dir) {
		return &reason.Error{Code: reason.RepositoryCopy, Doing: "read commit " + quote(string(commit.ID)), Cause: errors.New("it has not been fetched")}
	}
	err = r.git.tree(ctx, r.dir, commit, cleaned, use)
	if reason.Is(err, reason.RepositoryCopy) {
		r.doubt.Store(true)
	}
	return err
}

func (g *Git) tree(ctx context.Context, dir string, commit Commit, paths []string, use func(*Tree) error) error {
	l := &treeList{max: g.limits.Files}
	if err := g.list(ctx, dir, commit.ID, paths, l); err != nil {
		return err
	}
	if err := g.graft(ctx, dir, commit.modules, l); err != nil {
		return err
	}
	files, refused := l.files, l.refused
	return g.withBatch(ctx, dir, func(b *batch) error {
		ids := blobs(files)
		entries, err := b.info(ctx, ids)
		if err != nil {
			return err
		}
		sizes := make(map[ID]int64, len(ids))
		for i, e := range entries {
			sizes[ID(ids[i])] = e.size
			if e.kind == "" {
				sizes[ID(ids[i])] = -1
			}
		}
		for i := range files {
			files[i].Size = sizes[files[i].ID]
		}
		return use(newTree(files, refused, reader(ctx, b, g.limits)))
	})
}

// reader reads files from a batch within the limits.
func reader(ctx context.Context, b *batch, limits Limits) func(File) ([]byte, error) {
	var sum atomic.Int64
	return func(f File) ([]byte, error) {
		if f.Size < 0 || f.Size > limits.FileBytes {
			return nil, tooLarge(f.Name, fmt.Errorf("it has more than %d bytes", limits.FileBytes))
		}
		e, content, err := b.content(ctx, string(f.ID), limits.FileBytes)
		if err != nil {
			return nil, err
		}
		if e.kind != "blob" {
			return nil, &reason.Error{Code: reason.RepositoryCopy, Doing: "read file " + quote(f.Name), Cause: errors.New("its content is not in the copy of the repository")}
		}
		if sum.Add(e.size) > limits.TreeBytes {
			return nil, tooLarge(f.Name, fmt.Errorf("the files that were read have more than %d bytes", limits.TreeBytes))
		}
		return content, nil
	}
}

func tooLarge(name string, err error) error {
	return &reason.Error{Code: reason.RepositoryLimit, Doing: "read file " + quote(name), Cause: err, Hint: hintLimit}
}

// list runs ls-tree, and puts what it lists into l.
func (g *Git) list(ctx context.Context, dir string, commit ID, paths []string, l *treeList) error {
	args := []string{"ls-tree", "-r", "-z", "--full-tree", string(commit)}
	if len(paths) > 0 {
		args = append(append(args, "--"), paths...)
	}
	err := g.run(ctx, command{doing: "list the files of commit " + string(commit), gitDir: dir, args: args, stdout: &records{separator: 0, each: l.line}})
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return l.has(l.prefix + p) })
	if len(missing) == 0 {
		return nil
	}
	return g.linksAbove(ctx, dir, commit, missing, l)
}

// treeList collects the records of ls-tree, of one commit after the other.
type treeList struct {
	max     int
	seen    int
	prefix  string // before each name: where the commit that is listed stands; empty or with a slash at its end
	files   []File
	refused []Refusal
	links   []link // submodules
}

// depthMax and nameMax bound names: PATH_MAX of Linux, and more levels than people make.
const (
	depthMax = 100
	nameMax  = 4096
)

// line reads "MODE TYPE ID<tab>NAME".
func (l *treeList) line(record []byte) error {
	if l.seen++; l.seen > l.max {
		return &reason.Error{Code: reason.RepositoryLimit, Doing: "list files", Cause: fmt.Errorf("more than %d files", l.max), Hint: "name a path with fewer files, or raise the limit"}
	}
	head, rawName, ok := bytes.Cut(record, []byte{'\t'})
	words := strings.Split(string(head), " ")
	if !ok || len(words) != 3 || !ID(words[2]).Valid() {
		return odd("ls-tree", record)
	}
	name := l.prefix + string(rawName)
	if why := badName(name); why != "" {
		l.refuse(quote(name), why, "rename it, or have it ignored")
		return nil
	}
	mode, ok := map[string]fs.FileMode{"100644": 0o644, "100664": 0o644, "100755": 0o755, "120000": fs.ModeSymlink | 0o777}[words[0]]
	switch {
	case words[0] == "160000":
		l.links = append(l.links, link{name: name, id: ID(words[2])})
	case !ok:
		l.refuse(name, "it has mode "+quote(words[0]), "see `git fsck` in the repository")
	default:
		l.files = append(l.files, File{Name: name, ID: ID(words[2]), Mode: mode})
	}
	return nil
}

func (l *treeList) refuse(name, why, hint string) {
	l.refused = append(l.refused, Refusal{Name: name, Err: contentError(name, why, hint)})
}

func contentError(name, why, hint string) error {
	return &reason.Error{Code: reason.RepositoryContent, Doing: "use " + name, Cause: errors.New(why), Hint: hint}
}

// badName says what is wrong with a name, or nothing. git's fsck refuses most of it when a commit is fetched.
func badName(name string) string {
	switch {
	case len(name) > nameMax || strings.Count(name, "/") >= depthMax:
		return fmt.Sprintf("its name has more than %d bytes or %d levels", nameMax, depthMax)
	case !fs.ValidPath(name) || name == "." || !printable(name):
		return "its name is not valid UTF-8, has control characters, or has parts that are empty, . or .."
	case slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.EqualFold(part, ".git") }):
		return "it is in a directory named .git"
	}
	return ""
}

// has tells whether something below a path was listed.
func (l *treeList) has(p string) bool {
	below := func(name string) bool { return name == p || strings.HasPrefix(name, p+"/") }
	return slices.ContainsFunc(l.files, func(f File) bool { return below(f.Name) }) ||
		slices.ContainsFunc(l.links, func(k link) bool { return below(k.name) }) ||
		slices.ContainsFunc(l.refused, func(r Refusal) bool { return below(strings.Trim(r.Name, `"`)) })
}

// blobs lists the ids of files, each once.
func blobs(files []File) []string {
	ids := make([]string, 0, len(files))
	for _, f := range files {
		ids = append(ids, string(f.ID))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func newTree(files []File, refused []Refusal, read func(File) ([]byte, error)) *Tree {
	t := &Tree{files: make(map[string]File, len(files)), dirs: map[string][]fs.DirEntry{".": nil}, refused: refused, read: read}
	for _, f := range files {
		t.files[f.Name] = f
		t.enter(path.Dir(f.Name), fileEntry(f))
	}
	for _, r := range refused {
		if fs.ValidPath(r.Name) && !strings.HasPrefix(r.Name, `"`) { // one that cannot be shown is quoted
			t.directory(path.Dir(r.Name))
		}
	}
	for _, list := range t.dirs {
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return t
}

// enter adds an entry to a directory, and the directory to the one above it.
func (t *Tree) enter(dir string, e fs.DirEntry) {
	t.directory(dir)
	t.dirs[dir] = append(t.dirs[dir], e)
}

func (t *Tree) directory(name string) {
	if _, known := t.dirs[name]; known {
		return
	}
	t.dirs[name] = nil
	t.enter(path.Dir(name), fs.FileInfoToDirEntry(dirInfo(name)))
}

// Files returns all files by name. The caller owns the slice.
func (t *Tree) Files() []File {
	list := make([]File, 0, len(t.files))
	for _, f := range t.files {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Refused returns submodules and what has names or modes that cannot be used, in git's order. The caller owns the slice.
func (t *Tree) Refused() []Refusal { return slices.Clone(t.refused) }

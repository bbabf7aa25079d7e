package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tako.dev/tako/internal/reason"
)

// Repository is the cache of one remote repository. It is safe for concurrent use; readers of trees wait for a fetch.
type Repository struct {
	git *Git
	dir string

	mu    sync.RWMutex // Fetch and Remove write the directory, Tree reads it
	doubt atomic.Bool  // something in the directory could not be read: the next fetch begins anew
}

// Names of directories beside that of a cache: one that is being filled, and one on its way out. Whatever is found there at
// the start of a fetch is of a process that died.
const (
	newSuffix  = ".new"
	goneSuffix = ".gone"
)

// refs in a cache: what a fetch brought, before it is complete; and what is complete, by paths and id.
const (
	incomingRef = "refs/tako/incoming"
	doneRefs    = "refs/tako/done/"
)

// Fetch makes a commit and the files below the paths available, and returns the commit. The ref is one that List returned,
// or only an ID, or only a Name. Paths are relative to the root of the repository; none means everything. Files of more
// than Limits.FileBytes are not fetched where the server can leave them out.
//
// With Remote.Submodules, what they hold below the paths comes as well, as far as it is where the repository is. What of them
// does not come because of what the repository or they say, is refused in the Tree; what cannot be reached is an error.
//
// What is here already, for the same paths, costs no network. A server that gives no commits by id is asked for the name:
// then the commit may be a later one than ref.ID. A cache that is damaged is thrown away and filled again within the call.
func (r *Repository) Fetch(ctx context.Context, remote Remote, ref Ref, paths []string) (Commit, error) {
	t, err := r.git.target(remote)
	if err != nil {
		return Commit{}, err
	}
	w, err := r.wanted(ref, paths, remote.Submodules)
	if err != nil {
		return Commit{}, err
	}
	w.doing = "fetch " + w.what() + " of " + quote(remote.URL)
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := r.doubt.Load() || !isDirectory(r.dir)
	if !fresh && !w.modules {
		if c, ok := r.git.known(ctx, r.dir, w); ok {
			return c, w.check(c)
		}
	}
	most := r.git.limits.Packs
	if w.modules {
		most += 2 * modulesMax // each has two, and not each commit changes one
	}
	if !fresh && packs(r.dir) < most {
		removeLeftovers(r.dir)
		c, err := r.git.bring(ctx, r.dir, t, w)
		if !reason.Is(err, reason.RepositoryCopy) {
			return c, err
		}
		r.git.log.Warn("copy of a repository is damaged, fetching it anew", "url", remote.URL, "err", err)
	}
	return r.anew(ctx, t, w)
}

// anew fills a new directory and puts it in the place of the old one, which stays where that fails.
func (r *Repository) anew(ctx context.Context, t *target, w want) (Commit, error) {
	fresh, gone := r.dir+newSuffix, r.dir+goneSuffix
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(gone)); err != nil {
		return Commit{}, unwritable(err)
	}
	c, err := r.fill(ctx, fresh, t, w)
	if err != nil {
		_ = os.RemoveAll(fresh)
		var e *reason.Error
		if errors.As(err, &e) && e.Code == reason.RepositoryCopy {
			e.Code = reason.RepositoryUnreachable // an empty copy cannot be what is damaged
		}
		return Commit{}, err
	}
	if err := os.Rename(r.dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Commit{}, unwritable(err)
	}
	if err := os.Rename(fresh, r.dir); err != nil {
		return Commit{}, unwritable(err)
	}
	r.doubt.Store(false)
	if err := os.RemoveAll(gone); err != nil {
		return Commit{}, unwritable(err)
	}
	return c, nil
}

func (r *Repository) fill(ctx context.Context, dir string, t *target, w want) (Commit, error) {
	format := "sha1"
	if len(w.id) == 64 {
		format = "sha256"
	}
	err := r.git.run(ctx, command{doing: "make a copy", args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format, dir}})
	if err != nil {
		return Commit{}, err
	}
	return r.git.bring(ctx, dir, t, w)
}

// Remove removes the cache. A later Fetch fills it again.
func (r *Repository) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range []string{r.dir, r.dir + newSuffix, r.dir + goneSuffix} {
		if err := os.RemoveAll(d); err != nil {
			return unwritable(err)
		}
	}
	return nil
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// removeLeftovers removes what a git that was killed left in a cache: half-written packs, which may be large, and locks, which
// would stop every later one. Nobody else writes there.
func removeLeftovers(dir string) {
	for _, pattern := range []string{"objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_*", "*.lock", "refs/tako/*.lock", "refs/tako/*/*/*.lock"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the one error is a malformed pattern
		for _, name := range found {
			_ = os.Remove(name) // what stays is found by the fetch
		}
	}
}

func packs(dir string) int {
	found, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	if err != nil {
		return 0
	}
	return len(found)
}

// packBytes is the size of the packs of a cache.
func packBytes(dir string) int64 {
	found, _ := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack")) // the one error is a malformed pattern
	sum := int64(0)
	for _, name := range found {
		if info, err := os.Stat(name); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// want is what a fetch is to bring.
type want struct {
	doing string
	id    ID     // may be empty when name is given
	name  string // may be empty when id is given
	paths []string
	key   string // of what follows and the paths: what "complete" means
	large string // the filter of files that are too large

	modules bool  // submodules are followed: what says where they are is needed
	sizeMax int64 // what the cache's packs may have together once all is there
}

func (r *Repository) wanted(ref Ref, paths []string, modules bool) (want, error) {
	cleaned, err := cleanPaths(paths)
	if err != nil {
		return want{}, err
	}
	refuse := func(why string) error {
		return &reason.Error{Code: reason.RefUnknown, Doing: "fetch " + quote(ref.Name+" "+string(ref.ID)), Cause: errors.New(why), Hint: "name a branch, a tag, or a commit by its 40 digits"}
	}
	if ref.ID == "" && ref.Name == "" || ref.ID != "" && !ref.ID.Valid() {
		return want{}, refuse("it has neither a name nor a whole id")
	}
	if ref.Name != "" && ref.Name != "HEAD" && !validRef(ref.Name) {
		return want{}, refuse("it is no name of a branch or tag")
	}
	w := want{id: ref.ID, name: ref.Name, large: fmt.Sprintf("blob:limit=%d", r.git.limits.FileBytes+1), modules: modules}
	return w.below(cleaned), nil
}

// below returns the same of other paths, which are clean.
func (w want) below(paths []string) want {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%t\x00%s", w.large, w.modules, strings.Join(paths, "\x00")))
	w.paths, w.key = paths, hex.EncodeToString(sum[:8])
	return w
}

// validRef follows git-check-ref-format(1), and is what keeps a name from being read as part of a refspec.
func validRef(name string) bool {
	if !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
		return false
	}
	if !printable(name) || strings.ContainsAny(name, " ~^:?*[\\") || strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.Contains(name, "//") {
		return false
	}
	return !slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") || strings.HasSuffix(part, ".")
	})
}

// cleanPaths sorts paths and takes out what others contain. The root contains all, and comes back as none.
func cleanPaths(paths []string) ([]string, error) {
	var list []string
	for _, p := range paths {
		c := path.Clean("/" + p)[1:]
		if c == "" {
			return nil, nil
		}
		if !fs.ValidPath(c) || !printable(c) || slices.Contains(strings.Split(p, "/"), "..") {
			return nil, &reason.Error{Code: reason.RefUnknown, Doing: "use path " + quote(p), Cause: errors.New("it is not a path inside of the repository"), Hint: "write a path relative to the root of the repository, without .."}
		}
		list = append(list, c)
	}
	slices.Sort(list)
	return slices.CompactFunc(list, func(a, b string) bool { return a == b || strings.HasPrefix(b, a+"/") }), nil
}

func (w want) what() string {
	if w.name != "" {
		return quote(w.name)
	}
	return "commit " + string(w.id)
}

func (w want) doneRef(id ID) string { return doneRefs + w.key + "/" + string(id) }

// check refuses an annotated tag that stands under another name than it was made for: its signature is for that name.
func (w want) check(c Commit) error {
	name, isTag := strings.CutPrefix(w.name, "refs/tags/")
	if !isTag || c.Tag == nil || c.Tag.Name == name {
		return nil
	}
	return &reason.Error{Code: reason.RepositoryContent, Doing: w.doing, Cause: fmt.Errorf("the tag says that its name is %s", quote(c.Tag.Name)), Hint: "make the tag again under its own name"}
}

// known returns the commit that is wanted where it is complete.
func (g *Git) known(ctx context.Context, dir string, w want) (Commit, bool) {
	if w.id == "" || !isDirectory(dir) {
		return Commit{}, false
	}
	c, err := g.read(ctx, dir, w.doneRef(w.id))
	return c, err == nil && c.ID != ""
}

// bring brings what is wanted, and the submodules, into a cache, as far as it is not there.
func (g *Git) bring(ctx context.Context, dir string, t *target, w want) (Commit, error) {
	w.sizeMax = packBytes(dir) + g.limits.PackBytes
	c, ok := g.known(ctx, dir, w)
	if err := w.check(c); ok && err != nil {
		return Commit{}, err
	}
	if !ok {
		var err error
		if c, err = g.transfer(ctx, dir, t, w); err != nil {
			return Commit{}, err
		}
	}
	if !w.modules {
		return c, nil
	}
	var err error
	c.modules, err = g.follow(ctx, dir, t, w, c.ID)
	return c, err
}

// transfer brings what is wanted into a cache and names it complete.
func (g *Git) transfer(ctx context.Context, dir string, t *target, w want) (Commit, error) {
	filter := w.large
	if len(w.paths) > 0 {
		filter = "blob:none"
	}
	if err := g.fetchRef(ctx, dir, t, w, filter); err != nil {
		return Commit{}, err
	}
	c, err := g.read(ctx, dir, incomingRef)
	if err != nil {
		return Commit{}, err
	}
	if c.ID == "" {
		return Commit{}, &reason.Error{Code: reason.RepositoryContent, Doing: w.doing, Cause: errors.New("it leads to no commit"), Hint: "name a branch, or a tag of a commit"}
	}
	if err := w.check(c); err != nil {
		return Commit{}, err
	}
	if err := g.fetchFiles(ctx, dir, t, w, c); err != nil {
		return Commit{}, err
	}
	id := c.ID
	if c.Tag != nil {
		id = c.Tag.ID
	}
	return c, g.run(ctx, command{doing: w.doing, gitDir: dir, args: []string{"update-ref", w.doneRef(id), string(id)}})
}

// fetchRef fetches the commit by its id, or by its name where the server does not give it by id.
func (g *Git) fetchRef(ctx context.Context, dir string, t *target, w want, filter string) error {
	fetch := func(what string) error {
		return g.fetch(ctx, w, command{target: t, gitDir: dir, filter: filter,
			args: append(fetchArgs(), "--depth=1", "--update-shallow", "--force", remoteName, "+"+what+":"+incomingRef)})
	}
	if w.id == "" {
		return fetch(w.name)
	}
	err := fetch(string(w.id))
	if reason.Is(err, reason.RefUnknown) && w.name != "" {
		return fetch(w.name)
	}
	return err
}

// fetch runs a command that writes a pack, as large as there is room for.
func (g *Git) fetch(ctx context.Context, w want, c command) error {
	c.doing, c.fileBytes = w.doing, w.sizeMax-packBytes(c.gitDir)
	if c.fileBytes <= 0 {
		return &reason.Error{Code: reason.RepositoryLimit, Doing: w.doing, Cause: fmt.Errorf("what came before has %d bytes already", g.limits.PackBytes), Hint: hintLimit}
	}
	return g.run(ctx, c)
}

func fetchArgs() []string {
	return []string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"}
}

// fetchFiles fetches the files below the paths that did not come with the commit.
func (g *Git) fetchFiles(ctx context.Context, dir string, t *target, w want, c Commit) error {
	if len(w.paths) == 0 {
		return nil
	}
	l := &treeList{max: g.limits.Files}
	if err := g.list(ctx, dir, c.ID, w.paths, l); err != nil {
		return err
	}
	files := l.files
	if w.modules && len(l.links) > 0 {
		modules, err := g.modulesFile(ctx, dir, c.ID)
		if err != nil {
			return err
		}
		files = append(files, modules...)
	}
	missing := map[string]bool{}
	err := g.withBatch(ctx, dir, func(b *batch) error {
		ids := blobs(files)
		entries, err := b.info(ctx, ids)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if e.kind == "" {
				missing[ids[i]] = true
			}
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	var ids strings.Builder
	for id := range missing {
		ids.WriteString(id + "\n")
	}
	// Objects are named one by one: there is nothing to negotiate.
	args := append([]string{"-c", "fetch.negotiationAlgorithm=noop"}, fetchArgs()...)
	return g.fetch(ctx, w, command{target: t, gitDir: dir, filter: "blob:none", args: append(args, "--stdin", remoteName), stdin: []byte(ids.String())})
}

// read reads the commit, and the tag that leads to it, that a name in a cache stands for. The ID is empty where the name, or
// a commit behind it, is not there.
func (g *Git) read(ctx context.Context, dir, name string) (Commit, error) {
	var c Commit
	err := g.withBatch(ctx, dir, func(b *batch) error {
		e, raw, err := b.content(ctx, name, objectMax)
		if err != nil || e.kind == "" {
			return err
		}
		var tag *Tag
		if e.kind == "tag" {
			if tag, err = parseTag(e.id, raw); err != nil {
				return err
			}
			if e, raw, err = b.content(ctx, string(tag.Target), objectMax); err != nil {
				return err
			}
		}
		if e.kind != "commit" {
			return nil
		}
		c, err = parseCommit(e.id, raw)
		c.Tag = tag
		return err
	})
	return c, err
}

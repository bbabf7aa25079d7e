package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// Options configure New.
type Options struct {
	Dir       string       // private directory of all caches; made (0700) when it is missing. Required, absolute
	Program   string       // the git program; default is git in PATH
	LocalDirs []string     // directories below which file:// repositories may lie; default none, which refuses file://
	Limits    Limits       // zero fields take their defaults
	Log       *slog.Logger // default is to log nothing
}

// Limits bound what a repository may cost. Zero fields take their defaults.
type Limits struct {
	PackBytes   int64         // largest pack that a fetch may write; default 512 MiB
	MemoryBytes int64         // address space of each git process; default 4 GiB, as packs are mapped into it
	Refs        int           // branches and tags that List returns; default 100,000
	Files       int           // files of a Tree; default 100,000
	FileBytes   int64         // largest file that is fetched and read; default 1 MiB
	TreeBytes   int64         // sum of the sizes of a Tree's files; default 256 MiB
	Timeout     time.Duration // of each git command; default 60 s
	Packs       int           // packs in a cache, after which it is begun anew; default 50
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	count := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.PackBytes, 512<<20)
	def(&l.MemoryBytes, 4<<30)
	count(&l.Refs, 100_000)
	count(&l.Files, 100_000)
	def(&l.FileBytes, 1<<20)
	def(&l.TreeBytes, 256<<20)
	count(&l.Packs, 50)
	if l.Timeout == 0 {
		l.Timeout = time.Minute
	}
	return l
}

// Git runs the git program over the caches of one directory. It is safe for concurrent use. The directory belongs to one
// Git at a time.
type Git struct {
	dir     string
	program string
	local   []string // resolved Options.LocalDirs
	limits  Limits
	log     *slog.Logger

	mu    sync.Mutex             // guards repos; never held while git runs
	repos map[string]*Repository // by name of their directory
}

// New checks the options and makes the directory. It fails with GitUnusable where there is no git program, and with
// StateUnwritable where the directory cannot be made.
func New(o Options) (*Git, error) {
	g := &Git{dir: filepath.Clean(o.Dir), program: o.Program, limits: o.Limits.withDefaults(), log: o.Log, repos: map[string]*Repository{}}
	if !filepath.IsAbs(o.Dir) {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: "use directory " + quote(o.Dir) + " for copies of repositories", Hint: "give an absolute path"}
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.program == "" {
		g.program = "git"
	}
	program, err := exec.LookPath(g.program)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.GitUnusable, Doing: "look for the git program", Cause: err, Hint: "install git (apt-get install git)"}
	}
	g.program = program
	for _, d := range o.LocalDirs {
		resolved, err := filepath.EvalSymlinks(d)
		if err != nil || !filepath.IsAbs(resolved) {
			return nil, &reason.Error{Code: reason.RepositoryAddress, Doing: "allow file:// below " + quote(d), Cause: err, Hint: "name directories that are there, by absolute paths"}
		}
		g.local = append(g.local, resolved)
	}
	for _, d := range []string{g.dir, g.cachesDir(), g.scratchDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, unwritable(err)
		}
	}
	return g, nil
}

func unwritable(err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: "make the directory for copies of repositories", Cause: err}
}

func (g *Git) cachesDir() string  { return filepath.Join(g.dir, "repositories") }
func (g *Git) scratchDir() string { return filepath.Join(g.dir, "scratch") }

// Repository returns the cache with a key, which is any text that names one user of one address: what shares a key shares
// content. Nothing is made on disk before it is fetched.
func (g *Git) Repository(key string) *Repository {
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:16])
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.repos[name]
	if !ok {
		r = &Repository{git: g, dir: filepath.Join(g.cachesDir(), name)}
		g.repos[name] = r
	}
	return r
}

// Sweep removes every cache whose key is not in keep, and what a killed process left in the scratch directory. It returns
// how many caches it removed, and stops at the first that it cannot remove. Call it while nothing else runs in this Git, as
// at the start of a server, or with the keys of everything that may run.
func (g *Git) Sweep(ctx context.Context, keep []string) (int, error) {
	names := make([]string, 0, len(keep))
	for _, k := range keep {
		names = append(names, filepath.Base(g.Repository(k).dir))
	}
	entries, err := os.ReadDir(g.cachesDir())
	if err != nil {
		return 0, unwritable(err)
	}
	removed := 0
	for _, e := range entries {
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		if slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(g.cachesDir(), e.Name())); err != nil {
			return removed, unwritable(err)
		}
		removed++
		g.forget(e.Name())
	}
	return removed, g.sweepScratch()
}

func (g *Git) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.repos, name)
}

// sweepScratch removes directories of commands that are older than any command may run.
func (g *Git) sweepScratch() error {
	entries, err := os.ReadDir(g.scratchDir())
	if err != nil {
		return unwritable(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < 10*g.limits.Timeout {
			continue
		}
		if err := os.RemoveAll(filepath.Join(g.scratchDir(), e.Name())); err != nil {
			return unwritable(err)
		}
	}
	return nil
}

package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Bounds of submodules: of all that a commit has, and theirs, together. They share one Limits.Timeout, and what they and the
// commit bring shares one Limits.PackBytes.
const (
	modulesMax      = 20 // each costs a fetch; who has more has a build for it
	modulesDepthMax = 3  // a submodule of a submodule of a submodule
)

// modulesName is the file that says where submodules are (gitmodules(5)).
const modulesName = ".gitmodules"

// link is a submodule in a tree: a commit of another repository.
type link struct {
	name  string // from the root of the first repository
	id    ID
	paths []string // what is wanted of it, from its own root; none is everything
}

// module is what became of a link.
type module struct {
	link
	refused error // why its files are not there; nil: they are in the cache
}

// linksAbove finds the submodules in which paths lie that ls-tree has not found.
func (g *Git) linksAbove(ctx context.Context, dir string, commit ID, paths []string, l *treeList) error {
	args := []string{"ls-tree", "-z", "--full-tree", string(commit), "--"}
	for _, p := range paths {
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			args = append(args, d)
		}
	}
	above := &treeList{max: g.limits.Files, prefix: l.prefix}
	err := g.run(ctx, command{doing: "list the files of commit " + string(commit), gitDir: dir, args: args, stdout: &records{separator: 0, each: above.line}})
	if err != nil {
		return err
	}
	for _, p := range paths {
		i := slices.IndexFunc(above.links, func(k link) bool { return strings.HasPrefix(l.prefix+p, k.name+"/") })
		if i < 0 {
			return &reason.Error{Code: reason.RefUnknown, Doing: "look for path " + quote(l.prefix+p), Cause: fmt.Errorf("commit %s has no such path", commit), Hint: "check the path; it is relative to the root of the repository"}
		}
		k := &above.links[i]
		k.paths = append(k.paths, strings.TrimPrefix(l.prefix+p, k.name+"/"))
	}
	l.links = append(l.links, slices.DeleteFunc(above.links, func(k link) bool { return len(k.paths) == 0 })...)
	return nil
}

// graft adds the files of submodules to those of the commit that names them, and refuses what was not followed. A path inside of
// a submodule that is not there is an error, as any path that is not there.
func (g *Git) graft(ctx context.Context, dir string, modules []module, l *treeList) error {
	for i := 0; i < len(l.links); i++ { // it grows: submodules have submodules
		k := l.links[i]
		at := slices.IndexFunc(modules, func(m module) bool { return m.name == k.name && m.id == k.id && slices.Equal(m.paths, k.paths) })
		why := contentError(k.name, "it is a submodule, and those are not fetched unless asked for",
			"set spec.submodules to true, put what it holds into this repository or a Source of its own, or have it ignored")
		if at >= 0 {
			why = modules[at].refused
		}
		switch {
		case why != nil && len(k.paths) > 0:
			return why
		case why != nil:
			l.refused = append(l.refused, Refusal{Name: k.name, Err: why})
		default:
			l.prefix = k.name + "/"
			if err := g.list(ctx, dir, k.id, k.paths, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// modulesFile finds the file that says where submodules are; none is no mistake by itself.
func (g *Git) modulesFile(ctx context.Context, dir string, commit ID) ([]File, error) {
	l := &treeList{max: g.limits.Files}
	args := []string{"ls-tree", "-z", "--full-tree", string(commit), "--", modulesName}
	err := g.run(ctx, command{doing: "look for " + modulesName, gitDir: dir, args: args, stdout: &records{separator: 0, each: l.line}})
	return slices.DeleteFunc(l.files, func(f File) bool { return !f.Mode.IsRegular() }), err
}

// following is one walk over the submodules of a commit.
type following struct {
	git     *Git
	dir     string
	root    *target // where the first repository is: what follows is there as well
	want    want    // what was wanted of it
	modules []module
}

// superproject is a commit whose submodules are to be followed.
type superproject struct {
	target *target // where it is, to which addresses are relative
	commit ID
	prefix string
	paths  []string
	depth  int
}

// follow brings the submodules of a commit, and theirs, into the cache.
func (g *Git) follow(ctx context.Context, dir string, t *target, w want, commit ID) ([]module, error) {
	limited, cancel := context.WithTimeoutCause(ctx, g.limits.Timeout, errDeadline)
	defer cancel()
	f := &following{git: g, dir: dir, root: t, want: w}
	var err error
	for queue := []superproject{{target: t, commit: commit, paths: w.paths}}; len(queue) > 0 && err == nil; queue = queue[1:] {
		var below []superproject
		below, err = f.submodules(limited, queue[0])
		queue = append(queue, below...)
	}
	if err != nil && errors.Is(context.Cause(limited), errDeadline) && ctx.Err() == nil {
		return nil, &reason.Error{Code: reason.RepositoryUnreachable, Doing: w.doing, Cause: fmt.Errorf("its submodules are not there within %s", g.limits.Timeout.Round(time.Millisecond)),
			Hint: "the server or the network is slow, or the submodules are large"}
	}
	return f.modules, err
}

// submodules follows those of one commit, and returns those of which there are more below.
func (f *following) submodules(ctx context.Context, s superproject) ([]superproject, error) {
	l := &treeList{max: f.git.limits.Files, prefix: s.prefix}
	if err := f.git.list(ctx, f.dir, s.commit, s.paths, l); err != nil || len(l.links) == 0 {
		return nil, err
	}
	addresses, err := f.git.addresses(ctx, f.dir, s.commit)
	if err != nil {
		return nil, err
	}
	var below []superproject
	for _, k := range l.links {
		t, err := f.place(s, k, addresses)
		if err == nil {
			err = f.bring(ctx, k, t)
		}
		if err != nil && !isRefusal(err) {
			return nil, err
		}
		f.modules = append(f.modules, module{k, err})
		if err == nil {
			below = append(below, superproject{target: t, commit: k.id, prefix: k.name + "/", paths: k.paths, depth: s.depth + 1})
		}
	}
	return below, nil
}

// place says where a submodule is, if it may be followed.
func (f *following) place(s superproject, k link, addresses map[string]string) (*target, error) {
	switch address, ok := addresses[strings.TrimPrefix(k.name, s.prefix)]; {
	case len(f.modules) >= modulesMax:
		return nil, contentError(k.name, fmt.Sprintf("it is a submodule, and more than %d are not fetched", modulesMax), "put what they hold into one repository, or have it ignored")
	case s.depth >= modulesDepthMax:
		return nil, contentError(k.name, fmt.Sprintf("it is a submodule in a submodule, more than %d deep", modulesDepthMax), "put what it holds nearer to the top, or have it ignored")
	case !ok:
		return nil, contentError(k.name, "it is a submodule, and "+s.prefix+modulesName+" has no path and url for it", "see `git submodule status` in a clone")
	default:
		return f.git.submoduleTarget(f.root, s.target, k.name, address)
	}
}

// bring brings what a submodule has.
func (f *following) bring(ctx context.Context, k link, t *target) error {
	w := want{doing: "fetch submodule " + quote(k.name) + " from " + quote(t.url), id: k.id, large: f.want.large, modules: true, sizeMax: f.want.sizeMax}
	w = w.below(k.paths)
	if _, ok := f.git.known(ctx, f.dir, w); ok {
		return nil
	}
	_, err := f.git.transfer(ctx, f.dir, t, w)
	if err == nil || !isRefusal(err) {
		return err
	}
	e := reason.Of(err)
	if e.Doing != w.doing {
		return err // it came, and has no such path
	}
	refused := &reason.Error{Code: e.Code, Doing: "use " + k.name, Cause: fmt.Errorf("it is a submodule, and commit %s does not come from %s: %w", k.id, t.url, e.Cause), Hint: e.Hint, Evidence: e.Evidence}
	if e.Code == reason.RefUnknown {
		refused.Hint = "was it pushed there? some servers give only commits that a branch or tag points at, unless they are told otherwise (uploadpack.allowReachableSHA1InWant)"
	}
	return refused
}

// isRefusal tells of an error that it is about what repositories say, which does not keep the rest from being used; what cannot
// be reached or opened may be there in a minute.
func isRefusal(err error) bool {
	return slices.Contains([]reason.Code{reason.RepositoryContent, reason.RepositoryAddress, reason.RefUnknown, reason.RepositoryUnknown}, reason.Of(err).Code)
}

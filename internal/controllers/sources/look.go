package sources

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/pick"
	"tako.dev/tako/internal/source/render"
	"tako.dev/tako/internal/source/render/kustomize"
	"tako.dev/tako/internal/source/schedule"
)

// look is one look at the repository of a Source. The status that it finds out goes into source, a copy of its own.
type look struct {
	*actor
	source *v1alpha1.Source
	why    schedule.Trigger
	guard  *guard
	// drifted are the objects that others have changed since the look before.
	drifted map[string]bool
	wrote   int  // objects that were written or deleted
	nothing bool // nothing was new
	copied  bool // what is applied is from the copy, and nothing is deleted
	large   bool // it leaves much garbage
}

// isRequested reports whether somebody has asked for this look, also where it would have been made anyway.
func (l *look) isRequested() bool {
	return l.source.Annotations[v1alpha1.AnnotationReconcile] != l.source.Status.HandledRequest
}

// do looks. The error is what keeps the newest commit from being applied.
func (l *look) do(ctx context.Context) error {
	remote, err := l.remote(ctx)
	var choice pick.Choice
	if err == nil {
		choice, err = l.pick(ctx, remote)
	}
	if err != nil {
		l.keepOn(ctx, remote)
		l.wrote = 0 // of a new commit there is nothing
		return err
	}
	l.drifted = l.takeDrift()
	m := &l.memory
	if m.applied.copied {
		m.applied = applied{rendered: m.applied.rendered} // what the last process had begun may be there beside it
	}
	if l.isRequested() || l.why == schedule.Retry && len(l.source.Status.Left) > 0 {
		m.applied.known = false // whoever asks wants all of it looked at, and what was left may go now
	}
	if m.applied.known && m.applied.is == (version{choice.Commit, l.source.Generation}) && len(l.drifted) == 0 && m.failures == 0 {
		l.nothing = true
		return nil // nothing is new, and that is all that it has cost
	}
	if was := m.cache; was != "" && was != cacheKey(l.source) {
		l.removed(was)
	}
	m.cache = cacheKey(l.source)
	repository, paths := l.of.options.Git.Repository(m.cache), l.paths()
	commit, err := repository.Fetch(ctx, remote, git.Ref{Name: choice.Ref.Name, ID: git.ID(choice.Ref.ID), Peeled: git.ID(choice.Ref.Peeled)}, paths)
	if err != nil {
		return err
	}
	signer, err := l.verify(ctx, commit)
	if err != nil {
		l.see(commit, choice, "")
		return err
	}
	l.see(commit, choice, signer)
	l.reportPending()
	result, err := l.render(ctx, repository, remote, commit, paths)
	if err != nil {
		return err
	}
	if err := l.apply(ctx, commit, result); err != nil {
		return err
	}
	m.applied.last, m.applied.result = commit, result
	m.applied.is = version{choice.Commit, l.source.Generation} // by which the next list of refs is compared
	return nil
}

// paths are what is fetched; nil is all.
func (l *look) paths() []string {
	if l.source.Spec.Path == "" {
		return nil
	}
	return []string{l.source.Spec.Path}
}

// keepOn guards what is applied, from the copy that the last process has left, when the first look of this one does not reach the
// repository. Nothing is deleted for it. The next look that does reach it looks at all of it.
func (l *look) keepOn(ctx context.Context, remote git.Remote) {
	m, s := &l.memory, &l.source.Status
	if m.applied.known || s.Applied == nil || s.ObservedGeneration != l.source.Generation {
		return
	}
	m.cache = cacheKey(l.source)
	repository := l.of.options.Git.Repository(m.cache)
	commit, err := repository.Fetch(ctx, remote, git.Ref{ID: git.ID(s.Applied.ID)}, l.paths())
	if err == nil {
		_, err = l.verify(ctx, commit)
	}
	var result *render.Result
	if err == nil {
		result, err = l.render(ctx, repository, remote, commit, l.paths())
	}
	if err == nil {
		l.copied = true
		err = l.apply(ctx, commit, result)
	}
	if err != nil {
		l.log.Info("what is applied is not guarded until the repository can be reached", "err", err)
		return
	}
	m.applied.last, m.applied.result, m.applied.copied = commit, result, true
	m.applied.is = version{s.Applied.ID, l.source.Generation}
}

// revert puts back, or reports, what others have changed in what is applied. It does not need the repository.
func (l *look) revert(ctx context.Context) error {
	l.drifted = l.takeDrift()
	m := &l.memory
	is := m.applied.is
	if err := l.apply(ctx, m.applied.last, m.applied.result); err != nil {
		return err
	}
	m.applied.is = is
	return nil
}

// render finds what the commit declares. A kustomization, or a link, may take what is outside of the path: then all of the commit is fetched.
func (l *look) render(ctx context.Context, repository *git.Repository, remote git.Remote, commit git.Commit, paths []string) (result *render.Result, err error) {
	known := &l.memory.applied.rendered
	whole := false
	read := func(t *git.Tree) error {
		if len(paths) > 0 && (len(kustomize.FileOf(t, path.Clean(l.source.Spec.Path))) > 0 || hasLinks(t)) {
			whole = true
			return nil
		}
		result, err = l.of.options.Renderer.Render(ctx, viewOf(t), render.Request{
			Path: l.source.Spec.Path, Ignore: strings.Join(l.source.Spec.Ignore, "\n"), Namespace: l.source.Namespace, AllowEmpty: l.source.Spec.AllowEmpty,
		}, *known)
		if result != nil {
			*known = result
		}
		return err
	}
	if err := repository.Tree(ctx, commit, paths, read); err != nil || !whole {
		return result, err
	}
	paths = nil
	if commit, err = repository.Fetch(ctx, remote, git.Ref{ID: commit.ID}, nil); err != nil {
		return nil, err
	}
	err = repository.Tree(ctx, commit, nil, read)
	return result, err
}

// hasLinks tells whether a file of a tree is a link.
func hasLinks(t *git.Tree) bool {
	return slices.ContainsFunc(t.Files(), func(f git.File) bool { return f.Mode&fs.ModeSymlink != 0 })
}

// pick asks the repository for its refs, and finds the one that is meant.
func (l *look) pick(ctx context.Context, remote git.Remote) (pick.Choice, error) {
	r := &l.source.Spec.Ref
	scope := git.Everything
	switch {
	case r.Branch != "":
		scope = git.Branches
	case r.Tag != "" || r.Semver != "":
		scope = git.Tags
	}
	listed, err := l.of.options.Git.List(ctx, remote, scope)
	if err != nil {
		return pick.Choice{}, err
	}
	refs := make([]pick.Ref, len(listed))
	for i, ref := range listed {
		refs[i] = pick.Ref{Name: ref.Name, ID: string(ref.ID), Peeled: string(ref.Peeled), Target: ref.Target}
	}
	return pick.Pick(pick.Want{Branch: r.Branch, Tag: r.Tag, Semver: r.Semver, Commit: r.Commit}, refs)
}

// see notes which commit is the newest.
func (l *look) see(c git.Commit, choice pick.Choice, signer string) {
	was := l.source.Status.Seen
	seen := &v1alpha1.SourceCommit{ID: string(c.ID), Ref: shortRef(choice.Ref.Name), Author: person(c.Author), Subject: c.Subject, Signer: signer, Since: metav1.NewTime(time.Now().Truncate(time.Second))}
	if !c.Committer.Time.IsZero() {
		at := metav1.NewTime(c.Committer.Time)
		seen.Committed = &at
	}
	if was != nil && was.ID == seen.ID {
		seen.Since = was.Since
	}
	l.source.Status.Seen = seen
}

func person(p git.Person) string {
	if p.Email == "" {
		return p.Name
	}
	return fmt.Sprintf("%s <%s>", p.Name, p.Email)
}

// cacheKey names what of a repository is kept: a Source that is pointed elsewhere begins anew.
func cacheKey(src *v1alpha1.Source) string {
	sum := sha256.Sum256([]byte(src.Spec.URL))
	return fmt.Sprintf("%s/%s/%s/%x", src.Namespace, src.Name, src.UID, sum[:8])
}

// view is a tree of which the identity of every file is known, and what it lacks.
type view struct {
	*git.Tree
	blobs map[string]git.ID
}

func viewOf(t *git.Tree) fs.FS {
	v := view{t, map[string]git.ID{}}
	for _, f := range t.Files() {
		if f.Mode.IsRegular() { // what a link leads to is known only when it is read
			v.blobs[f.Name] = f.ID
		}
	}
	return v
}

// Lacks implements render.Lacking.
func (v view) Lacks() map[string]error {
	all := map[string]error{}
	for _, r := range v.Refused() {
		all[strings.Trim(r.Name, `"`)] = r.Err // a name that cannot be shown is quoted
	}
	return all
}

// BlobID implements render.Identified.
func (v view) BlobID(name string) (string, error) {
	id, ok := v.blobs[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return string(id), nil
}

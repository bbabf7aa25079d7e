package sources

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
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
}

// do looks. The error is what keeps the newest commit from being applied.
func (l *look) do(ctx context.Context) error {
	remote, err := l.remote(ctx)
	if err != nil {
		return err
	}
	choice, err := l.pick(ctx, remote)
	if err != nil {
		return err
	}
	l.drifted = l.takeDrift()
	m := &l.memory
	if m.applied.is(choice.Commit, l.source.Generation) && len(l.drifted) == 0 && m.failures == 0 && l.why != schedule.Request {
		return nil // nothing is new, and that is all that it has cost
	}
	repository := l.of.options.Git.Repository(l.cacheKey())
	var paths []string
	if l.source.Spec.Path != "" {
		paths = []string{l.source.Spec.Path}
	}
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
	result, err := l.render(ctx, repository, remote, commit, paths)
	if err != nil {
		return err
	}
	return l.apply(ctx, commit, result)
}

// render finds what the commit declares. A kustomization may take what is outside of the path: then all of the commit is fetched.
func (l *look) render(ctx context.Context, repository *git.Repository, remote git.Remote, commit git.Commit, paths []string) (result *render.Result, err error) {
	known := &l.memory.applied.rendered
	whole := false
	read := func(t *git.Tree) error {
		if len(paths) > 0 && len(kustomize.FileOf(t, path.Clean(l.source.Spec.Path))) > 0 {
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
	if err := repository.Tree(ctx, commit.ID, paths, read); err != nil || !whole {
		return result, err
	}
	paths = nil
	if commit, err = repository.Fetch(ctx, remote, git.Ref{ID: commit.ID}, nil); err != nil {
		return nil, err
	}
	err = repository.Tree(ctx, commit.ID, nil, read)
	return result, err
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
func (l *look) cacheKey() string {
	sum := sha256.Sum256([]byte(l.source.Spec.URL))
	return fmt.Sprintf("%s/%s/%s/%x", l.source.Namespace, l.source.Name, l.source.UID, sum[:8])
}

// view is a tree of which the identity of every file is known.
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

// BlobID implements render.Identified.
func (v view) BlobID(name string) (string, error) {
	id, ok := v.blobs[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return string(id), nil
}

// origin is what an object says of where it is from, in annotationOrigin.
type origin struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Commit string `json:"commit"` // the one that has brought this content
	Author string `json:"author,omitempty"`
	Digest string `json:"digest"` // of the content
}

// AnnotationOrigin says where in which commit an object is declared: JSON with file, line, commit, author and digest.
const AnnotationOrigin = "tako.dev/origin"

func (o origin) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return "" // it has texts and a number only
	}
	return string(b)
}

func originOf(annotations map[string]string) (o origin) {
	if json.Unmarshal([]byte(annotations[AnnotationOrigin]), &o) != nil {
		return origin{}
	}
	return o
}

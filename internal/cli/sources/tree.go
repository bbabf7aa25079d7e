package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/pick"
)

// fetchMax bounds one command of git: the server gives it as long for a whole look.
const fetchMax = 5 * time.Minute

// tree is what a commit holds, for as long as somebody uses it.
type tree struct {
	fs.FS
	from string // in words
}

// fromDirectory reads a directory of this machine as if it were the root of the repository.
func fromDirectory(dir string, use func(tree) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return failure.Usage("read --path "+dir, err.Error(), "name the root of a checkout of the repository")
	}
	defer root.Close()
	return use(tree{root.FS(), "directory " + dir})
}

// fromRepository fetches a commit of a Source's repository with the git program of whoever asks. An empty ref is what the Source says.
func fromRepository(ctx context.Context, src *v1alpha1.Source, ref string, use func(tree) error) (err error) {
	if strings.ContainsAny(ref, ":*+^~ ") || strings.HasPrefix(ref, "-") {
		return failure.Usage("read --ref "+ref, "it is no branch, tag or commit", "write main, v1.2.0, refs/pull/12/head or the hash of a commit")
	}
	dir, err := os.MkdirTemp("", "tako-diff-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "make a directory for the commit", Cause: err}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	g := person{dir: filepath.Join(dir, "repository")}
	if ref == "" {
		if ref, err = g.wanted(ctx, src); err != nil {
			return err
		}
	}
	if err := g.fetch(ctx, src.Spec.URL, ref); err != nil {
		return err
	}
	kept, err := git.New(git.Options{Dir: filepath.Join(dir, "cache"), LocalDirs: []string{dir}})
	if err != nil {
		return err
	}
	here := git.Remote{URL: "file://" + g.dir}
	refs, err := kept.List(ctx, here, git.Branches)
	if err != nil || len(refs) != 1 {
		return errors.Join(err, ctx.Err())
	}
	repository := kept.Repository(src.Spec.URL)
	commit, err := repository.Fetch(ctx, here, refs[0], nil)
	if err != nil {
		return err
	}
	from := fmt.Sprintf("commit %s (%s) by %s", short(string(commit.ID)), commit.Subject, commit.Author.Name)
	return repository.Tree(ctx, commit, nil, func(t *git.Tree) error {
		if _, err := fs.Stat(t, ".gitmodules"); err == nil && src.Spec.Submodules {
			return failure.Usage("read commit "+short(string(commit.ID)), "it has submodules, which are not fetched here", "check it out with its submodules, and name the checkout with --path")
		}
		return use(tree{t, from})
	})
}

// person is the git program as whoever asks has set it up: with that one's credentials and known hosts. It checks nothing out.
type person struct{ dir string }

// fetchedRef is what was fetched, and commitRef the commit that it means: an annotated tag is none itself.
const (
	fetchedRef = "refs/tako/fetched"
	commitRef  = "refs/heads/fetched"
)

func (p person) fetch(ctx context.Context, url, ref string) error {
	if _, err := p.git(ctx, "init", "--quiet", "--bare", "--template=", p.dir); err != nil {
		return err
	}
	if _, err := p.git(ctx, "--git-dir", p.dir, "-c", "core.hooksPath=/dev/null", "-c", "fetch.fsckObjects=true", "fetch", "--quiet", "--depth=1", "--no-tags",
		"--no-recurse-submodules", url, "+"+ref+":"+fetchedRef); err != nil {
		return err
	}
	_, err := p.git(ctx, "--git-dir", p.dir, "-c", "core.hooksPath=/dev/null", "update-ref", commitRef, fetchedRef+"^{commit}")
	return err
}

// wanted is the ref that a Source means.
func (p person) wanted(ctx context.Context, src *v1alpha1.Source) (string, error) {
	switch r := &src.Spec.Ref; {
	case r.Commit != "":
		return r.Commit, nil
	case r.Tag != "":
		return "refs/tags/" + r.Tag, nil
	case r.Branch != "":
		return "refs/heads/" + r.Branch, nil
	case r.Semver == "":
		return "HEAD", nil
	}
	listed, err := p.git(ctx, "ls-remote", "--quiet", "--tags", src.Spec.URL)
	if err != nil {
		return "", err
	}
	var refs []pick.Ref
	for line := range strings.Lines(listed) {
		id, name, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if ok && !strings.HasSuffix(name, "^{}") { // which commit an annotated tag means does not matter here
			refs = append(refs, pick.Ref{Name: name, ID: id})
		}
	}
	choice, err := pick.Pick(pick.Want{Semver: src.Spec.Ref.Semver}, refs)
	return choice.Ref.Name, err
}

// git runs one command.
func (p person) git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(GitEnvironment(), "GIT_TERMINAL_PROMPT=0")
	var out, said strings.Builder
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", &reason.Error{Code: reason.GitUnusable, Doing: "fetch the commit", Cause: err, Hint: "install git, or check the commit out elsewhere and name it with --path"}
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	words := lastLine(said.String())
	if strings.HasPrefix(words, "couldn't find remote ref") { // fetch.c of git; the language is that of the environment above
		return "", &reason.Error{Code: reason.RefUnknown, Doing: "fetch the commit with git", Cause: errors.New(words), Hint: "git ls-remote lists what there is"}
	}
	return "", &reason.Error{Code: reason.RepositoryUnreachable, Doing: "fetch the commit with git", Cause: errors.New(words),
		Hint: "git reads it as you, with your credentials; a checkout of it can be named with --path"}
}

// GitEnvironment is the environment of this process for a git that is told its repository by arguments: a hook of another repository, from
// which this may have been started, has that one in its environment. What git says is in English, so that it can be told apart.
func GitEnvironment() []string {
	of := []string{"GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=", "GIT_OBJECT_DIRECTORY=", "GIT_ALTERNATE_OBJECT_DIRECTORIES=", "GIT_NAMESPACE=", "GIT_PREFIX=", "GIT_COMMON_DIR="}
	own := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(of, func(name string) bool { return strings.HasPrefix(v, name) })
	})
	return append(own, "LC_ALL=C.UTF-8")
}

// lastLine is what a program says at the end: what made it stop.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, l := range lines { // git says why first, and then what one could do
		if strings.HasPrefix(l, "fatal: ") {
			return strings.TrimPrefix(l, "fatal: ")
		}
	}
	return lines[len(lines)-1]
}

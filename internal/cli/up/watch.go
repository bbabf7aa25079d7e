package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/cli/sources"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
)

// sourceName is the Source that keeps a directory of this machine applied.
const sourceName = "local"

// gitMax bounds one command of git.
const gitMax = time.Minute

// watched is the directory that --watch names. Of a repository, what is committed is applied. Of any other directory, each state that its
// files are in is committed to a repository of our own, beside which nothing of the directory is changed.
type watched struct {
	options    *Options
	kubeconfig string
	dir        string // what people edit
	repository string // what the server reads
	snapshots  bool   // the repository is ours
	last       string // commit that the server was told of
	warned     string // what was told last, while it is so
}

// repositoryOf decides how a directory is watched, and makes what is needed for it.
func (o *Options) repositoryOf(ctx context.Context) (*watched, error) {
	w := &watched{options: o, dir: o.Watch, repository: o.Watch}
	info, err := os.Stat(o.Watch)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "watch " + o.Watch, Cause: err}
	}
	if there(filepath.Join(o.Watch, ".git")) || there(filepath.Join(o.Watch, "objects")) && there(filepath.Join(o.Watch, "HEAD")) {
		return w, nil
	}
	w.snapshots, w.repository = true, filepath.Join(o.Dir, "watched.git")
	if there(w.repository) {
		_ = os.Remove(filepath.Join(w.repository, "index.lock")) // of a run that was killed: the directory is ours alone now
	} else if _, err = w.git(ctx, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", w.repository); err != nil {
		return nil, err
	}
	return w, w.keepBytes()
}

// plainFiles has files committed as they are, whatever a .gitattributes in the directory and the settings of this person say: nothing is
// converted, and no program of large files puts a pointer in the place of one.
const plainFiles = "* -text -filter -ident -working-tree-encoding\n"

func (w *watched) keepBytes() error {
	path := filepath.Join(w.repository, "info", "attributes")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(plainFiles), 0o600)); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "write " + path, Cause: err}
	}
	return nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// git runs one command of git.
func (w *watched) git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitMax)
	defer cancel()
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(sources.GitEnvironment(), "GIT_OPTIONAL_LOCKS=0")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	switch {
	case err == nil:
		return strings.TrimSpace(string(out)), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", &reason.Error{Code: reason.GitUnusable, Doing: "watch " + w.dir, Cause: err, Hint: "install git"}
	}
	return "", &reason.Error{Code: reason.SystemCallFailed, Doing: "have git read " + w.dir, Cause: errors.New(cmp.Or(wordsOf(said.String()), err.Error())), Hint: "what was read before stays applied"}
}

// wordsMax bounds what git may say: of each file that it cannot read it says two lines.
const wordsMax = 400

// wordsOf is what git says, in one line.
func wordsOf(said string) string {
	words := strings.Join(strings.FieldsFunc(said, func(r rune) bool { return r == '\n' }), "; ")
	if len(words) > wordsMax {
		words = strings.ToValidUTF8(words[:wordsMax], "") + "…"
	}
	return words
}

// head is the newest commit, empty while there is none.
func (w *watched) head(ctx context.Context) string {
	id, err := w.git(ctx, "-C", w.repository, "rev-parse", "--quiet", "--verify", "HEAD")
	if err != nil {
		return ""
	}
	return id
}

// readable says what keeps the directory from being read, which git does not.
func (w *watched) readable() error {
	d, err := os.Open(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the directory is not there")
	}
	if err != nil {
		return err
	}
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil // it is empty
	}
	return errors.Join(err, d.Close())
}

// snapshot commits the files as they are now, if they are not as in the commit before.
func (w *watched) snapshot(ctx context.Context) error {
	if !w.snapshots {
		return nil
	}
	if err := w.readable(); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + w.dir, Cause: err, Hint: "what was in it stays applied, and it is read again when it can be"}
	}
	ours := []string{"--git-dir", w.repository, "--work-tree", w.dir, "-c", "core.bare=false", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
		"-c", "user.name=tako up", "-c", "user.email=up@localhost", "-c", "commit.gpgSign=false", "-c", "core.excludesFile=", "-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false"}
	if _, err := w.git(ctx, append(ours[:len(ours):len(ours)], "add", "--all", "--", w.dir)...); err != nil {
		return err
	}
	if w.head(ctx) != "" {
		if _, err := w.git(ctx, append(ours[:len(ours):len(ours)], "diff", "--cached", "--quiet")...); err == nil {
			return nil
		}
	}
	_, err := w.git(ctx, append(ours[:len(ours):len(ours)], "commit", "--quiet", "--allow-empty", "--no-verify", "--message", "files of "+w.dir)...)
	return err
}

// begin declares the Source and its rights, and waits until what there is now is applied. What keeps it from that is told, and no reason to
// stop: it is what people watch for.
func (w *watched) begin(ctx context.Context, kubeconfig string) error {
	w.kubeconfig = kubeconfig
	if err := w.snapshot(ctx); err != nil {
		return err
	}
	w.last = w.head(ctx)
	text, err := w.manifest()
	if err != nil {
		return err
	}
	file := filepath.Join(w.options.Dir, "watch.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "write " + file, Cause: err}
	}
	if _, err := w.options.Command(ctx, kubeconfig, "apply", "-n", w.options.Environment, "--force-conflicts", "-f", file); err != nil {
		return err
	}
	if w.last == "" {
		return nil // nothing is committed yet
	}
	fmt.Fprintf(w.options.Out, "What is in %s is being applied…\n", w.dir)
	if _, err := w.options.Command(ctx, kubeconfig, "source", "reconcile", sourceName, "-n", w.options.Environment, "--wait", "--timeout", convergeMax.String()); err == nil {
		_, _ = w.options.Command(ctx, kubeconfig, "wait", "source/"+sourceName, "--for=converged", "-n", w.options.Environment, "--timeout", convergeMax.String())
	}
	return ctx.Err() // Command has told the rest
}

// manifest is the Source, with all rights: the server is this person's.
func (w *watched) manifest() ([]byte, error) {
	namespace := w.options.Environment
	user, _ := origin.User(namespace, sourceName)
	var all []byte
	for _, document := range []map[string]any{{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "source-" + sourceName},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}, {
		"apiVersion": "tako.dev/v1alpha1", "kind": "Source",
		"metadata": map[string]any{"name": sourceName, "namespace": namespace},
		// As often as can be: a commit is told at once, and this is for what was not noticed.
		"spec": map[string]any{"url": "file://" + w.repository, "interval": "10s"},
	}} {
		text, err := yaml.Marshal(document)
		if err != nil {
			return nil, fmt.Errorf("write the source: %w", err)
		}
		all = append(append(all, "---\n"...), text...)
	}
	return all, nil
}

// changed makes what has changed known to the server, and tells what became of it.
func (w *watched) changed(ctx context.Context) error {
	if err := w.snapshot(ctx); err != nil {
		return err
	}
	id := w.head(ctx)
	if id == "" || id == w.last {
		return nil
	}
	w.last = id
	said, err := w.options.Command(ctx, w.kubeconfig, "source", "reconcile", sourceName, "-n", w.options.Environment, "--wait", "--timeout", convergeMax.String())
	if err == nil {
		fmt.Fprint(w.options.Out, said)
	}
	return nil // Command has told what is wrong
}

// directories are those in which a change shows: of a repository those of its refs, HEAD and packed refs included.
func (w *watched) directories() []string {
	root := w.dir
	var list []string
	if !w.snapshots {
		own := w.repository
		if there(filepath.Join(own, ".git")) {
			own = filepath.Join(own, ".git")
		}
		root, list = filepath.Join(own, "refs"), []string{own}
	}
	// What cannot be read now is not watched; git says so too.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir():
			return nil
		case entry.Name() == ".git":
			return fs.SkipDir
		}
		list = append(list, path)
		return nil
	})
	return list
}

// forget deletes the Source of an earlier run, which nobody can read any more. What it has applied stays.
func (o *Options) forget(ctx context.Context, kubeconfig string) error {
	file := filepath.Join(o.Dir, "watch.yaml")
	if !there(file) {
		return nil
	}
	if _, err := o.Command(ctx, kubeconfig, "delete", "source/"+sourceName, "-n", o.Environment, "--ignore-not-found"); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove " + file, Cause: err}
	}
	return nil
}

// follow begins to keep the watched directory applied, or ends what an earlier run has begun.
func (o *Options) follow(ctx context.Context, kubeconfig string, files *watched) error {
	if files == nil {
		return o.forget(ctx, kubeconfig)
	}
	return files.begin(ctx, kubeconfig)
}

// keep goes on with it in a goroutine, until stop is called.
func (w *watched) keep(ctx context.Context) (stop func()) {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	look := func(ctx context.Context) error {
		w.note(w.changed(ctx))
		return nil
	}
	warn := func(err error) { fmt.Fprintln(w.options.Out, wordsFor(err)) }
	go func() { // ends with ctx
		defer close(done)
		if err := notice(ctx, w.directories, look, warn); err != nil {
			warn(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// note tells what keeps changes from being read, once for as long as it is so, and when it is over.
func (w *watched) note(err error) {
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		text = wordsFor(err)
	}
	switch {
	case text == w.warned:
	case text == "":
		fmt.Fprintln(w.options.Out, w.dir+" is read again")
	default:
		fmt.Fprintln(w.options.Out, text)
	}
	w.warned = text
}

// wordsFor is an error with what to do after it.
func wordsFor(err error) string {
	text := err.Error()
	var coded *reason.Error
	if errors.As(err, &coded) && coded.Hint != "" {
		text += "; " + coded.Hint
	}
	return present.Escape(text)
}

// tell says what is watched, and what to try.
func (w *watched) tell(b *strings.Builder) {
	switch {
	case w == nil:
	case w.snapshots:
		fmt.Fprintf(b, "\nThe files in %s are kept applied: edit one, and see it on the host. Here it says how it went;\ntako why source/%s says it too.\n", w.dir, sourceName)
	default:
		fmt.Fprintf(b, "\nWhat is committed in %s is kept applied: commit a change, and see it on the host. Here it says how it went;\ntako why source/%s says it too.\n", w.dir, sourceName)
	}
}

package source

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gitTime bounds one command of git, which takes milliseconds.
const gitTime = time.Minute

// repository is a bare one, and a clone of it in which a person works.
type repository struct {
	t    *testing.T
	bare string
	work string
}

// newRepository makes DIR/NAME.git, which is empty.
func newRepository(t *testing.T, dir, name string) *repository {
	t.Helper()
	r := &repository{t: t, bare: filepath.Join(dir, name+".git"), work: filepath.Join(t.TempDir(), name)}
	r.run(nil, dir, "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.run(nil, dir, "init", "--quiet", "--initial-branch=main", r.work)
	r.git("remote", "add", "origin", r.bare)
	return r
}

// git runs a command in the clone, and returns what it prints.
func (r *repository) git(args ...string) string {
	r.t.Helper()
	return r.run(nil, r.work, args...)
}

func (r *repository) run(input []byte, dir string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), gitTime)
	defer cancel()
	// What an attack puts into a repository is not for who prepares it.
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Ann Example", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann Example", "GIT_COMMITTER_EMAIL=ann@example.com")
	var errs bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(input), &errs
	out, err := c.Output()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// write puts files into the clone.
func (r *repository) write(files map[string]string) {
	r.t.Helper()
	for name, content := range files {
		path := filepath.Join(r.work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// commit writes files, commits all that is in the clone, and pushes it. It returns the commit.
func (r *repository) commit(subject string, files map[string]string) string {
	r.t.Helper()
	r.write(files)
	r.git("add", "--all")
	r.git("commit", "--quiet", "--message", subject)
	return r.push()
}

// push pushes the branch as it is, and returns its commit.
func (r *repository) push(flags ...string) string {
	r.t.Helper()
	r.git(append([]string{"push", "--quiet", "origin", "HEAD"}, flags...)...)
	return r.git("rev-parse", "HEAD")
}

// object writes an object of git into the bare repository, whatever it is, and returns its name.
func (r *repository) object(kind string, content []byte) string {
	r.t.Helper()
	return r.run(content, r.bare, "hash-object", "-w", "--stdin", "-t", kind, "--literally")
}

// plant makes a commit with entries of a tree that no clone would hold ("MODE HASH\tNAME"), and has a branch be it.
func (r *repository) plant(branch string, entries ...string) string {
	r.t.Helper()
	var lines strings.Builder
	for _, e := range entries {
		lines.WriteString(e + "\x00")
	}
	tree := r.run([]byte(lines.String()), r.bare, "mktree", "-z", "--missing")
	commit := r.run(nil, r.bare, "commit-tree", tree, "-m", "planted")
	r.run(nil, r.bare, "update-ref", "refs/heads/"+branch, commit)
	return commit
}

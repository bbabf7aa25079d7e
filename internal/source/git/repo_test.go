package git

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// origin is a repository with a working tree that a test commits to. Nothing of the machine's configuration takes part.
type origin struct {
	t   testing.TB
	dir string
}

func newOrigin(t testing.TB, args ...string) *origin {
	t.Helper()
	return newOriginAt(t, filepath.Join(t.TempDir(), "repo.git"), args...)
}

func newOriginAt(t testing.TB, dir string, args ...string) *origin {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	o := &origin{t: t, dir: dir}
	o.gitIn("", nil, append(append([]string{"init", "-q", "-b", "main"}, args...), o.dir)...)
	for _, c := range []string{"uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"} {
		o.git("config", c, "true")
	}
	return o
}

// git runs git in the repository and returns what it prints.
func (o *origin) git(args ...string) string { return o.gitIn(o.dir, nil, args...) }

func (o *origin) gitIn(dir string, stdin []byte, args ...string) string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Bob", "GIT_COMMITTER_EMAIL=bob@example.org",
		"GIT_AUTHOR_DATE=1700000000 +0100", "GIT_COMMITTER_DATE=1700000001 +0000"}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// commit writes files ("" removes one), commits them and returns the id.
func (o *origin) commit(files map[string]string) ID {
	o.t.Helper()
	for name, content := range files {
		p := filepath.Join(o.dir, name)
		if content == "" {
			if err := os.Remove(p); err != nil {
				o.t.Fatal(err)
			}
			continue
		}
		write(o.t, p, content)
	}
	o.git("add", "-A")
	o.git("commit", "-q", "-m", "change "+fmt.Sprint(len(files))+" files")
	return o.head()
}

func (o *origin) head() ID { return ID(o.git("rev-parse", "HEAD")) }

// object writes an object as it is, however wrong, and returns its id.
func (o *origin) object(kind string, content []byte) ID {
	o.t.Helper()
	return ID(o.gitIn(o.dir, content, "hash-object", "-t", kind, "--literally", "-w", "--stdin"))
}

// tree writes a tree from lines as of ls-tree -z, sorted as git wants it.
func (o *origin) tree(entries ...string) ID {
	o.t.Helper()
	var b bytes.Buffer
	sortKey := func(e string) string {
		head, name, _ := strings.Cut(e, "\t")
		if strings.HasPrefix(head, "40000") {
			name += "/"
		}
		return name
	}
	slices.SortFunc(entries, func(a, b string) int { return strings.Compare(sortKey(a), sortKey(b)) })
	for _, e := range entries {
		head, name, _ := strings.Cut(e, "\t")
		words := strings.Split(head, " ")
		fmt.Fprintf(&b, "%s %s\x00", words[0], name)
		for i := 0; i < len(words[1]); i += 2 {
			var c byte
			fmt.Sscanf(words[1][i:i+2], "%02x", &c)
			b.WriteByte(c)
		}
	}
	return o.object("tree", b.Bytes())
}

// commitTree commits a tree to a branch.
func (o *origin) commitTree(branch string, tree ID) ID {
	o.t.Helper()
	raw := fmt.Sprintf("tree %s\nauthor A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nmade by hand\n", tree)
	id := o.object("commit", []byte(raw))
	o.git("update-ref", "refs/heads/"+branch, string(id))
	return id
}

func (o *origin) remote() Remote { return Remote{URL: "file://" + o.dir} }

func write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newGit returns a Git that may read below the directory of temporary files.
func newGit(t testing.TB, limits Limits) *Git {
	t.Helper()
	g, err := New(Options{Dir: filepath.Join(t.TempDir(), "git"), LocalDirs: []string{os.TempDir()}, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func find(t testing.TB, refs []Ref, name string) Ref {
	t.Helper()
	for _, r := range refs {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no ref %s in %v", name, refs)
	return Ref{}
}

// files reads everything below a path of a fetched commit.
func files(t testing.TB, r *Repository, id ID, paths ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := r.Tree(t.Context(), Commit{ID: id}, paths, func(tree *Tree) error {
		for _, f := range tree.Files() {
			content, err := tree.ReadFile(f.Name)
			if err != nil {
				return err
			}
			got[f.Name] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

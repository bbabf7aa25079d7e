package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// told is what a watched directory has the server do.
type told struct {
	commands chan string
	fail     error
	says     string
}

func (s *told) command(_ context.Context, _ string, args ...string) (string, error) {
	if s.fail != nil {
		return "", s.fail
	}
	s.commands <- strings.Join(args, " ")
	return s.says, nil
}

// next waits for a command.
func (s *told) next(t *testing.T) string {
	t.Helper()
	select {
	case c := <-s.commands:
		return c
	case <-time.After(time.Minute):
		t.Fatal("the server is told nothing")
		return ""
	}
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
}

// git runs one command of a person.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=Ann", "-c", "user.email=a@example.com"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func watchedOf(t *testing.T, dir string, s *told) *watched {
	t.Helper()
	o := &Options{Dir: t.TempDir(), Watch: dir, Environment: "default", Command: s.command, Out: io.Discard}
	w, err := o.repositoryOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestRepositoryOf: of a repository what is committed counts, of any other directory what is in its files.
func TestRepositoryOf(t *testing.T) {
	needGit(t)
	plain, work, bare := t.TempDir(), t.TempDir(), t.TempDir()
	git(t, work, "init", "-q")
	git(t, bare, "init", "-q", "--bare")
	for dir, snapshots := range map[string]bool{plain: true, work: false, bare: false} {
		if w := watchedOf(t, dir, &told{}); w.snapshots != snapshots || !snapshots && w.repository != dir {
			t.Errorf("%s: %+v", dir, w)
		}
	}
	write(t, plain, "file", "")
	for _, path := range []string{filepath.Join(plain, "none"), filepath.Join(plain, "file")} {
		if _, err := (&Options{Dir: t.TempDir(), Watch: path}).repositoryOf(t.Context()); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestSnapshot: each state of the files is one commit, the same state none, and nothing is written beside the files.
func TestSnapshot(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	w := watchedOf(t, dir, &told{})
	snapshot := func() string {
		t.Helper()
		if err := w.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.head(t.Context())
	}
	empty := snapshot()
	write(t, w.repository, "index.lock", "") // of a run that was killed
	t.Setenv("GIT_INDEX_FILE", filepath.Join(t.TempDir(), "of-another-repository"))
	if _, err := w.options.repositoryOf(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sub/a.yaml", "one")
	one := snapshot()
	again := snapshot()
	write(t, dir, "sub/a.yaml", "two")
	two := snapshot()
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	gone := snapshot()
	if empty == "" || empty == one || one != again || one == two || two == gone {
		t.Errorf("%s, %s, %s, %s, %s", empty, one, again, two, gone)
	}
	if text := git(t, w.repository, "show", two+":sub/a.yaml"); text != "two" {
		t.Errorf("%q", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestNoticed: an edit of a file, one in a directory that was not there before, and a commit are each told to the server; what is no
// commit is not.
func TestNoticed(t *testing.T) {
	needGit(t)
	for name, edit := range map[string]func(dir, text string){
		"files": func(dir, text string) { write(t, dir, "a.yaml", text) },
		"a new directory": func(dir, text string) {
			write(t, dir, filepath.Join("deep", text, "a.yaml"), text)
		},
		"commits": func(dir, text string) {
			if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
				git(t, dir, "init", "-q")
			}
			write(t, dir, "a.yaml", text)
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-qm", text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, s := t.TempDir(), &told{commands: make(chan string, 100)}
			edit(dir, "before")
			w := watchedOf(t, dir, s)
			if err := w.begin(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"apply", "source reconcile local -n default --wait", "wait source/local"} {
				if c := s.next(t); !strings.HasPrefix(c, want) {
					t.Errorf("%q, want %q", c, want)
				}
			}
			stop := w.keep(t.Context())
			defer stop()
			for _, text := range []string{"one", "two"} {
				before := w.head(t.Context())
				edit(dir, text)
				for w.head(t.Context()) == before { // it may be seen half written
					if c := s.next(t); !strings.HasPrefix(c, "source reconcile local -n default --wait") {
						t.Errorf("%q", c)
					}
				}
			}
		})
	}
}

// TestSnapshotIsPlain: a file is committed as it is, whatever is said of files like it, and what cannot be committed is named.
func TestSnapshotIsPlain(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	w := watchedOf(t, dir, &told{})
	t.Setenv("GIT_CONFIG_COUNT", "3")
	for i, setting := range []string{"core.autocrlf=true", "filter.pointer.clean=echo version https://example.com", "filter.pointer.required=true"} {
		key, value, _ := strings.Cut(setting, "=")
		t.Setenv(fmt.Sprint("GIT_CONFIG_KEY_", i), key)
		t.Setenv(fmt.Sprint("GIT_CONFIG_VALUE_", i), value)
	}
	write(t, dir, ".gitattributes", "*.yaml text filter=pointer ident working-tree-encoding=UTF-16\n")
	const text = "a: $Id$\r\nb: 1\r\n"
	write(t, dir, "a.yaml", text)
	if err := w.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, err := w.git(t.Context(), "-C", w.repository, "show", "HEAD:a.yaml")
	if err != nil || kept != strings.TrimSpace(text) {
		t.Errorf("%q, %v", kept, err)
	}
	git(t, dir, "init", "-q", "nested")
	if err := w.snapshot(t.Context()); !reason.Is(err, reason.SystemCallFailed) || !strings.Contains(err.Error(), "nested") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// lockedWords is what is written while somebody reads it.
type lockedWords struct {
	mu   sync.Mutex // guards all below
	text strings.Builder
}

func (l *lockedWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestToldHere: who watches is told what became of a change, and that the directory is gone, once; and what comes in its place is seen.
func TestToldHere(t *testing.T) {
	needGit(t)
	dir, words := filepath.Join(t.TempDir(), "watched"), &lockedWords{}
	write(t, dir, "a.yaml", "one")
	s := &told{commands: make(chan string, 100), says: "applied it\n"}
	w := watchedOf(t, dir, s)
	w.options.Out = words
	stop := w.keep(t.Context())
	defer stop()
	says := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(words.String(), text); {
			if time.Now().After(deadline) {
				t.Fatalf("%q is not in %q", text, words.String())
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	says("applied it")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	says("the directory is not there; what was in it stays applied")
	write(t, dir, "a.yaml", "two")
	s.next(t)
	for c := s.next(t); !strings.HasPrefix(c, "source reconcile"); c = s.next(t) {
	}
	says("is read again")
	if n := strings.Count(words.String(), "is not there"); n != 1 {
		t.Errorf("it is told %d times: %q", n, words.String())
	}
}

// TestDirectories: what lies in a repository is not watched, its refs are.
func TestDirectories(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, "deep/a.yaml", "a")
	list := watchedOf(t, dir, &told{}).directories()
	if !slices.Contains(list, filepath.Join(dir, ".git/refs/heads")) || slices.Contains(list, filepath.Join(dir, "deep")) || slices.Contains(list, filepath.Join(dir, ".git/objects")) {
		t.Errorf("%v", list)
	}
	parent := t.TempDir() // a directory with a repository in it
	git(t, parent, "init", "-q", "inner")
	write(t, parent, "deep/a.yaml", "a")
	list = watchedOf(t, parent, &told{}).directories()
	if !slices.Contains(list, filepath.Join(parent, "deep")) || slices.ContainsFunc(list, func(p string) bool { return strings.Contains(p, ".git") }) {
		t.Errorf("%v", list)
	}
}

// TestForget: a start without --watch ends what an earlier one has begun, once.
func TestForget(t *testing.T) {
	s := &told{commands: make(chan string, 10)}
	o := &Options{Dir: t.TempDir(), Environment: "default", Command: s.command}
	write(t, o.Dir, "watch.yaml", "x")
	for range 2 {
		if err := o.follow(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.next(t); c != "delete source/local -n default --ignore-not-found" || len(s.commands) > 0 {
		t.Errorf("%q, and %d more", c, len(s.commands))
	}
}

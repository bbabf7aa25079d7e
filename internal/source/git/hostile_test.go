package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// Trees that no honest git makes, and what comes of them: refused at the door, refused one by one, or harmless.
func TestHostileTrees(t *testing.T) {
	o := newOrigin(t)
	o.commit(map[string]string{"a": "1"})
	file := o.object("blob", []byte("kind: Evil\n"))
	sub := o.tree("100644 "+string(file)+"\tconfig", "100644 "+string(file)+"\tHEAD")
	modules := o.object("blob", []byte("[submodule \"x\"]\n\tpath = x\n\turl = -u./evil\n\tupdate = !touch /tmp/evil\n"))
	tests := []struct {
		name, entry string
		code        reason.Code // of Fetch; 0: it is fetched
		refused     bool        // and the entry is refused in the tree
	}{
		{"git directory", "40000 " + string(sub) + "\t.git", reason.RepositoryContent, false},
		{"git directory in capitals", "40000 " + string(sub) + "\t.GIT", reason.RepositoryContent, false},
		{"git directory, short name of Windows", "40000 " + string(sub) + "\tgit~1", reason.RepositoryContent, false},
		{"git directory with ignored character", "40000 " + string(sub) + "\t.g\u200cit", reason.RepositoryContent, false},
		{"parent", "40000 " + string(sub) + "\t..", reason.RepositoryContent, false},
		{"here", "40000 " + string(sub) + "\t.", reason.RepositoryContent, false},
		{"empty name", "40000 " + string(sub) + "\t", reason.RepositoryContent, false},
		{"slash in a name", "100644 " + string(file) + "\tx/../../y", reason.RepositoryContent, false},
		{"modules with commands", "100644 " + string(modules) + "\t.gitmodules", reason.RepositoryContent, false},
		{"submodule", "160000 1234567890123456789012345678901234567890\tsub", 0, true},
		{"line end", "100644 " + string(file) + "\ta\nb.yaml", 0, true},
		{"not UTF-8", "100644 " + string(file) + "\ta\xff.yaml", 0, true},
		{"terminal", "100644 " + string(file) + "\ta\x1b[31m.yaml", 0, true},
		{"attributes", "100644 " + string(file) + "\t.gitattributes", 0, false},
		{"like an option", "100644 " + string(file) + "\t--upload-pack=touch x", 0, false},
		{"like a pathspec", "100644 " + string(file) + "\t:(top)*", 0, false},
	}
	g := newGit(t, Limits{})
	for i, tt := range tests {
		id := o.commitTree(fmt.Sprintf("b%d", i), o.tree(tt.entry))
		r := g.Repository(tt.name)
		_, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil)
		if tt.code != 0 {
			if !reason.Is(err, tt.code) {
				t.Errorf("%s: fetched, or refused as %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		err = r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
			if (len(tree.Refused()) == 1) != tt.refused || (len(tree.Files()) == 0) != tt.refused {
				t.Errorf("%s: files %v, refused %v", tt.name, tree.Files(), tree.Refused())
			}
			for _, r := range tree.Refused() {
				if !printable(r.Name) || !printable(r.Err.Error()) || !reason.Is(r.Err, reason.RepositoryContent) {
					t.Errorf("%s: %q: %q", tt.name, r.Name, r.Err)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestSymlinks(t *testing.T) {
	o := newOrigin(t)
	link := func(target string) string { return "120000 " + string(o.object("blob", []byte(target))) + "\t" }
	file := "100644 " + string(o.object("blob", []byte("inside"))) + "\t"
	dir := o.tree(link("../good")+"back", link("../../etc/passwd")+"out", file+"file", link("../dir/loop")+"loop", link("..")+"up")
	id := o.commitTree("main", o.tree(
		link("/etc/passwd")+"absolute", link(".git/config")+"config", link("../etc/passwd")+"dots", "40000 "+string(dir)+"\tdir",
		link("")+"empty", file+"good", link("good/x")+"through", link("dir/up/dir/up/dir/file")+"winding"))
	g := newGit(t, Limits{})
	r := g.Repository("k")
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	err := r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
		for _, name := range []string{"dir/back", "winding", "dir/up/good", "dir/up/dir/file"} {
			if content, err := tree.ReadFile(name); err != nil || string(content) != "inside" {
				t.Errorf("%s: %q, %v", name, content, err)
			}
		}
		for _, name := range []string{"absolute", "dots", "dir/out", "dir/loop", "empty"} {
			if content, err := tree.ReadFile(name); !reason.Is(err, reason.RepositoryContent) {
				t.Errorf("%s was followed: %q, %v", name, content, err)
			}
			if _, err := tree.Open(name); !reason.Is(err, reason.RepositoryContent) {
				t.Errorf("%s was opened: %v", name, err)
			}
		}
		for _, name := range []string{"config", "through"} {
			if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Large files, many files, many refs and deep trees end at a limit, and leave nothing behind.
func TestLimits(t *testing.T) {
	o := newOrigin(t)
	write(t, filepath.Join(o.dir, "small"), "x")
	must(t, os.Truncate(create(t, filepath.Join(o.dir, "huge")), 64<<20))
	huge := o.commit(nil)
	g := newGit(t, Limits{FileBytes: 1000, PackBytes: 4 << 20, Files: 300, Refs: 50, TreeBytes: 2500})
	r := g.Repository("huge")
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: huge}, nil); err != nil {
		t.Fatal(err)
	}
	err := r.Tree(t.Context(), Commit{ID: huge}, nil, func(tree *Tree) error {
		if info, err := tree.Stat("huge"); err != nil || info.Size() != -1 {
			t.Errorf("the huge file: %+v, %v", info, err)
		}
		if content, err := tree.ReadFile("small"); err != nil || string(content) != "x" {
			t.Errorf("the file beside it: %v", err)
		}
		_, err := tree.ReadFile("huge")
		return err
	})
	if !reason.Is(err, reason.RepositoryLimit) || reason.Of(err).Hint == "" {
		t.Errorf("a huge file was read: %v", err)
	}

	noise := make([]byte, 8<<20)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	must(t, os.WriteFile(filepath.Join(o.dir, "noise"), noise, 0o644))
	big := o.commit(nil)
	o.git("config", "uploadpack.allowFilter", "false")
	r = g.Repository("pack")
	_, err = r.Fetch(t.Context(), o.remote(), Ref{ID: big}, nil)
	if !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("a pack over the limit: %v: %s", err, reason.Of(err).Evidence)
	}
	if isDirectory(r.dir) || isDirectory(r.dir+newSuffix) {
		t.Error("what was fetched over the limit is left on disk")
	}
	o.git("config", "uploadpack.allowFilter", "true")

	var entries []string
	id := string(o.object("blob", bytes.Repeat([]byte("y"), 900)))
	for i := range 400 {
		entries = append(entries, fmt.Sprintf("100644 %s\tf%03d", id, i))
	}
	r = g.Repository("files")
	many := o.commitTree("many", o.tree(entries...))
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: many}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Tree(t.Context(), Commit{ID: many}, nil, func(*Tree) error { return nil }); !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("400 files: %v", err)
	}
	few := o.commitTree("few", o.tree(entries[:5]...))
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: few}, nil); err != nil {
		t.Fatal(err)
	}
	read := 0
	err = r.Tree(t.Context(), Commit{ID: few}, nil, func(tree *Tree) error {
		for _, f := range tree.Files() {
			if _, err := tree.ReadFile(f.Name); err != nil {
				return err
			}
			read++
		}
		return nil
	})
	if !reason.Is(err, reason.RepositoryLimit) || read != 2 {
		t.Errorf("%d files of 900 bytes were read with a limit of 2500 in sum: %v", read, err)
	}

	var refs strings.Builder
	for i := range 60 {
		fmt.Fprintf(&refs, "create refs/tags/t%d %s\n", i, huge)
	}
	o.gitIn(o.dir, []byte(refs.String()), "update-ref", "--stdin")
	if _, err := g.List(t.Context(), o.remote(), Everything); !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("60 tags: %v", err)
	}
}

func create(t *testing.T, name string) string {
	f, err := os.Create(name)
	must(t, err)
	must(t, f.Close())
	return name
}

// A tree so deep that git itself may give up on it ends in an error, or its files are refused.
func TestDeepTree(t *testing.T) {
	o := newOrigin(t)
	o.commit(map[string]string{"a": "1"})
	var stream strings.Builder
	stream.WriteString("commit refs/heads/deep\ncommitter A <a@b> 1700000000 +0000\ndata 1\nx\n")
	fmt.Fprintf(&stream, "M 100644 inline %sfile\ndata 1\nx\n\n", strings.Repeat("d/", 1500))
	o.gitIn(o.dir, []byte(stream.String()), "fast-import", "--quiet")
	id := ID(o.git("rev-parse", "deep"))
	g := newGit(t, Limits{})
	r := g.Repository("k")
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	err := r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
		if len(tree.Refused()) != 1 || len(tree.Files()) != 0 || len(tree.Refused()[0].Name) > 300 {
			t.Errorf("files %v, refused %d", tree.Files(), len(tree.Refused()))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What a repository on disk has beside objects is neither run nor followed further than git follows it itself.
func TestHostileRemoteFiles(t *testing.T) {
	o := newOrigin(t)
	id := o.commit(map[string]string{"a": "1"})
	marks := t.TempDir()
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-upload-pack", "pre-upload"} {
		name := filepath.Join(o.dir, ".git/hooks", hook)
		write(t, name, "#!/bin/sh\ntouch "+marks+"/"+hook+"\n")
		must(t, os.Chmod(name, 0o755))
	}
	for _, c := range []string{"uploadpack.packObjectsHook", "core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.alternateRefsCommand", "diff.external", "core.askPass", "remote.origin.uploadpack"} {
		o.git("config", c, "touch "+marks+"/"+c)
	}
	g := newGit(t, Limits{})
	if _, err := g.Repository("k").Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(marks); err != nil || len(left) != 0 {
		t.Errorf("run: %v (%v)", left, err)
	}
	outsideDir := t.TempDir()
	must(t, os.Symlink("/", filepath.Join(outsideDir, "root")))
	g.local = []string{outsideDir}
	if _, err := g.List(t.Context(), Remote{URL: "file://" + outsideDir + "/root" + o.dir}, Everything); !reason.Is(err, reason.RepositoryAddress) {
		t.Errorf("a symlink out of the directories that are allowed: %v", err)
	}
}

// The configuration of whoever runs the server has no part.
func TestMachineConfiguration(t *testing.T) {
	o := newOrigin(t)
	id := o.commit(map[string]string{"a": "1"})
	home := t.TempDir()
	write(t, filepath.Join(home, ".gitconfig"), "[url \"file:///nonexistent\"]\n\tinsteadOf = file://\n[core]\n\tsshCommand = touch "+home+"/mark\n")
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "protocol.allow")
	t.Setenv("GIT_CONFIG_VALUE_0", "never")
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_TRACE", filepath.Join(home, "trace"))
	g := newGit(t, Limits{})
	if _, err := g.Repository("k").Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 1 {
		t.Errorf("home has %v (%v)", entries, err)
	}
}

// Commits that people or programs made by hand.
func TestOddCommits(t *testing.T) {
	o := newOrigin(t)
	o.commit(map[string]string{"a": "1"})
	tree := o.git("rev-parse", "HEAD^{tree}")
	other := string(o.tree())
	const who = "author A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n"
	tests := []struct {
		name, raw string
		ok        bool
		check     func(Commit) bool
	}{
		{"NUL in the message", "tree " + tree + "\n" + who + "\nhello\x00 world\n", false, nil},
		{"escapes in the message", "tree " + tree + "\n" + who + "\nhello\x1b[31m world\n", true, func(c Commit) bool { return printable(c.Subject) && strings.Contains(c.Subject, "world") }},
		{"NUL in a header", "tree " + tree + "\n" + who + "x-odd a\x00b\n\nhello\n", false, nil},
		{"forged date", "tree " + tree + "\nauthor A <a@b> 99999999999999999999 +0000\ncommitter A <a@b> 1700000000 +0000\n\nx\n", false, nil},
		{"far future", "tree " + tree + "\nauthor A <a@b> 2000000000 +0000\ncommitter A <a@b> 9000000000 +0000\n\nx\n", true, func(c Commit) bool { return c.Committer.Time.Year() == 2255 }},
		{"second tree", "tree " + tree + "\n" + who + "tree " + other + "\n\nx\n", true, func(c Commit) bool { return string(c.Tree) == tree }},
		{"no message", "tree " + tree + "\n" + who + "\n", true, func(c Commit) bool { return c.Subject == "" }},
		{"name with escapes", "tree " + tree + "\nauthor \x1b[31mEve\xff <e\x07@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nx\n", true, func(c Commit) bool { return printable(c.Author.Name) && printable(c.Author.Email) }},
		{"long subject", "tree " + tree + "\n" + who + "\n" + strings.Repeat("ä", 100_000), true, func(c Commit) bool { return len(c.Subject) < 300 && printable(c.Subject) }},
		{"no tree", who + "\nx\n", false, nil},
	}
	g := newGit(t, Limits{})
	for i, tt := range tests {
		id := o.object("commit", []byte(tt.raw))
		o.git("config", "receive.fsckObjects", "false")
		write(t, filepath.Join(o.dir, ".git", "refs", "heads", fmt.Sprintf("odd%d", i)), string(id)+"\n")
		c, err := g.Repository(tt.name).Fetch(t.Context(), o.remote(), Ref{Name: fmt.Sprintf("refs/heads/odd%d", i)}, nil)
		if (err == nil) != tt.ok || err == nil && !tt.check(c) {
			t.Errorf("%s: %+v, %v", tt.name, c, err)
		}
		must(t, os.Remove(filepath.Join(o.dir, ".git", "refs", "heads", fmt.Sprintf("odd%d", i))))
	}
}

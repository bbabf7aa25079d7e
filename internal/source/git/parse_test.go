package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"tako.dev/tako/internal/reason"
)

// Whatever a server says: refs that are fit to be used, or an error with a code.
func FuzzRefs(f *testing.F) {
	id := strings.Repeat("a", 40)
	for _, s := range []string{
		"ref: refs/heads/main\tHEAD\n" + id + "\tHEAD\n" + id + "\trefs/heads/main\n",
		id + "\trefs/tags/v1\n" + id + "\trefs/tags/v1^{}\n", id + "\trefs/tags/x^{}\n", "zz\tHEAD\n", "\t\n", id + "\trefs/pull/1/head\n",
		id + "\trefs/heads/\x1b[31m\n", id + "\trefs/heads/\xff\n", id + "\trefs/heads/--upload-pack=x\n", strings.Repeat("x", recordMax+10),
	} {
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, out []byte, cut int) {
		list := &refList{max: 10}
		w := &records{separator: '\n', each: list.line}
		if err := inPieces(w, out, cut); err != nil && reason.Of(err).Code == reason.InternalFault {
			t.Errorf("an error without a code: %v", err)
		}
		if len(list.refs) > 10 {
			t.Errorf("%d refs", len(list.refs))
		}
		for _, r := range list.refs {
			if !r.ID.Valid() || r.Peeled != "" && !r.Peeled.Valid() || !printable(r.Name) || !printable(r.Target) || !r.Commit().Valid() {
				t.Errorf("%+v", r)
			}
		}
	})
}

// inPieces writes as a pipe may deliver.
func inPieces(w *records, out []byte, cut int) error {
	if cut < 1 {
		cut = 1
	}
	for len(out) > 0 {
		n := min(cut, len(out))
		if _, err := w.Write(out[:n]); err != nil {
			return err
		}
		out = out[n:]
	}
	return nil
}

// Whatever a tree holds: files below the root with names that can be used, and an fs.FS that keeps its promises.
func FuzzTree(f *testing.F) {
	id := strings.Repeat("a", 40)
	for _, s := range []string{
		"100644 blob " + id + "\ta/b\x00100755 blob " + id + "\tc\x00", "160000 commit " + id + "\tsub\x00", "120000 blob " + id + "\tlink\x00",
		"100644 blob " + id + "\t../x\x00", "100644 blob " + id + "\ta\x00100644 blob " + id + "\ta/b\x00", "100644 blob x\ty\x00", "100644 blob " + id + "\t\x00",
		"100644 blob " + id + "\ta/.git/config\x00", "100644 blob " + id + "\t" + strings.Repeat("d/", 200) + "x\x00", "777777 blob " + id + "\tx\x00",
	} {
		f.Add([]byte(s), 5)
	}
	f.Fuzz(func(t *testing.T, out []byte, cut int) {
		l := &treeList{max: 50}
		err := inPieces(&records{separator: 0, each: l.line}, out, cut)
		if err != nil && reason.Of(err).Code == reason.InternalFault {
			t.Errorf("an error without a code: %v", err)
		}
		for _, r := range l.refused {
			if !printable(r.Name) || !printable(r.Err.Error()) {
				t.Errorf("refused %q: %q", r.Name, r.Err)
			}
		}
		var names []string
		for i, file := range l.files {
			if !fs.ValidPath(file.Name) || !file.ID.Valid() {
				t.Errorf("%+v", file)
			}
			if file.Mode&fs.ModeSymlink != 0 {
				l.files[i].Size = 3
			}
			names = append(names, file.Name)
		}
		tree := newTree(l.files, l.refused, func(file File) ([]byte, error) { return bytes.Repeat([]byte("."), int(file.Size)), nil })
		for _, name := range names {
			if _, err := tree.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !reason.Is(err, reason.RepositoryContent) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = fs.WalkDir(tree, ".", func(p string, _ fs.DirEntry, _ error) error {
			if !fs.ValidPath(p) {
				t.Errorf("walked to %q", p)
			}
			return nil
		})
	})
}

func FuzzObject(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add([]byte("tree " + id + "\nparent " + id + "\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\ngpgsig x\n y\n\nsubject\n\nbody"))
	f.Add([]byte("object " + id + "\ntype commit\ntag v1\ntagger A <a> -5 +0000\n\nsubject"))
	f.Add([]byte("tree x\n\n"))
	f.Add([]byte("author <><> 99999999999999999999 x\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseCommit(ID(id), raw)
		if err == nil && (!c.Tree.Valid() || !printable(c.Subject) || !printable(c.Author.Name+c.Author.Email+c.Committer.Name)) {
			t.Errorf("%+v", c)
		}
		tag, errTag := parseTag(ID(id), raw)
		if errTag == nil && (!tag.Target.Valid() || !printable(tag.Name+tag.Subject+tag.Tagger.Name)) {
			t.Errorf("%+v", tag)
		}
		for _, err := range []error{err, errTag} {
			if err != nil && !reason.Is(err, reason.RepositoryContent) {
				t.Errorf("%v", err)
			}
		}
	})
}

func FuzzHead(f *testing.F) {
	for _, s := range []string{strings.Repeat("a", 40) + " blob 12", "x missing", "x y z", strings.Repeat("a", 40) + " blob -1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if e, err := parseHead(line); err == nil && e.kind != "" && (!e.id.Valid() || e.size < 0) {
			t.Errorf("%+v", e)
		}
	})
}

// However a server phrases it, no secret comes through, and a summary is one line.
func FuzzFailure(f *testing.F) {
	f.Add("fatal: https://user:"+secret+"@host/x not found", "error")
	f.Add("remote: "+secret+"\nfatal: x", "\x00\xff")
	a := Auth{Username: "user", Password: secret}
	f.Fuzz(func(t *testing.T, before, after string) {
		said := clean(before+secret+after+" "+a.basic(), a.secrets())
		line := summary(said, errors.New("exit status 128"))
		if strings.Contains(said, secret) || strings.Contains(said, a.basic()) || !printable(line) || line == "" {
			t.Errorf("%q: %q", said, line)
		}
	})
}

// The names of trees are found as the standard library finds those of a directory.
func TestViewOfMany(t *testing.T) {
	var list []File
	var names []string
	for i := range 300 {
		name := fmt.Sprintf("d%d/e%d/f%d", i%7, i%3, i)
		list = append(list, File{Name: name, ID: ID(strings.Repeat("a", 40)), Size: 4, Mode: 0o644})
		names = append(names, name)
	}
	tree := newTree(list, nil, func(File) ([]byte, error) { return []byte("text"), nil })
	if err := fstest.TestFS(tree, names...); err != nil {
		t.Error(err)
	}
}

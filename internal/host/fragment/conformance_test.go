package fragment_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/fragment"
	"tako.dev/tako/internal/host/hosttest"
)

// pieced is the type of pieces together with the type of the file that takes them. What is wrong with a piece is wrong with its file, so
// the suite's resource is both.
type pieced struct {
	*file.Type
	t     testing.TB
	files map[string]*declare.File // by path
}

// whole is a piece with its file.
type whole struct{ file, piece host.Resource }

func (w *whole) Watches() []host.Watch { return append(w.file.Watches(), w.piece.Watches()...) }

func (p *pieced) Bind(ctx context.Context, d host.Declared) (host.Resource, error) {
	piece, err := fragment.Type{}.Bind(ctx, d)
	if err != nil {
		return nil, err
	}
	of := p.files[d.Resource.Fragment.Path].Assembled([]declare.Piece{{Claim: d.Resource.Claim(), Fragment: d.Resource.Fragment}})
	r := declare.Resource{Name: "of-" + d.Resource.Name, File: of}
	res, err := p.Type.Bind(ctx, host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }})
	return &whole{res, piece}, err
}

// apart lists the files and the pieces of resources.
func apart(rs []host.Resource) (files, pieces []host.Resource) {
	for _, r := range rs {
		files, pieces = append(files, r.(*whole).file), append(pieces, r.(*whole).piece)
	}
	return files, pieces
}

func (p *pieced) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	files, pieces := apart(rs)
	plans := p.Type.Check(ctx, files, depth)
	for i, own := range (fragment.Type{}).Check(ctx, pieces, depth) {
		if !own.Empty() || own.Resource != pieces[i] || own.Recognised != (depth == host.Shallow) {
			p.t.Errorf("of the piece alone, depth %d: %+v", depth, own)
		}
		plans[i].Resource = rs[i]
	}
	return plans
}

func (p *pieced) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	files := make([]host.Plan, len(plans))
	for i, plan := range plans {
		files[i] = plan
		files[i].Resource = plan.Resource.(*whole).file
	}
	return p.Type.Apply(ctx, files)
}

func (p *pieced) Original(ctx context.Context, r host.Resource) ([]byte, error) {
	w := r.(*whole)
	if _, err := (fragment.Type{}).Original(ctx, w.piece); err != nil {
		return nil, err
	}
	return p.Type.Original(ctx, w.file)
}

func (p *pieced) Remove(ctx context.Context, r host.Resource, how declare.OnRemove, original []byte) error {
	w := r.(*whole)
	if err := (fragment.Type{}).Remove(ctx, w.piece, how, []byte("{}")); err != nil {
		return err
	}
	return p.Type.Remove(ctx, w.file, how, original)
}

// sight is what can be seen of a file; the zero value is none.
type sight struct{ mode, text, owner, group string }

func look(t testing.TB, path string) sight {
	t.Helper()
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return sight{}
	}
	text, errRead := os.ReadFile(path)
	if err != nil || errRead != nil {
		t.Fatal(err, errRead)
	}
	sys := st.Sys().(*syscall.Stat_t)
	owner, errOwner := user.LookupId(strconv.Itoa(int(sys.Uid)))
	group, errGroup := user.LookupGroupId(strconv.Itoa(int(sys.Gid)))
	if errOwner != nil || errGroup != nil {
		t.Skipf("needs names for who runs it: %v, %v", errOwner, errGroup)
	}
	return sight{fmt.Sprintf("%04o", st.Mode().Perm()), string(text), owner.Username, group.Name}
}

func words(text string) string {
	return strconv.Itoa(len(text)) + " B " + content.DigestOf([]byte(text)).String()[:len("sha256:01234567")]
}

// difference says what lies between two looks as the type file does.
func difference(before, after sight) []host.Change {
	var changes []host.Change
	from := words(before.text)
	if before == (sight{}) {
		changes, from = []host.Change{{To: "file", From: "absent"}}, ""
	}
	if before.text != after.text {
		changes = append(changes, host.Change{Field: "content", From: from, To: words(after.text)})
	}
	for _, f := range [][3]string{{"mode", before.mode, after.mode}, {"owner", before.owner, after.owner}, {"group", before.group, after.group}} {
		if f[1] != f[2] {
			changes = append(changes, host.Change{Field: f[0], From: f[1], To: f[2]})
		}
	}
	return changes
}

// TestConformance runs the suite of all types on pieces with the files that take them.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	p := &pieced{Type: file.New(file.Options{Root: root, Content: store}), t: t, files: map[string]*declare.File{}}
	s := hosttest.Subject{Type: p, Remembers: true, Snapshot: func(t testing.TB) string { return hosttest.Tree(t, dir) }}
	var paths []string
	for _, name := range []string{"head", "bare", "unended"} {
		path := filepath.Join(dir, name)
		of := &declare.File{Path: path, Fragments: true, Mode: "0640"}
		piece := declare.Resource{Name: name, Fragment: &declare.Fragment{Path: path, Content: "piece of " + name + "\n"}}
		switch name {
		case "head":
			of.Content = "head\n"
		case "unended":
			of.Content, piece.Fragment.Content = "head", "piece"
		}
		paths, p.files[path] = append(paths, path), of
		s.Declared = append(s.Declared, host.Declared{Title: piece.Title(), Resource: piece})
		s.Gone = append(s.Gone, sight{})
	}
	arrange := func(text string, perm os.FileMode) func(testing.TB) {
		return func(t testing.TB) {
			for _, path := range paths {
				err := os.WriteFile(path, []byte(text), perm)
				if err == nil {
					err = os.Chmod(path, perm)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	s.Situations = []hosttest.Situation{
		{Name: "nothing there", Arrange: func(t testing.TB) {
			for _, path := range paths {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{Name: "no piece in it", Arrange: arrange("head\n", 0o640)},
		{Name: "another piece in it, and another mode", Arrange: arrange("head\nold piece\n", 0o644)},
	}
	s.Observe = func(t testing.TB, i int) any { return look(t, paths[i]) }
	s.Difference = func(_ int, before, after any) []host.Change {
		return difference(before.(sight), after.(sight))
	}
	s.Disturb = arrange("somebody was here\n", 0o600)
	hosttest.Run(t, s)
}

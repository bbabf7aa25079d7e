package place

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const uid = "3b1f6c1e-0000-4000-8000-000000000001"

// filled is a place with all that there is to have, in a directory.
type filled struct {
	dir       string
	items     []catalog.Item
	root      catalog.Digest // of the layer
	list      []byte
	listRoot  catalog.Digest
	head      []byte
	statement []byte
	size      uint64
}

func fill(t testing.TB, dir string) filled {
	t.Helper()
	f := filled{dir: dir, head: []byte("a head")}
	for i := range 300 {
		f.items = append(f.items, catalog.Item{Claim: fmt.Sprint("path:/srv/", i), Body: bytes.Repeat([]byte{byte(i)}, 2000)})
		f.size += 2000
	}
	f.root = catalog.TrieOf(f.items).Root()
	list, err := catalog.NewList(catalog.Layer{Priority: 1, ID: "NodeConfig/prod/web", Root: f.root})
	must(t, err)
	f.list, err = list.Encode()
	must(t, err)
	f.listRoot = catalog.ListRoot(f.list)
	f.statement = signed(t, catalog.Statement{Cluster: trust.NewClusterID(), Layer: "NodeConfig/prod/web", Epoch: 1, Number: 1, Root: f.root, Issued: 1, Expires: 2, Bytes: f.size})
	w, err := NewWriter(dir)
	must(t, err)
	if w.HasLayer(f.root) {
		t.Error("the layer is there before it is written")
	}
	var rows bytes.Buffer
	must(t, catalog.WriteRows(&rows, len(f.items), catalog.RowsOf(f.items)))
	must(t, w.Layer(f.root, &rows))
	must(t, w.List(f.list))
	must(t, w.Head(uid, f.head))
	must(t, w.Statement(f.statement))
	if !w.HasLayer(f.root) {
		t.Error("the layer is not there")
	}
	return f
}

func signed(t testing.TB, st catalog.Statement) []byte {
	t.Helper()
	s, err := st.Sign(trust.NewSigningKey())
	must(t, err)
	b, err := s.Encode()
	must(t, err)
	return b
}

// check reads all of a place.
func (f *filled) check(t *testing.T, p *Place) {
	t.Helper()
	ctx := t.Context()
	if head, err := p.Head(ctx, uid); err != nil || !bytes.Equal(head, f.head) {
		t.Errorf("head %q, %v", head, err)
	}
	if list, err := p.List(ctx, f.listRoot); err != nil || !bytes.Equal(list, f.list) {
		t.Errorf("list: %v", err)
	}
	if all, err := p.Statements(ctx); err != nil || len(all) != 1 || !bytes.Equal(all[0], f.statement) {
		t.Errorf("%d statements, %v", len(all), err)
	}
	keys := catalog.TrieOf(f.items)
	from := catalog.Digest{0x80}
	for _, from := range []catalog.Digest{{}, from} {
		want := 0
		for range keys.From(from) {
			want++
		}
		got, last := 0, 0
		err := p.Layer(ctx, f.root, from, f.size, func(part wire.SyncPart) error {
			if part.Kind != wire.SyncSnapshot {
				t.Errorf("a part of kind %d", part.Kind)
			}
			for _, c := range part.Changes {
				if digest, found, err := keys.Get(c.Key); err != nil || !found || digest != sha256.Sum256(c.Body) {
					t.Errorf("row %s is not of the layer", c.Key)
				}
			}
			if got += len(part.Changes); part.Last {
				last++
			}
			return nil
		})
		if err != nil || got != want || last != 1 {
			t.Errorf("from %s: %d rows of %d, %d last parts, %v", from, got, want, last, err)
		}
	}
	stop := errors.New("enough")
	if err := p.Layer(ctx, f.root, catalog.Digest{}, f.size, func(wire.SyncPart) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped by who takes it: %v", err)
	}
}

// absent wants that a place says of nothing that it is there.
func absent(t *testing.T, p *Place) {
	t.Helper()
	ctx := t.Context()
	_, err1 := p.Head(ctx, uid)
	_, err2 := p.List(ctx, catalog.KeyOf("a"))
	_, err3 := p.Statements(ctx)
	_, err4 := p.Trust(ctx)
	err5 := p.Layer(ctx, catalog.KeyOf("a"), catalog.Digest{}, 1, func(wire.SyncPart) error { return nil })
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestDirectory(t *testing.T) {
	f := fill(t, filepath.Join(t.TempDir(), "stick"))
	p := Directory(f.dir)
	f.check(t, p)
	absent(t, Directory(t.TempDir()))
	for _, bad := range []string{"", ".", "..", "../" + uid, "a/b", strings.Repeat("a", 300)} {
		if _, err := p.Head(t.Context(), bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a head of %.20q: %v", bad, err)
		}
	}
}

// lies are what is done to the files of a place, and what must come of reading it.
func TestDirectoryThatLies(t *testing.T) {
	f := fill(t, t.TempDir())
	other := fill(t, t.TempDir())
	layer, list := filepath.Join(f.dir, "layers", f.root.String()), filepath.Join(f.dir, "lists", f.listRoot.String())
	rows, err := os.ReadFile(layer)
	must(t, err)
	read := func(most uint64) error {
		return Directory(f.dir).Layer(t.Context(), f.root, catalog.Digest{}, most, func(wire.SyncPart) error {
			t.Error("something of it is handed on")
			return nil
		})
	}
	for name, content := range map[string][]byte{"changed": append(bytes.Clone(rows[:len(rows)-1]), 'x'), "cut off": rows[:len(rows)-1], "empty": nil, "another file": []byte("hello")} {
		must(t, os.WriteFile(layer, content, 0o644))
		if err := read(f.size); !errors.Is(err, fs.ErrNotExist) && !reason.Is(err, reason.PlaceUnusable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.WriteFile(layer, rows, 0o644))
	if err := read(f.size - 1); !reason.Is(err, reason.PlaceUnusable) {
		t.Errorf("more than is signed: %v", err)
	}
	must(t, os.WriteFile(list, []byte("no list"), 0o644))
	if _, err := Directory(f.dir).List(t.Context(), f.listRoot); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a list that is none: %v", err)
	}
	// A link leads nowhere outside, and what is no file is not waited for.
	must(t, os.Remove(list))
	must(t, os.Symlink(filepath.Join(other.dir, "lists", other.listRoot.String()), list))
	if _, err := Directory(f.dir).List(t.Context(), f.listRoot); err == nil {
		t.Error("a link that leads out of the directory is followed")
	}
	must(t, os.Remove(filepath.Join(f.dir, "statements")))
	must(t, exec.CommandContext(t.Context(), "mkfifo", filepath.Join(f.dir, "statements")).Run())
	if _, err := Directory(f.dir).Statements(t.Context()); !reason.Is(err, reason.PlaceUnusable) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestStatementsOfAPlace(t *testing.T) {
	dir := t.TempDir()
	f := fill(t, dir)
	_, st, err := catalog.DecodeStatement(f.statement)
	must(t, err)
	w, err := NewWriter(dir)
	must(t, err)
	st.Number = 3
	three := signed(t, st)
	must(t, w.Statement(three))
	st.Layer, st.Number = "NodeConfig/prod/other", 1
	must(t, w.Statement(signed(t, st)))
	all, err := Directory(dir).Statements(t.Context())
	if err != nil || len(all) != 2 || !bytes.Equal(all[0], three) {
		t.Errorf("%d statements, %v", len(all), err)
	}
	many := make([][]byte, StatementsMax+1)
	if _, err := EncodeStatements(many); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("too many: %v", err)
	}
}

func FuzzDecodeStatements(f *testing.F) {
	data, err := EncodeStatements([][]byte{{1}, {2, 3}})
	must(f, err)
	f.Add(data)
	f.Add([]byte(statementsHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := DecodeStatements(data)
		if err != nil {
			return
		}
		if again, err := EncodeStatements(all); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v: %x is read, and written as %x", err, data, again)
		}
	})
}

func TestOrder(t *testing.T) {
	f := fill(t, t.TempDir())
	var file bytes.Buffer
	must(t, catalog.WriteOrder(&file, f.statement, f.items))
	dir := t.TempDir()
	o, err := NewOrder(dir, "a.order", bytes.NewReader(file.Bytes()))
	must(t, err)
	if !bytes.Equal(o.Signed, f.statement) || o.Statement.Root != f.root {
		t.Errorf("the statement is %+v", o.Statement)
	}
	got := 0
	must(t, o.Layer(t.Context(), f.root, catalog.Digest{}, f.size, func(p wire.SyncPart) error { got += len(p.Changes); return nil }))
	if got != len(f.items) {
		t.Errorf("%d rows", got)
	}
	if err := o.Layer(t.Context(), catalog.KeyOf("a"), catalog.Digest{}, f.size, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another layer: %v", err)
	}
	must(t, o.Close())
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	whole := file.Bytes()
	for name, c := range map[string]struct {
		data []byte
		code reason.Code
	}{
		"another layer": {bytes.Replace(whole, bytes.Repeat([]byte{7}, 2000), bytes.Repeat([]byte{8}, 2000), 1), reason.TransferWrong},
		"cut off":       {whole[:len(whole)-1], reason.StateCorrupt},
		"no order":      {[]byte("apiVersion: v1\n"), reason.StateCorrupt},
		"more behind":   {append(bytes.Clone(whole), make([]byte, 64<<10)...), 0},
	} {
		_, err := NewOrder(dir, "a.order", bytes.NewReader(c.data))
		if err == nil || c.code != 0 && !reason.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLocation(t *testing.T) {
	f := fill(t, t.TempDir())
	served := httptest.NewTLSServer(http.FileServer(http.Dir(f.dir)))
	defer served.Close()
	spool := t.TempDir()
	p, err := Location(served.URL, spool, nil)
	must(t, err)
	f.check(t, p)
	left, err := os.ReadDir(spool)
	if err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	empty := httptest.NewServer(http.FileServer(http.Dir(t.TempDir())))
	defer empty.Close()
	p, err = Location(empty.URL+"/", spool, nil)
	must(t, err)
	absent(t, p)
	for _, bad := range []string{"ftp://a/b", "https:", "%", "file:///etc"} {
		if _, err := Location(bad, spool, nil); !reason.Is(err, reason.PlaceUnusable) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A location that lies: it sends without end, leads elsewhere, or has an error page.
func TestLocationThatLies(t *testing.T) {
	asked := 0
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch {
		case strings.HasPrefix(r.URL.Path, "/endless/"):
			for chunk := bytes.Repeat([]byte("x"), 64<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		case strings.HasPrefix(r.URL.Path, "/elsewhere/"):
			http.Redirect(w, r, "/endless/", http.StatusFound)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer liar.Close()
	for _, kind := range []string{"endless", "elsewhere", "broken"} {
		p, err := Location(liar.URL+"/"+kind, t.TempDir(), nil)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err1 := p.Head(ctx, uid)
		_, err2 := p.List(ctx, catalog.KeyOf("a"))
		_, err3 := p.Statements(ctx)
		err4 := p.Layer(ctx, catalog.KeyOf("a"), catalog.Digest{}, 1<<20, func(wire.SyncPart) error { return nil })
		for i, err := range []error{err1, err2, err3, err4} {
			if !reason.Is(err, reason.PlaceUnusable) {
				t.Errorf("%s, %d: %v", kind, i, err)
			}
		}
		cancel()
	}
}

// TestRepository brings a repository over that git serves, twice: what was there before is replaced.
func TestRepository(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err) // who has cloned this has it
	}
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), git, append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	work, served := t.TempDir(), t.TempDir()
	f := fill(t, work)
	// Nothing that stands in a repository runs, or leads out of it.
	must(t, os.Symlink("/etc/passwd", filepath.Join(work, "trust.json")))
	must(t, os.WriteFile(filepath.Join(work, ".gitattributes"), []byte("* filter=evil\n"), 0o644))
	run(work, "init", "--quiet")
	run(work, "add", "--all")
	run(work, "commit", "--quiet", "--message", "heads")
	run(served, "clone", "--quiet", "--bare", work, "heads.git")
	backend := filepath.Join(run(work, "--exec-path"), "git-http-backend")
	server := httptest.NewServer(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + served, "GIT_HTTP_EXPORT_ALL=1"}})
	defer server.Close()
	state := t.TempDir()
	p, err := Repository(t.Context(), server.URL+"/heads.git", state)
	must(t, err)
	f.check(t, p)
	if documents, err := p.Trust(t.Context()); err == nil {
		t.Errorf("a link is followed: %d documents", len(documents))
	}
	if p.String() != server.URL+"/heads.git" {
		t.Errorf("it is called %s", p)
	}
	must(t, os.WriteFile(filepath.Join(work, "heads", uid), []byte("another"), 0o644))
	run(work, "commit", "--quiet", "--all", "--message", "another")
	run(work, "push", "--quiet", filepath.Join(served, "heads.git"), "HEAD")
	p, err = Repository(t.Context(), server.URL+"/heads.git", state)
	must(t, err)
	if head, err := p.Head(t.Context(), uid); err != nil || string(head) != "another" {
		t.Errorf("after another commit: %q, %v", head, err)
	}
	// Another repository has a place of its own, and what is not asked any more goes.
	run(served, "clone", "--quiet", "--bare", work, "second.git")
	must(t, os.WriteFile(filepath.Join(work, "heads", uid), []byte("a third"), 0o644))
	run(work, "commit", "--quiet", "--all", "--message", "a third")
	run(work, "push", "--quiet", filepath.Join(served, "second.git"), "HEAD")
	second, err := Repository(t.Context(), server.URL+"/second.git", state)
	must(t, err)
	wantHeads := func(what, first, other string) {
		t.Helper()
		for q, want := range map[*Place]string{p: first, second: other} {
			if head, err := q.Head(t.Context(), uid); string(head) != want || (err == nil) != (want != "") {
				t.Errorf("%s: %s has %q, %v", what, q, head, err)
			}
		}
	}
	wantHeads("both", "another", "a third")
	must(t, KeepRepositories(state, []string{server.URL + "/second.git"}))
	wantHeads("one is kept", "", "a third")
	must(t, KeepRepositories(t.TempDir(), nil))
	for _, bad := range []string{server.URL + "/none.git", "file://" + filepath.Join(served, "heads.git"), "--upload-pack=touch /tmp/x", "ext::sh -c true"} {
		if _, err := Repository(t.Context(), bad, state); !reason.Is(err, reason.PlaceUnusable) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

package file_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// withObjects gives the ground a store of objects.
func (g *ground) withObjects() *content.Objects {
	g.Helper()
	objects, err := content.OpenObjects(filepath.Join(g.TempDir(), "objects"), content.Options{})
	g.must(err)
	root, err := disk.OpenRoot("/")
	g.must(err)
	g.Cleanup(func() { root.Close() })
	g.Type = file.New(file.Options{Root: root, Content: g.store, Objects: objects})
	return objects
}

// add makes bytes an object, as who fetches them does.
func add(t testing.TB, objects *content.Objects, data []byte) *declare.ObjectReference {
	t.Helper()
	digest := content.DigestOf(data)
	f, _, err := objects.Part(digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := objects.Add(t.Context(), content.Wanted{Digest: digest, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	return &declare.ObjectReference{Digest: digest.String(), SizeBytes: int64(len(data))}
}

func TestConformanceOrigin(t *testing.T) {
	g := newGround(t)
	objects := g.withObjects()
	sources := t.TempDir()
	const text = "as declared\n"
	g.must(os.WriteFile(sources+"/source", []byte(text), 0o644))
	object := add(t, objects, []byte(text))
	resources := []declare.Resource{
		{File: &declare.File{Path: g.path("path"), ContentFrom: &declare.ContentSource{Path: sources + "/source"}, Force: true}},
		{File: &declare.File{Path: g.path("object"), ContentFrom: &declare.ContentSource{Object: object}, Mode: "0640", Check: []string{"grep", "-q", "declared", "{}"}, Force: true}},
	}
	each := func(arrange func(name string)) func(testing.TB) {
		return func(testing.TB) {
			for _, name := range []string{"path", "object"} {
				g.clear(name)
				arrange(name)
			}
		}
	}
	conform(t, g, resources, []hosttest.Situation{
		{Name: "nothing there", Arrange: each(func(string) {})},
		{Name: "another content", Arrange: each(func(name string) { g.write(name, "somebody else's\n", 0o4755) })},
		{Name: "same length", Arrange: each(func(name string) { g.write(name, strings.ToUpper(text), 0o666) })},
		{Name: "a link in the way", Arrange: each(func(name string) { g.must(os.Symlink("a target", g.path(name))) })},
	})
}

// What comes from another file follows that one.
func TestOriginPath(t *testing.T) {
	g := newGround(t)
	sources := t.TempDir()
	source := sources + "/source"
	put := func(text string) { g.must(os.WriteFile(source, []byte(text), 0o644)) }
	r := g.bindFile(declare.File{Path: g.path("copy"), ContentFrom: &declare.ContentSource{Path: source}})
	if w := r.Watches(); len(w) != 2 || w[1].Name != source {
		t.Errorf("watches %v", w)
	}
	fails := func(when string, want reason.Code) {
		t.Helper()
		if err := g.check(r, host.Shallow).Err; !reason.Is(err, want) {
			t.Errorf("%s: %v", when, err)
		}
	}
	fails("no source", reason.SourceMissing)
	for _, text := range []string{"one\n", "two\n", "", "three\n"} {
		put(text)
		g.made(r)
		if got := g.look("copy"); got.content != text {
			t.Errorf("%q, want %q", got.content, text)
		}
		for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
			if p := g.check(r, depth); !p.Empty() {
				t.Errorf("depth %d finds %+v", depth, p)
			}
		}
	}
	// A plan for what the source was is void.
	put("four\n")
	p := g.check(r, host.Shallow)
	put("five\n")
	if res := g.Apply(t.Context(), []host.Plan{p})[0]; !reason.Is(res.Err, reason.ConcurrentEdit) || g.look("copy").content != "three\n" {
		t.Errorf("%+v", res)
	}
	g.must(os.Chmod(source, 0o664))
	fails("others may write it", reason.SourceUntrusted)
	g.must(os.Chmod(source, 0o644))
	g.must(os.Chmod(sources, 0o1777))
	fails("others may write beside it", reason.SourceUntrusted)
	g.must(os.Chmod(sources, 0o755))
	g.must(os.Remove(source))
	g.must(os.Symlink("/etc/passwd", source))
	fails("a link", reason.SourceMissing)
}

func TestOriginObject(t *testing.T) {
	g := newGround(t)
	objects := g.withObjects()
	data := []byte("bytes \x00\xff\n")
	want := content.Wanted{Digest: content.DigestOf(data), Size: int64(len(data)), Claim: "path:x"}
	declaredFile := declare.File{Path: g.path("f"), ContentFrom: &declare.ContentSource{Object: &declare.ObjectReference{Digest: want.Digest.String(), SizeBytes: want.Size}}}
	d := declared(declare.Resource{File: &declaredFile})
	d.Key = want.Claim
	r, err := g.Bind(t.Context(), d)
	g.must(err)
	if err := g.converge(r).Err; !reason.Is(err, reason.ObjectMissing) {
		t.Errorf("nobody fetches: %v", err)
	}
	news := objects.Fetched()
	if err := g.converge(r).Err; !reason.Is(err, reason.ObjectComing) {
		t.Errorf("it is fetched: %v", err)
	}
	<-news
	if got := objects.Wanted(); len(got) != 1 || got[0] != want {
		t.Errorf("wanted %+v", got)
	}
	objects.Failed(want.Digest, &reason.Error{Code: reason.ServerUnreachable, Doing: "dial"}, time.Minute)
	if err := g.converge(r).Err; !reason.Is(err, reason.ObjectComing) || reason.Of(err).After != time.Minute {
		t.Errorf("no server: %+v", err)
	}
	objects.Failed(want.Digest, &reason.Error{Code: reason.ObjectMissing, Doing: "fetch"}, time.Minute)
	if err := g.converge(r).Err; !reason.Is(err, reason.ObjectMissing) {
		t.Errorf("no server has it: %v", err)
	}
	if _, err := os.Lstat(g.path("f")); err == nil {
		t.Error("something was written")
	}
	add(t, objects, data)
	g.made(r)
	if got := g.look("f"); got.content != string(data) || len(objects.Wanted()) != 0 {
		t.Errorf("%+v, wanted %v", got, objects.Wanted())
	}
	other := declaredFile
	other.ContentFrom = &declare.ContentSource{Object: &declare.ObjectReference{Digest: want.Digest.String(), SizeBytes: 3}}
	if err := g.converge(g.bindFile(other)).Err; !reason.Is(err, reason.ContentMismatch) {
		t.Errorf("another size: %v", err)
	}
	if len(objects.Used()) != 1 {
		t.Errorf("used: %v", objects.Used())
	}
	runtime.KeepAlive(r)
}

// TestOriginLarge writes a file that is far larger than what the agent may have in memory.
func TestOriginLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 500 MB")
	}
	const size = 500 << 20
	g := newGround(t)
	source := t.TempDir() + "/source"
	f, err := os.Create(source)
	g.must(err)
	g.must(f.Truncate(size)) // a hole takes no room
	g.must(f.Close())
	r := g.bindFile(declare.File{Path: g.path("large"), ContentFrom: &declare.ContentSource{Path: source}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g.made(r)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes of memory were taken", n)
	}
	if st, err := os.Stat(g.path("large")); err != nil || st.Size() != size {
		t.Errorf("%v, %v", st, err)
	}
	// Of what it replaces nothing is kept.
	g.must(os.WriteFile(source, []byte("small"), 0o644))
	if res := g.made(r); !strings.Contains(res.Note, "not kept") || g.store.Size() != 0 {
		t.Errorf("%+v, and %d bytes are kept", res, g.store.Size())
	}
}

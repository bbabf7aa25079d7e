package file

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
)

// bound makes a Type and a bound file in an empty directory.
func bound(t *testing.T, text string) (*Type, *resource) {
	t.Helper()
	store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	typ := New(Options{Root: openRoot(t, "/"), Content: store})
	declared := declare.Resource{File: &declare.File{Path: t.TempDir() + "/file", Content: text}}
	r, err := typ.Bind(t.Context(), host.Declared{Resource: declared, Body: func() (declare.Resource, error) { return declared, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return typ, r.(*resource)
}

func checkOne(t *testing.T, typ *Type, r *resource) host.Plan {
	t.Helper()
	return typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]
}

func applyOne(t *testing.T, typ *Type, r *resource) {
	t.Helper()
	if res := typ.Apply(t.Context(), []host.Plan{checkOne(t, typ, r)})[0]; res.Err != nil {
		t.Fatal(res.Err)
	}
}

// Two changes within one tick of the kernel's clock can leave one signature. So a signature that may still be shared is
// not trusted.
func TestUnsettledSignatureIsNotTrusted(t *testing.T) {
	typ, r := bound(t, "declared")
	applyOne(t, typ, r)
	if r.settled {
		t.Error("what was just written is settled")
	}
	if err := os.WriteFile(r.path, []byte("DECLARED"), 0o644); err != nil {
		t.Fatal(err)
	}
	now, err := typ.root.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.remember(now.Signature, false) // as if the edit had left the signature of our own write
	if p := checkOne(t, typ, r); p.Empty() || p.Recognised {
		t.Errorf("an edit in the same tick was not seen: %+v", p)
	}
	r.remember(now.Signature, true)
	if p := checkOne(t, typ, r); !p.Recognised {
		t.Errorf("a settled signature was not trusted: %+v", p)
	}
}

func TestSignatureSettles(t *testing.T) {
	typ, r := bound(t, "declared")
	applyOne(t, typ, r)
	written := r.seen
	for !r.settled { // a tick is a few milliseconds; the test's own deadline bounds it
		if p := checkOne(t, typ, r); !p.Recognised {
			t.Fatalf("our own write was not recognised: %+v", p)
		}
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	if r.seen != written {
		t.Errorf("it settled with another signature: %+v, want %+v", r.seen, written)
	}
	l := looker{t: typ, now: r.seen.Ctime}
	r.settled = false
	var p host.Plan
	d, name, err := typ.root.Parent(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if l.entry(d, r, &p); r.settled || name == "" {
		t.Error("it settled within its own tick")
	}
}

func TestResourceIsSmall(t *testing.T) {
	// 1,000 of them, with path and body, within 6 MB of everything: architecture and bars of the agent.
	if size := unsafe.Sizeof(resource{}); size > 176 {
		t.Errorf("a resource takes %d bytes", size)
	}
}

func FuzzDecodeOriginal(f *testing.F) {
	for _, seed := range []string{
		`{"type":"nothing"}`,
		`{"type":"file","mode":"0644","uid":1,"gid":2,"size":3,"digest":"sha256:` + strings.Repeat("ab", 32) + `"}`,
		`{"type":"directory","mode":"2750"}`,
		`{"type":"symlink","mode":"0777","target":"L2V0Yw=="}`,
		`{"type":"fifo","mode":"0644"}`, `{"type":"file","mode":"0644"}`, `{"type":"directory","mode":"99999"}`, `{`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		thing, _, err := decodeOriginal(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(original{
			Type: kindName(thing.kind()), Mode: modeText(thing.perm()), UID: thing.uid, GID: thing.gid, Size: thing.size,
			Digest: thing.digest, Target: []byte(thing.target),
		})
		if err != nil {
			t.Fatal(err)
		}
		if same, _, err := decodeOriginal(again); err != nil || same != thing {
			t.Fatalf("%q: %+v and then %+v, %v", b, thing, same, err)
		}
	})
}

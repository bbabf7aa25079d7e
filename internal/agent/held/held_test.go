package held

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, time.Now())
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStoreIsAClientStore(t *testing.T) {
	places := map[string]string{}
	clienttest.Suite(t, true, func(t *testing.T, place string) client.Store {
		if places[place] == "" {
			places[place] = t.TempDir()
		}
		return open(t, places[place])
	})
}

// put stores a layer, and returns its trie.
func put(t testing.TB, s *Store, layer string, base catalog.Digest, changes []wire.Change, target catalog.Trie) {
	t.Helper()
	_, err := s.Begin(core.Fetch{Layer: layer, Base: base, Target: target.Root()})
	must(t, err)
	must(t, s.Append(changes))
	must(t, s.Commit(target))
}

// putCatalog stores a catalog of one layer, and returns its root.
func putCatalog(t testing.TB, s *Store, text string) catalog.Digest {
	t.Helper()
	changes, trie := clienttest.Rows(20, text)
	put(t, s, "a", catalog.Digest{}, changes, trie)
	list, err := catalog.NewList(catalog.Layer{Priority: 1, ID: "a", Root: trie.Root()})
	must(t, err)
	encoded, err := list.Encode()
	must(t, err)
	must(t, s.PutList(encoded))
	return catalog.ListRoot(encoded)
}

func mark(version uint64, root catalog.Digest) catalog.Mark {
	return catalog.Mark{Epoch: 1, Version: version, Root: root, Issued: int64(version), Expires: int64(version) + 100}
}

// TestCountersSurviveAStop: what was refused is counted over restarts, and each refusal writes nothing.
func TestCountersSurviveAStop(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.Accept(mark(1, catalog.KeyOf("one")), []byte("head")))
	before, err := os.ReadFile(filepath.Join(dir, headsName))
	must(t, err)
	counted := wire.Refused{Forged: 3, Old: 2, Equivocation: 1, Content: 4}
	must(t, s.Count(counted))
	if now, err := os.ReadFile(filepath.Join(dir, headsName)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a refusal was written: %v", err)
	}
	must(t, s.Close())
	kept, err := open(t, dir).Kept()
	must(t, err)
	if kept.Refused != counted || kept.Mark.Version != 1 {
		t.Errorf("kept %+v", kept)
	}
}

// TestDamageIsFoundAndSetAside: whatever byte of a file changes, what is read is what was written, or nothing.
func TestDamageIsFoundAndSetAside(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	root := putCatalog(t, s, "text")
	must(t, s.Close())
	list, err := os.ReadFile(filepath.Join(dir, listsName, root.String()))
	must(t, err)
	names, err := os.ReadDir(filepath.Join(dir, layersName))
	must(t, err)
	if len(names) != 1 {
		t.Fatalf("%d layers", len(names))
	}
	layerFile := filepath.Join(dir, layersName, names[0].Name())
	layer, err := os.ReadFile(layerFile)
	must(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		must(t, os.WriteFile(filepath.Join(dir, listsName, root.String()), list, 0o600))
		broken := bytes.Clone(layer)
		if rapid.Bool().Draw(rt, "cut") {
			broken = broken[:rapid.IntRange(0, len(broken)-1).Draw(rt, "length")]
		} else {
			broken[rapid.IntRange(0, len(broken)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		must(t, os.WriteFile(layerFile, broken, 0o600))
		s, err := Open(dir, time.Now())
		must(t, err)
		defer s.Close()
		layerRoot, _ := catalog.ParseDigest(names[0].Name())
		if _, found, err := s.Trie(layerRoot); found || err != nil && !reason.Is(err, reason.StateNewer) {
			rt.Fatalf("a damaged layer is there: %v, %v", found, err)
		} else if err == nil && len(s.Troubles()) != 1 {
			rt.Fatalf("nobody was told: %v", s.Troubles())
		}
	})
}

// TestDamageWhileOpen: a body that changes after its layer was verified takes the layer with it.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	root := putCatalog(t, s, "text")
	list, err := s.Catalog(root)
	must(t, err)
	p := filepath.Join(dir, layersName, list[0].Root.String())
	b, err := os.ReadFile(p)
	must(t, err)
	at := bytes.LastIndex(b, []byte("text"))
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("TEXT"), int64(at))
	must(t, errors.Join(err, f.Close()))
	if err := s.Rows(list[0].Root, func(catalog.Digest, []byte) error { return nil }); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("read a damaged layer: %v", err)
	}
	if _, found, err := s.Trie(list[0].Root); found || err != nil {
		t.Errorf("the damaged layer is still there: %v, %v", found, err)
	}
	if _, err := s.Catalog(root); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("the catalog is complete: %v", err)
	}
}

// TestHeadsSurviveOneDamagedCopy: the mark is there after any change of one byte, and after the loss of all that was fetched.
func TestHeadsSurviveOneDamagedCopy(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	root := putCatalog(t, s, "text")
	must(t, s.Accept(mark(7, root), []byte("signed")))
	v := wire.Verdict{Type: wire.Withheld, Epoch: 1, Version: 7, Root: root, Code: reason.DeletionsWithheld, Message: "much", Since: 5}
	must(t, s.Remember(v))
	life := Life{Starts: 3, Enforced: mark(6, catalog.KeyOf("x")), Try: &Try{Mark: mark(6, catalog.KeyOf("x")), Boot: "b", Left: 9}}
	must(t, s.SetLife(life))
	must(t, s.Close())
	must(t, os.RemoveAll(filepath.Join(dir, layersName)))
	must(t, os.RemoveAll(filepath.Join(dir, listsName)))
	good, err := os.ReadFile(filepath.Join(dir, headsName))
	must(t, err)
	line := bytes.IndexByte(good, '\n') + 1
	for at := line; at < len(good); at++ {
		broken := bytes.Clone(good)
		broken[at] ^= 0x10
		must(t, os.WriteFile(filepath.Join(dir, headsName), broken, 0o600))
		s := open(t, dir)
		k, err := s.Kept()
		must(t, err)
		if k.Mark != mark(7, root) || string(k.Head) != "signed" || k.Verdict != v {
			t.Fatalf("with byte %d changed: %+v", at, k)
		}
		if l := s.Life(); l.Starts != 3 || l.Enforced != life.Enforced || *l.Try != *life.Try {
			t.Fatalf("with byte %d changed: %+v", at, l)
		}
		must(t, s.Close())
	}
	must(t, os.WriteFile(filepath.Join(dir, headsName), []byte("tako heads 2\nwhat this version does not know"), 0o600))
	if _, err := Open(dir, time.Now()); !reason.Is(err, reason.StateNewer) {
		t.Errorf("opened a later version's: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, headsName), []byte("nonsense"), 0o600))
	s = open(t, dir)
	if k, err := s.Kept(); err != nil || k.Mark != (catalog.Mark{}) || len(s.Troubles()) != 1 {
		t.Errorf("without heads: %+v, %v, told %v", k, err, s.Troubles())
	}
}

// TestTornStage: cut anywhere, the log holds a beginning of what was appended, and goes on from there.
func TestTornStage(t *testing.T) {
	changes, trie := clienttest.Rows(30, "text")
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s := open(t, dir)
		f := core.Fetch{Layer: "a", Target: trie.Root()}
		_, err := s.Begin(f)
		must(t, err)
		must(t, s.Append(changes[:20]))
		must(t, s.Close())
		p := filepath.Join(dir, stageName)
		b, err := os.ReadFile(p)
		must(t, err)
		n := rapid.IntRange(0, len(b)).Draw(rt, "length")
		torn := b[:n]
		if rapid.Bool().Draw(rt, "zeros") { // as some file systems leave it
			torn = append(bytes.Clone(torn), make([]byte, len(b)-n)...)
		}
		must(t, os.WriteFile(p, torn, 0o600))
		s = open(t, dir)
		have, err := s.Begin(f)
		must(t, err)
		i := 0
		for c, err := range s.Staged() {
			must(t, err)
			if c.Key != changes[i].Key {
				rt.Fatalf("row %d is %s", i, c.Key)
			}
			i++
		}
		if i != have.Count {
			rt.Fatalf("%d changes are staged, and it says %d", i, have.Count)
		}
		must(t, s.Append(changes[have.Count:]))
		must(t, s.Commit(trie))
		if got, found, err := s.Trie(trie.Root()); err != nil || !found || got.Len() != 30 {
			rt.Fatalf("committed: %v, %v", found, err)
		}
	})
}

// TestTrim: what is enforced, what was before, and what may be fallen back to stay; the rest goes.
func TestTrim(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var roots []catalog.Digest
	for i := range 6 {
		roots = append(roots, putCatalog(t, s, fmt.Sprint("text", i)))
		if i == 2 {
			must(t, s.SetLife(Life{Enforced: mark(2, roots[1]), Before: mark(1, roots[0]), Try: &Try{Fallback: mark(3, roots[2])}}))
		} else if i == 1 {
			must(t, s.SetLife(Life{Enforced: mark(2, roots[1]), Before: mark(1, roots[0])}))
		}
	}
	want := map[int]bool{0: true, 1: true, 2: true, 4: true, 5: true}
	for i, root := range roots {
		if _, err := s.Catalog(root); (err == nil) != want[i] {
			t.Errorf("catalog %d: %v", i, err)
		}
	}
	names, err := os.ReadDir(filepath.Join(dir, layersName))
	must(t, err)
	if len(names) != 5 {
		t.Errorf("%d layers are left", len(names))
	}
	must(t, os.WriteFile(filepath.Join(dir, layersName, ".tako.x.0123456789ab"), nil, 0o600))
	must(t, s.Close())
	open(t, dir)
	if _, err := os.Stat(filepath.Join(dir, layersName, ".tako.x.0123456789ab")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary is left: %v", err)
	}
}

// TestFullDiskLeavesTheOldHead: what cannot be written was not accepted.
func TestFullDiskLeavesTheOldHead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.Accept(mark(1, catalog.KeyOf("a")), []byte("one")))
	must(t, os.RemoveAll(dir))
	if err := s.Accept(mark(2, catalog.KeyOf("b")), []byte("two")); err == nil || !strings.Contains(err.Error(), headsName) {
		t.Errorf("accepted without a disk: %v", err)
	}
	if k, err := s.Kept(); err != nil || k.Mark.Version != 1 {
		t.Errorf("kept %+v, %v", k, err)
	}
}

func FuzzRecord(f *testing.F) {
	good := appendFrame(appendFrame(header("list"), []byte("payload")), []byte("payload"))
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "list"), data, 0o600))
		d, err := openDirectory(dir)
		must(t, err)
		defer d.root.Close()
		if payload, err := d.readRecord("list", "list"); err == nil && len(payload) > len(data) {
			t.Error("more was read than there is")
		}
	})
}

func FuzzStage(f *testing.F) {
	changes, trie := clienttest.Rows(3, "text")
	fetch := core.Fetch{Layer: "a", Target: trie.Root()}
	dir := f.TempDir()
	s := open(f, dir)
	_, err := s.Begin(fetch)
	must(f, err)
	must(f, s.Append(changes))
	good, err := os.ReadFile(filepath.Join(dir, stageName))
	must(f, err)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, stageName), data, 0o600))
		s := open(t, dir)
		have, err := s.Begin(fetch)
		must(t, err)
		var last catalog.Digest
		count := 0
		for c, err := range s.Staged() {
			must(t, err)
			if count > 0 && bytes.Compare(last[:], c.Key[:]) >= 0 {
				t.Error("what was resumed is not in order")
			}
			last = c.Key
			count++
		}
		if count != have.Count || count > 0 && last != have.Last {
			t.Errorf("%d changes are staged, and it says %+v", count, have)
		}
	})
}

func FuzzHeads(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir)
	must(f, s.Accept(mark(1, catalog.KeyOf("a")), []byte("head")))
	good, err := os.ReadFile(filepath.Join(dir, headsName))
	must(f, err)
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, headsName), data, 0o600))
		s, err := Open(dir, time.Now())
		if err != nil && !reason.Is(err, reason.StateNewer) {
			t.Fatal(err)
		}
		if err == nil {
			must(t, s.Close())
		}
	})
}

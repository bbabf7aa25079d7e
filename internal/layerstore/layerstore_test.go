package layerstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// TestAgainstMap: whatever is put upon whatever, trimmed and opened again, a layer has the rows of its map.
func TestAgainstMap(t *testing.T) {
	const rows = 300 // with these bodies more than what is always written as a whole
	long := strings.Repeat("x", 200)
	first := many(rows, long)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "layerstore")
		must(t, err)
		defer os.RemoveAll(dir)
		s, err := Open(dir, Options{})
		must(t, err)
		defer func() { _ = s.Close() }()
		put(t, s, nil, first)
		layers := []model{first}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				must(t, s.Close())
				s, err = Open(dir, Options{})
				must(t, err)
			case 1:
				kept := layers[rapid.IntRange(0, len(layers)-1).Draw(t, "kept")]
				must(t, s.Trim(func(root catalog.Digest) bool { return root == kept.trie().Root() }))
				layers = []model{kept}
			default:
				from := layers[rapid.IntRange(0, len(layers)-1).Draw(t, "base")]
				changed, gone := model{}, []string(nil)
				for range rapid.SampledFrom([]int{1, 2, 10, 100}).Draw(t, "changes") {
					c := claim(rapid.IntRange(0, rows+50).Draw(t, "claim"))
					if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
						gone = append(gone, c)
					} else {
						changed[c] = body(c, rapid.SampledFrom([]string{"a", "b", long}).Draw(t, "text"))
					}
				}
				to := from.with(changed, gone...)
				put(t, s, from, to)
				layers = append(layers, to)
			}
		}
		for _, m := range layers {
			has(t, s, m)
		}
		if found := s.Found(); len(found) > 0 {
			t.Fatalf("damage: %v", found)
		}
	})
}

// TestPlan: a row is written anew about once for each doubling of what was changed, and a layer is read of few files.
func TestPlan(t *testing.T) {
	const whole, change, count = 180 << 20, uint64(200), 100_000
	chain := []*file{{head: head{length: whole}}}
	written, longest, wholes := uint64(0), 0, 0
	for range count {
		p := newPlan(chain, change, catalog.Digest{1})
		written += p.size
		f := &file{head: head{length: int64(p.size)}}
		if len(p.below) == 0 {
			wholes++
		}
		chain = append(append([]*file{}, p.below...), f)
		longest = max(longest, len(chain))
	}
	if each := written / count; each > 20*(change+uint64(headBytes)) || longest > chainMax || wholes > 0 {
		t.Errorf("%d bytes are written for a change of %d, a chain has %d files, and %d of %d changes wrote all", each, change, longest, wholes, count)
	}
	if p := newPlan([]*file{{head: head{length: whole}}}, whole/2+1, catalog.Digest{1}); len(p.below) > 0 {
		t.Error("a difference of more than half of a layer is not written as a whole")
	}
	if p := newPlan([]*file{{head: head{length: wholeMax}}}, change, catalog.Digest{1}); len(p.below) > 0 {
		t.Error("a small layer is not written as a whole")
	}
	if p := newPlan([]*file{{head: head{length: whole, root: catalog.Digest{1}}}}, change, catalog.Digest{1}); len(p.below) > 0 {
		t.Error("a layer builds upon the file that it takes the place of")
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 1_000 { // whatever the sizes are
		p := newPlan(chain, random.Uint64N(1<<random.Uint64N(40)+1), catalog.Digest{1})
		if chain = append(append([]*file{}, p.below...), &file{head: head{length: int64(p.size)}}); len(chain) > chainMax {
			t.Fatalf("a chain has %d files", len(chain))
		}
	}
}

// TestSmallChange: a change of one row of many writes a few hundred bytes, and what it builds upon stays as long as it is wanted.
func TestSmallChange(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	first := many(5_000, strings.Repeat("x", 100))
	put(t, s, nil, first)
	second := first.with(nil, claim(7))
	put(t, s, first, second)
	third := second.with(model{claim(8): body(claim(8), "other")})
	put(t, s, second, third)
	if n := size(t, dir, second); n > 400 {
		t.Errorf("a deletion takes %d bytes", n)
	}
	if n := size(t, dir, third); n > 600 { // both, by now
		t.Errorf("two changes take %d bytes", n)
	}
	if n := s.Size(third.trie().Root()); n != uint64(size(t, dir, first)+size(t, dir, third)) {
		t.Errorf("it says that the layer takes %d bytes", n)
	}
	must(t, s.Trim(func(root catalog.Digest) bool { return root == third.trie().Root() }))
	if left := names(t, dir); len(left) != 2 {
		t.Errorf("%d files are left of a layer and what it builds upon", len(left))
	}
	has(t, open(t, dir), third)
	must(t, s.Trim(func(catalog.Digest) bool { return false }))
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("%q are left of nothing that is wanted", left)
	}
	hasNot(t, s, third)
}

// TestThereAndBack: a layer that was there before is not made to build upon itself.
func TestThereAndBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	first := many(2_000, "x")
	put(t, s, nil, first)
	last, at := first, first
	for i := range 6 {
		last, at = at, at.with(model{claim(i): body(claim(i), "other")})
		put(t, s, last, at)
	}
	put(t, s, at, last)
	put(t, s, at, first)
	s = open(t, dir)
	for _, m := range []model{first, last, at} {
		has(t, s, m)
	}
}

// TestPutRefuses: what does not lead to the target is not written, and neither is what there is no room for.
func TestPutRefuses(t *testing.T) {
	dir := t.TempDir()
	var room error
	s, err := Open(dir, Options{Room: func(uint64) error { return room }})
	must(t, err)
	defer s.Close()
	first := many(2_000, "x")
	put(t, s, nil, first)
	second := first.with(model{claim(1): body(claim(1), "other")})
	failed := errors.New("cannot be read")
	cut := listed(nil)
	cut.All = func(yield func(Change, error) bool) { yield(Change{}, failed) }
	for _, base := range []model{nil, first} {
		root := catalog.Digest{}
		if base != nil {
			root = base.trie().Root()
		}
		for what, c := range map[string]Changes{
			"nothing":        listed(nil),
			"another change": changes(base, first.with(model{claim(2): body(claim(2), "other")})),
			"one row more":   changes(base, second.with(model{"path:/more": body("path:/more", "x")})),
		} {
			if err := s.Put(root, second.trie(), c); !isCorrupt(err) {
				t.Errorf("%s, from %d rows: %v", what, len(base), err)
			}
		}
		if err := s.Put(root, second.trie(), cut); !errors.Is(err, failed) {
			t.Errorf("changes that cannot be read: %v", err)
		}
	}
	if err := s.Put(catalog.KeyOf("nothing"), second.trie(), changes(first, second)); !isCorrupt(err) {
		t.Errorf("a base that is not here: %v", err)
	}
	room = &reason.Error{Code: reason.DiskFull, Doing: "write"}
	if err := s.Put(first.trie().Root(), second.trie(), changes(first, second)); !reason.Is(err, reason.DiskFull) {
		t.Errorf("without room: %v", err)
	}
	hasNot(t, s, second)
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
}

// TestWhatIsNoLayer: a file of an earlier version, or of nothing, is removed and told of; one of a later version is left alone.
func TestWhatIsNoLayer(t *testing.T) {
	dir := t.TempDir()
	name := func(n byte) string { return catalog.Digest{n}.String() }
	for n, text := range []string{"tako layer 1\n\x00\x00\x00\x00", "nonsense", "", "tako layer 3\nwhat this version does not know", line} {
		must(t, os.WriteFile(filepath.Join(dir, name(byte(n))), []byte(text), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, ".tako.x.0123456789ab"), nil, 0o600))
	if _, err := Open(dir, Options{ReadOnly: true}); err != nil || len(names(t, dir)) != 6 {
		t.Errorf("only looked at, %d files are left: %v", len(names(t, dir)), err)
	}
	s := open(t, dir)
	if left := names(t, dir); len(left) != 1 || left[0] != name(3) {
		t.Errorf("%q are left", left)
	}
	if found := s.Found(); len(found) != 4 || found[0].Code != reason.StateCorrupt || s.Found() != nil {
		t.Errorf("told of %v", found)
	}
	if _, _, err := s.Trie(catalog.Digest{3}); !reason.Is(err, reason.StateNewer) {
		t.Errorf("a later version: %v", err)
	}
	if _, found, err := s.Trie(catalog.Digest{1}); found || err != nil {
		t.Errorf("nothing is there: %v, %v", found, err)
	}
}

// repair puts a damaged layer together again out of what is left of it, and returns how many changes that took.
func repair(t rapid.TB, s *Store, m model) int {
	t.Helper()
	left, found, err := s.Remains(m.trie().Root())
	must(t, err)
	base := catalog.Digest{}
	if found {
		base = left.Root()
	}
	bodies := map[catalog.Digest][]byte{}
	for c, b := range m {
		bodies[catalog.KeyOf(c)] = b
	}
	var list []Change
	for c, err := range catalog.Difference(left, m.trie(), catalog.Digest{}) {
		must(t, err)
		change := Change{Change: c}
		if !c.Deleted {
			change.Body = bodies[c.Key]
		}
		list = append(list, change)
	}
	must(t, s.Put(base, m.trie(), listed(list)))
	return len(list)
}

// TestDamage: whatever bit of whatever file changes, a layer is what it was, or is not there; then little is missing, and with that it is
// what it was.
func TestDamage(t *testing.T) {
	first := many(300, strings.Repeat("x", 200))
	second := first.with(model{claim(1): body(claim(1), "other"), claim(3): body(claim(3), "other")}, claim(2))
	for i := range 20 { // so that it is a file of its own
		second[claim(100+i)] = body(claim(100+i), "second")
	}
	last := second.with(model{claim(9): body(claim(9), "last")}, claim(1))
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, nil, first)
	put(t, s, first, second)
	put(t, s, second, last)
	must(t, s.Close())
	files := map[string][]byte{}
	for _, name := range names(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		files[name] = b
	}
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "layerstore")
		must(t, err)
		defer os.RemoveAll(dir)
		hit := rapid.SampledFrom([]model{first, second, last}).Draw(t, "file")
		for name, b := range files {
			if name == hit.trie().Root().String() {
				b = bytes.Clone(b)
				at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					b = b[:at]
				case 1: // as some file systems leave it
					clear(b[at:min(at+512, len(b))])
				default:
					b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				}
			}
			must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		s, err := Open(dir, Options{})
		must(t, err)
		defer func() { _ = s.Close() }()
		for _, m := range rapid.Permutation([]model{first, second, last}).Draw(t, "order") {
			_, found, err := s.Trie(m.trie().Root())
			if reason.Is(err, reason.StateNewer) {
				return // the bit was in the number of the version
			}
			must(t, err)
			if !found {
				repair(t, s, m)
			}
			has(t, s, m)
		}
		must(t, s.Close())
		if s, err = Open(dir, Options{}); err != nil {
			t.Fatal(err)
		}
		for _, m := range []model{first, second, last} {
			has(t, s, m)
		}
	})
}

// TestOneBitCostsOneRow: of a layer with one bit changed all is left but a row, also where that is in a file that it builds upon, and that
// others build upon.
func TestOneBitCostsOneRow(t *testing.T) {
	first := many(1_000, strings.Repeat("x", 100))
	second := first.with(model{claim(1): body(claim(1), "other")})
	other := first.with(model{claim(2): body(claim(2), "other")})
	for _, order := range [][]model{{first, second, other}, {second, first, other}, {other, second, first}} {
		for what, at := range map[string]int{"a key": headBytes + 100*rowBytes, "a flag": headBytes + 100*rowBytes + rowBytes - 5, "a body": -30} {
			dir := t.TempDir()
			s := open(t, dir)
			put(t, s, nil, first)
			put(t, s, first, second)
			put(t, s, first, other)
			must(t, s.Close())
			b, err := os.ReadFile(pathOf(dir, first))
			must(t, err)
			b[(at+len(b))%len(b)] ^= 4
			must(t, os.WriteFile(pathOf(dir, first), b, 0o600))
			s = open(t, dir)
			for _, m := range order {
				if _, found, err := s.Trie(m.trie().Root()); err != nil {
					t.Fatal(err)
				} else if !found {
					if n := repair(t, s, m); n != 1 {
						t.Errorf("%s: %d rows of a layer were missing", what, n)
					}
				}
				has(t, s, m)
			}
			if len(s.Found()) == 0 {
				t.Errorf("%s: nobody was told", what)
			}
		}
	}
}

// TestDamageWhileOpen: what has changed since a layer was verified is an error where it is read, and is found then.
func TestDamageWhileOpen(t *testing.T) {
	first := many(1_000, strings.Repeat("x", 100))
	second := first.with(model{claim(1): body(claim(1), "other")})
	key := first.rows()[500].Key
	for what, at := range map[string]int{"a row": headBytes + 500*rowBytes, "its body": -1} {
		dir := t.TempDir()
		s := open(t, dir)
		put(t, s, nil, first)
		put(t, s, first, second)
		trie, _, err := s.Trie(second.trie().Root())
		must(t, err)
		b, err := os.ReadFile(pathOf(dir, first))
		must(t, err)
		if at < 0 {
			h, err := decodeHead(b)
			must(t, err)
			r, _ := h.decodeRow(b[headBytes+500*rowBytes:])
			at = int(r.at)
		}
		f, err := os.OpenFile(pathOf(dir, first), os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
		must(t, errors.Join(err, f.Close()))
		if _, err := s.Body(second.trie().Root(), key); !isCorrupt(err) {
			t.Errorf("%s: read %v", what, err)
		}
		if _, _, err := trie.Get(key); what == "a row" && !isCorrupt(err) {
			t.Errorf("%s: get %v", what, err)
		}
		hasNot(t, s, second)
		if n := repair(t, s, second); n != 1 {
			t.Errorf("%s: %d rows were missing", what, n)
		}
		has(t, s, second)
	}
}

// TestReadOnly: who only looks finds out, and changes nothing.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	first := many(1_000, "x")
	put(t, open(t, dir), nil, first)
	s, err := Open(dir, Options{ReadOnly: true})
	must(t, err)
	defer s.Close()
	has(t, s, first)
	b, err := os.ReadFile(pathOf(dir, first))
	must(t, err)
	b[len(b)-1] ^= 1
	must(t, os.WriteFile(pathOf(dir, first), b, 0o600))
	looking, err := Open(dir, Options{ReadOnly: true})
	must(t, err)
	defer looking.Close()
	if _, _, err := looking.Trie(first.trie().Root()); !isCorrupt(err) {
		t.Errorf("read a damaged layer: %v", err)
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("%q are there", left)
	}
}

// TestManyFiles: no more files are open than there may be.
func TestManyFiles(t *testing.T) {
	s := open(t, t.TempDir())
	var all []model
	for i := range 3 * handlesMax {
		m := many(3, fmt.Sprint(i))
		put(t, s, nil, m)
		all = append(all, m)
	}
	for range 2 {
		for _, m := range all {
			has(t, s, m)
		}
	}
	if len(s.handles) > handlesMax {
		t.Errorf("%d files are open", len(s.handles))
	}
}

// FuzzFile: whatever a file has, what is read of it is the layer that its name says, or nothing.
func FuzzFile(f *testing.F) {
	m := many(20, "text")
	dir := f.TempDir()
	s := open(f, dir)
	put(f, s, nil, m)
	good, err := os.ReadFile(pathOf(dir, m))
	must(f, err)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(good[:headBytes])
	h := head{root: m.trie().Root(), rows: 2, length: 1 << 20}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(pathOf(dir, m), data, 0o600))
		s := open(t, dir)
		trie, found, err := s.Trie(m.trie().Root())
		if err != nil && !reason.Is(err, reason.StateNewer) {
			t.Fatal(err)
		}
		if found {
			if trie.Root() != m.trie().Root() {
				t.Error("a layer of another root was read")
			}
			has(t, s, m)
		}
	})
}

// FuzzHead: what is read as a head is written as the same bytes.
func FuzzHead(f *testing.F) {
	h := head{root: catalog.Digest{1}, base: catalog.Digest{2}, of: catalog.Digest{3}, rows: 5, acting: 2, length: 1000}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHead(data)
		if err == nil && !bytes.HasPrefix(data, h.encode()) {
			t.Errorf("%x is read, and written as %x", data, h.encode())
		}
	})
}

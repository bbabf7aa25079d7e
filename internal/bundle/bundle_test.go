package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// entries are items by key.
type entries map[catalog.Digest]catalog.Item

func listOf(t interface{ Fatal(args ...any) }, data ...declare.Data) entries {
	all := entries{}
	for i := range data {
		item, err := catalog.DataItem(&data[i])
		if err != nil {
			t.Fatal(err)
		}
		all[item.Row().Key] = item
	}
	return all
}

func (e entries) trie() catalog.Trie {
	var rows []catalog.Row
	for _, item := range e {
		rows = append(rows, item.Row())
	}
	return catalog.Build(rows)
}

func (e entries) length(c catalog.Change) int { return len(e[c.Key].Body) }

func (e entries) body(c catalog.Change) ([]byte, error) { return e[c.Key].Body, nil }

func changes(base, target entries) iter.Seq2[catalog.Change, error] {
	return catalog.Difference(base.trie(), target.trie(), catalog.Digest{})
}

// written is the difference from a byte on.
func written(t interface{ Fatal(args ...any) }, base, target entries, from int64) []byte {
	var b bytes.Buffer
	if err := Write(&b, from, changes(base, target), target.length, target.body); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func anyData(t *rapid.T, name string) []declare.Data {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) declare.Data {
		return declare.Data{Key: fmt.Sprint("k/", rapid.IntRange(0, 200).Draw(t, "key")), Value: rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "value")}
	}), 0, 150).Draw(t, name)
}

// TestDifference: whatever the two lists are, the difference that is written and read leads from one to the other; and it is the same bytes
// from wherever it is begun.
func TestDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, target := listOf(t, anyData(t, "base")...), listOf(t, anyData(t, "target")...)
		all := written(t, base, target, 0)
		if size, err := Size(changes(base, target), target.length); err != nil || size != int64(len(all)) {
			t.Fatalf("it has %d bytes, and %d were said", len(all), size)
		}
		from := rapid.Int64Range(0, int64(len(all))).Draw(t, "from")
		if rest := written(t, base, target, from); !bytes.Equal(rest, all[from:]) {
			t.Fatalf("from byte %d on it is something else", from)
		}
		got := entries{}
		for key, item := range base {
			got[key] = item
		}
		for c, err := range Read(bytes.NewReader(all)) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Body == nil {
				delete(got, c.Key)
				continue
			}
			item, err := catalog.ReadDataItem(slices.Clone(c.Body))
			if err != nil {
				t.Fatal(err)
			}
			got[c.Key] = item
		}
		if got.trie().Root() != target.trie().Root() {
			t.Fatal("it leads elsewhere")
		}
	})
}

// TestOneOfMany: what moves is what differs, and not the list.
func TestOneOfMany(t *testing.T) {
	var data []declare.Data
	for i := range 20_000 {
		data = append(data, declare.Data{Key: fmt.Sprint("k/", i), Value: strings.Repeat("x", 100)})
	}
	base := listOf(t, data...)
	data[7].Value = "other"
	if n := len(written(t, base, listOf(t, data...), 0)); n > 200 {
		t.Errorf("one changed entry takes %d bytes", n)
	}
	if n := len(written(t, base, listOf(t, data[1:]...), 0)); n > 300 {
		t.Errorf("one changed and one deleted entry take %d bytes", n)
	}
}

func TestReadRefuses(t *testing.T) {
	target := listOf(t, declare.Data{Key: "a", Value: "1"}, declare.Data{Key: "b", Value: "2"}, declare.Data{Key: "c", Value: "3"})
	good := written(t, entries{}, target, 0)
	file, err := catalog.Compile([]declare.Resource{{Name: "f", File: &declare.File{Path: "/f"}}})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(body []byte) []byte {
		return append([]byte{byte(len(body) >> 24), byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	}
	first := int(good[len(magic)+3]) + lengthBytes // of one entry: all are short
	rest := good[len(magic)+first:]
	for what, data := range map[string][]byte{
		"nothing":             nil,
		"another file":        []byte("tako bundle difference 2\n" + string(good[len(magic):])),
		"a torn entry":        good[:len(good)-1],
		"a torn length":       good[:len(magic)+2],
		"twice the same":      slices.Concat(good, good[len(magic):]),
		"another order":       slices.Concat([]byte(magic), rest, good[len(magic):len(magic)+first]),
		"something that acts": slices.Concat([]byte(magic), entry(file[0].Body)),
		"a flipped bit":       slices.Concat(good[:len(magic)+10], []byte{good[len(magic)+10] ^ 0x10}, good[len(magic)+11:]),
		"a giant":             slices.Concat([]byte(magic), []byte{0xff, 0xff, 0xff, 0xff}),
		"a torn deletion":     slices.Concat([]byte(magic), make([]byte, 20)),
	} {
		var last error
		for _, err := range Read(bytes.NewReader(data)) {
			if last != nil {
				t.Errorf("%s: something follows an error", what)
			}
			last = err
		}
		if !reason.Is(last, reason.StateCorrupt) {
			t.Errorf("%s: %v", what, last)
		}
	}
	broken := errors.New("the disk is gone")
	for _, err := range Read(io.MultiReader(bytes.NewReader(good), iotest{broken})) {
		if err != nil && !errors.Is(err, broken) {
			t.Errorf("an error of the disk is told as %v", err)
		}
	}
}

type iotest struct{ err error }

func (r iotest) Read([]byte) (int, error) { return 0, r.err }

func TestDigest(t *testing.T) {
	root := listOf(t, declare.Data{Key: "a"}).trie().Root()
	back, err := ParseDigest(Digest(root))
	if err != nil || back != root {
		t.Errorf("%s is read as %s, %v", Digest(root), back, err)
	}
	for _, bad := range []string{"", "sha256:", root.String(), strings.ToUpper(Digest(root)), Digest(root) + "0", "sha256:" + strings.Repeat("x", 64)} {
		if _, err := ParseDigest(bad); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzRead: whatever is sent, each change that is read is of data, in order and within the bounds; and what was read is written as it came.
func FuzzRead(f *testing.F) {
	target := listOf(f, declare.Data{Key: "a", Value: "1"}, declare.Data{Key: "b", Base64: "AA=="}, declare.Data{Key: "c"})
	base := listOf(f, declare.Data{Key: "a", Value: "0"}, declare.Data{Key: "z"})
	f.Add(written(f, entries{}, target, 0))
	f.Add(written(f, base, target, 0))
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		again := bytes.NewBufferString(magic)
		var last catalog.Digest
		for c, err := range Read(bytes.NewReader(data)) {
			if err != nil {
				return
			}
			if bytes.Compare(last[:], c.Key[:]) > 0 {
				t.Error("they are not in order")
			}
			last = c.Key
			if c.Body == nil {
				again.Write(make([]byte, lengthBytes))
				again.Write(c.Key[:])
				continue
			}
			if !catalog.Delivered(c.Body) || catalog.KeyOf(catalog.ClaimOf(c.Body)) != c.Key {
				t.Errorf("%q is no data of that key", c.Body)
			}
			again.Write([]byte{byte(len(c.Body) >> 24), byte(len(c.Body) >> 16), byte(len(c.Body) >> 8), byte(len(c.Body))})
			again.Write(c.Body)
		}
		if !bytes.Equal(again.Bytes(), data) {
			t.Errorf("%q is read as %q", data, again)
		}
	})
}

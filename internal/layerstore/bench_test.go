package layerstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"tako.dev/tako/internal/catalog"
)

const (
	millionRows = 1_000_000
	bodyBytes   = 100
)

// million are the changes that make a layer of a million rows of 100 bytes, and its trie. Keys are spread evenly, as hashes are; every
// thousandth row is acted upon.
func million(b *testing.B) (catalog.Trie, Changes) {
	b.Helper()
	buf := make([]byte, bodyBytes)
	row := func(i int) Change {
		kind := "data:"
		if i%1000 == 0 {
			kind = "path:"
		}
		at := copy(buf, []byte{0xa2, 0x61, 'c', 0x6d})
		at += copy(buf[at:], fmt.Appendf(nil, "%s%08d", kind, i))
		at += copy(buf[at:], []byte{0x61, 'x', 0x78, byte(bodyBytes - at - 4)})
		clear(buf[at:])
		c := Change{Body: buf}
		binary.BigEndian.PutUint64(c.Key[:], uint64(i)*(^uint64(0)/millionRows))
		c.Digest = sha256.Sum256(buf)
		return c
	}
	all := Changes{Count: millionRows, Bytes: millionRows * bodyBytes, All: func(yield func(Change, error) bool) {
		for i := range millionRows {
			if !yield(row(i), nil) {
				return
			}
		}
	}}
	t, err := catalog.Trie{}.Outline(all.rows)
	if err != nil {
		b.Fatal(err)
	}
	return t, all
}

// BenchmarkPutMillion writes a layer of a million rows: a snapshot that has come.
func BenchmarkPutMillion(b *testing.B) {
	trie, all := million(b)
	for b.Loop() {
		s, err := Open(b.TempDir(), Options{})
		must(b, err)
		must(b, s.Put(catalog.Digest{}, trie, all))
		b.ReportMetric(float64(s.Size(trie.Root())), "bytes-written/op")
		must(b, s.Close())
	}
}

// BenchmarkOpenMillion verifies a layer of a million rows, as a host does when it starts.
func BenchmarkOpenMillion(b *testing.B) {
	trie, all := million(b)
	dir := b.TempDir()
	s, err := Open(dir, Options{})
	must(b, err)
	must(b, s.Put(catalog.Digest{}, trie, all))
	size := s.Size(trie.Root())
	must(b, s.Close())
	b.SetBytes(int64(size))
	for b.Loop() {
		s, err := Open(dir, Options{})
		must(b, err)
		if _, found, err := s.Trie(trie.Root()); !found || err != nil {
			b.Fatal(found, err)
		}
		must(b, s.Close())
	}
}

// BenchmarkActingOfMillion reads the thousand rows that are acted upon.
func BenchmarkActingOfMillion(b *testing.B) {
	trie, all := million(b)
	s, err := Open(b.TempDir(), Options{})
	must(b, err)
	must(b, s.Put(catalog.Digest{}, trie, all))
	for b.Loop() {
		n := 0
		for _, err := range s.Acting(trie.Root()) {
			must(b, err)
			n++
		}
		if n != millionRows/1000 {
			b.Fatal(n)
		}
	}
	must(b, s.Close())
}

// BenchmarkPutOfMillion changes 1 and 1,000 rows of a million, one change after the other.
func BenchmarkPutOfMillion(b *testing.B) {
	trie, all := million(b)
	for _, count := range []int{1, 1_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			must(b, err)
			must(b, s.Put(catalog.Digest{}, trie, all))
			at, written, n := trie, uint64(0), 0
			for ; b.Loop(); n++ {
				b.StopTimer()
				var list []Change
				for i := range count {
					c := Change{Body: bytes.Repeat([]byte{byte(n), byte(n >> 8)}, bodyBytes/2)}
					c.Digest = sha256.Sum256(c.Body)
					binary.BigEndian.PutUint64(c.Key[:], uint64((i*millionRows/count+7*n)%millionRows)*(^uint64(0)/millionRows))
					list = append(list, c)
				}
				changes := listed(sorted(list))
				base, _, err := s.Trie(at.Root())
				must(b, err)
				next, err := base.Outline(changes.rows)
				must(b, err)
				b.StartTimer()
				must(b, s.Put(at.Root(), next, changes))
				chain, err := s.chain(next.Root())
				must(b, err)
				written += uint64(chain[len(chain)-1].length)
				at = next
			}
			b.ReportMetric(float64(written)/float64(n), "bytes-written/op")
			must(b, s.Close())
		})
	}
}

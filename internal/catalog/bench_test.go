package catalog

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// million are a million rows in the order of their keys.
func million() []Row {
	rows := make([]Row, 1_000_000)
	for i := range rows {
		rows[i] = Row{Key: KeyOf(string(binary.BigEndian.AppendUint64(nil, uint64(i)))), Digest: Digest{1}}
	}
	slices.SortFunc(rows, func(a, b Row) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return rows
}

// BenchmarkBuild is what a server does: the leaves stay in memory.
func BenchmarkBuild(b *testing.B) {
	rows := million()
	for b.Loop() {
		Build(rows)
	}
}

// BenchmarkBuilder is what a host does with a snapshot.
func BenchmarkBuilder(b *testing.B) {
	rows := million()
	b.ReportAllocs()
	for b.Loop() {
		var builder Builder
		for _, r := range rows {
			if err := builder.Add(r); err != nil {
				b.Fatal(err)
			}
		}
		builder.Trie(nil)
	}
}

// BenchmarkOutline is what a host does with a difference: of a million rows whose leaves it does not have in memory, so many change.
func BenchmarkOutline(b *testing.B) {
	s := &shelf{rows: million()}
	trie := Build(slices.Clone(s.rows)).Lean(s)
	for _, count := range []int{1, 1_000} {
		b.Run(map[int]string{1: "1", 1_000: "1000"}[count], func(b *testing.B) {
			var changes []Change
			for i := range count {
				changes = append(changes, Change{Key: s.rows[i*(len(s.rows)/count)].Key, Digest: Digest{2}})
			}
			s.read = 0
			b.ReportAllocs()
			n := 0
			for ; b.Loop(); n++ {
				if _, err := trie.Outline(Changes(changes...)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.read)/float64(n), "leaves/op")
		})
	}
}

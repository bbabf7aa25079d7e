package held

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	millionRows = 1_000_000
	bodyBytes   = 116
	partRows    = 2_048
)

// millionParts calls take with the parts of a layer of data, as they come off the wire. Keys are spread evenly, as hashes are.
func millionParts(take func([]wire.Change)) {
	var part []wire.Change
	for i := range millionRows {
		body := make([]byte, bodyBytes)
		at := copy(body, []byte{0xa2, 0x61, 'c', 0x6d})
		at += copy(body[at:], fmt.Appendf(nil, "data:%08d", i))
		copy(body[at:], []byte{0x61, 'x', 0x78, byte(bodyBytes - at - 4)})
		c := wire.Change{Body: body}
		binary.BigEndian.PutUint64(c.Key[:], uint64(i)*(^uint64(0)/millionRows))
		if part = append(part, c); len(part) == partRows || i == millionRows-1 {
			take(part)
			part = nil
		}
	}
}

// BenchmarkFetchMillion is what a host does on its disk for a layer of a million rows of which it has nothing.
func BenchmarkFetchMillion(b *testing.B) {
	var rows catalog.Builder
	var parts [][]wire.Change
	millionParts(func(part []wire.Change) {
		parts = append(parts, part)
		for i := range part {
			must(b, rows.Add(catalog.Row{Key: part[i].Key, Digest: sha256.Sum256(part[i].Body)}))
		}
	})
	target := rows.Trie(nil).Root()
	for _, step := range []string{"append", "outline", "commit"} {
		b.Run(step, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := open(b, b.TempDir())
				_, err := s.Begin(core.Fetch{Layer: "a", Target: target})
				must(b, err)
				timed := func(name string, run func()) {
					if name == step {
						b.StartTimer()
						defer b.StopTimer()
					}
					run()
				}
				timed("append", func() {
					for _, part := range parts {
						must(b, s.Append(part))
					}
				})
				var trie catalog.Trie
				timed("outline", func() {
					trie, err = s.Outline(catalog.Trie{})
					must(b, err)
				})
				timed("commit", func() { must(b, s.Commit(trie)) })
				must(b, s.Close())
				b.StartTimer()
			}
		})
	}
}

package core

import (
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
	"tako.dev/tako/internal/transfer/wire"
)

// TestCorpus keeps the corpus of each target: parts and nodes that a host may be sent in place of those that it has asked for.
func TestCorpus(t *testing.T) {
	inputs := map[string][]any{}
	for name, message := range map[string]any{
		"part-of-nothing":         wire.SyncPart{Kind: wire.SyncDelta},
		"part-of-another-kind":    wire.SyncPart{Kind: 99, Last: true},
		"part-unknown-base":       wire.SyncPart{Kind: wire.SyncUnknownBase, Last: true},
		"part-snapshot":           wire.SyncPart{Kind: wire.SyncSnapshot, Changes: []wire.Change{{Key: catalog.KeyOf("claim1"), Body: []byte("x")}}, Last: true},
		"part-out-of-order":       wire.SyncPart{Kind: wire.SyncDelta, Changes: []wire.Change{{Key: catalog.Digest{2}, Body: []byte("x")}, {Key: catalog.Digest{1}, Body: []byte("x")}}, Last: true},
		"part-the-same-key-twice": wire.SyncPart{Kind: wire.SyncDelta, Changes: []wire.Change{{Key: catalog.Digest{1}, Body: []byte("x")}, {Key: catalog.Digest{1}, Body: []byte("x")}}, Last: true},
		"part-deletion-of-all":    wire.SyncPart{Kind: wire.SyncDelta, Changes: []wire.Change{{Key: catalog.Digest{1}, Deleted: true}}, Last: true},
		"part-deletion-with-body": wire.SyncPart{Kind: wire.SyncDelta, Changes: []wire.Change{{Key: catalog.Digest{1}, Deleted: true, Body: []byte("x")}}, Last: true},
		"nodes-none":              wire.NodesReply{},
		"nodes-too-many":          wire.NodesReply{Items: make([][]byte, 300)},
		"nodes-of-another-tag":    wire.NodesReply{Items: [][]byte{{2, 0, 0}, {1, 0, 0}, {0}}},
		"nodes-empty":             wire.NodesReply{Items: [][]byte{{}}},
	} {
		data, err := wire.Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []uint8{0, 1, 5} {
			inputs[name+"-"+string(rune('0'+way))] = []any{data, way}
		}
	}
	spectest.Corpus(t, "FuzzMachine", inputs)
	spectest.Targets(t)
}

package held

import (
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
)

// TestCorpus keeps the corpus of each target: what is written, and what a disk may have made of it.
func TestCorpus(t *testing.T) {
	record := appendFrame(appendFrame(header("list"), []byte("payload")), []byte("payload"))
	spectest.CorpusOf(t, "FuzzRecord", spectest.HostileFile(record, string(header("list"))))

	changes, trie := clienttest.Rows(3, "text")
	dir := t.TempDir()
	s := open(t, dir)
	_, err := s.Begin(core.Fetch{Layer: "a", Target: trie.Root()})
	must(t, err)
	must(t, s.Append(changes))
	staged, err := os.ReadFile(filepath.Join(dir, stageName))
	must(t, err)
	spectest.CorpusOf(t, "FuzzStage", spectest.HostileFile(staged, string(header("stage"))))

	must(t, s.Accept(mark(1, catalog.KeyOf("a")), []byte("head")))
	heads, err := os.ReadFile(filepath.Join(dir, headsName))
	must(t, err)
	spectest.CorpusOf(t, "FuzzHeads", spectest.HostileFile(heads, string(header("heads"))))
	spectest.Targets(t)
}

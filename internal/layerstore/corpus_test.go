package layerstore

import (
	"bytes"
	"os"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what is written, and what a disk may have made of it.
func TestCorpus(t *testing.T) {
	m := many(20, "text")
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, nil, m)
	good, err := os.ReadFile(pathOf(dir, m))
	must(t, err)
	files := spectest.HostileFile(good, line)
	for name, h := range map[string]head{
		"rows-that-are-not-there": {root: m.trie().Root(), rows: 2, length: 1 << 20},
		"rows-max":                {root: m.trie().Root(), rows: 2 * catalog.EntriesMax, length: 1 << 40},
		"a-difference-to-itself":  {root: m.trie().Root(), base: m.trie().Root(), rows: 20, length: int64(len(good))},
		"a-difference-to-nothing": {root: m.trie().Root(), base: catalog.KeyOf("nothing"), length: int64(headBytes)},
	} {
		files[name] = append(h.encode(), good[headBytes:]...)
	}
	spectest.CorpusOf(t, "FuzzFile", files)
	heads := map[string][]byte{}
	for name, file := range files {
		heads[name] = file[:min(len(file), headBytes)]
	}
	spectest.CorpusOf(t, "FuzzHead", heads)
	spectest.Targets(t)
	for name, file := range files {
		used := spectest.Allocated(func() { _, _ = decodeHead(file) }) // only what it takes counts here
		if used > 16<<10 {
			t.Errorf("%s: %d bytes are allocated", name, used)
		}
	}
	if !bytes.HasPrefix(good, []byte(line)) {
		t.Error("a file begins otherwise")
	}
}

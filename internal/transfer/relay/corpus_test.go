package relay

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what is kept, and what a disk may have made of it.
func TestCorpus(t *testing.T) {
	good := appendFrame(appendFrame(nil, []byte("a part")), nil)
	spectest.CorpusOf(t, "FuzzNextFrame", spectest.HostileFile(good, ""))
	spectest.Targets(t)
}

package bundle

import (
	"bytes"
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what is written, and what somebody may write instead.
func TestCorpus(t *testing.T) {
	target := listOf(t, declare.Data{Key: "a", Value: "1"}, declare.Data{Key: "b", Base64: "AA=="}, declare.Data{Key: "c"})
	base := listOf(t, declare.Data{Key: "a", Value: "0"}, declare.Data{Key: "z"})
	inputs := spectest.HostileFile(written(t, base, target, 0), magic)
	inputs["to-nothing"] = written(t, base, entries{}, 0)
	inputs["from-nothing"] = written(t, entries{}, target, 0)
	one := func(body []byte) []byte {
		return append(append([]byte(magic), byte(len(body)>>24), byte(len(body)>>16), byte(len(body)>>8), byte(len(body))), body...)
	}
	data, err := catalog.DataItem(&declare.Data{Key: "a", Value: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range spectest.Hostile(data.Body) {
		inputs["body-"+name] = one(body)
	}
	items, err := catalog.Compile([]declare.Resource{{Name: "a", File: &declare.File{Path: "/a"}}})
	if err != nil {
		t.Fatal(err)
	}
	inputs["what-is-acted-upon"] = one(items[0].Body)
	inputs["the-same-twice"] = append(one(data.Body), one(data.Body)[len(magic):]...)
	inputs["many-deletions-of-one-key"] = append([]byte(magic), slices.Concat(slices.Repeat([][]byte{make([]byte, lengthBytes+32)}, 50)...)...)
	spectest.CorpusOf(t, "FuzzRead", inputs)
	spectest.Targets(t)
	for name, input := range inputs {
		used := spectest.Allocated(func() {
			for range Read(bytes.NewReader(input)) { // only what it takes counts here
				continue
			}
		})
		if most := uint64(declare.BodyBytesMax + readBuffer + 256<<10 + 512*len(input)); used > most {
			t.Errorf("%s: %d bytes are allocated for %d", name, used, len(input))
		}
	}
}

package place

import (
	"bytes"
	"encoding/binary"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what is written, and what somebody may write instead.
func TestCorpus(t *testing.T) {
	good, err := EncodeStatements([][]byte{[]byte("a signed statement"), []byte("another one")})
	must(t, err)
	inputs := spectest.HostileFile(good, statementsHeader)
	many := []byte(statementsHeader)
	for range StatementsMax + 1 {
		many = append(many, 0, 0, 0, 1, 'a')
	}
	inputs["one-more-than-a-place-may-have"] = many
	inputs["one-that-is-too-large"] = append(binary.BigEndian.AppendUint32([]byte(statementsHeader), catalog.StatementBytesMax+1), make([]byte, 100)...)
	spectest.CorpusOf(t, "FuzzDecodeStatements", inputs)
	spectest.Targets(t)
	for name, input := range inputs {
		used := spectest.Allocated(func() { _, _ = DecodeStatements(input) }) // only what it takes counts here
		if most := uint64(64<<10 + 64*len(input)); used > most {
			t.Errorf("%s: %d bytes are allocated for %d", name, used, len(input))
		}
	}
}

// TestHostileOrders: an order that is not one is refused with a code, whatever it is, and costs no more than one that is.
func TestHostileOrders(t *testing.T) {
	f := fill(t, t.TempDir())
	var file bytes.Buffer
	must(t, catalog.WriteOrder(&file, f.statement, f.items))
	for name, input := range spectest.HostileFile(file.Bytes(), "tako order 1\n") {
		if name == "good" {
			continue
		}
		if o, err := NewOrder(t.TempDir(), "a.order", bytes.NewReader(input)); err == nil {
			t.Errorf("%s: it is taken", name)
			must(t, o.Close())
		}
	}
}

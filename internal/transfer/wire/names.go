package wire

import (
	"cmp"
	"errors"
)

// PathNames is POST /v1/names: a NamesRequest, answered by a stream of Names for as long as both sides are there. Hosts, relays and other servers
// ask alike. One without anything in it says that whoever answers is there.
const PathNames = "/v1/names"

// NamesMark says which edition of the names of a cluster something is: of two the later one has the higher epoch, then term, then number.
type NamesMark struct {
	Epoch  uint64 `cbor:"1,keyasint,omitempty"` // of the trust documents
	Term   uint64 `cbor:"2,keyasint,omitempty"` // of the server that leads: the revision of the store when that began
	Number uint64 `cbor:"3,keyasint,omitempty"`
}

// Compare orders marks; the zero mark is that of who has nothing.
func (m NamesMark) Compare(other NamesMark) int {
	return cmp.Or(cmp.Compare(m.Epoch, other.Epoch), cmp.Compare(m.Term, other.Term), cmp.Compare(m.Number, other.Number))
}

// NamesRequest asks for the names, and for all that becomes of them.
type NamesRequest struct {
	Protocol uint      `cbor:"1,keyasint"`
	Have     NamesMark `cbor:"2,keyasint"` // the edition that the caller has
}

// Names is a part of the way from one edition to a later one.
type Names struct {
	From NamesMark `cbor:"1,keyasint"`           // zero: what comes is all that there is
	Rows [][]byte  `cbor:"2,keyasint,omitempty"` // encoded, each in place of one with its key; at most NamesRowsMax
	Gone []string  `cbor:"3,keyasint,omitempty"` // keys; at most NamesRowsMax
	// Edition is what the way leads to, signed; with the last part only.
	Edition []byte `cbor:"4,keyasint,omitempty"`
}

// Empty says that it is only a sign of life.
func (m *Names) Empty() bool { return len(m.Rows)+len(m.Gone)+len(m.Edition) == 0 }

// Bounds of names.
const (
	// NamesRowsMax is of one part, and NamesRowMax the bytes of one row: an instance with the texts of its ports at their bounds.
	NamesRowsMax = 4096
	NamesRowMax  = 16 << 10
	// NamesKeyMax is above the key of any row: a namespace and a name, or the name of a node.
	NamesKeyMax = 320
	// EditionMax is far above what a signed edition has.
	EditionMax = 1 << 10
)

// Validate says what of a message is above its bounds.
func (m *Names) Validate() error {
	b := bounds{}
	b.count("rows", len(m.Rows), NamesRowsMax)
	b.count("keys of rows that are gone", len(m.Gone), NamesRowsMax)
	b.count("bytes of an edition", len(m.Edition), EditionMax)
	for _, row := range m.Rows {
		b.count("bytes of a row", len(row), NamesRowMax)
	}
	for _, key := range m.Gone {
		b.text("key of a row", key, NamesKeyMax)
	}
	if b.err == nil && m.From == (NamesMark{}) && len(m.Gone) > 0 {
		b.err = errors.New("rows are gone of which there were none")
	}
	return b.err
}

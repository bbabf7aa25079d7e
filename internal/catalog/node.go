package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// NodeBytesMax is more than any node of a trie has.
const NodeBytesMax = 8 << 10

const (
	tagLeaf, tagInterior = 0, 1
	rowBytes             = 2 * sha256.Size
	leafBytesMax         = 1 + leafMax*rowBytes
	interiorBytesMax     = 3 + fanout*sha256.Size
)

// encodeLeaf appends what the hash of a leaf is over.
func encodeLeaf(b []byte, rows []Row) []byte {
	b = append(b, tagLeaf)
	for i := range rows {
		b = append(append(b, rows[i].Key[:]...), rows[i].Digest[:]...)
	}
	return b
}

// encodeInterior appends what the hash of an interior node is over.
func (n *node) encodeInterior(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, tagInterior), n.present)
	for i := range n.children {
		b = append(b, n.children[i].hash[:]...)
	}
	return b
}

func leafHash(rows []Row) Digest {
	var b [leafBytesMax]byte
	return sha256.Sum256(encodeLeaf(b[:0], rows))
}

func (n *node) interiorHash() Digest {
	var b [interiorBytesMax]byte
	return sha256.Sum256(n.encodeInterior(b[:0]))
}

// parsed is a node of which nothing is known but its own bytes.
type parsed struct {
	rows     []Row
	present  uint16
	children []Digest
}

// parse reads a node. It refuses what encode would not write.
func parse(data []byte) (parsed, error) {
	var p parsed
	switch {
	case len(data) == 0:
		return p, errors.New("it is empty")
	case data[0] == tagLeaf:
		rest := data[1:]
		if len(rest)%rowBytes != 0 || len(rest)/rowBytes > leafMax {
			return p, fmt.Errorf("%d bytes are no rows of a leaf", len(rest))
		}
		for ; len(rest) > 0; rest = rest[rowBytes:] {
			r := Row{Key: Digest(rest[:sha256.Size]), Digest: Digest(rest[sha256.Size:rowBytes])}
			if n := len(p.rows); n > 0 && bytes.Compare(p.rows[n-1].Key[:], r.Key[:]) >= 0 {
				return p, errors.New("its rows are not in order")
			}
			p.rows = append(p.rows, r)
		}
		return p, nil
	case data[0] == tagInterior && len(data) >= 3:
		p.present = binary.BigEndian.Uint16(data[1:])
		rest := data[3:]
		if p.present == 0 || len(rest) != bits.OnesCount16(p.present)*sha256.Size {
			return p, fmt.Errorf("%d bytes are no hashes of %d children", len(rest), bits.OnesCount16(p.present))
		}
		for ; len(rest) > 0; rest = rest[sha256.Size:] {
			p.children = append(p.children, Digest(rest[:sha256.Size]))
		}
		return p, nil
	}
	return p, fmt.Errorf("its tag is %d", data[0])
}

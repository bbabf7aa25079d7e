package place

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// The names of the layout.
const (
	trustName      = "trust.json"
	headsName      = "heads"
	listsName      = "lists"
	layersName     = "layers"
	statementsName = "statements"
)

// Bounds of files. That of a layer is what is signed of it.
const (
	trustMax  = 8 << 20 // above what a chain of trust documents may have
	headMax   = 64 << 10
	listMax   = 2 << 20 // above a list at every bound
	rowMax    = 64      // what stands around a body in a layer
	uidMax    = 253
	countMax  = catalog.EntriesMax
	headerMax = 64
)

// StatementsMax is how many statements a place may have.
const StatementsMax = 256

// statementsHeader begins the file of statements: then, for each, its length in four bytes, the highest first, and the signed statement.
const statementsHeader = "tako statements 1\n"

const statementsMax = len(statementsHeader) + StatementsMax*(4+catalog.StatementBytesMax)

// EncodeStatements is the file of signed statements. The error is InvalidValue, where there are more than a place may have.
func EncodeStatements(signed [][]byte) ([]byte, error) {
	if len(signed) > StatementsMax {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "write layer statements", Cause: fmt.Errorf("%d of them, at most %d are allowed", len(signed), StatementsMax),
			Hint: "take out what has expired, or begin with an empty directory"}
	}
	out := []byte(statementsHeader)
	for _, s := range signed {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	return out, nil
}

// DecodeStatements reads what EncodeStatements wrote. Nothing of it is to be believed yet. The error is StateCorrupt.
func DecodeStatements(data []byte) ([][]byte, error) {
	all, err := decodeStatements(data)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "read layer statements", Cause: err}
	}
	return all, nil
}

func decodeStatements(data []byte) ([][]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(statementsHeader))
	if !ok {
		return nil, errors.New("it does not begin as such a file does")
	}
	var all [][]byte
	for len(rest) > 0 {
		if len(rest) < 4 {
			return nil, errors.New("it is cut off")
		}
		n := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; n == 0 || n > catalog.StatementBytesMax || uint64(n) > uint64(len(rest)) {
			return nil, fmt.Errorf("one has %d bytes", n)
		}
		if len(all) == StatementsMax {
			return nil, fmt.Errorf("it has more than %d", StatementsMax)
		}
		all, rest = append(all, rest[:n:n]), rest[n:]
	}
	return all, nil
}

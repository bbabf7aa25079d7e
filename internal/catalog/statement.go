package catalog

import (
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Statement is an operator's word about one layer, for every host that has it: without any server, from hand to hand.
type Statement struct {
	Protocol uint            `cbor:"1,keyasint"`
	Key      trust.KeyID     `cbor:"2,keyasint"`
	Cluster  trust.ClusterID `cbor:"3,keyasint"`
	Layer    string          `cbor:"4,keyasint"` // ID
	Epoch    uint64          `cbor:"5,keyasint"`
	Number   uint64          `cbor:"6,keyasint"`  // the highest counts
	Root     Digest          `cbor:"7,keyasint"`  // of the layer
	Issued   int64           `cbor:"8,keyasint"`  // seconds since 1970
	Expires  int64           `cbor:"9,keyasint"`  // the same; afterwards it is not begun with
	Bytes    uint64          `cbor:"10,keyasint"` // of all bodies of the layer
}

// StatementProtocol is the version of statements.
const StatementProtocol = 1

// StatementBytesMax is above what a signed statement takes, whose layer has the longest ID: it has some 300 bytes.
const StatementBytesMax = 4 << 10

// statementPurpose keeps a signature under a statement from being one under anything else.
const statementPurpose = "tako/layer-statement/1\n"

func (s *Statement) validate() error {
	switch {
	case s.Layer == "" || len(s.Layer) > nameMax*3:
		return errors.New("it names no layer")
	case s.Number == 0:
		return errors.New("it has no number")
	case s.Expires <= s.Issued:
		return errors.New("it expires before it is issued")
	}
	return nil
}

// StatementMark is the highest statement about one layer that a host has accepted. It never goes back.
type StatementMark struct {
	Epoch  uint64
	Number uint64
	Root   Digest // zero where nobody here has seen the statement of that number
}

// Judge says what a verified statement is to a host with this mark, at a time that does not go back.
func (m StatementMark) Judge(st *Statement, now time.Time) Standing {
	switch same := st.Epoch == m.Epoch && st.Number == m.Number; {
	case st.Epoch < m.Epoch, st.Epoch == m.Epoch && st.Number < m.Number, same && m.Root == Digest{}:
		return HeadOld
	case same && st.Root == m.Root:
		return HeadRepeated
	case same:
		return HeadEquivocation
	case now.Unix() >= st.Expires:
		return HeadExpired
	}
	return HeadNews
}

// Sign signs a statement with a key of the operator role.
func (s Statement) Sign(key *trust.SigningKey) (SignedStatement, error) {
	s.Protocol, s.Key = StatementProtocol, key.Public().ID()
	err := s.validate()
	var body []byte
	if err == nil {
		body, err = encoding.Marshal(s)
	}
	if err != nil {
		return SignedStatement{}, &reason.Error{Code: reason.InvalidValue, Doing: "sign a statement about layer " + s.Layer, Cause: err}
	}
	return SignedStatement{Body: body, Signature: key.Sign(append([]byte(statementPurpose), body...))}, nil
}

// SignedStatement is a statement as it travels.
type SignedStatement struct {
	_         struct{} `cbor:",toarray"`
	Body      []byte
	Signature []byte
}

// Encode is the signed statement in canonical CBOR.
func (s SignedStatement) Encode() ([]byte, error) {
	b, err := encoding.Marshal(s)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode a layer statement", Cause: err}
	}
	return b, nil
}

// DecodeStatement reads a signed statement and the statement in it, which is not to be believed yet. The error is StateCorrupt.
func DecodeStatement(data []byte) (SignedStatement, Statement, error) {
	var s SignedStatement
	var st Statement
	err := fmt.Errorf("%d bytes, at most %d are allowed", len(data), StatementBytesMax)
	if len(data) <= StatementBytesMax {
		if err = decoding.Unmarshal(data, &s); err == nil {
			st, err = s.read()
		}
	}
	if err != nil {
		return SignedStatement{}, Statement{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a layer statement", Cause: err}
	}
	return s, st, nil
}

func (s SignedStatement) read() (Statement, error) {
	var st Statement
	if err := lenient.Unmarshal(s.Body, &st); err != nil {
		return Statement{}, err
	}
	return st, st.validate()
}

// Verify believes a statement that one of the keys has signed, and that is of that cluster. The errors are StateCorrupt and HeadRefused.
func (s SignedStatement) Verify(keys Keys, cluster trust.ClusterID) (Statement, error) {
	st, err := s.read()
	if err != nil {
		return Statement{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a layer statement", Cause: err}
	}
	doing := "verify a statement about layer " + st.Layer
	if st.Cluster != cluster {
		return Statement{}, &reason.Error{Code: reason.HeadRefused, Doing: doing, Cause: fmt.Errorf("it is of cluster %s, not of %s", st.Cluster, cluster)}
	}
	if !keys.signed(st.Key, statementPurpose, s.Body, s.Signature) {
		return Statement{}, &reason.Error{Code: reason.HeadRefused, Doing: doing, Cause: fmt.Errorf("no key that may sign layers has signed it, as key %s", st.Key)}
	}
	return st, nil
}

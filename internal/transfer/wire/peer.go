package wire

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// PathNews is what a host asks another one of its cluster while it reaches no server: what is signed, and newer than what it has.
const PathNews = "/v1/news"

// NewsRequest says what the caller has.
type NewsRequest struct {
	Protocol uint `cbor:"1,keyasint"`
	// Head is the newest that the caller has accepted, as it was signed; empty where it has none.
	Head []byte `cbor:"2,keyasint,omitempty"`
	// List is that of Head, encoded; empty where the caller does not have it. Without it there are no statements: it says which layers the
	// caller may know of.
	List []byte `cbor:"3,keyasint,omitempty"`
	// Trust is the highest number of the trust documents that the caller has.
	Trust uint64 `cbor:"4,keyasint"`
	// Statements are the highest that the caller has accepted: at most StatementsMax.
	Statements []StatementMark `cbor:"5,keyasint,omitempty"`
}

// StatementMark is the highest statement about a layer that a host has accepted.
type StatementMark struct {
	Layer  string `cbor:"1,keyasint"`
	Epoch  uint64 `cbor:"2,keyasint"`
	Number uint64 `cbor:"3,keyasint"`
}

// NewsReply is what the one who is asked has of it.
type NewsReply struct {
	// Head is a newer one for the caller, and List its list; a list alone is that of the head which the caller has shown.
	Head []byte `cbor:"1,keyasint,omitempty"`
	List []byte `cbor:"2,keyasint,omitempty"`
	// Trust is the documents after the caller's, as trust.EncodeDocuments writes them.
	Trust []byte `cbor:"3,keyasint,omitempty"`
	// Statements are those about layers of the caller's list that are higher than the caller's, signed: at most NewsStatementsMax.
	Statements [][]byte `cbor:"4,keyasint,omitempty"`
}

// Deposit is the newest head for a host that is away, with its list: kept by another host, which gives it to that one alone.
type Deposit struct {
	Head []byte `cbor:"1,keyasint"`
	List []byte `cbor:"2,keyasint"`
}

const (
	// NewsStatementsMax is how many statements one answer has. Those that are left over come with the next one.
	NewsStatementsMax = 8
	// DepositMax is of a Deposit, encoded: far above a list of fifty layers. What is larger is not kept by others.
	DepositMax = 32 << 10
	// NewsMax is above a NewsRequest whose list has most of its layers, and above a NewsReply, which has trust documents.
	NewsMax = 512 << 10
)

// Validate says what of a request is above its bounds.
func (r *NewsRequest) Validate() error {
	b := bounds{}
	b.count("statements", len(r.Statements), StatementsMax)
	for i := range r.Statements {
		b.text("layer of a statement", r.Statements[i].Layer, declare.ClaimBytesMax)
	}
	return b.err
}

// Validate says what of an answer is above its bounds.
func (r *NewsReply) Validate() error {
	b := bounds{}
	b.count("statements", len(r.Statements), NewsStatementsMax)
	for _, s := range r.Statements {
		b.text("statement", string(s), catalog.StatementBytesMax)
	}
	return b.err
}

package trust

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	// documentMax is above what a document takes that is at every bound at once.
	documentMax = 256 << 10
	// documentsMax is for ever: a number a week lasts 20 years. It bounds what verifying a chain costs to less than a second.
	documentsMax = 1024
	// chainMax is a full chain of documents of the usual 4 KiB. Extend keeps to it, so that what was accepted can be read again.
	chainMax = 4 << 20
)

// Signed is a document with signatures: enough of them or not yet.
type Signed struct {
	Document   Document    `json:"document"`
	Signatures []Signature `json:"signatures"` // sorted by key
}

// Signature is what one root key says to a document.
type Signature struct {
	Key   PublicKey `json:"key"`
	Value []byte    `json:"value"` // 64 bytes
}

func compareSignatures(a, b Signature) int { return comparePublic(a.Key, b.Key) }

// Sign returns the document with the signature of one more key. Whether the key may sign it is found out by Chain.Extend.
// Errors: TrustRefused when the document itself is not valid.
func (s Signed) Sign(key *SigningKey) (Signed, error) {
	doing := fmt.Sprintf("sign trust document %d", s.Document.Number)
	if err := s.Document.validate(); err != nil {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: err}
	}
	b, err := s.Document.signedBytes()
	if err != nil {
		return Signed{}, err
	}
	return s.with(Signature{key.Public(), key.Sign(b)}), nil
}

// CheckSigner says whether a key is one of the root keys that the document names, or that it removes: one of those may have to sign
// it, and no other. Errors: TrustRefused.
func (s Signed) CheckSigner(key PublicKey) error {
	d := &s.Document
	removed := slices.ContainsFunc(d.Revoked, func(r Revocation) bool { return r.Key == key && r.At.Equal(d.Issued) })
	if removed || slices.Contains(d.Root.Keys, key) {
		return nil
	}
	ids := make([]string, 0, len(d.Root.Keys))
	for _, k := range d.Root.Keys {
		ids = append(ids, string(k.ID()))
	}
	return &reason.Error{
		Code: reason.TrustRefused, Doing: fmt.Sprintf("sign trust document %d", d.Number),
		Cause: fmt.Errorf("key %s is no root key, neither before it nor after it", key.ID()), Hint: "sign with one of " + strings.Join(ids, ", "),
	}
}

// Merge returns the document with the signatures of both. Errors: TrustRefused when they are not of the same document.
func (s Signed) Merge(other Signed) (Signed, error) {
	mine, err := s.Document.Hash()
	if err != nil {
		return Signed{}, err
	}
	theirs, err := other.Document.Hash()
	if err != nil {
		return Signed{}, err
	}
	if mine != theirs {
		return Signed{}, &reason.Error{
			Code: reason.TrustRefused, Doing: fmt.Sprintf("merge signatures of trust document %d", s.Document.Number),
			Cause: fmt.Errorf("they are of two documents, %s and %s", mine, theirs),
			Hint:  "all must sign copies of one file: hand out the same one, and merge what comes back",
		}
	}
	return s.with(other.Signatures...), nil
}

// with returns a copy that shares nothing, with signatures added in place of older ones by the same keys.
func (s Signed) with(add ...Signature) Signed {
	out := Signed{Document: s.Document.clone(), Signatures: []Signature{}}
	for _, a := range slices.Concat(s.Signatures, add) {
		out.Signatures = slices.DeleteFunc(out.Signatures, func(b Signature) bool { return b.Key == a.Key })
		out.Signatures = append(out.Signatures, Signature{a.Key, slices.Clone(a.Value)})
	}
	slices.SortFunc(out.Signatures, compareSignatures)
	return out
}

// Encode returns the text of the document and its signatures: JSON that a person can read, with a newline at its end.
func (s Signed) Encode() ([]byte, error) { return encodeJSON(s.with()) }

// DecodeSigned reads what Signed.Encode wrote. White space between values may differ, and nothing else. It verifies no signature.
// Errors: TrustRefused.
func DecodeSigned(b []byte) (Signed, error) {
	var s Signed
	if err := decodeJSON(b, documentMax, &s); err != nil {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: "read signed trust document", Cause: err}
	}
	if err := s.validate(); err != nil {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: fmt.Sprintf("read trust document %d", s.Document.Number), Cause: err}
	}
	return s, nil
}

// validate says what is wrong with the document by itself and with the form of its signatures.
func (s *Signed) validate() error {
	if n := len(s.Signatures); n > 2*RootKeysMax {
		return fmt.Errorf("%d signatures, at most %d", n, 2*RootKeysMax)
	}
	if s.Signatures == nil {
		return errors.New("the list of signatures is missing; an empty one is written as []")
	}
	if !ascending(s.Signatures, compareSignatures) {
		return errors.New("signatures are not sorted, or one key has signed twice")
	}
	for _, v := range s.Signatures {
		if len(v.Value) != ed25519.SignatureSize {
			return fmt.Errorf("a signature of %d bytes, want %d", len(v.Value), ed25519.SignatureSize)
		}
	}
	return s.Document.validate()
}

// chainFile is the text of a chain: trust.json, and the answer to who asks for later numbers.
type chainFile struct {
	Documents []Signed `json:"documents"`
}

// EncodeDocuments returns the text of documents in order, as DecodeDocuments reads it.
func EncodeDocuments(list []Signed) ([]byte, error) {
	file := chainFile{Documents: []Signed{}}
	for _, s := range list {
		file.Documents = append(file.Documents, s.with())
	}
	return encodeJSON(file)
}

// DecodeDocuments reads a chain or the later part of one, strictly and within bounds. White space between values may differ from
// what EncodeDocuments writes, and nothing else. It verifies neither signatures nor order: see Verify and Chain.Extend. Errors:
// TrustRefused.
func DecodeDocuments(b []byte) ([]Signed, error) {
	const doing = "read trust documents"
	var file chainFile
	if err := decodeJSON(b, chainMax, &file); err != nil {
		return nil, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: err}
	}
	if n := len(file.Documents); file.Documents == nil || n > documentsMax {
		return nil, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: fmt.Errorf("no list of documents, or %d, at most %d", n, documentsMax)}
	}
	for i := range file.Documents {
		if err := file.Documents[i].validate(); err != nil {
			return nil, &reason.Error{Code: reason.TrustRefused, Doing: fmt.Sprintf("read trust document %d", file.Documents[i].Document.Number), Cause: err}
		}
	}
	return file.Documents, nil
}

// encodeJSON writes a value so that people can read and compare it.
func encodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode trust documents", Cause: err}
	}
	return out.Bytes(), nil
}

// decodeJSON reads a value, and refuses a text that is not what encodeJSON makes of that value, white space aside. So there are no
// unknown or doubled fields, no other letter case, no other spelling of a number, time, text or key: two readers of one text
// never see two documents in it.
func decodeJSON(b []byte, sizeMax int, v any) error {
	if len(b) > sizeMax {
		return fmt.Errorf("%d bytes, at most %d", len(b), sizeMax)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return jsonError(err)
	}
	again, err := encodeJSON(v)
	if err != nil {
		return err
	}
	var got, want bytes.Buffer
	// Compact of the whole text also refuses what stands behind the value.
	if err := errors.Join(json.Compact(&got, b), json.Compact(&want, again)); err != nil {
		return jsonError(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		return fmt.Errorf("the text is not written as tako writes it, from %q on", firstDifference(got.Bytes(), want.Bytes()))
	}
	return nil
}

// jsonError says where the text ends where it should not, which is what most damage comes to.
func jsonError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the text is cut off")
	}
	return errors.New(clipped(strings.TrimPrefix(err.Error(), "json: ")))
}

// firstDifference returns a piece of got that begins shortly before it differs.
func firstDifference(got, want []byte) []byte {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return got[max(0, i-20):min(len(got), i+40)]
}

package declare

import (
	"bytes"
	"encoding/json"
	"errors"

	"tako.dev/tako/internal/reason"
)

// UnmarshalJSON reads a text. It refuses a number, which the reader of files takes: the API's patches are decoded by a converter
// that knows no number where the Go type is a text, so that a number would be fine in one request and not in the next.
func (p *IntOrPercent) UnmarshalJSON(b []byte) error {
	if isTextOrNull(b) {
		return json.Unmarshal(b, (*string)(p))
	}
	return wrongJSON("number or percentage", b, `write a number or percentage in quotes: "3" or "10%"`)
}

// UnmarshalJSON reads a text. It refuses a number, which the reader of files takes: there 0644 is octal digits, but most
// programs that make JSON of YAML (kubectl does) read 0644 as an octal number and send 420, which as digits would be another
// mode. The digits that a person wrote cannot be had back, and a guess would be a wrong mode that nobody notices.
func (m *Mode) UnmarshalJSON(b []byte) error {
	if isTextOrNull(b) {
		return json.Unmarshal(b, (*string)(m))
	}
	return wrongJSON("mode", b, `write octal digits in quotes, for example "0644"; what stood in YAML without quotes may have been converted on the way`)
}

// isTextOrNull reports whether a JSON value is one that a text is decoded from; null leaves it as it is.
func isTextOrNull(b []byte) bool { return len(b) > 0 && b[0] == '"' || string(b) == "null" }

// wrongJSON is the error for a value of a wrong type. It quotes a number or truth value, for a person to find it, and nothing
// that could hold a text, which may be secret. The way out stands in the cause and not in the hint, because a decoder passes on
// no more than the text of an error.
func wrongJSON(field string, b []byte, wayOut string) error {
	doing := "read " + field
	if !bytes.ContainsRune(b, '"') {
		doing += " " + clipText(string(b))
	}
	return &reason.Error{Code: reason.WrongType, Doing: doing, Cause: errors.New(wayOut)}
}

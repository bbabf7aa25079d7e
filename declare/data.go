package declare

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Data is a value that is delivered to the host and not acted upon: programs and people there look it up by its key. It is not secret: the
// servers, who may read the config, and root of the host see it.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Data struct {
	// Key is what the value is looked up by: up to 1,024 bytes of UTF-8 without spaces and control characters, such as users/alice/quota.
	Key string `json:"key"`
	// Value is the value as text. Default empty. At most one of value and base64 is given.
	Value string `json:"value,omitempty"`
	// Base64 is a value that is no text: RFC 4648 with padding, on one line.
	Base64 string `json:"base64,omitempty"`
}

// DataKeyBytesMax is how long a key may be: far above what people write, and a quarter of what a claim may have.
const DataKeyBytesMax = 1024

func (d *Data) claim(string) Claim { return Claim{ClaimData, d.Key} }

func (d *Data) claimField() string { return "data.key" }

func (d *Data) texts() []expandableText {
	return []expandableText{{"data.value", &d.Value}, {"data.base64", &d.Base64}}
}

// Bytes returns the value. The data must be without Mistake.
func (d *Data) Bytes() []byte {
	if d.Base64 == "" {
		return []byte(d.Value)
	}
	b, _ := base64.StdEncoding.Strict().DecodeString(d.Base64) // Mistake has looked
	return b
}

// Mistake returns what is wrong, at which field, or "".
func (d *Data) Mistake() (field, message, hint string) {
	const rule = "up to 1,024 bytes of UTF-8 without spaces and control characters"
	switch {
	case d.Key == "":
		return "data.key", "the key is empty", rule
	case len(d.Key) > DataKeyBytesMax:
		return "data.key", fmt.Sprintf("the key has %d bytes, at most %d are allowed", len(d.Key), DataKeyBytesMax), ""
	case !utf8.ValidString(d.Key) || strings.ContainsFunc(d.Key, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return "data.key", fmt.Sprintf("%q is not a key", clipText(d.Key)), rule
	case !utf8.ValidString(d.Value):
		return "data.value", "the value is no UTF-8 text", "write it as base64"
	case d.Value != "" && d.Base64 != "":
		return "data.base64", "there is a value already", "keep one of value and base64"
	}
	// A text of another form, with line ends or other last bits, would be another declaration of the same bytes.
	if strings.ContainsAny(d.Base64, "\r\n") {
		return "data.base64", "it has several lines", "base64 -w0 writes one"
	}
	if _, err := base64.StdEncoding.Strict().DecodeString(d.Base64); err != nil {
		return "data.base64", "it is not base64", "base64 -w0 FILE writes it"
	}
	return "", "", ""
}

func (d *Data) validate(v *validator) {
	if d.Key == "" {
		v.fault(v.path("data.key"), reason.MissingField, v.path("data")+` has no "key"`, "write what the value is looked up by")
	} else if field, message, hint := d.Mistake(); message != "" {
		v.invalid(v.path(field), message, hint)
	}
	r := v.resource
	for _, f := range []struct {
		field string
		given bool
	}{
		{"require", len(r.Require) > 0},
		{"before", len(r.Before) > 0},
		{"notify", len(r.Notify) > 0},
		{"subscribe", len(r.Subscribe) > 0},
		{"onFailure", len(r.OnFailure) > 0},
		{"when", r.When != ""},
		{"expand", r.Expand},
		{"drift", r.Drift != ""},
		{"windows", len(r.Windows) > 0},
		{"windowFor", r.WindowFor != ""},
		{"onRemove", r.OnRemove != ""},
	} {
		if f.given {
			v.fault(v.path(f.field), reason.FieldNotAllowed, "data is delivered and not acted upon, so nothing of it has an order, a time, a condition or an undoing", "leave "+f.field+" out")
		}
	}
}

// Delivered reports whether the resource is delivered to the host and not acted upon.
func (r *Resource) Delivered() bool { return r.Data != nil }

// acting counts the resources that a host acts upon.
func acting(resources []Resource) int {
	n := 0
	for i := range resources {
		if !resources[i].Delivered() {
			n++
		}
	}
	return n
}

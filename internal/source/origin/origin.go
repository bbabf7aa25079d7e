// Package origin is what the objects of a Source say of where they are from, and as whom a Source speaks to the API. It is pure.
package origin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Annotation says where in which commit an object is declared: an Origin as JSON.
const Annotation = "tako.dev/origin"

// Manager owns what Sources apply. Two Sources never own one object: it is of one set.
const Manager = "tako-source"

// Origin is where an object is from. The zero value is nowhere.
type Origin struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // from 1; 0 is the whole file
	Commit string `json:"commit"`         // the one that has brought this content
	Author string `json:"author,omitempty"`
	Digest string `json:"digest"` // of the content, as Digest makes it
	// Fields is the digest of the fields that the Source came to own with this content, as DigestOfFields makes it; empty where nobody
	// could tell before it was written.
	Fields string `json:"fields,omitempty"`
}

// String is the value of the annotation.
func (o Origin) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return "" // it has texts and a number only
	}
	return string(b)
}

// Of reads the annotation; what cannot be read is nowhere.
func Of(annotations map[string]string) (o Origin) {
	if json.Unmarshal([]byte(annotations[Annotation]), &o) != nil {
		return Origin{}
	}
	return o
}

// Digest is the digest of what a document declares: of its fields, once its namespace is settled, without the annotation and the
// label that the Source adds. Sixteen hexadecimal digits: two contents of one object are not alike by chance.
func Digest(fields map[string]any) (string, error) {
	b, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("compare documents: %w", err)
	}
	return short(b), nil
}

// DigestOfFields is the digest of fields that somebody owns, as the server writes them.
func DigestOfFields(owned []byte) string { return short(owned) }

func short(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// User is who a Source is to the API, with the groups that it is in.
func User(namespace, name string) (user string, groups []string) {
	return "system:source:" + namespace + ":" + name, []string{"system:sources", "system:sources:" + namespace, "system:authenticated"}
}

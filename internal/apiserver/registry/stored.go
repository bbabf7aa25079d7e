package registry

import (
	"bytes"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// storedMeta finds out what stored JSON is. What we have stored begins with its kind and version, so it needs not be read as a whole for that, and then once
// more for what is in it; the library reads what begins otherwise.
type storedMeta struct{}

var _ json.MetaFactory = storedMeta{}

// Interpret returns the kind and the version.
func (storedMeta) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	kind, rest, ok := member(data, `{"kind":"`)
	if !ok {
		return json.DefaultMetaFactory.Interpret(data)
	}
	version, _, ok := member(rest, `,"apiVersion":"`)
	if !ok {
		return json.DefaultMetaFactory.Interpret(data)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return json.DefaultMetaFactory.Interpret(data)
	}
	return &schema.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind}, nil
}

// member reads a text that follows what data begins with, and returns what comes after it. A text with an escape, or that is none, is left to the library.
func member(data []byte, begin string) (text string, rest []byte, ok bool) {
	data, ok = bytes.CutPrefix(data, []byte(begin))
	end := bytes.IndexFunc(data, func(r rune) bool { return r == '"' || r == '\\' || r == utf8.RuneError })
	if !ok || end < 0 || data[end] != '"' {
		return "", nil, false
	}
	return string(data[:end]), data[end+1:], true
}

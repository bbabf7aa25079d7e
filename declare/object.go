package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// ObjectBytesMax is how large an object may be.
const ObjectBytesMax = 1 << 30

// digestPrefix and digestDigits are the form of a digest: there is one text for each.
const (
	digestPrefix = "sha256:"
	digestDigits = 64
)

// ObjectReference names bytes by what they are. `tako content put FILE` stores them on a server, and prints it.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type ObjectReference struct {
	// Digest is "sha256:" and 64 hexadecimal digits in small letters.
	Digest string `json:"digest"`
	// SizeBytes is how many bytes there are, up to 1 GiB.
	SizeBytes int64 `json:"sizeBytes"`
}

// Objects returns the objects that the resource may be made of, of which a host needs one at the most.
func (r *Resource) Objects() []*ObjectReference {
	var objects []*ObjectReference
	add := func(o *ObjectReference) {
		if o != nil {
			objects = append(objects, o)
		}
	}
	switch {
	case r.File != nil:
		add(r.File.Object())
	case r.Archive != nil:
		add(r.Archive.From.Object)
	case r.Agent != nil:
		for i := range r.Agent.Programs {
			add(r.Agent.Programs[i].Object)
		}
	}
	return objects
}

// bytesSource checks where bytes come from, which need not be a text.
func (v *validator) bytesSource(field string, object *ObjectReference, path string) {
	if path != "" {
		v.fsPath(field+".path", path)
	}
	if object != nil {
		v.object(v.path(field+".object"), object)
	}
}

// object checks a reference to bytes that are stored on the servers.
func (v *validator) object(at string, object *ObjectReference) {
	const hint = "tako content put FILE prints what to write"
	if object.Digest == "" {
		v.fault(at+".digest", reason.MissingField, at+` has no "digest"`, hint)
	} else if !isDigest(object.Digest) {
		v.invalid(at+".digest", fmt.Sprintf("%q is not a digest", clipText(object.Digest)), "sha256: and 64 hexadecimal digits in small letters; "+hint)
	}
	if n := object.SizeBytes; n < 0 || n > ObjectBytesMax {
		v.invalid(at+".sizeBytes", fmt.Sprintf("%d is not a size from 0 to %d bytes", n, ObjectBytesMax), hint)
	}
}

// noBytesSource refuses what may be no text, where one is wanted.
func (v *validator) noBytesSource(field string, from *ContentSource) {
	for _, other := range []struct {
		name string
		set  bool
	}{{"object", from.Object != nil}, {"path", from.Path != ""}} {
		if other.set {
			v.fault(v.path(field+"."+other.name), reason.FieldNotAllowed, "only the content of a file may come from there", "take it from a Secret or a ConfigMap")
		}
	}
}

func isDigest(s string) bool {
	digits, found := strings.CutPrefix(s, digestPrefix)
	return found && len(digits) == digestDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

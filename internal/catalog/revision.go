package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// revisionDigestBytes is how much of a digest stands in a revision's name: 40 bits, ten hexadecimal digits. A name says which
// content is meant among the few revisions of one owner; that two of them never share one is checked when a revision is made.
const revisionDigestBytes = 5

// RevisionDigest is the SHA-256 over the canonical CBOR of what was declared, defaults omitted: the array of the resources
// sorted by name, in the encoding that Encode uses. Sorted, because names are unique in a config and the order in which they
// are written means nothing: order comes from relations and automatic edges, and merging by name (server-side apply) may
// move resources about. What relations name are sets for the same reason. The error is InternalFault.
func RevisionDigest(resources []declare.Resource) (Digest, error) {
	return RevisionDigestWith(resources, nil)
}

// RevisionDigestWith is RevisionDigest of resources and a bundle; without a bundle it is the same.
func RevisionDigestWith(resources []declare.Resource, bundle *declare.BundleReference) (Digest, error) {
	sorted := make([]declare.Resource, len(resources))
	for i, r := range resources {
		sorted[i] = r.Ordered()
	}
	slices.SortStableFunc(sorted, func(a, b declare.Resource) int { return cmp.Compare(a.Name, b.Name) })
	var content any = sorted
	if bundle != nil {
		content = struct {
			Resources []declare.Resource       `json:"r"`
			Bundle    *declare.BundleReference `json:"b"`
		}{sorted, bundle}
	}
	b, err := encoding.Marshal(content)
	if err != nil {
		return Digest{}, &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("encode %d resources", len(resources)), Cause: err}
	}
	return sha256.Sum256(b), nil
}

// RevisionName is the name of the revision with that digest: OWNER-DIGEST, the first ten hexadecimal digits of it. An owner
// whose name is too long for that is cut, and ten digits of its own SHA-256 stand between, so that owners who begin alike
// do not meet. The result is a valid object name where owner is one: at most 253 bytes.
func RevisionName(owner string, d Digest) string {
	suffix := "-" + hex.EncodeToString(d[:revisionDigestBytes])
	if len(owner)+len(suffix) > declare.NameBytesMax {
		whole := sha256.Sum256([]byte(owner))
		suffix = "-" + hex.EncodeToString(whole[:revisionDigestBytes]) + suffix
		// What is cut may end with a dot or a dash; before a dash, a name may not have a dot.
		owner = strings.TrimRight(owner[:declare.NameBytesMax-len(suffix)], "-.")
	}
	return owner + suffix
}

package declare

import "fmt"

// BundleReference names a list of entries that is on the servers.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type BundleReference struct {
	// Digest is what `tako bundle push` prints: "sha256:" and 64 hexadecimal digits in small letters.
	Digest string `json:"digest"`
}

// Bounds of a bundle.
const (
	BundleEntriesMax = 2_000_000 // what one layer may have: ours, twice a million
	BundleBytesMax   = 1 << 30   // of all its entries, encoded
)

func (v *validator) bundle(b *BundleReference) {
	if b != nil && !isDigest(b.Digest) {
		v.invalid("spec.bundle.digest", fmt.Sprintf("%q is not a digest", clipText(b.Digest)), "tako bundle push DIR prints it: sha256: and 64 hexadecimal digits in small letters")
	}
}

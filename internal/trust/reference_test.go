package trust

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says what a trust document has, and how much of it.
func TestReference(t *testing.T) {
	const page = "../../docs/spec/transfer.md"
	spectest.Fields(t, page, "trust", "Document", "Root", "RoleKey", "Revocation")
	spectest.Bounds(t, page, "Bounds of trust documents", map[string]any{
		"root keys": RootKeysMax, "role keys": roleKeysMax, "revocations": revokedMax, "authorities": casMax, "authority bytes": caSizeMax, "fallbacks": fallbackMax,
		"fallback bytes": fallbackURLMax, "document bytes": documentMax, "documents": documentsMax, "chain bytes": chainMax,
	})
}

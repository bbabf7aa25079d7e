package place

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how much of a place is read.
func TestReference(t *testing.T) {
	spectest.Bounds(t, "../../../docs/spec/transfer.md", "Bounds of places", map[string]any{
		"place trust bytes": trustMax, "place head bytes": headMax, "place list bytes": listMax, "place statements": StatementsMax,
		"location answer": answerMax, "location file": fileMax, "repository": gitMax,
	})
}

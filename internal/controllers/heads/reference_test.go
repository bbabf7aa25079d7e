package heads

import (
	"testing"

	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says how long a signature is good.
func TestReference(t *testing.T) {
	spectest.Bounds(t, "../../../docs/spec/transfer.md", "Times of heads", map[string]any{"period": period, "lifetime": lifetime})
}

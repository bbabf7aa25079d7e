package catalog

import (
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/spectest"
)

// TestReference: docs/spec/transfer.md says what is signed, and how large it may be.
func TestReference(t *testing.T) {
	const page = "../../docs/spec/transfer.md"
	spectest.Fields(t, page, "list", "Layer")
	spectest.Fields(t, page, "head", "Head", "FormatRoot", "Try", "AbsorbedNumber", "Mark")
	spectest.Fields(t, page, "statement", "Statement")
	spectest.Bounds(t, page, "Bounds of content", map[string]any{
		"body bytes": declare.BodyBytesMax, "claim bytes": declare.ClaimBytesMax, "layer rows": EntriesMax, "leaf rows": leafMax, "node bytes": NodeBytesMax,
		"list layers": LayersMax, "list templates": TemplatesMax, "template ID bytes": templateIDMax, "peers": PeersMax, "own instances": InstancesMax, "head bytes": headBytesMax, "statement bytes": StatementBytesMax,
	})
	o := decoding.DecOptions()
	spectest.Bounds(t, page, "CBOR of content", map[string]any{"depth": o.MaxNestedLevels, "elements": o.MaxArrayElements, "pairs": o.MaxMapPairs})
	if LayersMax != absorbedMax || rootsMax != 4 || nameMax != 253 || nibbles != 64 || Schema != 1 {
		t.Error("the page says other bounds of heads, depths and schemas")
	}
}

package pace

import (
	"testing"

	"tako.dev/tako/declare"
)

func TestGateBounds(t *testing.T) {
	q := func(text declare.Quantity) *declare.Quantity { return &text }
	for _, c := range []struct {
		gate  declare.Gate
		value float64
		bad   bool
	}{
		{declare.Gate{Max: q("0.05")}, 0.05, false}, {declare.Gate{Max: q("0.05")}, 0.0501, true}, {declare.Gate{Min: q("0.995")}, 0.995, false}, {declare.Gate{Min: q("0.995")}, 0.9, true},
		{declare.Gate{Min: q("1"), Max: q("2")}, 1.5, false}, {declare.Gate{Min: q("1"), Max: q("2")}, 3, true}, {declare.Gate{Max: q("2k")}, 1999, false},
	} {
		if said := outside(&c.gate, c.value); (said != "") != c.bad {
			t.Errorf("%v of %+v: %q", c.value, c.gate, said)
		}
	}
}

package held

import (
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// Rest is what is left of a try at a time of a run of the kernel.
func (t *Try) Rest(boot string, since time.Duration) time.Duration {
	if t.Boot != boot {
		return time.Duration(t.Left)
	}
	return time.Duration(t.Until) - since
}

// Overcome tells whether a refusal is over when a head is enforced: that of a later state, or the same one. What was enforced all the time, and had been
// damaged, is none.
func Overcome(v wire.Verdict, m catalog.Mark) bool {
	return m.Epoch > v.Epoch || m.Epoch == v.Epoch && m.Version >= v.Version
}

// Final tells whether a verdict is on a state, and for good: it is not asked about again.
func Final(v wire.Verdict, m catalog.Mark) bool {
	return v.Epoch == m.Epoch && v.Version == m.Version && v.Root == m.Root && v.Type != wire.Withheld && v.Type != wire.Pending
}

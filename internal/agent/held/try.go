package held

import "time"

// Rest is what is left of a try at a time of a run of the kernel.
func (t *Try) Rest(boot string, since time.Duration) time.Duration {
	if t.Boot != boot {
		return time.Duration(t.Left)
	}
	return time.Duration(t.Until) - since
}

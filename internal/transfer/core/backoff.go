package core

import (
	"math/rand/v2"
	"time"
)

// The first pause after a failure, and the longest.
const (
	backoffMin = 500 * time.Millisecond
	backoffMax = time.Minute
)

// Backoff is how long to pause after failures in a row: a random time up to a bound that doubles, so that many who fail together do
// not come back together.
type Backoff struct{ failures uint }

// Next counts a failure and returns the pause: from half a second to a minute.
func (b *Backoff) Next(random *rand.Rand) time.Duration {
	bound := min(backoffMin<<min(b.failures, 16)*2, backoffMax)
	b.failures++
	return backoffMin + time.Duration(random.Int64N(int64(bound-backoffMin)+1))
}

// Failing tells whether there was a failure, and nothing has gone well since.
func (b *Backoff) Failing() bool { return b.failures > 0 }

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }

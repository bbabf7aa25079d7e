package main

import (
	"fmt"
	"slices"
	"time"
)

// sample is a set of durations.
type sample []time.Duration

// at returns the value that a share of the sample does not exceed.
func (s sample) at(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(s)-1, int(float64(len(s))*share))]
}

func (s sample) median() time.Duration { return s.at(0.5) }

// spread describes a sample too small for a p99.
func (s sample) spread() string {
	return fmt.Sprintf("median %s of %d, max %s", milliseconds(s.median()), len(s), milliseconds(s.at(1)))
}

func (s sample) String() string {
	return fmt.Sprintf("median %s, p99 %s, max %s", milliseconds(s.median()), milliseconds(s.at(0.99)), milliseconds(s.at(1)))
}

package load

import (
	"fmt"
	"slices"
	"time"
)

// Sample is a set of durations.
type Sample []time.Duration

// At returns the value that a share of the sample does not exceed.
func (s Sample) At(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(s)-1, int(float64(len(s))*share))]
}

// Median is what half of the sample does not exceed.
func (s Sample) Median() time.Duration { return s.At(0.5) }

// Spread describes a sample too small for a p99.
func (s Sample) Spread() string {
	return fmt.Sprintf("median %s of %d, max %s", Milliseconds(s.Median()), len(s), Milliseconds(s.At(1)))
}

// String describes a sample that is large enough for a p99.
func (s Sample) String() string {
	return fmt.Sprintf("median %s, p99 %s, max %s", Milliseconds(s.Median()), Milliseconds(s.At(0.99)), Milliseconds(s.At(1)))
}

// Milliseconds writes a duration as people compare them.
func Milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// Megabytes writes kB as the kernel counts them in MB as people do.
func Megabytes(kB int64) string { return fmt.Sprintf("%.1f MB", float64(kB)/1024) }

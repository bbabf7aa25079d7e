package systemd

import "time"

// A connection is tried again after 0 to 0.5 s at first, because a bus that restarts is back within that; the range doubles
// up to 30 s, so that a host whose bus is gone for good wakes up about four times a minute.
const (
	retryDelayMin = 500 * time.Millisecond
	retryDelayMax = 30 * time.Second
)

// retryDelay returns how long to wait after the given number of failures in a row (1 is the first). It uses full jitter:
// random, in [0, 1), picks a point of the whole range, so that the agents of many hosts do not move in step.
func retryDelay(failures int, random float64) time.Duration {
	ceiling := retryDelayMin
	for i := 1; i < failures && ceiling < retryDelayMax; i++ {
		ceiling *= 2
	}
	return time.Duration(random * float64(min(ceiling, retryDelayMax)))
}

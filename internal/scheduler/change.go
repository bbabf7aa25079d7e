package scheduler

import "tako.dev/tako/internal/scheduler/fit"

// mask is a set of reasons.
type mask uint32

const everything = mask(1<<fit.Reasons - 1)

// takenBySomebody are the reasons that hold no more when somebody gives something back.
const takenBySomebody = mask(1<<fit.PortTaken | 1<<fit.NoDevice | 1<<fit.NoCPU | 1<<fit.NoMemory | 1<<fit.NoDisk | 1<<fit.NoPlace)

func maskOf(reasons ...fit.Reason) mask {
	var m mask
	for _, r := range reasons {
		m |= 1 << r
	}
	return m
}

// changes number what happens, and say when something happened last that may end a reason.
type changes struct {
	number uint64
	last   [fit.Reasons]uint64
}

func (c *changes) note(m mask) {
	c.number++
	for r := range c.last {
		if m&(1<<r) != 0 {
			c.last[r] = c.number
		}
	}
}

// since reports whether one of some reasons may have ended after a change.
func (c *changes) since(number uint64, m mask) bool {
	for r, last := range c.last {
		if m&(1<<r) != 0 && last > number {
			return true
		}
	}
	return false
}

package main

import (
	"os"
	"runtime/debug"
)

// memoryLimit is what the memory of the agent's own process stays below, as far as collecting garbage can see to that. With 100,000 resources the
// agent uses up to 200 MB while it takes in a declaration, which the runtime would let grow to twice as much before it collects, and far less later: so the
// limit keeps what a busy moment leaves from piling up, and is far enough from what is in use that nothing is collected again and again.
const memoryLimit = 512 << 20

// limitMemory sets the limit of the Go runtime, unless the operator has set one: GOMEMLIMIT, which the runtime has read by itself. It is no line of
// the unit, where a limit counts apt, check commands and the tasks of workloads too, and an environment goes on to others.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

package spare

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// Run gives memory back until the context ends.
func Run(ctx context.Context) { run(ctx, own{}) }

// process is one whose memory is looked after.
type process interface {
	sample() sample
	// giveBack collects, and gives back all that is free.
	giveBack()
}

func run(ctx context.Context, p process) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var s state
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.step(time.Now(), p.sample()) {
			p.giveBack()
			s.collected(time.Now(), p.sample())
		}
	}
}

// own is this process.
type own struct{}

// The metrics of package runtime/metrics that a sample is made of.
const (
	totalBytes    = "/memory/classes/total:bytes"
	releasedBytes = "/memory/classes/heap/released:bytes"
	freeBytes     = "/memory/classes/heap/free:bytes"
	objectBytes   = "/memory/classes/heap/objects:bytes" // dead ones too, until they are swept
	liveBytes     = "/gc/heap/live:bytes"                // at the last collection
)

func (own) sample() sample {
	all := []metrics.Sample{{Name: totalBytes}, {Name: releasedBytes}, {Name: freeBytes}, {Name: objectBytes}, {Name: liveBytes}}
	metrics.Read(all)
	of := map[string]uint64{}
	for _, m := range all {
		if m.Value.Kind() == metrics.KindUint64 { // all are, as long as there are metrics of these names
			of[m.Name] = m.Value.Uint64()
		}
	}
	s := sample{held: of[totalBytes] - of[releasedBytes], spare: of[freeBytes]}
	if of[objectBytes] > of[liveBytes] {
		s.spare += of[objectBytes] - of[liveBytes]
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		s.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return s
}

func (own) giveBack() { debug.FreeOSMemory() }

package subscribe

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"tako.dev/tako/internal/disk/watch"
)

const (
	// pulseJitter is the part of its time by which a beat is moved, so that what many hosts ask of one is spread.
	pulseJitter = 10
	// pulseMin keeps a mistake from keeping the host busy.
	pulseMin = time.Second
	pulseMax = time.Hour
)

// pulse tells about what nothing else does: after a while, again and again. It has one timer, whatever is watched.
type pulse struct {
	changed chan struct{} // has an item when the first beat may be another one

	mu    sync.Mutex // guards all below
	beats beats
}

// beat is when a slot is told next.
type beat struct {
	at    time.Time
	every time.Duration
	slot  watch.ID
}

// beats is a heap, the first beat first.
type beats []beat

func (b beats) Len() int           { return len(b) }
func (b beats) Less(i, j int) bool { return b[i].at.Before(b[j].at) }
func (b beats) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *beats) Push(x any)        { *b = append(*b, x.(beat)) }
func (b *beats) Pop() any {
	last := len(*b) - 1
	x := (*b)[last]
	*b = (*b)[:last]
	return x
}

func newPulse() *pulse { return &pulse{changed: make(chan struct{}, 1)} }

// period reads how often something is told. What is no time is told as rarely as anything.
func period(every string) time.Duration {
	d, err := time.ParseDuration(every)
	if err != nil {
		d = pulseMax
	}
	return max(d, pulseMin)
}

// watch tells a slot every so often.
func (p *pulse) watch(every string, slot watch.ID) {
	d := period(every)
	p.mu.Lock()
	heap.Push(&p.beats, beat{time.Now().Add(jittered(d)), d, slot})
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// unwatch ends that.
func (p *pulse) unwatch(every string, slot watch.ID) {
	d := period(every)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.beats {
		if p.beats[i].slot == slot && p.beats[i].every == d {
			heap.Remove(&p.beats, i)
			return
		}
	}
}

// jittered is a time a little shorter or longer.
func jittered(d time.Duration) time.Duration {
	part := d / pulseJitter
	return d - part + rand.N(2*part+1)
}

// due takes out the slots whose time has come, and says in how long the next one's does; zero where there is none.
func (p *pulse) due(now time.Time) (slots []watch.ID, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.beats) > 0 && !p.beats[0].at.After(now) {
		b := &p.beats[0]
		slots = append(slots, b.slot)
		b.at = now.Add(jittered(b.every))
		heap.Fix(&p.beats, 0)
	}
	if len(p.beats) == 0 {
		return slots, 0
	}
	return slots, p.beats[0].at.Sub(now)
}

// run tells sink until the context ends.
func (p *pulse) run(ctx context.Context, sink func([]watch.Event)) error {
	timer := time.NewTimer(pulseMax)
	defer timer.Stop()
	for {
		slots, next := p.due(time.Now())
		if len(slots) > 0 {
			sink([]watch.Event{{IDs: slots, Name: timeName}})
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.changed:
		case <-timer.C:
		}
	}
}

// timeName is a name for what has none: an event without one is of a directory that came or went.
const timeName = "time"

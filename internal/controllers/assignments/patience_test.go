package assignments

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestPatience: a host waits for nine times as long as it took to write the ones before, for half a minute at most, and not where nothing else comes.
func TestPatience(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPatience()
	if got := p.take([]string{"a"}, now); !slices.Equal(got, []string{"a"}) || !p.wakeAt().IsZero() {
		t.Fatalf("before anything was written: %v, wakes at %v", got, p.wakeAt())
	}
	p.wrote(40*time.Millisecond, now)
	if got := p.take([]string{"a", "b", "a"}, now.Add(time.Millisecond)); len(got) > 0 || !p.wakeAt().Equal(now.Add(patienceTimes*40*time.Millisecond)) {
		t.Fatalf("%v, wakes at %v", got, p.wakeAt())
	}
	p.planned("b")
	if got := p.take(nil, now.Add(patienceTimes*40*time.Millisecond)); !slices.Equal(got, []string{"a"}) || !p.wakeAt().IsZero() {
		t.Fatalf("%v, wakes at %v", got, p.wakeAt())
	}
	p.wrote(time.Minute, now)
	for after := time.Duration(0); after < patienceMax; after += quietMin / 2 {
		if got := p.take([]string{"a"}, now.Add(after)); len(got) > 0 {
			t.Fatalf("%v after %v", got, after)
		}
	}
	if got := p.take(nil, now.Add(patienceMax)); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("%v", got)
	}
	p.wrote(time.Minute, now)
	p.take([]string{"a"}, now)
	if got := p.take(nil, now.Add(quietMax-1)); len(got) > 0 {
		t.Fatalf("%v", got)
	}
	if got := p.take(nil, now.Add(quietMax)); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("nothing else comes, and %v", got)
	}
}

// TestPatienceQuiet: the longer it took to write the ones before, the longer nothing has to come until nobody waits for more.
func TestPatienceQuiet(t *testing.T) {
	for took, quiet := range map[time.Duration]time.Duration{100 * time.Millisecond: quietMin, 3 * time.Second: 1500 * time.Millisecond, time.Minute: quietMax} {
		p, now := newPatience(), time.Unix(1_700_000_000, 0)
		p.wrote(took, now)
		p.take([]string{"a"}, now)
		if at := p.wakeAt(); !at.Equal(now.Add(quiet)) {
			t.Errorf("%v to write: it wakes after %v, want %v", took, at.Sub(now), quiet)
		}
	}
}

// TestPatienceEnds: a host does not wait for longer because Assignments are written all the time for other reasons, while instances of others change.
func TestPatienceEnds(t *testing.T) {
	p, began := newPatience(), time.Unix(1_700_000_000, 0)
	p.wrote(time.Minute, began)
	p.take([]string{"a"}, began)
	for now := began; ; now = now.Add(quietMin / 5) {
		if now.Sub(began) > patienceMax {
			t.Fatalf("it waits for more than %v", patienceMax)
		}
		if slices.Contains(p.take([]string{"b"}, now), "a") {
			return
		}
		p.wrote(time.Minute, now)
	}
}

// TestPatienceUnderLoad: instances come to a thousand hosts for half a minute, fifty or five thousand a second, where a thousand Assignments can be
// written in one. No host waits for longer than it may; a few instances are written one by one, and many together.
func TestPatienceUnderLoad(t *testing.T) {
	const hosts, write, every = 1000, time.Millisecond, 10 * time.Millisecond
	for rate, most := range map[int]int{50: 1500, 5000: 5000} {
		p, now := newPatience(), time.Unix(1_700_000_000, 0)
		began, next, plans := now, 0, 0
		since, longest := map[string]time.Time{}, time.Duration(0)
		step := func(changed []string) {
			for _, node := range changed {
				if since[node].IsZero() {
					since[node] = now
				}
			}
			ready := p.take(changed, now)
			for _, node := range ready {
				longest = max(longest, now.Sub(since[node]))
				delete(since, node)
			}
			if plans += len(ready); len(ready) > 0 {
				took := time.Duration(len(ready)) * write
				now = now.Add(took)
				p.wrote(took, now)
			}
		}
		for now.Sub(began) < 30*time.Second {
			var changed []string
			for next < int(now.Sub(began).Seconds()*float64(rate)) {
				changed = append(changed, fmt.Sprint(next%hosts))
				next++
			}
			step(changed)
			now = now.Add(every)
		}
		for end := now; len(since) > 0; now = now.Add(every) {
			if now.Sub(end) > quietMin+time.Second {
				t.Fatalf("%d a second: %d hosts wait though nothing comes", rate, len(since))
			}
			step(nil)
		}
		if plans > most {
			t.Errorf("%d a second: %d Assignments are written for %d instances", rate, plans, next)
		}
		if bound := (1+patienceTimes)*hosts*write + every; longest > bound || rate == 50 && longest > 50*time.Millisecond {
			t.Errorf("%d a second: a host has waited for %v", rate, longest)
		}
	}
}

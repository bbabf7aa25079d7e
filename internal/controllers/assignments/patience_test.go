package assignments

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// ms are milliseconds.
func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// nodes are the names of so many.
func nodes(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("n", i))
	}
	return names
}

// TestPatience: hosts wait after some were written, for nine times as long as it takes to write them.
func TestPatience(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPatience()
	if got := p.take([]string{"a"}, now); !slices.Equal(got, []string{"a"}) || !p.wakeAt().IsZero() {
		t.Fatalf("before anything was written: %v, wakes at %v", got, p.wakeAt())
	}
	p.written(2*writesMax, ms(128), now) // 2 ms each
	if got := p.take([]string{"a", "b", "a"}, now.Add(ms(1))); len(got) > 0 || !p.wakeAt().Equal(now.Add(patienceTimes*2*ms(2))) {
		t.Fatalf("%v, wakes at %v", got, p.wakeAt())
	}
	p.planned("b")
	if got := p.take(nil, now.Add(patienceTimes*ms(2)-1)); len(got) > 0 {
		t.Fatalf("too early: %v", got)
	}
	if got := p.take(nil, now.Add(patienceTimes*ms(2))); !slices.Equal(got, []string{"a"}) || !p.wakeAt().IsZero() {
		t.Fatalf("%v, wakes at %v", got, p.wakeAt())
	}
	if got := p.take([]string{"a"}, now.Add(time.Minute)); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("after a rest: %v", got)
	}
}

// TestPatienceMost: the more wait the longer they do, and a minute is the most.
func TestPatienceMost(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for waiting, until := range map[int]time.Duration{10: ms(180), 1000: 18 * time.Second, 5000: patienceMax} {
		p := newPatience()
		p.written(writesMax, writesMax*ms(2), now)
		for after := time.Duration(0); after < until; after += min(quietMin, until) / 2 { // something comes all the time
			if got := p.take(nodes(waiting), now.Add(after)); len(got) > 0 {
				t.Fatalf("%d wait: %d of them for %v", waiting, len(got), after)
			}
		}
		if got := p.take(nil, now.Add(until)); len(got) != waiting {
			t.Fatalf("%d wait: %d for %v", waiting, len(got), until)
		}
	}
}

// TestPatienceQuiet: the longer it takes to write those who wait, the longer nothing has to come until they wait for no more.
func TestPatienceQuiet(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for waiting, quiet := range map[int]time.Duration{100: quietMin, 1500: 1500 * time.Millisecond, 20_000: quietMax, 8000: quietMax} {
		p := newPatience()
		p.written(writesMax, writesMax*ms(2), now)
		p.take(nodes(waiting), now)
		if at := p.wakeAt(); !at.Equal(now.Add(quiet)) {
			t.Errorf("%d wait: it wakes after %v, want %v", waiting, at.Sub(now), quiet)
		}
	}
}

// TestPatienceSample: where many wait, and more come, some are written first, which say how long the others wait.
func TestPatienceSample(t *testing.T) {
	const waiting = 5000
	began := time.Unix(1_700_000_000, 0)
	for took, until := range map[time.Duration]time.Duration{ms(2): patienceMax, ms(0.6): patienceTimes * waiting * ms(0.6), ms(0.1): patienceTimes * waiting * ms(0.5)} {
		p, first := newPatience(), patienceTimes*waiting*ms(0.5)
		p.written(writesMax, writesMax*ms(0.5), began)
		come := func(from, to time.Duration) {
			t.Helper()
			for ; from < to; from += quietMin / 2 {
				if got := p.take(nodes(waiting), began.Add(from)); len(got) > 0 {
					t.Fatalf("one takes %v: %d are written after %v", took, len(got), from)
				}
			}
		}
		come(0, first)
		if got := p.take(nodes(waiting), began.Add(first)); len(got) != sampleMax {
			t.Fatalf("%d are written to learn what one takes", len(got))
		}
		p.written(sampleMax, sampleMax*took, began.Add(first))
		come(first, until)
		if got := p.take(nodes(waiting), began.Add(until)); len(got) != waiting {
			t.Errorf("one takes %v: %d are written after %v", took, len(got), until)
		}
		if p.sampled {
			t.Error("the next ones are not asked what they take")
		}
	}
}

// TestPatienceSampleCounts: a few that are written meanwhile, for whatever reason, say nothing against the sample; and after a rest there is none, because nobody
// waits for longer whatever one takes.
func TestPatienceSampleCounts(t *testing.T) {
	const waiting = 5000
	began := time.Unix(1_700_000_000, 0)
	p := newPatience()
	p.written(writesMax, writesMax*ms(0.5), began)
	sampled := began.Add(patienceTimes * waiting * ms(0.5))
	if got := p.take(nodes(waiting), sampled); len(got) != sampleMax || got[0] == got[sampleMax-1] {
		t.Fatalf("the sample: %v", got)
	}
	p.written(sampleMax, sampleMax*ms(2), sampled)
	for now := sampled; now.Before(began.Add(patienceMax)); now = now.Add(quietMin / 2) {
		if got := p.take([]string{"n0"}, now); len(got) > 0 {
			t.Fatalf("%d are written %v after the sample", len(got), now.Sub(sampled))
		}
		p.written(1, ms(6.4), now)
	}
	rested := began.Add(patienceMax)
	if got := p.take(nil, rested); len(got) < waiting-sampleMax {
		t.Fatalf("then: %d", len(got))
	}
	p.written(writesMax, writesMax*ms(0.5), rested)
	if got := p.take(nodes(waiting), rested.Add(patienceMax)); len(got) != waiting {
		t.Errorf("after a rest: %d", len(got))
	}
}

// TestPatienceEach: a few that are written by themselves, each of which waits for the disk, say little about many; and many say what they take now.
func TestPatienceEach(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPatience()
	for i, c := range []struct {
		count int
		took  time.Duration
		each  time.Duration
	}{
		{1, ms(6.4), ms(0.2)},
		{3200, ms(6400), ms(2)},
		{1, ms(6.4), ms(1)},
		{1, ms(6.4), ms(0.5)},
		{640, ms(640), ms(1)},
		{0, ms(3.2), ms(0.5)},
	} {
		if p.written(c.count, c.took, now); p.each != c.each {
			t.Errorf("%d: %d in %v: %v each, want %v", i, c.count, c.took, p.each, c.each)
		}
	}
}

// TestPatienceEnds: a host does not wait for longer because Assignments are written all the time for other reasons, while instances of others change.
func TestPatienceEnds(t *testing.T) {
	p, began := newPatience(), time.Unix(1_700_000_000, 0)
	p.written(1, time.Minute, began)
	p.take([]string{"a"}, began)
	for now := began; ; now = now.Add(quietMin / 5) {
		if now.Sub(began) > patienceMax {
			t.Fatalf("it waits for more than %v", patienceMax)
		}
		if slices.Contains(p.take([]string{"b"}, now), "a") {
			return
		}
		p.written(1, time.Minute, now)
	}
}

// TestPatienceUnderLoad: instances come to one or two thousand hosts for half a minute, fifty or five thousand a second, where a thousand Assignments can be
// written in one. No host waits for longer than it may; a few instances are written one by one, and many together.
func TestPatienceUnderLoad(t *testing.T) {
	const write, every = time.Millisecond, 10 * time.Millisecond
	for _, c := range []struct{ hosts, rate, most int }{{1000, 50, 1500}, {1000, 5000, 5000}, {2000, 50, 1500}, {2000, 5000, 8000}} {
		hosts, rate, most := c.hosts, c.rate, c.most
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
				p.written(len(ready), took, now)
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
			if now.Sub(end) > quietMin+time.Duration(hosts)*write {
				t.Fatalf("%+v: %d hosts wait though nothing comes", c, len(since))
			}
			step(nil)
		}
		if plans > most {
			t.Errorf("%+v: %d Assignments are written for %d instances", c, plans, next)
		}
		if bound := (1+patienceTimes)*time.Duration(hosts)*write + every; longest > bound || rate == 50 && longest > 50*time.Millisecond {
			t.Errorf("%+v: a host has waited for %v", c, longest)
		}
	}
}

package spare

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const mega = 1 << 20

func TestStep(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := state{seen: true, at: began, cpu: time.Minute}
	worth := sample{cpu: time.Minute, held: 160 * mega, spare: 10 * mega}
	with := func(change func(*state, *sample)) (state, sample) {
		s, is := last, worth
		change(&s, &is)
		return s, is
	}
	for name, c := range map[string]struct {
		change func(*state, *sample)
		want   bool
	}{
		"idle, and worth it":     {func(*state, *sample) {}, true},
		"the first look":         {func(s *state, _ *sample) { *s = state{} }, false},
		"hardly idle":            {func(_ *state, is *sample) { is.cpu += lookEvery / idleShare }, true},
		"busy":                   {func(_ *state, is *sample) { is.cpu += lookEvery/idleShare + 1 }, false},
		"not worth it":           {func(_ *state, is *sample) { is.spare-- }, false},
		"nothing is known":       {func(_ *state, is *sample) { *is = sample{cpu: is.cpu} }, true}, // no harm: it is bounded by what it costs
		"too soon":               {func(s *state, _ *sample) { s.may = began.Add(lookEvery + 1) }, false},
		"just late enough":       {func(s *state, _ *sample) { s.may = began.Add(lookEvery) }, true},
		"the clock went back":    {func(s *state, _ *sample) { s.at = began.Add(time.Hour) }, false},
		"all of it can be freed": {func(_ *state, is *sample) { is.spare = is.held }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, is := with(c.change)
			if got := s.step(began.Add(lookEvery), is); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if !s.seen || !s.at.Equal(began.Add(lookEvery)) || s.cpu != is.cpu {
				t.Errorf("it remembers %+v", s)
			}
		})
	}
}

// simulated is a process of which memory becomes free all the time.
type simulated struct {
	began       time.Time
	share       float64       // of a core that it takes
	cost        time.Duration // of a collection
	took        time.Duration // by collections
	collections []time.Duration
}

func (p *simulated) sample() sample {
	return sample{cpu: time.Duration(float64(time.Since(p.began))*p.share) + p.took, held: 100 * mega, spare: 50 * mega}
}

func (p *simulated) giveBack() {
	p.took += p.cost
	p.collections = append(p.collections, time.Since(p.began))
}

// TestRun: an idle process collects again and again, and what that takes is bounded whatever a collection takes; a busy one does not.
func TestRun(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		share    float64
		cost     time.Duration
		min, max int // collections in an hour
	}{
		"idle and small": {0.01, 20 * time.Millisecond, 120, 180},
		"idle and large": {0.03, time.Second, 15, 18},
		"idle and huge":  {0.03, 20 * time.Second, 1, 1},
		"busy":           {0.5, 20 * time.Millisecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &simulated{began: time.Now(), share: c.share, cost: c.cost}
				ctx, cancel := context.WithTimeout(t.Context(), hour)
				defer cancel()
				run(ctx, p)
				if n := len(p.collections); n < c.min || n > c.max {
					t.Errorf("%d collections in an hour, want %d to %d", n, c.min, c.max)
				}
				for i := 1; i < len(p.collections); i++ {
					if pause := p.collections[i] - p.collections[i-1]; pause < pauseMin || pause < c.cost*costShare {
						t.Errorf("a collection that takes %v comes %v after another", c.cost, pause)
					}
				}
			})
		})
	}
}

// TestOwn: what is read of this process is about it, and what is free goes back.
func TestOwn(t *testing.T) {
	garbage := make([]byte, 64*mega)
	for i := range garbage {
		garbage[i] = 1 // the kernel gives a page when it is written
	}
	before := own{}.sample()
	garbage = nil
	own{}.giveBack()
	after := own{}.sample()
	if before.held < 64*mega || before.cpu <= 0 || after.cpu < before.cpu {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if after.held+60*mega > before.held {
		t.Errorf("%d bytes are held, and before it were %d", after.held, before.held)
	}
	_ = garbage
}

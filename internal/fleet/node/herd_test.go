package node

import (
	"testing"
	"time"
)

func TestHerd(t *testing.T) {
	var h Herd
	for range herdLeast - 1 {
		h.Left()
	}
	h.Left()
	if until := h.Until(100); !until.IsZero() {
		t.Errorf("nobody has come back, and the rest is waited for until %v", until)
	}
	h.Returned(at(1))
	if until := h.Until(100); !until.IsZero() {
		t.Errorf("%d are waited for until %v", herdLeast-1, until)
	}
	h.Left()
	if until := h.Until(100); until != at(1).Add(herdPause) {
		t.Errorf("%d of 100 are waited for until %v", herdLeast, until)
	}
	if until := h.Until(100*herdLeast + 1); !until.IsZero() {
		t.Errorf("%d of 1,001 are waited for until %v", herdLeast, until)
	}
	h.Dropped()
	if until := h.Until(100); !until.IsZero() {
		t.Errorf("when one is waited for no more, the rest is until %v", until)
	}
}

// One of a herd is waited for while others come back, and not for ever.
func TestOneOfAHerd(t *testing.T) {
	for _, c := range []struct {
		name       string
		herd       time.Time
		here, gone float64 // seconds
	}{
		{"alone", time.Time{}, 29, 30},
		{"the last came back long ago", at(25), 29, 30},
		{"they come back", at(47), 46, 47},
		{"they come back without end", at(1000), 109, 110},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, v := living(t)
			l.Closed(1, false, at(20))
			v.Herd = c.herd
			_, d := Decide(l, v, at(c.here))
			want(t, d, Here, True, ReasonAnswering)
			if d.WakeAt != at(c.gone) {
				t.Errorf("it is decided again at %v, want %v", d.WakeAt, at(c.gone))
			}
			_, d = Decide(l, v, at(c.gone))
			want(t, d, Gone, Unknown, ReasonHostGone)
			l.Closed(1, true, at(21))
			if _, d = Decide(l, v, at(21)); d.Presence != Here {
				t.Errorf("the end of a connection is told twice, and it is %v", d.Presence)
			}
		})
	}
	l, v := living(t)
	l.Closed(1, true, at(20))
	v.Herd = at(47)
	_, d := Decide(l, v, at(20))
	want(t, d, Gone, Unknown, ReasonHostGone)
}

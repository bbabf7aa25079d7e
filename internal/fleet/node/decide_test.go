package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func mark(version uint64) catalog.Mark {
	return catalog.Mark{Epoch: 1, Version: version, Expires: at(3600).Unix()}
}

// living is a node that was heard over connection 1 at second 0, and what is stored of it then.
func living(t *testing.T) (Life, View) {
	t.Helper()
	var l Life
	l.Opened(1, "", at(0))
	l.Heard(Report{Session{"a", 5}, 1, 1, mark(7)}, at(0))
	v := View{Began: at(-600), Created: at(-6000)}
	l, d := Decide(l, v, at(0))
	v.Was, v.High = d.Conditions, d.High
	want(t, d, Here, True, ReasonAnswering)
	return l, v
}

func want(t *testing.T, d Decision, presence Presence, status ConditionStatus, reason string) {
	t.Helper()
	if c := conditionOf(d.Conditions, Ready); d.Presence != presence || c.Status != status || c.Reason != reason {
		t.Errorf("it is %s and %+v; want %s, %s, %s", d.Presence, c, presence, status, reason)
	}
}

// Loss of host or link: keepalive ends the connection, and that is told at once, with the time.
func TestHostLost(t *testing.T) {
	l, v := living(t)
	l.Closed(1, true, at(14))
	_, d := Decide(l, v, at(14))
	want(t, d, Gone, Unknown, ReasonHostGone)
	if c := conditionOf(d.Conditions, Ready); !d.Store || !d.Cordon || c.Since != at(14) || !strings.Contains(c.Message, "last heard at 2030-01-01T00:00:00Z") {
		t.Errorf("%+v", d)
	}
}

// A connection that ends by itself is one of an agent that restarts.
func TestConnectionClosed(t *testing.T) {
	l, v := living(t)
	l.Closed(1, false, at(20))
	_, d := Decide(l, v, at(29))
	want(t, d, Here, True, ReasonAnswering)
	if d.WakeAt != at(30) || d.Store {
		t.Errorf("%+v", d)
	}
	_, d = Decide(l, v, at(30))
	want(t, d, Gone, Unknown, ReasonHostGone)
	l.Opened(2, "", at(29))
	_, d = Decide(l, v, at(30))
	want(t, d, Here, True, ReasonAnswering)
	// The end of the old connection arrives after the new one has begun.
	l.Closed(1, true, at(31))
	_, d = Decide(l, v, at(31))
	want(t, d, Here, True, ReasonAnswering)
}

// What is said of a node that is not there says what is known, and no more.
func TestLossInWords(t *testing.T) {
	say := func(d Decision, words string) {
		t.Helper()
		if c := conditionOf(d.Conditions, Ready); !strings.Contains(c.Message, words) {
			t.Errorf("it is said %q of a node that is %s; want %q in it", c.Message, d.Presence, words)
		}
	}
	l, v := living(t)
	l.Closed(1, false, at(20))
	l, d := Decide(l, v, at(30))
	say(d, "its agent has ended the connection")
	l.Opened(2, "", at(31))
	l, d = Decide(l, v, at(31))
	want(t, d, Here, True, ReasonAnswering)
	l.Closed(2, true, at(40))
	l, d = Decide(l, v, at(40))
	say(d, "host or link are lost")
	l.Opened(3, "", at(50))
	l, d = Decide(l, v, at(50))
	want(t, d, Gone, Unknown, ReasonHostGone)
	say(d, "it is connected again, but was lost 2 times shortly after one another, and counts as there if it stays until 2030-01-01T00:01:05Z")
	_, d = Decide(l, v, at(65))
	want(t, d, Here, True, ReasonAnswering)
}

func TestAgentSilent(t *testing.T) {
	l, v := living(t)
	l.Asked(1, at(30))
	l.Asked(1, at(75))
	_, d := Decide(l, v, at(84))
	want(t, d, Here, True, ReasonAnswering)
	if d.WakeAt != at(85) {
		t.Errorf("wakes up at %v", d.WakeAt)
	}
	l, d = Decide(l, v, at(85))
	want(t, d, Silent, Unknown, ReasonAgentSilent)
	if !d.Cordon || !d.Store {
		t.Errorf("%+v", d)
	}
	l.Heard(Report{Session{"a", 5}, 2, 1, mark(7)}, at(86))
	v.Was = d.Conditions
	_, d = Decide(l, v, at(86))
	want(t, d, Here, True, ReasonAnswering)
}

// TestSpared: heartbeats that need no answer are none that were not answered, and those after them count from the first.
func TestSpared(t *testing.T) {
	l, v := living(t)
	l.Spared(at(200))
	for _, second := range []float64{30, 75, 120, 170, 210} {
		l.Asked(1, at(second))
	}
	_, d := Decide(l, v, at(240))
	want(t, d, Here, True, ReasonAnswering)
	l.Asked(1, at(250))
	_, d = Decide(l, v, at(260))
	want(t, d, Silent, Unknown, ReasonAgentSilent)
	// Another connection begins with a report, and nothing was said over it.
	l, v = living(t)
	l.Spared(at(200))
	l.Opened(2, "", at(50))
	l.Heard(Report{Session{"a", 5}, 2, 2, mark(7)}, at(50))
	l.Asked(2, at(80))
	l.Asked(2, at(120))
	_, d = Decide(l, v, at(130))
	want(t, d, Silent, Unknown, ReasonAgentSilent)
}

// TestQuiet: few hosts answer each heartbeat; of many no more report in a second than of fewer, and none is left alone for longer than the bound.
func TestQuiet(t *testing.T) {
	for _, nodes := range []int{0, 1, 1000, 2399} {
		if least, most := Quiet(nodes); least != 0 || most != 0 {
			t.Errorf("%d hosts may be silent for %v to %v", nodes, least, most)
		}
	}
	for _, nodes := range []int{2400, 5000, 10_000, 100_000, 10_000_000} {
		least, most := Quiet(nodes)
		if least <= 0 || least >= most || most > quietMax {
			t.Errorf("%d hosts may be silent for %v to %v", nodes, least, most)
		}
		if mean := (least + most) / 2; nodes <= 9000 && mean != time.Duration(nodes)*time.Second/answersPerSecond {
			t.Errorf("%d hosts report each %v", nodes, mean)
		}
	}
}

func TestNewLeader(t *testing.T) {
	_, v := living(t)
	v.Began = at(100)
	_, d := Decide(Life{}, v, at(189))
	want(t, d, Unheard, True, ReasonAnswering)
	if d.Store || d.Cordon || d.WakeAt != at(190) {
		t.Errorf("%+v", d)
	}
	_, d = Decide(Life{}, v, at(190))
	want(t, d, Gone, Unknown, ReasonHostGone)
	if c := conditionOf(d.Conditions, Ready); !strings.Contains(c.Message, "since this server began to lead at 2030-01-01T00:01:40Z") {
		t.Errorf("%+v", c)
	}
	// A node that nobody has heard, ever.
	v = View{Began: at(0), Created: at(50)}
	_, d = Decide(Life{}, v, at(139))
	want(t, d, Unheard, Unknown, ReasonNeverHeard)
	v.Was = d.Conditions
	_, d = Decide(Life{}, v, at(140))
	want(t, d, Gone, Unknown, ReasonNeverHeard)
	if d.Store {
		t.Errorf("stored again: %+v", d)
	}
}

func TestStale(t *testing.T) {
	l, v := living(t)
	_, d := Decide(l, v, at(3599))
	if c := conditionOf(d.Conditions, Stale); c.Status != False || d.WakeAt != at(3600) {
		t.Errorf("%+v", d)
	}
	_, d = Decide(l, v, at(3600))
	if c := conditionOf(d.Conditions, Stale); c.Status != True || c.Reason != ReasonHeadExpired || !d.Store {
		t.Errorf("%+v", d)
	}
	// By the clock of the host it has expired, by ours not: that is the clock's fault, unless both agree.
	v.Expired, v.Ahead = true, 26*time.Hour
	_, d = Decide(l, v, at(60))
	if c := conditionOf(d.Conditions, Stale); c.Status != True || c.Reason != ReasonClockAhead || !strings.Contains(c.Message, "26h0m0s") || !d.Store {
		t.Errorf("%+v", d)
	}
	v.Ahead = time.Second
	_, d = Decide(l, v, at(60))
	if c := conditionOf(d.Conditions, Stale); c.Status != False {
		t.Errorf("%+v", d)
	}
}

// A disk that was put back says less than was heard; when the agent has caught up, all is well.
func TestRollback(t *testing.T) {
	l, v := living(t)
	for i, c := range []struct {
		have catalog.Mark
		want ConditionStatus
	}{{mark(6), True}, {catalog.Mark{}, True}, {mark(7), False}, {catalog.Mark{Epoch: 1, Version: 7, Root: catalog.Digest{1}}, True}, {mark(8), False}} {
		l.Heard(Report{Session{"a", 6}, uint64(i), 1, c.have}, at(float64(i)))
		_, d := Decide(l, v, at(float64(i)))
		if got := conditionOf(d.Conditions, RollbackSuspected); got.Status != c.want {
			t.Errorf("with %+v: %+v", c.have, got)
		}
		if d.High.Version != max(7, c.have.Version) {
			t.Errorf("with %+v the highest is %+v", c.have, d.High)
		}
	}
	// A report that was overtaken is none.
	l.Heard(Report{Session{"a", 6}, 3, 1, mark(6)}, at(6))
	if _, d := Decide(l, v, at(6)); conditionOf(d.Conditions, RollbackSuspected).Status != False {
		t.Errorf("an old report makes it %+v", d)
	}
}

// TestStoreBehind: what the store does not know is said for as long as that is so, whatever the host reports; and what an earlier leader has
// found out stays until this one has looked.
func TestStoreBehind(t *testing.T) {
	l, v := living(t)
	say := func(judged bool, suspected string, want ConditionStatus, why string) {
		t.Helper()
		v.Judged, v.Suspected = judged, suspected
		var d Decision
		if l, d = Decide(l, v, at(1)); conditionOf(d.Conditions, RollbackSuspected).Status != want || conditionOf(d.Conditions, RollbackSuspected).Reason != why {
			t.Errorf("judged %v, %q: %+v", judged, suspected, d.Conditions)
		}
		v.Was = d.Conditions
	}
	say(true, "", False, ReasonInOrder)
	say(true, "the store is a copy", True, ReasonStoreBehind)
	l.Heard(Report{Session{"a", 6}, 9, 1, mark(8)}, at(1))
	say(false, "", True, ReasonStoreBehind)
	say(true, "", False, ReasonInOrder)
	say(false, "", False, ReasonInOrder)
}

// An agent that was put back from an old disk is no copy once the other one is not heard any more.
func TestSessionThatWentBack(t *testing.T) {
	l, v := living(t)
	l.Opened(2, "", at(100))
	l.Heard(Report{Session{"b", 3}, 1, 2, mark(7)}, at(100))
	l.Heard(Report{Session{"b", 3}, 2, 2, mark(7)}, at(120)) // what a relay has kept would be over
	_, d := Decide(l, v, at(120))
	want(t, d, Here, False, Cloned)
	l.Heard(Report{Session{"b", 3}, 20, 2, mark(7)}, at(621))
	v.Was = d.Conditions
	if l, d = Decide(l, v, at(721)); !d.Believed {
		t.Errorf("%+v", d)
	}
	l.Heard(Report{Session{"b", 3}, 21, 2, mark(7)}, at(722))
	if _, d = Decide(l, v, at(722)); !d.Believed {
		t.Errorf("%+v", d)
	}
}

// TestOldConnectionToldLate: a relay or server that stood still, or was cut off, tells of the connection that its host had there: with what it has kept of it,
// of an earlier start of the agent too, under the old number or a new one, and then that it has ended. The host has gone on elsewhere: it is there, is
// believed, and is heard.
func TestOldConnectionToldLate(t *testing.T) {
	for name, late := range map[string]func(l *Life) (worths []Worth){
		"told anew": func(l *Life) (w []Worth) {
			l.Opened(3, "old", at(130))
			return append(w, l.Heard(Report{Session{"a", 5}, 2, 3, mark(7)}, at(130)), l.Heard(Report{Session{"a", 5}, 3, 3, mark(7)}, at(135)))
		},
		"two told anew": func(l *Life) (w []Worth) {
			l.Opened(3, "old", at(130))
			l.Opened(4, "old", at(130))
			return append(w, l.Heard(Report{Session{"a", 5}, 1, 4, mark(7)}, at(130)), l.Heard(Report{Session{"a", 5}, 2, 3, mark(7)}, at(130)))
		},
		"of an earlier start": func(l *Life) (w []Worth) {
			l.Opened(3, "old", at(130))
			return append(w, l.Heard(Report{Session{"z", 4}, 900, 3, mark(7)}, at(130)))
		},
		"under the old number": func(l *Life) (w []Worth) {
			return append(w, l.Heard(Report{Session{"a", 5}, 2, 1, mark(7)}, at(130)), l.Heard(Report{Session{"a", 5}, 3, 1, mark(7)}, at(131)))
		},
	} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprint(name, dead), func(t *testing.T) {
				l, v := living(t)
				l.Opened(2, "relay", at(100))
				if l.Heard(Report{Session{"a", 5}, 4, 2, mark(8)}, at(100)) != News {
					t.Error("the newest report is none")
				}
				for i, w := range late(&l) {
					if w != Past {
						t.Errorf("report %d of the past is worth %d", i, w)
					}
				}
				l.Asked(3, at(131))
				if l.Through() != "relay" {
					t.Errorf("the connection that counts goes through %q", l.Through())
				}
				if l.Heard(Report{Session{"a", 5}, 5, 2, mark(9)}, at(150)) != News {
					t.Error("a report over the newest connection is none")
				}
				for conn := uint64(1); conn <= 4; conn++ {
					if conn != 2 {
						l.Closed(conn, dead, at(160))
					}
				}
				l, d := Decide(l, v, at(161))
				want(t, d, Here, True, ReasonAnswering)
				if d.High.Version != 9 || !d.Believed {
					t.Errorf("%+v", d)
				}
				l.Closed(2, true, at(170))
				_, d = Decide(l, v, at(170))
				want(t, d, Gone, Unknown, ReasonHostGone)
			})
		}
	}
}

// TestCopyOfTheMemory: who goes on with older numbers over a connection of its own is no past.
func TestCopyOfTheMemory(t *testing.T) {
	l, v := living(t)
	l.Heard(Report{Session{"a", 5}, 9, 1, mark(7)}, at(1))
	l.Opened(2, "", at(100))
	for number, second := range []float64{100, 110, 116} {
		l.Heard(Report{Session{"a", 5}, 2 + uint64(number), 2, mark(7)}, at(second))
		if _, d := Decide(l, v, at(second)); d.Believed != (second <= 115) {
			t.Errorf("at second %v %+v", second, d)
		}
	}
}

// TestCopyOfTheDisk: the host that was copied goes on over its connection, after the copy has started once more often and counts. What a relay has kept comes
// at once, however much it is.
func TestCopyOfTheDisk(t *testing.T) {
	l, v := living(t)
	l.Opened(2, "", at(100))
	l.Heard(Report{Session{"b", 6}, 1, 2, mark(7)}, at(100))
	for number, second := range []float64{110, 120, 121, 135, 136} {
		l.Heard(Report{Session{"a", 5}, 2 + uint64(number), 1, mark(7)}, at(second))
		if _, d := Decide(l, v, at(second)); d.Believed != (second <= 135) {
			t.Errorf("at second %v %+v", second, d)
		}
	}
}

// TestMemoryPutBack: a machine that was put back with its memory is heard at once where it was silent for long. Otherwise its first report may be what a relay
// has kept; what it says then is taken, though it may be a copy.
func TestMemoryPutBack(t *testing.T) {
	for _, away := range []float64{3600, 100} {
		l, v := living(t)
		l.Heard(Report{Session{"a", 5}, 500, 1, mark(7)}, at(1))
		l.Closed(1, true, at(10))
		l.Opened(2, "", at(away))
		for i, second := range []float64{0, 30, 60} {
			if worth := l.Heard(Report{Session{"a", 5}, 40 + uint64(i), 2, mark(7)}, at(away+second)); (worth == News) != (away > 600 || i > 0) {
				t.Errorf("report %d after %v s is worth %d", i, away, worth)
			}
		}
		_, d := Decide(l, v, at(away+60))
		if d.Presence != Here || d.Believed != (away > 600) {
			t.Errorf("after %v s %+v", away, d)
		}
	}
}

// TestReportsCross: a report that was made for the old connection after the first of the new one, which is no older one then.
func TestReportsCross(t *testing.T) {
	for _, closedFirst := range []bool{false, true} {
		l, v := living(t)
		l.Heard(Report{Session{"a", 5}, 11, 1, mark(7)}, at(20))
		if closedFirst {
			l.Closed(1, false, at(20))
		}
		l.Opened(2, "", at(21))
		l.Heard(Report{Session{"a", 5}, 10, 2, mark(7)}, at(21))
		if !closedFirst {
			l.Closed(1, false, at(22))
		}
		l, d := Decide(l, v, at(60))
		want(t, d, Here, True, ReasonAnswering)
		if l.Heard(Report{Session{"a", 5}, 12, 2, mark(8)}, at(300)) != News {
			t.Error("the next report is none")
		}
		if _, d = Decide(l, v, at(300)); !d.Believed || d.Presence != Here {
			t.Errorf("%+v", d)
		}
	}
}

// Two sessions that are the same start of one agent are of two agents, at first sight.
func TestCopyOfTheSameStart(t *testing.T) {
	l, v := living(t)
	l.Opened(2, "", at(1))
	l.Heard(Report{Session{"b", 5}, 2, 2, mark(7)}, at(1))
	_, d := Decide(l, v, at(1))
	want(t, d, Here, False, Cloned)
	if d.Believed || !d.Cordon || d.WakeAt != at(601) {
		t.Errorf("%+v", d)
	}
}

// The second return waits, and each one longer.
func TestFlapping(t *testing.T) {
	l, v := living(t)
	now, conn := 0.0, uint64(1)
	var d Decision
	for i, hold := range []float64{0, 15, 30, 60, 120, 240, 300, 300} {
		l.Closed(conn, true, at(now))
		l, d = Decide(l, v, at(now))
		want(t, d, Gone, Unknown, ReasonHostGone)
		now, conn = now+1, conn+1
		l.Opened(conn, "", at(now))
		l.Heard(Report{Session{"a", 5}, conn, conn, mark(7)}, at(now))
		l, d = Decide(l, v, at(now))
		if hold > 0 {
			want(t, d, Gone, Unknown, ReasonHostGone)
			if d.WakeAt != at(now+hold) {
				t.Errorf("return %d at %v, wakes up at %v", i, at(now), d.WakeAt)
			}
			now += hold
		}
		l, d = Decide(l, v, at(now))
		want(t, d, Here, True, ReasonAnswering)
		now++
	}
	// After ten minutes without a loss it begins anew.
	l.Closed(conn, true, at(now+700))
	l, _ = Decide(l, v, at(now+700))
	l.Opened(conn+1, "", at(now+701))
	_, d = Decide(l, v, at(now+701))
	want(t, d, Here, True, ReasonAnswering)
}

// TestReportEvery: a host reports again before its last report is older than the lease of what may come by 30 s, with what reports take on their way; and
// nobody is asked for what hosts do anyway.
func TestReportEvery(t *testing.T) {
	for lease := 15 * time.Second; lease < 7*24*time.Hour; lease += 5 * time.Second {
		every := ReportEvery(lease)
		if every == 0 {
			every = quietMax
		}
		if every > lease+10*time.Second {
			t.Errorf("with a lease of %s hosts report each %s", lease, every)
		}
	}
	if ReportEvery(0) != 0 || ReportEvery(quietMax) != 0 {
		t.Error("hosts are asked to report for nothing")
	}
}

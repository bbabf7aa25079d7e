package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestStickyStays: one that comes and goes is left alone for two minutes, and all are tried where none goes well.
func TestStickyStays(t *testing.T) {
	now := time.Unix(0, 0)
	s := NewSticky(3)
	for _, want := range []int{1, 2, 0, 1} {
		if s.Failed(now); s.Current() != want {
			t.Fatalf("after a failure it is with %d, want %d", s.Current(), want)
		}
		now = now.Add(time.Second)
	}
	s = NewSticky(2)
	s.Failed(now)
	if s.Current() != 1 {
		t.Fatal("it has stayed with what has failed")
	}
	now = now.Add(stickFor)
	if s.Failed(now); s.Current() != 0 {
		t.Error("what has failed long ago is not tried")
	}
	alone := NewSticky(1)
	if alone.Failed(now); alone.Current() != 0 {
		t.Error("the only one is not tried again")
	}
}

// TestStickyLearns: one that it comes to know of is turned to after a failure, and it stays where it is until then.
func TestStickyLearns(t *testing.T) {
	now := time.Unix(0, 0)
	s := NewSticky(1)
	s.Failed(now)
	if s.Resize(3); s.Current() != 0 {
		t.Errorf("it is with %d", s.Current())
	}
	if s.Failed(now); s.Current() != 1 {
		t.Errorf("after a failure it is with %d", s.Current())
	}
	if s.Resize(1); s.Current() != 0 {
		t.Errorf("of one it is with %d", s.Current())
	}
}

// TestStickyForAll: whatever fails and when, it goes to none that has failed within two minutes while there is another one; and it leaves
// what has just failed where there is another one at all.
func TestStickyForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "sources")
		s, failed, now := NewSticky(n), map[int]time.Time{}, time.Unix(1_000_000, 0)
		for range rapid.IntRange(1, 50).Draw(t, "failures") {
			now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			was := s.Current()
			failed[was] = now
			s.Failed(now)
			fresh := 0
			for i := range n {
				if at, has := failed[i]; !has || now.Sub(at) >= stickFor {
					fresh++
				}
			}
			at, has := failed[s.Current()]
			if fresh > 0 && has && now.Sub(at) < stickFor {
				t.Fatalf("it is with %d, which failed %s ago, and %d others have not", s.Current(), now.Sub(at), fresh)
			}
			if n > 1 && s.Current() == was {
				t.Fatalf("it has stayed with %d", was)
			}
		}
	})
}

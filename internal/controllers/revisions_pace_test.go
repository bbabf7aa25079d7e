package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Whatever the changes are: who makes them slowly never waits, and the last one has its revision after five seconds at the most.
func TestPaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p paces
		key, start := types.NamespacedName{Namespace: "qa", Name: "web"}, time.Unix(1e9, 0)
		now, made, waiting := start, int64(0), start // since when a generation is without revision
		slow := rapid.Bool().Draw(t, "slow")
		for generation := range int64(rapid.IntRange(1, 200).Draw(t, "changes")) {
			pause := rapid.IntRange(0, 30)
			if slow {
				pause = rapid.IntRange(100, 7000)
			}
			now = now.Add(time.Duration(pause.Draw(t, "pause")) * time.Millisecond)
			if made == generation {
				waiting = now
			}
			wait := p.wait(key, "1", generation+1, now)
			switch {
			case wait == 0:
				p.made(key, "1", generation+1, now)
				made = generation + 1
			case slow:
				t.Fatalf("a change waits for %v", wait)
			case now.Add(wait).Sub(waiting) > changeWaitMax:
				t.Fatalf("what is changed since %v waits for %v more", now.Sub(waiting), wait)
			case p.wait(key, "1", generation+1, now.Add(wait)) != 0:
				t.Fatalf("after %v it waits again", wait)
			}
		}
	})
}

// A thousand changes in a second are two revisions, and in ten seconds three.
func TestPacesStorm(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  int
	}{{time.Millisecond, 2}, {10 * time.Millisecond, 3}, {200 * time.Millisecond, 1000}} {
		var p paces
		key := types.NamespacedName{Name: "web"}
		start := time.Unix(1e9, 0)
		revisions, made := 0, int64(0)
		look := func(generation int64, now time.Time) {
			if made != generation && p.wait(key, "1", generation, now) == 0 {
				p.made(key, "1", generation, now)
				made = generation
				revisions++
			}
		}
		now := start
		for generation := range int64(1000) {
			look(generation+1, now)
			now = now.Add(c.every)
		}
		look(1000, now.Add(changeWaitMax))
		if revisions != c.want || made != 1000 {
			t.Errorf("every %v: %d revisions, the last of generation %d; want %d", c.every, revisions, made, c.want)
		}
	}
}

// A config that was deleted and made anew owes nothing of the one before.
func TestPacesOfAnotherConfig(t *testing.T) {
	var p paces
	key, now := types.NamespacedName{Name: "web"}, time.Unix(1e9, 0)
	p.made(key, "1", 1, now)
	if wait := p.wait(key, "1", 2, now); wait != changeTime {
		t.Errorf("it waits for %v", wait)
	}
	if wait := p.wait(key, "2", 2, now); wait != 0 {
		t.Errorf("another one of that name waits for %v", wait)
	}
	p.forget(key)
	if wait := p.wait(key, "1", 2, now); wait != 0 || len(p.last) != 0 {
		t.Errorf("it waits for %v after it was forgotten; %d are remembered", wait, len(p.last))
	}
}

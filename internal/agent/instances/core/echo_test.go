package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/run"
)

// TestEchoes: of a report that was made in the last minute it is known when, or that it was not before then; of any other nothing is.
func TestEchoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Echoes
		now := run.Moment(time.Hour)
		made := map[uint64][]run.Moment{}
		for i := range rapid.IntRange(0, 300).Draw(t, "reports") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			echo := e.Next(now, uint64(i)+2)
			if echo == 0 {
				t.Fatal("an echo is 0")
			}
			made[echo] = append(made[echo], now)
		}
		for echo, all := range made {
			at, known := e.Of(echo)
			if last := all[len(all)-1]; known && (at > all[0] || last.Sub(at) >= echoEvery) || !known && now.Sub(last) < time.Minute {
				t.Fatalf("of %v it is told %v, %v, at %v", all, at, known, now)
			}
		}
		if at, known := e.Of(0); known {
			t.Fatalf("of no echo it is told %v", at)
		}
		if at, known := e.Of(1 << 40); known {
			t.Fatalf("of another's echo it is told %v", at)
		}
	})
}

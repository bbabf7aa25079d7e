package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// due reports whether a rest is due within some time.
func due(r *Rest, within time.Duration) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-r.Due():
		return true
	case <-late.C:
		return false
	}
}

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRest()
		if due(r, time.Hour) {
			t.Error("it rests, and nothing has happened")
		}
		r.Happened()
		if due(r, restPause-time.Nanosecond) {
			t.Error("it rests too soon")
		}
		r.Happened()
		if !due(r, 2*time.Nanosecond) {
			t.Error("what goes on happening puts the rest off")
		}
		r.Begun()
		r.Rested()
		r.Happened() // what the rest has brought about
		if due(r, time.Hour) {
			t.Error("a rest brings about the next one")
		}
		r.Happened()
		r.In(time.Second)
		if !due(r, 2*time.Second) {
			t.Error("it does not rest when it was told to")
		}
		r.Begun()
		r.Again()
		if !due(r, 2*restPause) {
			t.Error("it does not rest again")
		}
	})
}

package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// TestBudget: a caller has no more places than it may, others wait for one, and what is left is given on.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(2, prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting"}))
		enter := func(ctx context.Context, caller string) (leave func(), err error) {
			return b.Enter(ctx, caller, 2, time.Second)
		}
		busy := func(caller string) {
			t.Helper()
			var e *reason.Error
			if _, err := enter(t.Context(), caller); !errors.As(err, &e) || e.Code != reason.TransferBusy || e.After < time.Second || e.After >= 5*time.Second {
				t.Errorf("%s is not told when to come again: %v", caller, err)
			}
		}
		first, err := enter(t.Context(), "web-1")
		if err != nil {
			t.Fatal(err)
		}
		second, err := enter(t.Context(), "web-1")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if busy("web-1"); time.Since(began) != 0 {
			t.Error("a caller with all its places waits for another")
		}
		if busy("web-2"); time.Since(began) != time.Second {
			t.Errorf("another waits for a place for %v", time.Since(began))
		}
		ends, end := context.WithCancel(t.Context())
		end()
		if _, err := enter(ends, "web-2"); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that has ended: %v", err)
		}
		go func() {
			time.Sleep(time.Second / 2)
			first()
		}()
		third, err := enter(t.Context(), "web-2")
		if err != nil || b.Taken() != 2 {
			t.Fatalf("a place that was left is not given on: %v", err)
		}
		second()
		third()
		if b.Taken() != 0 || len(b.callers) != 0 || len(b.queue) != 0 {
			t.Errorf("all have left: %d places are taken, %v count, %d wait", b.Taken(), b.callers, len(b.queue))
		}
	})
}

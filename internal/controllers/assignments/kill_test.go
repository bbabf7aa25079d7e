package assignments

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/declare"
)

// dying is the store of a server that is killed right after so many writes: the last one is done, and nobody hears of that.
type dying struct {
	Objects
	left atomic.Int64
	dead atomic.Bool
}

func (d *dying) write(ctx context.Context, do func() error) error {
	left := d.left.Add(-1)
	if left > 0 {
		return do()
	}
	if left == 0 {
		_ = do() // whether it is done or not, nobody hears of it
		d.dead.Store(true)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *dying) Create(ctx context.Context, o runtime.Object) error {
	return d.write(ctx, func() error { return d.Objects.Create(ctx, o) })
}

func (d *dying) Update(ctx context.Context, o runtime.Object) error {
	return d.write(ctx, func() error { return d.Objects.Update(ctx, o) })
}

func (d *dying) UpdateStatus(ctx context.Context, o runtime.Object) error {
	return d.write(ctx, func() error { return d.Objects.UpdateStatus(ctx, o) })
}

// TestKilledAfterEveryWrite: a server that dies in the middle of a rollout, such as between an Assignment and the status of its rollout, leaves
// nothing that the next one does not go on with: never on more hosts than may be unavailable at once, and to the end.
func TestKilledAfterEveryWrite(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 4
	}
	for after, complete := 1, false; !complete; after += step {
		t.Run(fmt.Sprint("writes=", after), func(t *testing.T) { complete = killedAfter(t, after) })
		if t.Failed() {
			return
		}
	}
}

// killedAfter reports whether the rollout was complete before it came to so many writes.
func killedAfter(t *testing.T, writes int) (complete bool) {
	r := newRig(t)
	hosts := []string{"n0", "n1", "n2"}
	for _, name := range hosts {
		r.join(name, "qa")
	}
	one := r.declare("qa", "web", "one", declare.Rollout{})
	r.settles("qa", "web", one, "Complete")
	r.stop()
	d := &dying{Objects: local}
	d.left.Store(int64(writes))
	r.beginOn(d)
	two := r.declare("qa", "web", "two", declare.Rollout{})
	paced := func() {
		t.Helper()
		var unheard []string // hosts that have it, and have not said so
		for _, name := range hosts {
			if a, g := r.assignment(name), r.agents[name]; slices.Contains(r.assigned(name), two) && (g.enforce == nil || g.enforce.ResourceVersion != a.ResourceVersion) {
				unheard = append(unheard, name)
			}
		}
		if len(unheard) > 1 {
			t.Fatalf("%v have it at once", unheard)
		}
	}
	r.eventually("it is killed, or all have it", func() string {
		paced()
		s := r.config("qa", "web").Status.Rollout
		complete = s.Target == two && s.Phase == "Complete"
		return unless(complete || d.dead.Load(), "not yet")
	})
	r.stop()
	for _, g := range r.agents {
		g.enforce = nil // each says again what it has
	}
	r.presence.mu.Lock()
	clear(r.presence.seen)
	r.presence.mu.Unlock()
	r.begin()
	r.eventually("the next one brings it to all", func() string {
		paced()
		s := r.config("qa", "web").Status.Rollout
		return unless(s.Target == two && s.Proven == two && s.Phase == "Complete" && s.Done == 3, fmt.Sprintf("%+v", s))
	})
	for _, name := range hosts {
		if got := r.assigned(name); !slices.Equal(got, []string{two}) {
			t.Errorf("%s has %v", name, got)
		}
	}
	return complete
}

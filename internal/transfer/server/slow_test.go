package server

import (
	"bytes"
	"testing"

	"tako.dev/tako/internal/transfer/wire"
)

// TestSlowHostCostsNoMemory: what a host does not read is kept nowhere, however much of it there is. A queue of all of it would be a
// hundred times the bound.
func TestSlowHostCostsNoMemory(t *testing.T) {
	noLeak(t)
	const heads, size, bound = 100_000, 4 << 10, 4 << 20
	r := newRig(t, nil)
	r.add("slow")
	r.add("quick")
	r.as("slow").watch(t.Context(), wire.Report{}) // nobody reads what comes
	quick := r.as("quick").watch(t.Context(), wire.Report{})
	before := inUse()
	for i := range heads {
		head := bytes.Repeat([]byte{byte(i)}, size)
		r.give("slow", head)
		if i%1_000 == 0 {
			r.give("quick", head)
			if f := quick.next(); len(f.Head) != size {
				t.Fatalf("another host gets %+v", f)
			}
		}
	}
	if grown := int64(inUse()) - int64(before); grown > bound {
		t.Errorf("%d bytes more for a host that has not read %d heads, want at most %d", grown, heads, bound)
	}
	r.stop()
}

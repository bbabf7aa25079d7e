package enroll

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

// testCount: of many hosts at once, over two servers, exactly as many get in as the token is for.
func testCount(t *testing.T, s *store) {
	const hosts, count = 50, 10
	one := newFleet(t, s, s.local)
	other := newFleet(t, s, s.local)
	other.opts.Keys, other.opts.Tokens = one.opts.Keys, one.tokens
	token := one.token("c-one", v1alpha1.JoinToken{Pattern: "c-*", Count: new(int32(count))}).Token
	errs := make([]error, hosts)
	var all sync.WaitGroup
	for i := range hosts {
		r := newArm().request(t, fmt.Sprint("c-", i), token)
		at := []*fleet{one, other}[i%2]
		all.Go(func() { _, errs[i] = at.Join(t.Context(), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), r) })
	}
	all.Wait()
	in := 0
	for i, err := range errs {
		n := one.node(fmt.Sprint("c-", i))
		switch {
		case err == nil && n != nil && n.Status.Identity != nil:
			in++
		case err == nil || n != nil || !reason.Is(err, reason.TokenRefused):
			t.Errorf("host %d: %v, node %v", i, err, n)
		}
	}
	if in != count || one.uses("c-one") != count {
		t.Errorf("%d of %d got in, %d are counted", in, count, one.uses("c-one"))
	}
	// Many with one name: one gets it, and the uses of the others are given back.
	token = one.token("c-two", v1alpha1.JoinToken{Count: new(int32(count))}).Token
	for i := range count {
		r := newArm().request(t, "one-name", token)
		all.Go(func() { _, errs[i] = one.Join(t.Context(), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), r) })
	}
	all.Wait()
	in = 0
	for _, err := range errs[:count] {
		if err == nil {
			in++
		} else if !reason.Is(err, reason.NameTaken) {
			t.Error(err)
		}
	}
	if in != 1 || one.uses("c-two") != 1 {
		t.Errorf("%d got the name, %d uses are counted", in, one.uses("c-two"))
	}
}

// cutOff is a storage whose writes end after some of them: with a failure, or without an answer.
type cutOff struct {
	Objects
	left int
	done bool // the write is done and only the answer is missing
	dead bool // and so is every later one
	with error
}

func (c *cutOff) write(do func() error) error {
	c.left--
	if c.left >= 0 || c.left < -1 && !c.dead {
		return do()
	}
	if c.done && c.left == -1 {
		if err := do(); err != nil {
			return err
		}
	}
	return c.with
}

// Create may be cut off.
func (c *cutOff) Create(ctx context.Context, o runtime.Object) error {
	return c.write(func() error { return c.Objects.Create(ctx, o) })
}

// UpdateStatus may be cut off.
func (c *cutOff) UpdateStatus(ctx context.Context, o runtime.Object) error {
	return c.write(func() error { return c.Objects.UpdateStatus(ctx, o) })
}

// testCutOff: wherever a join is cut off, no use is ever admitted twice, and the host gets in when it tries again while one is left.
func testCutOff(t *testing.T, s *store) {
	lost, no := apierrors.NewTimeoutError("lost", 1), apierrors.NewForbidden(v1alpha1.Resource("nodes"), "", nil)
	conflict := apierrors.NewConflict(v1alpha1.Resource("nodes"), "", nil)
	for i, c := range []struct {
		left  int
		done  bool
		with  error
		in    bool  // that the host gets in all the same
		uses  int32 // after the attempt
		after int32 // after the next
	}{
		{0, false, lost, false, 0, 1},    // nothing is counted
		{0, true, lost, false, 1, 2},     // counted, and nobody knows
		{1, false, lost, false, 1, 2},    // counted, no node
		{1, true, lost, false, 1, 2},     // the node is there and waits
		{2, false, lost, false, 1, 2},    // the same
		{2, true, lost, false, 1, 1},     // all is done, the answer is lost
		{1, false, no, false, 0, 1},      // refused, and given back
		{0, false, conflict, true, 1, 1}, // somebody else was first
		{1, false, apierrors.NewAlreadyExists(v1alpha1.Resource("nodes"), ""), true, 1, 1},
		{2, false, conflict, true, 1, 1},
	} {
		for _, dead := range []bool{false, true} {
			if dead && c.with != lost {
				continue
			}
			o := &cutOff{Objects: s.local, left: c.left, done: c.done, dead: dead, with: c.with}
			f := newFleet(t, s, o)
			name := fmt.Sprint("cut-", i, "-", dead)
			token := f.token(name, v1alpha1.JoinToken{Count: new(int32(2))}).Token
			a := newArm()
			if _, err := f.Join(t.Context(), home, a.request(t, name, token)); (err == nil) != c.in {
				t.Errorf("%s: %v", name, err)
			}
			if got := f.uses(name); got != c.uses {
				t.Errorf("%s: %d uses, want %d", name, got, c.uses)
			}
			o.left = 100
			f.joins(a, name, token)
			if got := f.uses(name); got != c.after {
				t.Errorf("%s: then %d uses, want %d", name, got, c.after)
			}
		}
	}
	// A token that has the name of one that was revoked is another one.
	f := newFleet(t, s, s.local)
	f.token("cut", v1alpha1.JoinToken{})
	revoked := joinToken(v1alpha1.JoinToken{})
	revoked.UID = "of another"
	for _, name := range []string{"cut", "nobody"} {
		revoked.Name = name
		if err := f.count(t.Context(), revoked); !reason.Is(err, reason.TokenRefused) || name == "cut" && f.uses("cut") != 0 {
			t.Errorf("%s was counted: %v", name, err)
		}
	}
}

package heads

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
)

const (
	// catchUpMax is how long a host waits for a server that is behind, as trust.md says.
	catchUpMax = 2 * time.Second
	// lookEvery is how often the view is looked at meanwhile: seldom for a machine, and not to be felt by a host.
	lookEvery = 20 * time.Millisecond
	// behindAgain is when it is to come again after that, and suspectAgain when there is nothing to wait for but a person.
	behindAgain  = time.Second
	suspectAgain = 30 * time.Second
)

// Shown is told of the highest head that a host has accepted. Where that is above what is known here it waits for a moment, because
// another server may have signed it. Errors: RollbackSuspected when the store has never had such a state, StoreUnreachable when that is
// not known, and ServerBehind when it has, and this server does not know it yet; After says when to come again.
func (h *Heads) Shown(ctx context.Context, who server.Identity, mark catalog.Mark) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpMax)
	defer cancel()
	standing := h.view.judge(who, mark, h.epoch())
	if standing == shownSuspect && h.readTrust(ctx) == nil {
		standing = h.view.judge(who, mark, h.epoch()) // somebody may have looked at that, and begun another epoch just now
	}
	switch standing {
	case shownSuspect:
		return suspected(who, mark, "somebody has to look at that first")
	case shownKnown:
		return nil
	}
	if mark.Epoch > h.epoch() {
		if err := h.readTrust(ctx); err != nil {
			return unreachable(who, err)
		}
	}
	revision, err := h.options.Revision(ctx)
	if err != nil {
		return unreachable(who, err)
	}
	if mark.Version > revision || mark.Epoch > h.epoch() {
		version, _ := h.view.newestOf(who.Name)
		return h.suspect(who, mark, version, revision)
	}
	// The newest Assignment of the node, read from the store itself: it says whether this server is behind, or there is no such state.
	stored, err := h.stored(ctx, who)
	switch {
	case err != nil:
		return unreachable(who, err)
	case stored == 0:
		return nil // there is nothing that could be too old
	case stored < mark.Version:
		return h.suspect(who, mark, stored, revision)
	}
	return h.catchUp(ctx, who, mark)
}

// stored is the version of a node's Assignment in the store; 0 when it has none.
func (h *Heads) stored(ctx context.Context, who server.Identity) (uint64, error) {
	var o v1alpha1.Assignment
	switch err := h.options.Objects.Get(ctx, types.NamespacedName{Name: who.Name}, &o); {
	case apierrors.IsNotFound(err) || err == nil && string(o.Spec.NodeUID) != who.UID:
		return 0, nil
	case err != nil:
		return 0, err
	}
	return number(o.ResourceVersion), nil
}

// catchUp waits until the view knows what the store has.
func (h *Heads) catchUp(ctx context.Context, who server.Identity, mark catalog.Mark) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for h.view.judge(who, mark, h.epoch()) != shownKnown {
		select {
		case <-look.C:
		case <-ctx.Done():
			return h.behind(who, mark)
		}
	}
	return nil
}

// suspect notes that a host has seen what the store does not know, and tells once.
func (h *Heads) suspect(who server.Identity, mark catalog.Mark, version, revision uint64) error {
	if h.view.suspect(who, max(mark.Epoch, h.epoch())) {
		h.metrics.suspected.Inc()
		h.options.Log.Error("a host has accepted a state that the store does not know: was etcd replaced by an old copy?",
			"node", who.Name, "epoch", mark.Epoch, "version", mark.Version, "stored", version, "revision", revision)
		h.options.Suspected(Suspicion{who, mark, version, revision})
	}
	return suspected(who, mark, fmt.Sprintf("the store is at revision %d, and its newest state of the node has version %d", revision, version))
}

func suspected(who server.Identity, mark catalog.Mark, why string) error {
	return &reason.Error{
		Code: reason.RollbackSuspected, Doing: fmt.Sprintf("go on from version %d of epoch %d of node %s", mark.Version, mark.Epoch, who.Name), Cause: fmt.Errorf("%s", why),
		Hint: "if the store is right as it is: `tako trust bump-epoch`", After: suspectAgain,
	}
}

// unreachable is when nobody knows whether the store has what a host has accepted.
func unreachable(who server.Identity, cause error) error {
	return &reason.Error{Code: reason.StoreUnreachable, Doing: "look for the newest state of node " + who.Name, Cause: cause, After: behindAgain}
}

// behind is when the store has it, and the view has not.
func (h *Heads) behind(who server.Identity, mark catalog.Mark) error {
	h.metrics.behind.Inc()
	seen, _ := h.view.newestOf(who.Name)
	return &reason.Error{
		Code: reason.ServerBehind, Doing: fmt.Sprintf("go on from version %d of epoch %d of node %s", mark.Version, mark.Epoch, who.Name),
		Cause: fmt.Errorf("this server knows version %d", seen), Hint: "another server knows it, and this one will in a moment", After: behindAgain,
	}
}

func (h *Heads) epoch() uint64 {
	if t := h.trust.Load(); t != nil {
		return t.epoch
	}
	return 0
}

// standing is what a mark is to the view.
type standing int

const (
	shownKnown   standing = iota // nothing above what is known here
	shownAbove                   // something above
	shownSuspect                 // the same as before, when nobody knew what it is
)

func (v *view) judge(who server.Identity, mark catalog.Mark, epoch uint64) standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[who.Name]
	if n != nil && n.uid == who.UID && n.suspects(who, epoch) {
		return shownSuspect
	}
	if mark.Version == 0 || mark.Epoch < epoch {
		return shownKnown
	}
	if mark.Epoch == epoch && n != nil && n.assigned != nil && n.assigned.uid == who.UID && mark.Version <= n.assigned.version {
		return shownKnown
	}
	return shownAbove
}

// suspect notes the epoch until whose end nothing is signed for a node, and reports whether that is news.
func (v *view) suspect(who server.Identity, epoch uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[who.Name]
	if n == nil || n.uid != who.UID || n.suspects(who, epoch) {
		return false
	}
	n.suspect, n.suspectKey = epoch, who.Key
	return true
}

// suspects says whether a host has shown what the store does not know, and nobody has begun another epoch since. The next host that a
// person puts in its place has shown nothing.
func (n *node) suspects(who server.Identity, epoch uint64) bool {
	return n.suspect != 0 && n.suspect >= epoch && n.suspectKey == who.Key
}

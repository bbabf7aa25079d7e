package enroll

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
)

// goneMax is how many UIDs are remembered that are gone: more hosts than anybody removes while they go on asking.
const goneMax = 4096

// member is whose a UID is.
type member struct{ name, key string }

// index knows the Nodes that have a host, by UID. Of each it keeps some hundred bytes.
type index struct {
	mu    sync.RWMutex // guards all below
	byUID map[types.UID]member
	gone  map[types.UID]struct{}
	order []types.UID // of gone, the oldest first

	changes atomic.Uint64 // of whose a UID is
}

func newIndex() *index {
	return &index{byUID: map[types.UID]member{}, gone: map[types.UID]struct{}{}}
}

// get is whose a UID is; gone says that it is nobody's any more.
func (x *index) get(uid types.UID) (m member, gone bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if _, gone = x.gone[uid]; gone {
		return member{}, true // also where a list that is behind still has it
	}
	return x.byUID[uid], false
}

// forget notes that a UID is gone. It never comes back.
func (x *index) forget(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byUID, uid)
	x.changes.Add(1)
	if _, is := x.gone[uid]; is {
		return
	}
	if len(x.order) >= goneMax {
		delete(x.gone, x.order[0])
		x.order = append(x.order[:0], x.order[1:]...)
	}
	x.gone[uid] = struct{}{}
	x.order = append(x.order, uid)
}

// retryMax is how long a watch that has ended waits at most until it is begun again: a Node that is deleted meanwhile is known to be
// gone within 5 s all the same.
const retryMax = 2 * time.Second

// follow keeps the index until the context ends.
func (x *index) follow(ctx context.Context, objects Objects) {
	lw := objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNode), false)
	cache.NewReflectorWithOptions(lw, &v1alpha1.Node{}, nodes{x}, cache.ReflectorOptions{
		Name: "hosts", Backoff: &wait.Backoff{Duration: retryMax / 8, Cap: retryMax, Factor: 2, Steps: 4, Jitter: 0},
	}).RunWithContext(ctx)
}

// nodes is the index as a watch fills it.
type nodes struct{ *index }

var _ cache.ReflectorStore = nodes{}

// Add is called for a new Node.
func (n nodes) Add(o any) error { return n.Update(o) }

// Update is called for a changed Node.
func (n nodes) Update(o any) error {
	node, is := o.(*v1alpha1.Node)
	if !is {
		return fmt.Errorf("%T is no node", o)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.putLocked(node)
	return nil
}

func (n nodes) putLocked(node *v1alpha1.Node) {
	was := n.byUID[node.UID]
	if node.Status.Identity == nil || node.DeletionTimestamp != nil {
		delete(n.byUID, node.UID)
	} else {
		n.byUID[node.UID] = member{name: node.Name, key: node.Status.Identity.Key}
	}
	if n.byUID[node.UID] != was {
		n.changes.Add(1)
	}
}

// Delete is called for a Node that is gone.
func (n nodes) Delete(o any) error {
	node, is := o.(*v1alpha1.Node)
	if !is {
		return fmt.Errorf("%T is no node", o)
	}
	n.forget(node.UID)
	return nil
}

// Replace is called with all Nodes.
func (n nodes) Replace(all []any, _ string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.byUID)
	n.changes.Add(1)
	for _, o := range all {
		node, is := o.(*v1alpha1.Node)
		if !is {
			return fmt.Errorf("%T is no node", o)
		}
		n.putLocked(node)
	}
	return nil
}

// Resync has nothing to do.
func (nodes) Resync() error { return nil }

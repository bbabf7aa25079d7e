// Package follow goes along with what happens on the server, over restarts of it. Wait watches one object until what package
// await judges is decided, and ends at once then. Feed shows objects and then each change of them once, whatever becomes of
// the watches meanwhile. It owns no goroutine.
package follow

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// RetryDelay is the pause after a watch or list that has failed: short enough that nobody waits for it, long enough that a
// server which is starting is not asked in a hot loop.
const RetryDelay = time.Second

// errDone ends a watch from inside.
var errDone = errors.New("done")

// errAgain is that it is time to look again.
var errAgain = errors.New("look again")

// softEvery is how often a node is looked at again while it is waited for. What was heard of its host is filled in when it is read,
// and most of it is no change that a watch tells. A person does not notice half a second.
const softEvery = 500 * time.Millisecond

// Wait watches an object until a goal is reached, which is nil. It ends at once when the goal cannot be reached. Errors:
// those of package failure with the exit codes of a stalled wait, of a deadline and of an object that does not exist. The
// deadline is that of the context.
func Wait(ctx context.Context, server *remote.Server, ref remote.Ref, goal await.Goal) error {
	return (&waiting{ref: ref, goal: goal}).wait(ctx, server)
}

// Converged is Wait for a node that is to converge. By itself a node says nothing of what was declared a moment ago: what was read says
// whether it has that too.
func Converged(ctx context.Context, server *remote.Server, ref remote.Ref, goal await.Goal, read *Declared) error {
	return (&waiting{ref: ref, goal: goal, read: read}).wait(ctx, server)
}

// Gone waits until one object is gone; another one of its name counts as that. It returns what Wait does.
func Gone(ctx context.Context, server *remote.Server, ref remote.Ref, uid types.UID) error {
	return (&waiting{ref: ref, goal: await.Gone(), uid: uid}).wait(ctx, server)
}

// Drained waits until nothing of any instance runs on a node that is drained. tell is called with each other thing that is waited for,
// when somebody has looked at the drain.
func Drained(ctx context.Context, server *remote.Server, ref remote.Ref, tell func(string)) error {
	goal, err := await.Parse("condition=" + v1alpha1.ConditionDrained)
	if err != nil {
		return err
	}
	looked := func(words string) {
		if strings.HasPrefix(words, v1alpha1.ConditionDrained) {
			tell(words)
		}
	}
	return (&waiting{ref: ref, goal: goal, tell: looked}).wait(ctx, server)
}

func (w *waiting) wait(ctx context.Context, server *remote.Server) error {
	for {
		err := w.once(ctx, server)
		switch {
		case errors.Is(err, errDone):
			return nil
		case errors.Is(err, errAgain):
			continue
		}
		if err != nil && !IsPassing(err) || ctx.Err() != nil {
			return w.end(ctx, err)
		}
		// After a watch that ended well too: a server that ends every watch at once is not asked in a hot loop.
		select {
		case <-ctx.Done():
		case <-time.After(RetryDelay):
		}
	}
}

// waiting is a wait for one object.
type waiting struct {
	ref  remote.Ref
	goal await.Goal
	uid  types.UID    // of the object that is to go; empty before it was seen
	read *Declared    // of a node that is to converge: what is declared; nil otherwise
	tell func(string) // takes what is waited for, whenever it is something else; nil: nobody is told
	last await.Verdict
	seen bool
}

// once lists the object and watches it until the goal is decided or the watch ends.
func (w *waiting) once(ctx context.Context, server *remote.Server) error {
	query := remote.Query{Kind: w.ref.Kind, Namespace: w.ref.Namespace, Name: w.ref.Name}
	var now *unstructured.Unstructured
	version, err := server.List(ctx, query, func(o *unstructured.Unstructured) error {
		now = o
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.look(ctx, now); err != nil {
		return err
	}
	watching := ctx
	if w.ref.Kind.Kind == v1alpha1.KindNode && w.ref.Kind.Group == v1alpha1.GroupName {
		var cancel context.CancelFunc
		watching, cancel = context.WithTimeout(ctx, softEvery)
		defer cancel()
	}
	_, err = server.Watch(watching, query, version, func(t remote.EventType, o *unstructured.Unstructured) error {
		if t == remote.Deleted {
			o = nil
		}
		return w.look(ctx, o)
	})
	if watching.Err() != nil && ctx.Err() == nil {
		return errAgain
	}
	return err
}

func (w *waiting) look(ctx context.Context, object *unstructured.Unstructured) error {
	if w.goal.Deletion() && object != nil {
		if w.uid == "" {
			w.uid = object.GetUID()
		}
		if w.uid != object.GetUID() {
			return errDone // it was made again meanwhile
		}
	}
	was := w.last.Words
	w.last = w.goal.Look(object)
	if w.tell != nil && object != nil && w.last.State == await.Pending && w.last.Words != was {
		w.tell(w.last.Words)
	}
	if w.read != nil && object != nil && w.last.State != await.Pending {
		var err error
		if w.last, err = w.read.judge(ctx, w.ref, w.goal); err != nil {
			return err
		}
	}
	switch {
	case w.last.State == await.Reached:
		return errDone
	case w.last.State == await.Stalled:
		return failure.Stalled("wait for "+w.goal.String()+" of "+w.ref.Long(), w.last.Words, w.more())
	case object == nil && !w.goal.Creation():
		words := "there is no such object"
		if w.seen {
			words = "it was deleted meanwhile"
		}
		return failure.NotFound("wait for "+w.goal.String()+" of "+w.ref.Long(), words, "--for=create waits for an object to be made")
	}
	w.seen = object != nil
	return nil
}

// more is a command that says more of the object.
func (w *waiting) more() string {
	if k := w.ref.Kind; k.Group == v1alpha1.GroupName && slices.Contains([]string{v1alpha1.KindNode, v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig, v1alpha1.KindSource, v1alpha1.KindWorkload, v1alpha1.KindInstance}, k.Kind) {
		return "tako why " + w.ref.Argument()
	}
	return "tako describe " + w.ref.Argument()
}

// end is the error of a wait that is over without being decided.
func (w *waiting) end(ctx context.Context, err error) error {
	doing := "wait for " + w.goal.String() + " of " + w.ref.Long()
	var known *failure.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		words := "not in time"
		if w.last.Words != "" {
			words += "; last seen: " + w.last.Words
		}
		return failure.Deadline(doing, words, "--timeout sets how long to wait; "+w.more()+" says more")
	case ctx.Err() != nil:
		return failure.Of(ctx.Err(), doing)
	}
	return failure.Of(err, doing)
}

// IsPassing reports whether an error may go away by itself: a server that restarts, a line that broke, a watch that is too
// old. A server that was never reached is no such case to a person who waits for one; but the deadline is theirs.
func IsPassing(err error) bool {
	if errors.Is(err, remote.ErrExpired) || errors.Is(err, context.DeadlineExceeded) { // that of one request
		return true
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return failure.Of(err, "").Exit == reason.ExitUnreachable
}

// Established is the goal of a new kind: the server serves it.
func Established() await.Goal {
	goal, err := await.Parse("condition=Established")
	if err != nil {
		panic(err) // the text is ours
	}
	return goal
}

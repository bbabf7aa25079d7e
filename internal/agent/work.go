package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// workTime bounds one operation. The types have shorter deadlines of their own: a command may be declared to take the longest.
const workTime = declare.ExecTimeoutMax + time.Hour

// job is an operation as its goroutine knows it: parts that nobody else works on.
type job struct {
	op    converge.Op
	began time.Time
	parts []*part
	plans []host.Plan // of an apply, one each
	holds []*catalog.Hold
}

// outcome is what a job found or did for one part.
type outcome struct {
	result converge.Result
	plan   host.Plan // of a check
	note   string
	bound  host.Resource // of a check that bound the part because that had failed before
}

// startOp starts an operation in a goroutine of its own. refused is why it must not begin; then it only fails.
func (l *loop) startOp(ctx context.Context, op converge.Op, refused error) {
	j := job{op: op, began: time.Now(), parts: make([]*part, len(op.IDs)), holds: make([]*catalog.Hold, len(op.IDs))}
	if op.Verb == converge.Apply {
		j.plans = make([]host.Plan, len(op.IDs))
	}
	for i, id := range op.IDs {
		j.parts[i] = l.parts[id]
		if h := j.parts[i].hold; h != nil && time.Now().Unix() < h.Until {
			j.holds[i] = h
		}
		if j.plans != nil {
			j.plans[i], l.parts[id].found = l.parts[id].plan(), nil
		}
	}
	l.work.Go(func() {
		out := failAll(len(j.parts), refused)
		if refused == nil {
			out = l.do(ctx, j)
		}
		// What was done is taken in also when the agent ends: end waits for it.
		l.post(context.WithoutCancel(ctx), func() { l.finished(ctx, j, out) })
	})
}

// finished takes an operation's outcomes into the engine.
func (l *loop) finished(ctx context.Context, j job, out []outcome) {
	done := converge.Done{Token: j.op.Token, Results: make([]converge.Result, len(out))}
	took := time.Since(j.began)
	l.took = make(map[*part]time.Duration, len(out))
	var again []converge.ID // what may have changed before it was watched
	moved := false          // what stands on the host
	for i := range out {
		o := &out[i]
		p, id := l.current(j.parts[i], j.op.IDs[i])
		o.result.Err, o.note = l.book.Without(o.result.Err), l.book.Clean(o.note)
		done.Results[i] = o.result
		l.book.Counted(j.op.Verb, o.result)
		switch j.op.Verb {
		case converge.Check:
			p.setPlan(o.plan)
			if o.bound != nil {
				p.res, p.err, moved = o.bound, nil, true
				if err := l.subs.Add(ctx, id, p); err != nil {
					l.book.Trouble("watch "+p.title(), err)
				}
			}
			if (l.follow(p) || o.bound != nil) && id != converge.None {
				again = append(again, id)
			}
		case converge.Apply:
			p.setPlan(host.Plan{Changes: j.plans[i].Changes})
			if p.removal != nil && o.result.Err == nil {
				l.undone(p)
				moved = true
			}
		case converge.Refresh:
			p.found = nil
		}
		p.setNote(o.note)
		l.took[p] = took
	}
	l.step(ctx, done)
	l.took = nil
	for i, p := range j.parts {
		if r := &out[i].result; r.Err == nil && (r.InSync || j.op.Verb == converge.Apply) {
			p, _ = l.current(p, j.op.IDs[i])
			p.sound = j.began.UnixNano()
		}
	}
	if l.ending {
		return
	}
	if moved {
		again = append(again, l.ground.Lay(l.standing)...)
	}
	if len(again) > 0 {
		l.rearm()
		l.lookBelow(ctx, again)
	}
	l.look(ctx, l.freed(j))
}

// current returns the part that stands for an old one in the present graph, for the same desire its successor, and the vertex that has its
// key now. was is the vertex that it had: mostly the graph is still the same, and nothing has to be looked for.
func (l *loop) current(p *part, was converge.ID) (*part, converge.ID) {
	if int(was) < len(l.parts) && l.parts[was] == p {
		return p, was
	}
	id := l.engine.Graph().ID(p.Key())
	if id != converge.None && l.parts[id].vertex.Digest == p.vertex.Digest {
		return l.parts[id], id
	}
	return p, id
}

// undone notes that a removal is complete.
func (l *loop) undone(p *part) {
	p.removal.done = true
	if err := l.store.RemovalDone(p.claim()); err != nil {
		l.book.Trouble("note that "+p.title()+" was removed", err)
	}
	if err := l.store.DropOriginal(p.Key()); err != nil {
		l.book.Trouble("forget what was there before "+p.title(), err)
	}
}

// do carries an operation out. It runs in the operation's goroutine.
func (l *loop) do(ctx context.Context, j job) (out []outcome) {
	defer func() {
		if fault := recover(); fault != nil {
			out = failAll(len(j.parts), &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("%v %s", j.op.Verb, j.parts[0].title()),
				Cause: fmt.Errorf("panic: %v", fault), Hint: "please report this"})
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	out = make([]outcome, len(j.parts))
	for kind, at := range byKind(j.parts) {
		switch j.op.Verb {
		case converge.Check:
			l.check(ctx, l.opts.Types[kind], j, at, out)
		case converge.Apply:
			l.apply(ctx, l.opts.Types[kind], j, at, out)
		case converge.Refresh:
			for _, i := range at {
				if j.holds[i] != nil {
					out[i].result.Err = hold.Reason(j.parts[i].title(), j.holds[i])
					continue
				}
				if j.op.Shut[i] {
					out[i] = l.refreshedByOthers(ctx, l.opts.Types[kind], j.parts[i], j.op.Upto[i])
					continue
				}
				out[i] = l.refresh(ctx, l.opts.Types[kind], j.parts[i], j.op.Upto[i])
			}
		}
	}
	return out
}

// byKind groups the indexes of parts by their type.
func byKind(parts []*part) map[declare.ResourceType][]int {
	groups := map[declare.ResourceType][]int{}
	for i, p := range parts {
		groups[p.kind] = append(groups[p.kind], i)
	}
	return groups
}

func (l *loop) check(ctx context.Context, t host.Type, j job, at []int, out []outcome) {
	var asked []int
	var resources []host.Resource
	for _, i := range at {
		p := j.parts[i]
		switch {
		case p.unfit:
			out[i].result.Err = p.err
			continue
		case p.removal != nil:
			if out[i].result.InSync = p.removal.done; !p.removal.done && j.holds[i] != nil {
				out[i].result.Err = hold.Reason(p.title(), j.holds[i])
			}
			continue
		case p.res == nil:
			out[i].bound, out[i].result.Err = l.bindAgain(ctx, t, p)
			if out[i].result.Err != nil {
				continue
			}
			resources = append(resources, out[i].bound)
		default:
			resources = append(resources, p.res)
		}
		asked = append(asked, i)
	}
	if len(asked) == 0 {
		return
	}
	depth := host.Shallow
	if j.op.Depth > converge.Shallow {
		depth = host.Deep
	}
	plans := t.Check(ctx, resources, depth)
	for k, i := range asked {
		out[i].plan = plans[k]
		out[i].result = converge.Result{Err: reason.Of(plans[k].Err), InSync: plans[k].Empty(), Recognised: plans[k].Recognised}
		if plans[k].Err == nil && !plans[k].Empty() && j.holds[i] != nil {
			out[i].result.Err = hold.Reason(j.parts[i].title(), j.holds[i])
		}
	}
}

// bindAgain tries once more to bind a part: the user that it names may exist by now.
func (l *loop) bindAgain(ctx context.Context, t host.Type, p *part) (host.Resource, *reason.Error) {
	if p.removal != nil {
		return bind(ctx, t, l.declaredAs(p, p.removal.resource))
	}
	r, err := l.bodies.Read(p.Key(), p.vertex.Digest)
	if err != nil {
		return nil, reason.Of(err)
	}
	return bind(ctx, t, l.declaredAs(p, r))
}

func (l *loop) apply(ctx context.Context, t host.Type, j job, at []int, out []outcome) {
	var asked []int
	var plans []host.Plan
	for _, i := range at {
		p := j.parts[i]
		if j.holds[i] != nil { // since it was checked
			out[i].result.Err = hold.Reason(p.title(), j.holds[i])
			continue
		}
		if p.removal != nil {
			out[i].result = l.remove(ctx, t, p)
			continue
		}
		if err := l.keepOriginal(ctx, t, p); err != nil {
			out[i].result.Err = reason.Of(err)
			continue
		}
		asked = append(asked, i)
		plans = append(plans, j.plans[i])
	}
	if len(asked) > 0 {
		for k, r := range t.Apply(ctx, plans) {
			out[asked[k]] = outcome{result: converge.Result{Err: reason.Of(r.Err), Changed: r.Changed}, note: r.Note}
		}
	}
	l.confirm(j, at, out)
}

// confirm stamps the notifications that the changes just made have caused: from now on they are visible.
func (l *loop) confirm(j job, at []int, out []outcome) {
	now, err := stamp()
	for _, i := range at {
		if !out[i].result.Changed {
			continue
		}
		if err == nil {
			err = l.store.Confirm(j.parts[i].Key(), now)
		}
		if err != nil && out[i].result.Err == nil {
			// Unstamped it counts as made when it was announced in this boot at the latest: one restart too many, never one
			// too few. So the change stands, and only the note is missing.
			out[i].note = "when it became visible could not be noted: " + err.Error()
		}
	}
}

// keepOriginal notes, once and durably, what was there before the first change, for a resource that is to be restored.
func (l *loop) keepOriginal(ctx context.Context, t host.Type, p *part) error {
	if !p.restore {
		return nil
	}
	if _, kept := l.store.Original(p.Key()); kept {
		return nil
	}
	original, err := t.Original(ctx, p.res)
	if err != nil {
		return err
	}
	return l.store.SetOriginal(p.Key(), original)
}

// remove undoes a part that is not declared any more. Without an original nothing was ever changed, so there is nothing to
// put back.
func (l *loop) remove(ctx context.Context, t host.Type, p *part) converge.Result {
	res, unbound := p.res, p.err
	if res == nil && p.removal.resource.Type() != "" {
		res, unbound = l.bindAgain(ctx, t, p)
	}
	if unbound != nil && unbound.Code == reason.UnsupportedInRoot {
		return converge.Result{} // it could never be made here
	}
	if unbound != nil || res == nil {
		return converge.Result{Err: unbound}
	}
	if err := l.store.Ready(); err != nil { // it would be removed again, whoever made it anew
		return converge.Result{Err: reason.Of(err)}
	}
	original, kept := l.store.Original(p.Key())
	if p.removal.how == declare.OnRemoveRestore && !kept {
		return converge.Result{}
	}
	if err := t.Remove(ctx, res, p.removal.how, original); err != nil {
		return converge.Result{Err: reason.Of(err)}
	}
	return converge.Result{Changed: true}
}

func (l *loop) refresh(ctx context.Context, t host.Type, p *part, upto uint64) outcome {
	r, ok := t.(host.Refresher)
	if !ok {
		return outcome{note: "nothing to do"}
	}
	done, err := r.Refresh(ctx, p.res, l.store.Since(p.Key(), upto))
	return outcome{result: converge.Result{Err: reason.Of(err), Changed: done.Acted}, note: done.Note}
}

// persist makes the engine's records durable. An error means that nothing which depends on them may begin.
func (l *loop) persist(records []converge.Record) error {
	if len(records) == 0 {
		return nil
	}
	if l.ending {
		records = slices.DeleteFunc(records, func(r converge.Record) bool { return r.Kind == converge.BudgetSpent })
	}
	now, err := stamp()
	if err == nil {
		err = l.store.Record(records, time.Now(), now)
	}
	if err == nil {
		return nil
	}
	l.book.Trouble("write the journal", err)
	for _, r := range records {
		if r.Kind == converge.NotificationAdded {
			return err
		}
	}
	return nil // what is lost is a budget, or a notification that is served twice
}

func stamp() (host.Stamp, error) {
	s, err := systemd.Now()
	return host.Stamp(s), err
}

func failAll(n int, err error) []outcome {
	out := make([]outcome, n)
	for i := range out {
		out[i].result.Err = reason.Of(err)
	}
	return out
}

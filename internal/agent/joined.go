package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/instances"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/naming"
	"tako.dev/tako/internal/agent/peering"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// joined is what the loop knows of the cluster that the host belongs to. held, identity, vault and news are shared; the rest belongs to
// the loop's goroutine.
type joined struct {
	held      *held.Store
	identity  *held.Identity
	vault     *held.Vault
	news      chan struct{}                 // has something when a report should be sent; room for one
	life      held.Life                     // as it is on the disk
	coming    held.Trial                    // what the agent is on its way to, with the deaths on it; never open
	list      catalog.List                  // of the state that is enforced
	own       catalog.Own                   // of the same
	templates []catalog.Template            // of the same: what its instances run
	instances *instances.Keeper             // shared
	naming    *naming.Naming                // shared; nil where nothing is answered
	verdict   wire.Verdict                  // on the state that is enforced
	refused   wire.Verdict                  // on a newer one that is not; Pending where there is none
	untold    bool                          // something has happened since news got something
	busy      time.Time                     // since when there is work in flight that was not told of
	next      *time.Timer                   // the next look at a try
	links     client.Links                  // shared
	peering   *peering.Peering              // shared; nil where it neither asks other hosts nor answers
	client    atomic.Pointer[client.Client] // shared: what talks to the servers; nil while nothing does
}

// openJoined opens what a host that has joined holds. The store's lock must be held.
func openJoined(opts *Options) (*joined, error) {
	stateDir := opts.StateDir
	identity, err := held.LoadIdentity(stateDir, trust.Built())
	if err != nil {
		return nil, err
	}
	h, err := held.Open(stateDir, time.Now())
	if err != nil {
		return nil, err
	}
	j := &joined{held: h, identity: identity, vault: held.NewVault(identity), news: make(chan struct{}, 1), next: time.NewTimer(time.Hour),
		peering: peering.New(opts.Peers, h, identity)}
	j.next.Stop()
	j.naming, err = naming.New(naming.Options{Where: opts.Names, Root: opts.Root, StateDir: stateDir, Identity: identity, Log: opts.Log})
	return j, err
}

// due has something when appointment is to be called; never for a host that stands alone.
func (j *joined) due() <-chan time.Time {
	if j == nil {
		return nil
	}
	return j.next.C
}

func (j *joined) files() []string { return nil }

// desired is the state that is enforced. It comes from the disk: newer ones come by activate.
func (j *joined) desired(st *store.Store, lookup declare.Lookup, lane load.Lane) (*load.State, error) {
	root := j.life.Enforced.Root
	if root == (catalog.Digest{}) {
		return load.Nothing(lookup, lane)
	}
	j.remember(root)
	lookup = load.Labelled(j.own, lookup)
	p, active := j.proof(), st.Active()
	var last *load.State // what is left of the active state; nil where that is another one, or cannot be read
	if active.Root() == converge.Digest(root) {
		if d, err := load.LastGoodAt(st, p, lookup, lane); err == nil {
			d.Delivered = int(j.life.Delivered)
			if last = d; d.Expiry.Count == 0 && (!d.Expiry.Stands || !j.held.Judged()) {
				return d, nil
			}
		}
	}
	c, err := j.held.Contents(root)
	if err != nil {
		if last != nil {
			return last, nil
		}
		// It was lost, and is fetched again. Whatever else is active is not to be enforced: it may have been given up.
		j.life.Enforced = catalog.Mark{}
		return load.Nothing(lookup, lane)
	}
	j.life.Delivered = uint64(c.Delivered)
	d, err := load.Layers(root, c.Layers, p, st, lookup, lane)
	if err != nil {
		return nil, err
	}
	d.Delivered = c.Delivered
	return d, nil
}

// remember finds out what is the host's alone in a state. Without it the secrets cannot be opened until it was fetched again.
func (j *joined) remember(root catalog.Digest) {
	c, err := j.held.Own(root)
	if err == nil {
		j.take(c)
	}
}

func (j *joined) take(c held.Contents) {
	j.list, j.own, j.templates = c.List, c.Own, c.Templates
	j.vault.Take(c.Own.Keys)
}

func (j *joined) complete(d *load.State) {
	d.Unseal(j.vault.Open)
}

// awake takes up what earlier runs have left: it counts this one, and decides what is enforced if the last ones have died on the way
// to it, or the time of a try is over. It is called once, before anything is enforced.
func (l *loop) awake() error {
	j := l.joined
	j.life = j.held.Life()
	life := j.held.Life()
	kept, err := j.held.Kept()
	if err != nil {
		return err
	}
	v := kept.Verdict
	refused := v.Type == wire.Rejected || v.Type == wire.Withheld || v.Type == wire.Quarantined
	if refused {
		l.refuseState(v)
	}
	j.coming = j.held.Coming()
	if m, took := j.held.Took(catalog.Digest(l.store.Active().Root()), j.coming, refused); took && m.Root != life.Enforced.Root {
		// The last run has died right after it took this on.
		life = life.On(m, j.coming)
	}
	if life.Try != nil {
		if err := l.resumeTry(&life); err != nil {
			return err
		}
	}
	if life.Enforced.Version > 0 && !life.Settled {
		trial, poison := core.Trial(life.Trial).Beside(core.Trial(j.coming)).Begin(life.Enforced)
		life.Trial = held.Trial(trial)
		if poison != nil {
			l.quarantine(&life, poison)
		}
	}
	err = j.held.Started(life)
	j.life = j.held.Life()
	if j.coming.Open {
		j.coming = held.Trial(core.Trial(j.coming).Died())
		if noted := j.held.SetComing(j.coming); noted != nil {
			l.book.Trouble("note what the agent has died of", noted)
		}
	}
	return err
}

// quarantine gives up a state that the agent has died of, for the one before.
func (l *loop) quarantine(life *held.Life, poison *reason.Error) {
	v := verdictOn(life.Enforced, wire.Quarantined, poison)
	if !l.joined.held.Blames(v) {
		l.refuseState(v)
	}
	if err := l.joined.held.Remember(v); err != nil {
		l.book.Trouble("remember what was quarantined", err)
	}
	if life.Before.Root == life.Enforced.Root {
		life.Before = catalog.Mark{}
	}
	life.Enforced, life.Before, life.Try, life.Settled = life.Before, catalog.Mark{}, nil, true
}

// live makes another life durable, and goes on with it.
func (j *joined) live(life held.Life) error {
	if err := j.held.SetLife(life); err != nil {
		return err
	}
	j.life = life
	return nil
}

// goodbye notes that the agent ends because it was told to, which is no sign of poison.
func (l *loop) goodbye() {
	j := l.joined
	if j == nil {
		return
	}
	var err error
	if j.coming != (held.Trial{}) && !j.coming.Open {
		err = j.sets(j.coming)
	}
	if j.life.Trial.Open {
		life := j.life
		life.Trial = held.Trial(core.Trial(life.Trial).End())
		err = errors.Join(err, j.live(life))
	}
	if err != nil {
		l.book.Trouble("note the end", err)
	}
}

func verdictOn(m catalog.Mark, t wire.VerdictType, why *reason.Error) wire.Verdict {
	v := wire.Verdict{Type: t, Epoch: m.Epoch, Version: m.Version, Root: m.Root, Since: time.Now().UnixMilli()}
	if why != nil {
		v.Code, v.Message = why.Code, wire.Text(why.Error())
	}
	return v
}

// refuseState notes that the servers' newest state is not the one that is enforced.
func (l *loop) refuseState(v wire.Verdict) {
	l.joined.refused = v
	l.refuse = []Problem{{Code: v.Code, Message: v.Message}}
	if row, ok := reason.Lookup(v.Code); ok && v.Message == "" {
		l.refuse[0].Message = row.Title
	}
}

// candidate is a state that was handed over.
type candidate struct {
	mark    catalog.Mark
	head    catalog.Head
	content held.Contents
	lost    held.Loss
	err     error // why it cannot be read
	// trying is the layer whose statement is new in it; empty where the head is new.
	trying string
}

// setOut notes, before it is read, that the agent sets out for a state that was handed over: who finds that after a death knows of what.
// It returns the verdict on a state that it does not set out for, and Pending on one that it does.
func (l *loop) setOut(c *candidate) (wire.Verdict, error) {
	j, m := l.joined, c.mark
	if c.trying != "" && j.life.Try != nil {
		return wire.Verdict{}, &reason.Error{Code: reason.StatementRefused, Doing: "try the statement about layer " + c.trying, Cause: errors.New("a state is on trial on this host"),
			Hint: "it is tried again by itself when that is over"}
	}
	if held.Final(j.refused, m) {
		return j.refused, nil
	}
	if m.Root == j.life.Enforced.Root {
		return wire.Verdict{}, nil
	}
	trial, poison := core.Trial(j.coming).Begin(m)
	if err := j.sets(held.Trial(trial)); err != nil {
		return wire.Verdict{}, err
	}
	if poison == nil {
		return wire.Verdict{}, nil
	}
	v := verdictOn(m, wire.Quarantined, poison)
	l.refuses(c, v, poison)
	return v, nil
}

// refuses notes why a state that was handed over is not taken. Where a statement is what is new in it, the newest head stands as it did.
func (l *loop) refuses(c *candidate, v wire.Verdict, why *reason.Error) {
	if c.trying == "" {
		l.refuseState(v)
		l.refuse[0].Hint = why.Hint
		l.book.Show(&l.refuse[0])
	} else {
		l.book.Show(&Problem{Code: why.Code, Message: fmt.Sprintf("the statement about layer %s is refused: %s", c.trying, why), Hint: why.Hint})
	}
	l.happened()
}

// sets notes what the agent is on its way to. Who is there to set out again has not died of it: only the next run may take it for that.
func (j *joined) sets(t held.Trial) error {
	if err := j.held.SetComing(t); err != nil {
		return err
	}
	j.coming = held.Trial(core.Trial(t).End())
	return nil
}

// activate decides on a state that was handed over, and enforces it from now on if it can be.
func (l *loop) activate(ctx context.Context, c candidate) (wire.Verdict, error) {
	j := l.joined
	if held.Final(j.refused, c.mark) {
		return j.refused, nil // it was on trial, and its time was over while it was read
	}
	c.head.Try = j.held.TryOf(c.head.Try, c.trying != "")
	if c.mark.Root == j.life.Enforced.Root {
		return l.again(ctx, c)
	}
	d, refusal, err := l.judge(c)
	if err != nil {
		return wire.Verdict{}, errors.Join(err, j.sets(j.coming))
	}
	if refusal != nil {
		if err := j.sets(held.Trial{}); err != nil {
			return wire.Verdict{}, err
		}
		v := verdictOn(c.mark, wire.Rejected, refusal)
		if refusal.Code == reason.DeletionsWithheld {
			v.Type = wire.Withheld
		}
		l.refuses(&c, v, refusal)
		return v, nil
	}
	v, err := l.enforce(ctx, c, d)
	if err != nil {
		return v, errors.Join(err, j.sets(j.coming))
	}
	return v, nil
}

// judge compiles a state, and says why it may not be enforced. The error says that this cannot be found out now.
func (l *loop) judge(c candidate) (*load.State, *reason.Error, error) {
	var bad held.Unusable
	switch {
	case errors.As(c.err, &bad):
		return nil, reason.Of(bad.Err), nil
	case c.err != nil:
		return nil, nil, c.err
	}
	d, err := load.Layers(c.mark.Root, c.content.Layers, l.joined.proof(), l.store, load.Labelled(c.content.Own, l.lookup), l.opts.lane)
	var faults declare.Faults
	switch {
	case errors.As(err, &faults):
		return nil, &reason.Error{Code: faults[0].Code, Doing: "compile the state", Cause: errors.New(faults[0].Message), Hint: faults[0].Hint}, nil
	case reason.Is(err, reason.PriorityConflict), reason.Is(err, reason.TooManyResources), reason.Is(err, reason.BodyTooLarge):
		return nil, reason.Of(err), nil
	case err != nil:
		return nil, nil, err
	}
	d.Delivered = c.content.Delivered
	if refusal := l.joined.judgeTry(&c); refusal != nil {
		return nil, refusal, nil
	}
	have, err := load.ActiveClaims(l.store)
	if err != nil {
		return nil, nil, err
	}
	if refusal := core.Guard(slices.Values(have), d.Claims, c.head.Consent); refusal != nil {
		return d, refusal, nil
	}
	return d, core.GuardData(c.lost.All, c.lost.Deleted, c.lost.Example, c.head.Consent), nil
}

// enforce takes a state on. What is known of the way to it goes on until it has been reached.
func (l *loop) enforce(ctx context.Context, c candidate, d *load.State) (wire.Verdict, error) {
	j := l.joined
	way := j.coming
	way.Open = true
	was, life := j.life, j.life.On(c.mark, way)
	life.Try, life.Delivered = nil, uint64(c.content.Delivered)
	if err := j.armTry(&life, &c, was.Enforced); err != nil {
		return wire.Verdict{}, err
	}
	if life.Try != nil { // before anything of it acts
		if err := j.live(life); err != nil {
			return wire.Verdict{}, err
		}
	}
	before := held.Contents{List: j.list, Own: j.own, Templates: j.templates}
	j.take(c.content)
	if err := l.adopt(ctx, d); err != nil {
		j.take(before)
		return wire.Verdict{}, errors.Join(err, j.live(was))
	}
	// Otherwise the work has begun by now, which nobody needs to wait for: whoever finds the active state without this note knows, see awake.
	j.life = life
	l.wantInstances() // they start while that is written
	if err := errors.Join(j.live(life), j.sets(held.Trial{})); err != nil {
		l.book.Trouble(fmt.Sprintf("note that version %d is enforced", c.mark.Version), err)
	}
	j.verdict, l.amiss = verdictOn(c.mark, wire.Pending, nil), nil
	if c.trying == "" && held.Overcome(j.refused, c.mark) {
		j.refused, l.refuse = wire.Verdict{}, nil
	}
	l.makeAppointment(&j.life)
	l.happened()
	return j.verdict, nil
}

// again takes a later head of the state that is enforced: it may confirm it, or consent to it.
func (l *loop) again(ctx context.Context, c candidate) (wire.Verdict, error) {
	j := l.joined
	life := j.life
	life.Enforced = c.mark
	switch {
	case life.Try != nil && c.head.Try == nil:
		life.Try = nil // it is confirmed
	case life.Try != nil:
		same := *life.Try // its time has begun already
		same.Mark = c.mark
		life.Try = &same
	}
	if life.Enforced != j.life.Enforced || life.Try != j.life.Try {
		if err := j.live(life); err != nil {
			return wire.Verdict{}, err
		}
	}
	if l.store.Active().Root() != converge.Digest(c.mark.Root) || j.list == nil {
		// It was lost, and has been fetched again.
		l.reload(ctx)
	}
	if c.trying == "" && held.Overcome(j.refused, c.mark) {
		j.refused, l.refuse = wire.Verdict{}, nil
	}
	l.outlive(ctx)
	j.verdict.Epoch, j.verdict.Version, j.verdict.Root = c.mark.Epoch, c.mark.Version, c.mark.Root
	l.makeAppointment(&j.life)
	l.happened()
	return j.verdict, nil
}

// happened notes that there is something to report.
func (l *loop) happened() {
	if l.joined != nil {
		l.joined.untold = true
	}
}

// reportPause is the time between two reports while there is work in flight: what takes minutes is seen to go on.
const reportPause = time.Second

// tellServers has a report sent when there is something in it: at once when nothing is in flight any more, and now and then meanwhile.
func (l *loop) tellServers() {
	j := l.joined
	if j == nil || !j.untold {
		return
	}
	now := time.Now()
	switch {
	case l.engine.Quiet():
		j.busy = time.Time{}
	case j.busy.IsZero():
		j.busy = now // most often it is over in a moment, and that is what the servers wait for
		return
	case now.Sub(j.busy) < reportPause:
		return
	default:
		j.busy = now
	}
	j.untold = false
	j.tell()
}

// reached notes that all that can be done for the enforced state has been done once, and what has come of it.
func (l *loop) reached() {
	j := l.joined
	if j == nil || j.life.Enforced.Version == 0 || !j.untold && j.life.Settled && j.verdict.Type != wire.Pending {
		return
	}
	t := wire.Applied
	if !l.inOrder() {
		t = wire.Partial
	}
	if j.verdict.Type != t {
		j.verdict = verdictOn(j.life.Enforced, t, nil)
		l.happened()
	}
	if j.life.Settled {
		return
	}
	life := j.life
	life.Settled, life.Trial = true, held.Trial(core.Trial(life.Trial).Settle())
	if err := j.live(life); err != nil {
		l.book.Trouble(fmt.Sprintf("note that version %d was reached", life.Enforced.Version), err)
	}
	l.happened()
}

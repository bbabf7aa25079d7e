package election

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
)

const (
	prefix    = "/tako-lead/"
	leaderKey = prefix + "leader"
	serverKey = prefix + "servers/"
	// Lease is how long a leader is waited for that says nothing. With what etcd takes to end a lease, and a watch to tell of it, another one
	// leads within 15 s. Shorter ones would change the leader for each pause of a busy disk.
	Lease = 8 * time.Second
	// stopMax is how long what a leader does may take to stop, from the moment at which it leads no more; the manager of controllers takes
	// up to ten seconds. What takes longer ends the server.
	stopMax = 20 * time.Second
	// revokeMax is how long a server that stops may take to let the others know.
	revokeMax = 2 * time.Second
	// watchPause is how long a watch that has ended is left alone.
	watchPause = time.Second
	// serversMax bounds how many servers are known.
	serversMax = 64
)

// Options are what an Election works with. Etcd and Self are required.
type Options struct {
	Etcd *clientv3.Client
	// Self is this server.
	Self Server
	// Lease is how long a lease lasts, whole seconds. Default Lease; less in tests.
	Lease time.Duration
	// Log takes who leads. Default nothing is logged.
	Log *slog.Logger
}

// Election is the part that one server takes. Use New.
type Election struct {
	options Options
	nudge   chan struct{} // holds one: the keys say something else

	mu      sync.Mutex // guards what follows
	seen    seen
	leading bool
	until   time.Time // when the lease under which it leads has ended
	view    View
	ended   chan struct{} // closed when another one leads, or nobody
	changed chan struct{} // closed when the view is another one
}

// seen is what the keys say.
type seen struct {
	known   bool
	leader  Holder
	at      int64             // the revision of the store at which that was so
	servers map[string]Server // by key
}

// View is who leads, and who there is.
type View struct {
	// Leading says that this server leads.
	Leading bool
	// Leader is who leads, where that is another one and known: Term is not 0.
	Leader Holder
	// Servers are all that run, this one too, by address for hosts.
	Servers []Server
	// Term is that of whoever leads, this server too; 0 where nobody does.
	Term int64
	// Since is since when this server leads, or does not.
	Since time.Time
}

// New checks the options, and starts nothing. The error is InternalFault.
func New(o Options) (*Election, error) {
	o.Lease = cmp.Or(o.Lease, Lease)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Etcd == nil || o.Self.ID == "" || o.Lease < time.Second || o.Lease%time.Second != 0 {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the election", Cause: errors.New("it needs etcd, a server with an ID, and leases of whole seconds")}
	}
	return &Election{options: o, nudge: make(chan struct{}, 1), view: View{Since: time.Now()}, ended: make(chan struct{}), changed: make(chan struct{})}, nil
}

// View is who leads now, a channel that is closed when that is somebody else, and one that is closed when anything of it is another one.
func (e *Election) View() (view View, ended, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view, e.ended, e.changed
}

// Leads says whether this server leads at a moment: not after its lease has ended, though nobody has noticed that yet, as in a process that
// stood still. The clock on the wall is asked too, because the other one stands still with a machine that sleeps.
func (e *Election) Leads(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leading && now.Before(e.until) && now.Round(0).Before(e.until.Round(0))
}

// Run takes part until the context ends. While this server leads, do runs, with a context that ends with the lead; it must end with that.
// The error is LeadLost, when do has not ended in time: the process has to end then.
func (e *Election) Run(ctx context.Context, do func(context.Context)) error {
	following, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { e.follow(following) })
	r := &run{Election: e, state: state{self: e.options.Self, length: e.options.Lease}, do: do}
	defer r.leave(ctx)
	for {
		r.look()
		todo, at := r.state.next(time.Now())
		if ctx.Err() != nil {
			return r.resign()
		}
		if todo != wait {
			if err := r.perform(ctx, todo); err != nil {
				return err
			}
			continue
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case <-timer:
		case <-e.nudge:
		}
	}
}

// run is the state of Run, by its goroutine alone.
type run struct {
	*Election
	state  state
	do     func(context.Context)
	cancel context.CancelFunc // of what this server does as the leader; nil: it does not lead
	ended  chan struct{}      // closed when that has ended
}

// look takes in what the keys say.
func (r *run) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen.known {
		r.state.saw(r.seen.leader)
	}
}

// perform does one thing. What etcd does not do is tried again; the error ends the server.
func (r *run) perform(ctx context.Context, todo action) error {
	var err error
	switch todo {
	case lead:
		r.lead(ctx)
		return nil
	case resign:
		return r.resign()
	case obtain:
		err = r.obtain(ctx)
	case renew:
		err = r.renew(ctx)
	case campaign:
		err = r.campaign(ctx)
	}
	if err != nil && ctx.Err() == nil {
		r.state.failed(time.Now())
		r.options.Log.Warn("take part in the election", "err", err)
	}
	return nil
}

// call is the context of one call of etcd: it ends before the lease does, so that a leader stops in time.
func (r *run) call(ctx context.Context) (context.Context, context.CancelFunc) {
	at := time.Now().Add(r.state.length / renewals)
	if until := r.state.until(); r.state.term != 0 && until.Before(at) {
		at = until
	}
	return context.WithDeadline(ctx, at)
}

// obtain gets a lease, and tells of this server under it.
func (r *run) obtain(ctx context.Context) error {
	r.state.lost()
	ctx, cancel := r.call(ctx)
	defer cancel()
	asked := time.Now()
	granted, err := r.options.Etcd.Grant(ctx, int64(r.state.length/time.Second))
	if err != nil {
		return err
	}
	text, err := json.Marshal(r.state.self)
	if err != nil {
		return err
	}
	if _, err := r.options.Etcd.Put(ctx, serverKey+strconv.FormatInt(int64(granted.ID), 16), string(text), clientv3.WithLease(granted.ID)); err != nil {
		return err // the lease ends by itself
	}
	r.state.obtained(granted.ID, asked)
	return nil
}

func (r *run) renew(ctx context.Context) error {
	ctx, cancel := r.call(ctx)
	defer cancel()
	asked := time.Now()
	_, err := r.options.Etcd.KeepAliveOnce(ctx, r.state.lease.id)
	switch {
	case err == nil:
		r.state.kept(asked)
		r.extend()
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		r.state.lost()
		return nil
	}
	return err
}

// extend lets others know until when the lease lasts.
func (r *run) extend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = r.state.until()
}

// campaign tries to become the leader in the place of the one that is known, or of nobody. Whether that has worked the keys say.
func (r *run) campaign(ctx context.Context) error {
	ctx, cancel := r.call(ctx)
	defer cancel()
	text, err := json.Marshal(r.state.self)
	if err != nil {
		return err
	}
	resp, err := r.options.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(leaderKey), "=", r.state.leader.Term)).
		Then(clientv3.OpPut(leaderKey, string(text), clientv3.WithLease(r.state.lease.id))).
		Else(clientv3.OpGet(leaderKey)).Commit()
	if err != nil {
		return err
	}
	if resp.Succeeded {
		r.note(func(s *seen) {
			s.lead(Holder{Server: r.state.self, Lease: r.state.lease.id, Term: resp.Header.Revision}, resp.Header.Revision)
		})
		return nil
	}
	var leader Holder
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
		if leader, err = holder(kvs[0]); err != nil {
			return err
		}
	}
	r.note(func(s *seen) { s.lead(leader, resp.Header.Revision) })
	return nil
}

// lead begins to lead.
func (r *run) lead(ctx context.Context) {
	r.state.led()
	r.options.Log.Info("this server leads", "term", r.state.term)
	working, cancel := context.WithCancel(withTerm(ctx, r.state.term))
	ended := make(chan struct{})
	r.cancel, r.ended = cancel, ended
	r.extend()
	r.publish(true)
	go func() { // waited for by resign
		defer close(ended)
		r.do(working)
	}()
}

// resign stops to lead, and waits until what was done as the leader has ended.
func (r *run) resign() error {
	if r.cancel == nil {
		return nil
	}
	r.options.Log.Info("this server leads no more", "term", r.state.term)
	r.cancel()
	r.cancel = nil
	r.state.left()
	r.publish(false)
	timer := time.NewTimer(stopMax)
	defer timer.Stop()
	select {
	case <-r.ended:
		return nil
	case <-timer.C:
		return &reason.Error{Code: reason.LeadLost, Doing: "stop what this server did as the leader", Cause: fmt.Errorf("it has not ended within %s", stopMax), Hint: "whoever watches over the server starts it again"}
	}
}

// leave ends the lease, so that another server leads at once.
func (r *run) leave(ctx context.Context) {
	if r.state.lease.id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeMax)
	defer cancel()
	_, _ = r.options.Etcd.Revoke(ctx, r.state.lease.id) // otherwise it ends by itself
}

// note changes what the keys are known to say.
func (e *Election) note(change func(*seen)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.seen)
	e.seen.known = true
	e.publishLocked()
	select {
	case e.nudge <- struct{}{}:
	default:
	}
}

func (e *Election) publish(leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = leading
	e.publishLocked()
}

// publishLocked says what is known.
func (e *Election) publishLocked() {
	v := View{Leading: e.leading, Leader: e.seen.leader, Term: e.seen.leader.Term, Since: e.view.Since}
	if v.Leading != e.view.Leading {
		v.Since = time.Now()
	}
	if v.Leading || v.Leader.ID == e.options.Self.ID {
		v.Leader = Holder{}
	}
	v.Servers = slices.SortedFunc(maps.Values(e.seen.servers), func(a, b Server) int {
		return cmp.Or(strings.Compare(a.Transfer, b.Transfer), strings.Compare(a.ID, b.ID))
	})
	if v.Leading != e.view.Leading || v.Leader != e.view.Leader {
		close(e.ended)
		e.ended = make(chan struct{})
		if v.Leader.Term != 0 {
			e.options.Log.Info("another server leads", "address", v.Leader.API, "term", v.Leader.Term)
		}
	} else if slices.Equal(v.Servers, e.view.Servers) {
		e.view = v // the term of a leader that begins to be one is not news yet
		return
	}
	e.view = v
	close(e.changed)
	e.changed = make(chan struct{})
}

// follow keeps what the keys say until the context ends.
func (e *Election) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.followOnce(ctx); err != nil && ctx.Err() == nil {
			e.options.Log.Warn("follow who leads", "err", err)
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// followOnce reads the keys, and follows them until the watch ends.
func (e *Election) followOnce(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, e.options.Lease)
	defer cancel()
	got, err := e.options.Etcd.Get(reading, prefix, clientv3.WithPrefix(), clientv3.WithLimit(serversMax))
	if err != nil {
		return err
	}
	all := seen{servers: map[string]Server{}}
	for _, kv := range got.Kvs {
		if err := all.put(kv); err != nil {
			return err
		}
	}
	e.note(func(s *seen) {
		s.lead(all.leader, got.Header.Revision)
		s.servers = all.servers
	})
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	for answer := range e.options.Etcd.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1)) {
		if err := answer.Err(); err != nil {
			return err
		}
		var bad error
		e.note(func(s *seen) { bad = s.apply(answer.Events) })
		if bad != nil {
			return bad
		}
	}
	return nil
}

// lead notes who has led at a revision of the store. What a watch tells late of the time before is past.
func (s *seen) lead(h Holder, at int64) {
	if at >= s.at {
		s.leader, s.at = h, at
	}
}

// apply takes in what has changed.
func (s *seen) apply(events []*clientv3.Event) error {
	s.servers = maps.Clone(s.servers)
	for _, event := range events {
		switch key := string(event.Kv.Key); {
		case event.Type == mvccpb.Event_PUT:
			if err := s.put(event.Kv); err != nil {
				return err
			}
		case key == leaderKey:
			s.lead(Holder{}, event.Kv.ModRevision)
		default:
			delete(s.servers, key)
		}
	}
	return nil
}

// put takes in one key.
func (s *seen) put(kv *mvccpb.KeyValue) error {
	key := string(kv.Key)
	h, err := holder(kv)
	switch {
	case err != nil:
		return err
	case key == leaderKey:
		s.lead(h, h.Term)
	case len(s.servers) < serversMax:
		s.servers[key] = h.Server
	}
	return nil
}

// valueMax bounds what one server says of itself.
const valueMax = 4 << 10

func holder(kv *mvccpb.KeyValue) (Holder, error) {
	h := Holder{Lease: clientv3.LeaseID(kv.Lease), Term: kv.ModRevision}
	err := errors.New("it is too long")
	if len(kv.Value) <= valueMax {
		err = json.Unmarshal(kv.Value, &h.Server)
	}
	if err != nil {
		return Holder{}, &reason.Error{Code: reason.StateCorrupt, Doing: "read who leads from " + string(kv.Key), Cause: err, Hint: "somebody else has written to etcd: find out who may"}
	}
	return h, nil
}

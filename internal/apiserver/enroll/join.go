package enroll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// joinMax bounds one attempt to join: it is a few writes, and waits for those of others who join.
	joinMax = 10 * time.Second
	// changesMax is how often somebody else may change a Node or Token between reading and writing it. The others are other servers,
	// and people: more at one moment means that something goes round in circles.
	changesMax = 16
	// noteEvery is how often a request to join that is there already is written again: a host that goes on trying is no load.
	noteEvery = time.Minute
	// releaseMax bounds giving back a use of a token, for which nobody waits.
	releaseMax = 5 * time.Second
)

// Join admits a host, or says in words why not, to it and to the audit log.
func (m *Members) Join(ctx context.Context, from netip.Addr, r wire.JoinRequest) (wire.Credentials, error) {
	// A host that hangs up gets its certificate when it asks again; half of it done would cost a use of the token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), joinMax)
	defer cancel()
	from = from.Unmap()
	if wait := m.failures.wait(site(from), m.opts.Now()); wait > 0 {
		// Not in the audit log: those that have led to this are.
		return wire.Credentials{}, &reason.Error{Code: reason.RateLimited, Doing: "join", Cause: errors.New("too many attempts from this address have failed"), After: wait}
	}
	a := Attempt{At: m.opts.Now(), From: from, Relay: r.Relay, Node: clip(r.Name), Outcome: OutcomeRefused}
	join := m.join
	if r.Relay {
		join = m.joinRelay
	}
	c, err := join(ctx, r, &a)
	if e := reason.Of(err); e != nil {
		a.Code, a.Reason = e.Code, e.Error()
		if e.Code != reason.StoreUnreachable && e.Code != reason.InternalFault {
			m.failures.note(site(from), m.opts.Now())
		}
	}
	m.opts.Audit.Joined(a)
	m.opts.Log.Info("host joins", "relay", a.Relay, "node", a.Node, "from", from, "outcome", a.Outcome, "key", a.Key, "token", a.Token, "err", err)
	return c, err
}

func (m *Members) join(ctx context.Context, r wire.JoinRequest, a *Attempt) (wire.Credentials, error) {
	h, err := read(r)
	a.Key = h.key
	if err != nil {
		return wire.Credentials{}, err
	}
	var s shown
	if r.Token != "" {
		s.token, s.err = m.opts.Tokens.OfHost(ctx, r.Token)
	}
	if s.token != nil {
		a.Token = s.token.Name
	}
	node, err := m.enter(ctx, h, s, a)
	if err != nil {
		return wire.Credentials{}, err
	}
	a.UID = string(node.UID)
	return m.credentials(h.request, node)
}

// enter makes a host the one that a Node is, and returns the Node.
func (m *Members) enter(ctx context.Context, h host, s shown, a *Attempt) (node *v1alpha1.Node, err error) {
	var used *v1alpha1.Token // of which a use was counted that is not spent
	defer func() {
		if used != nil && !mayHaveBeenDone(err) {
			m.release(ctx, used)
		}
	}()
	for range changesMax {
		if node, err = m.node(ctx, h.name); err != nil {
			return nil, err
		}
		do, refusal := decide(h, node, s)
		switch do {
		case give:
			if wait := m.again.wait(h.key, m.opts.Now()); wait > 0 {
				return nil, &reason.Error{Code: reason.RateLimited, Doing: "join as node " + h.name, Cause: errors.New("this host has joined already, and was told so several times"), After: wait}
			}
			m.again.note(h.key, m.opts.Now())
			a.Outcome = OutcomeAgain
			return node, nil
		case replace:
			a.Outcome = OutcomeReplaced
			err = m.identify(ctx, node, h, nil)
		case admit:
			a.Outcome = OutcomeJoined
			if used == nil {
				if err = m.count(ctx, s.token); err != nil {
					a.Outcome = OutcomeRefused
					return nil, err
				}
				used = s.token
			}
			if node, err = m.make(ctx, node, h, s.token); err == nil {
				used = nil
			}
		case note:
			m.note(ctx, node, h, a)
			return nil, refusal
		default:
			return nil, refusal
		}
		if err == nil {
			return node, nil
		}
		a.Outcome = OutcomeRefused
		if !isChanged(err) {
			return nil, err
		}
	}
	return nil, storeFault("join as node "+h.name, fmt.Errorf("somebody else has changed it %d times meanwhile: %w", changesMax, err))
}

// isChanged says that an object is not what it was when it was read.
func isChanged(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// mayHaveBeenDone says that nobody knows whether a write was done: its answer did not come.
func mayHaveBeenDone(err error) bool { return err != nil && reason.Is(err, reason.StoreUnreachable) }

// make makes the Node of a host unless it is there, and the host its identity.
func (m *Members) make(ctx context.Context, node *v1alpha1.Node, h host, t *v1alpha1.Token) (*v1alpha1.Node, error) {
	if node == nil {
		node = &v1alpha1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: maps.Clone(t.Spec.Join.Labels)},
			Spec:       v1alpha1.NodeSpec{Environment: t.Spec.Join.Environment},
		}
		if err := m.written("make node "+h.name, m.opts.Objects.Create(ctx, node)); err != nil {
			return nil, err
		}
	}
	return node, m.identify(ctx, node, h, t)
}

// identify makes a host the identity of a Node. The token is nil when a person has approved it.
func (m *Members) identify(ctx context.Context, node *v1alpha1.Node, h host, t *v1alpha1.Token) error {
	node.Status.Identity = &v1alpha1.NodeIdentity{Key: h.key, SealingKey: h.sealing, Joined: metav1.NewTime(m.opts.Now().Truncate(time.Second))}
	if t != nil {
		node.Status.Identity.Token = t.Name
	}
	node.Status.JoinRequest = nil
	// What the host before has said of itself says nothing of this one.
	node.Status.AppliedHead, node.Status.Verdict, node.Status.Problems, node.Status.Disbelieved, node.Status.Agent = nil, nil, nil, nil, nil
	return m.written("make a host node "+h.name, m.opts.Objects.UpdateStatus(ctx, node))
}

// written gives an error of a write its code, but for those that say that somebody else was first.
func (m *Members) written(doing string, err error) error {
	switch {
	case err == nil || isChanged(err):
		return err
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return &reason.Error{Code: reason.JoinRequestInvalid, Doing: doing, Cause: err}
	}
	return storeFault(doing, err)
}

// note leaves a request for a person on the Node whose name is taken. It is for people, so what goes wrong with it changes nothing.
func (m *Members) note(ctx context.Context, node *v1alpha1.Node, h host, a *Attempt) {
	now, before := metav1.NewTime(m.opts.Now().Truncate(time.Second)), node.Status.JoinRequest
	if before != nil && before.Key == h.key && now.Sub(before.At.Time) < noteEvery {
		return
	}
	node.Status.JoinRequest = &v1alpha1.JoinRequest{Key: h.key, From: a.From.String(), At: now}
	if err := m.opts.Objects.UpdateStatus(ctx, node); err != nil && !isChanged(err) {
		m.opts.Log.Warn("a request to join is not noted", "node", node.Name, "err", err)
	}
}

// count counts one use of a token, if one is left. When it returns an error none was counted, or nobody will ever use it.
func (m *Members) count(ctx context.Context, t *v1alpha1.Token) error {
	return m.recount(ctx, t, func(now *v1alpha1.Token) error {
		if most := now.Spec.Join.CountOrDefault(); now.Status.Uses >= most {
			return refused(now, fmt.Sprintf("it is for %d, and as many have joined with it", most))
		}
		now.Status.Uses++
		return nil
	})
}

// release gives back a use that was counted for nothing. When that does not work the token lets in one host less.
func (m *Members) release(ctx context.Context, t *v1alpha1.Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseMax) // the time for joining may be over
	defer cancel()
	err := m.recount(ctx, t, func(now *v1alpha1.Token) error {
		now.Status.Uses--
		return nil
	})
	if err != nil {
		m.opts.Log.Warn("a use of a token is lost", "token", t.Name, "err", err)
	}
}

// recount changes the status of a token as it is now.
func (m *Members) recount(ctx context.Context, t *v1alpha1.Token, change func(*v1alpha1.Token) error) error {
	select {
	case m.counting <- struct{}{}:
		defer func() { <-m.counting }()
	case <-ctx.Done():
		return storeFault("count the uses of token "+t.Name, ctx.Err())
	}
	var err error
	for range changesMax {
		now := &v1alpha1.Token{}
		if err = m.opts.Objects.Get(ctx, named(t.Name), now); apierrors.IsNotFound(err) || err == nil && now.UID != t.UID {
			return refused(t, "it was revoked")
		}
		if err == nil {
			if err := change(now); err != nil {
				return err
			}
			err = m.opts.Objects.UpdateStatus(ctx, now)
		}
		if err == nil {
			return nil
		}
		if !isChanged(err) {
			break
		}
	}
	return storeFault("count the uses of token "+t.Name, err)
}

// credentials are what a host gets that is a Node.
func (m *Members) credentials(request *trust.HostRequest, node *v1alpha1.Node) (wire.Credentials, error) {
	cluster := m.opts.Keys.Cluster()
	certificate, err := m.opts.Keys.CA().IssueNode(request, trust.NodeCertificate{Cluster: cluster, Name: node.Name, UID: string(node.UID)}, m.opts.Now())
	if err != nil {
		return wire.Credentials{}, err
	}
	documents, err := m.opts.Chain().Encode()
	if err != nil {
		return wire.Credentials{}, err
	}
	return wire.Credentials{Protocol: wire.Protocol, Certificate: certificate, Name: node.Name, UID: string(node.UID), Trust: documents}, nil
}

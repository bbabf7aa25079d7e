package endpoint

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// laneParallel and laneBatch are how many are asked at once: nearly all the time of each is waiting.
	laneParallel = 4
	laneBatch    = 16

	fieldAnswer = "answer"
	wordAnswers = "answers"
)

// Options are what New needs.
type Options struct {
	// Resolver looks names up. Nil is the host's own.
	Resolver *net.Resolver
	// Roots are the authorities that are believed where none are declared. Nil are the host's own.
	Roots *x509.CertPool
}

// Type is the resource type endpoint.
type Type struct{ opts Options }

var _ host.Type = (*Type)(nil)

// New makes the Type.
func New(o Options) *Type {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return &Type{opts: o}
}

// Lane returns the lane of endpoints.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeEndpoint), Parallel: laneParallel, Batch: laneBatch}
}

// resource is one endpoint. Everything but silent is what was declared.
type resource struct {
	declare.Endpoint
	roots  *x509.CertPool // nil: those of the type
	silent atomic.Int64   // since when it has not answered, in nanoseconds since 1970; zero while it does
}

// Watches says how often it is asked.
func (r *resource) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchTime, Name: r.EveryOrDefault().String()}}
}

// doing is what an error of this resource begins with.
func (r *resource) doing() string {
	if r.Service != "" {
		return "ask endpoint " + r.Service
	}
	return "ask endpoint " + net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
}

// Bind makes an endpoint ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	if d.Resource.Endpoint == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not an endpoint")}
	}
	r := &resource{Endpoint: *d.Resource.Endpoint}
	if _, message, hint := r.Mistake(); message != "" {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "bind " + d.Title, Cause: errors.New(message), Hint: "see what $(...) stands for on this host; " + hint}
	}
	if r.CA != "" {
		certificates, err := declare.ParseCertificates(r.CA)
		if err != nil {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: "bind " + d.Title, Cause: err}
		}
		r.roots, r.CA = x509.NewCertPool(), ""
		for _, c := range certificates {
			r.roots.AddCert(c)
		}
	}
	return r, nil
}

// Check asks each endpoint.
func (t *Type) Check(ctx context.Context, rs []host.Resource, _ host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	var asked sync.WaitGroup
	for i, res := range rs {
		r := res.(*resource)
		plans[i].Resource = r
		asked.Go(func() { t.check(ctx, r, &plans[i]) })
	}
	asked.Wait()
	return plans
}

func (t *Type) check(ctx context.Context, r *resource, p *host.Plan) {
	within, cancel := context.WithTimeout(ctx, r.TimeoutOrDefault())
	defer cancel()
	err := t.ask(within, r)
	if ctx.Err() != nil {
		p.Err = &reason.Error{Code: reason.Interrupted, Doing: r.doing(), Cause: ctx.Err()}
		return
	}
	since := r.silent.Load()
	switch {
	case err != nil:
		if since == 0 {
			since = time.Now().UnixNano()
			r.silent.Store(since)
		}
		p.Err = r.unanswered(within, err)
	case since != 0:
		p.Changes = []host.Change{{Field: fieldAnswer, From: "none since " + time.Unix(0, since).UTC().Format(time.RFC3339), To: wordAnswers}}
	}
}

// unanswered is the error of an endpoint that does not do what it is needed for.
func (r *resource) unanswered(within context.Context, err error) error {
	e := &reason.Error{Code: reason.EndpointSilent, Doing: r.doing(), Cause: err, After: min(declare.EndpointRetry, r.EveryOrDefault()),
		Hint: "look at the service there, and at the network in between; what requires it here waits, and goes on by itself"}
	var bad *refusal
	switch {
	case errors.As(err, &bad):
		e.Code = reason.EndpointWrong
	case within.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded): // a dialer may know of the deadline before the context does
		e.Cause = errors.New("no answer within " + r.TimeoutOrDefault().String())
	}
	return e
}

// Apply notes that an endpoint answers again.
func (t *Type) Apply(_ context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i := range plans {
		plans[i].Resource.(*resource).silent.Store(0)
		results[i].Changed = true
	}
	return results
}

// Original says that there is nothing to put back.
func (t *Type) Original(_ context.Context, r host.Resource) ([]byte, error) {
	return nil, &reason.Error{Code: reason.InternalFault, Doing: r.(*resource).doing(), Cause: errors.New("what others serve cannot be put back")}
}

// Remove has nothing to undo.
func (t *Type) Remove(context.Context, host.Resource, declare.OnRemove, []byte) error { return nil }

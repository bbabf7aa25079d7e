package apiserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"

	"tako.dev/tako/internal/apiserver/election"
	"tako.dev/tako/internal/apiserver/follower"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/apiserver/supply"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/controllers"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// several is this server's part among others that use the same etcd. It is nil where the server has an etcd of its own: nobody else has a way
// to that, so it leads as long as it runs, and nothing here costs it anything.
type several struct {
	id       string
	election *election.Election
	reports  *follower.Reports
	identity *follower.Identity
	proxy    *follower.Proxy
	stranded *follower.Stranded
}

// newSeveral starts nothing.
func (s *Server) newSeveral(p parts) (*several, error) {
	if p.member != nil {
		return nil, nil
	}
	id, err := p.dir.ServerID()
	if err != nil {
		return nil, err
	}
	self := s.selfAs(id, p)
	v := &several{id: id, reports: follower.NewReports()}
	if v.election, err = election.New(election.Options{Etcd: p.client.Client, Self: self, Log: s.opts.Log}); err != nil {
		return nil, err
	}
	ca := p.keys.CA()
	v.identity = follower.NewIdentity(func(now time.Time) (*trust.Credential, error) { return ca.IssueServerID(p.keys.Cluster(), id, now) }, p.documents.Newest)
	person := follower.NewIdentity(func(now time.Time) (*trust.Credential, error) {
		return ca.IssueClient(trust.ClientRequest{User: serverUser + id, Groups: []string{user.SystemPrivilegedGroup}, Lifetime: serverUserLifetime}, now)
	}, p.documents.Newest)
	v.proxy = follower.NewProxy(follower.ProxyOptions{
		Leader: v.leader, Certificate: func() (*tls.Certificate, error) { return person.Certificate() }, Authorities: ca.Pool(), ServerName: server.LoopbackClientServerNameOverride, Log: s.partsLog,
	})
	takoMetrics{}.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tako_server_leader", Help: "1 on the server that leads, 0 on the others.",
	}, func() float64 {
		if leads, _, _, _ := v.leader(); leads {
			return 1
		}
		return 0
	}))
	return v, nil
}

const (
	// serverUser begins what a server is called in the audit log of the leader, for which it asks in the name of others.
	serverUser = "tako:server:"
	// serverUserLifetime is how long such a certificate is good: it is made anew whenever it is needed.
	serverUserLifetime = 24 * time.Hour
)

// leader is where people are served by who leads.
func (v *several) leader() (leads bool, api string, ended, changed <-chan struct{}) {
	view, ended, changed := v.election.View()
	return view.Leading, view.Leader.API, ended, changed
}

// leads says whether this server leads at a moment, by its own clock.
func (v *several) leads(now time.Time) bool { return v == nil || v.election.Leads(now) }

// addresses are where hosts are served, by all servers: as many as a host is told.
func (v *several) addresses() []string {
	if v == nil {
		return nil
	}
	view, _, _ := v.election.View()
	var all []string
	for _, server := range view.Servers {
		all = append(all, server.Transfer)
	}
	all = slices.Compact(all)
	return all[:min(len(all), wire.ServersMax)]
}

// others are where the other servers serve people.
func (v *several) others() []string {
	view, _, _ := v.election.View()
	var all []string
	for _, server := range view.Servers {
		if server.ID != v.id {
			all = append(all, server.API)
		}
	}
	return all
}

// othersForHosts are where the other servers serve hosts, and a channel that is closed when they may be others.
func (v *several) othersForHosts() (addresses []string, changed <-chan struct{}) {
	view, _, changed := v.election.View()
	for _, server := range view.Servers {
		if server.ID != v.id {
			addresses = append(addresses, server.Transfer)
		}
	}
	return addresses, changed
}

// newSupply makes what fetches from the other servers what this one lacks; nil where there are none.
func (v *several) newSupply(p parts, local *registry.Local, log *slog.Logger) (*supply.Supply, error) {
	if v == nil {
		return nil, nil
	}
	return supply.New(supply.Options{
		Objects: p.shelf.Take,
		Bundles: func(ctx context.Context, d content.Digest, from content.Source) error {
			return p.bundles.Take(ctx, catalog.Digest(d), from)
		},
		Others: v.othersForHosts, Identity: v.identity, Log: log,
		Named: func(ctx context.Context, d content.Digest) (bool, error) {
			all, err := named(ctx, local, nameBundle)
			return all[d.String()], err
		},
	})
}

// watchOver has hosts go to another server while this one is cut off from etcd.
func (v *several) watchOver(fresh func(time.Time) bool) (serving func() error) {
	if v == nil {
		return nil
	}
	v.stranded = follower.NewStranded(follower.StrandedOptions{Fresh: fresh, Others: v.others, Proxy: v.proxy})
	return v.stranded.Serving
}

// hears is who is told what hosts say.
func (v *several) hears(own *presence.Register) follower.Register {
	if v == nil {
		return own
	}
	return v.reports
}

// leading has what a controller writes be refused once another server leads.
func (v *several) leading(config *restclient.Config) *restclient.Config {
	if v == nil {
		return config
	}
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return election.Carry(next) })
	return config
}

// objects has what a controller writes past the API be refused where it does not say in which term.
func (v *several) objects(local *registry.Local) controllers.Objects {
	if v == nil {
		return local
	}
	return led{local}
}

// led is objects that are written by a leader alone.
type led struct{ *registry.Local }

// Create creates an object.
func (l led) Create(ctx context.Context, o runtime.Object) error {
	return l.write(ctx, func() error { return l.Local.Create(ctx, o) })
}

// Update writes an object without its status.
func (l led) Update(ctx context.Context, o runtime.Object) error {
	return l.write(ctx, func() error { return l.Local.Update(ctx, o) })
}

// UpdateStatus writes the status of an object.
func (l led) UpdateStatus(ctx context.Context, o runtime.Object) error {
	return l.write(ctx, func() error { return l.Local.UpdateStatus(ctx, o) })
}

// Delete deletes an object.
func (l led) Delete(ctx context.Context, o runtime.Object, only *metav1.Preconditions) error {
	return l.write(ctx, func() error { return l.Local.Delete(ctx, o, only) })
}

func (led) write(ctx context.Context, do func() error) error {
	if err := election.Check(ctx, "write as the leader"); err != nil {
		return err
	}
	return do()
}

// within is the inner part of how requests are handled, for whom it is known who makes them.
func (v *several) within(next http.Handler) http.Handler {
	if v == nil {
		return next
	}
	return v.proxy.Handler(next)
}

// around is the outer part.
func (v *several) around(next http.Handler) http.Handler {
	if v == nil {
		return next
	}
	return election.Take(next)
}

// forges has calls of forges be taken by the leader, who looks into repositories.
func (v *several) forges(take http.HandlerFunc) http.HandlerFunc {
	if v == nil {
		return take
	}
	return func(w http.ResponseWriter, r *http.Request) { v.proxy.Forward(w, r, take) }
}

// background is what runs while the server does: its part in the election, with do while it leads, and telling the leader while it does not.
func (v *several) background(t *transfer, s *Server, do func(context.Context)) []func(context.Context) {
	if v == nil {
		return []func(context.Context){do}
	}
	leader := func() (string, <-chan struct{}, <-chan struct{}) {
		view, ended, changed := v.election.View()
		return view.Leader.Transfer, ended, changed
	}
	stream := follower.NewStream(follower.StreamOptions{Reports: v.reports, Identity: v.identity, Ask: t.server.Ask, Log: s.partsLog, Leader: leader})
	names := func(ctx context.Context) {
		follower.FollowNames(ctx, follower.NamesOptions{Store: t.names, Identity: v.identity, Leader: leader, Log: s.partsLog})
	}
	return []func(context.Context){stream.Run, names, v.stranded.Run, t.supply.Run, func(ctx context.Context) {
		if err := v.election.Run(ctx, do); err != nil {
			t.fail(err)
		}
	}}
}

// fail ends the server, because a part of it has ended that it cannot be without.
func (t *transfer) fail(err error) {
	select {
	case t.failed <- err:
	default: // it is ending
	}
}

package apiserver

import (
	"context"
	"net/netip"
	"time"

	"tako.dev/tako/internal/apiserver/naming"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// namesName is the file in the state directory with the newest edition of the names.
const namesName = "names"

// newNames makes the names that this server tells of, as it had them last.
func (s *Server) newNames(p parts) *edition.Store {
	store := edition.New(edition.Options{Cluster: p.keys.Cluster(), Keys: func(now time.Time) catalog.Keys {
		return p.documents.Newest().KeysOf(trust.RoleHeads, now)
	}})
	if _, err := store.Load(p.dir.Join(namesName), time.Now()); err != nil {
		s.opts.Log.Warn("the names of the last run are lost", "err", err)
	}
	return store
}

// keepNames writes the names down until the context ends.
func (s *Server) keepNames(ctx context.Context, p parts, store *edition.Store) {
	store.Keep(ctx, p.dir.Join(namesName), func(err error) {
		s.opts.Log.Warn("keep the names", "err", err, "hint", reason.Of(err).Hint)
	})
}

// dnsAddresses reads where names are answered. The error is InvalidValue.
func dnsAddresses(texts []string) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, text := range texts {
		address, err := netip.ParseAddrPort(text)
		if err != nil || address.Addr().IsUnspecified() {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: "read --names " + text, Cause: err, Hint: "write an address of this machine and a port, as 192.0.2.7:53; not all of its addresses, because an answer has to come " +
				"from the one that was asked. What hosts know the server by is --name"}
		}
		all = append(all, address)
	}
	return all, nil
}

// answerNames has names be answered by the DNS until the context ends, where that is wanted.
func (s *Server) answerNames(store *edition.Store) (run func(context.Context), err error) {
	addresses, err := dnsAddresses(s.opts.DNS)
	if err != nil || len(addresses) == 0 {
		return func(context.Context) {}, err
	}
	answers, err := naming.New(naming.Options{Addresses: addresses, Store: store, Metrics: takoMetrics{}, Log: s.partsLog})
	if err != nil {
		return nil, err
	}
	return answers.Run, nil
}

// term is higher than that of any leader before: the revision of the store at which this one has begun to lead, or has begun to run where nobody else could
// lead.
func (p parts) term(ctx context.Context) (uint64, error) {
	if p.several == nil {
		return revision(ctx, p.client.Client)
	}
	view, _, _ := p.several.election.View()
	if !view.Leading {
		return 0, &reason.Error{Code: reason.LeadLost, Doing: "begin to tell of names"}
	}
	return uint64(view.Term), nil
}

package apiserver

import (
	"context"
	"time"

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

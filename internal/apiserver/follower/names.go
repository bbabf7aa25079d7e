package follower

import (
	"context"
	"log/slog"
	"math/rand/v2"

	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
)

// NamesOptions are what FollowNames works with; all are required.
type NamesOptions struct {
	Store    *edition.Store
	Identity client.Credential
	// Leader is as in StreamOptions.
	Leader func() (address string, ended, changed <-chan struct{})
	Log    *slog.Logger
}

// FollowNames has this server know of names what the one that leads tells, whichever that is, until the context ends.
func FollowNames(ctx context.Context, o NamesOptions) {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		address, ended, changed := o.Leader()
		if address == "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		o.with(ctx, address, ended, random)
	}
}

// with follows one leader, as long as that is the one.
func (o *NamesOptions) with(ctx context.Context, address string, ended <-chan struct{}, random *rand.Rand) {
	ctx, stop := until(ctx, ended)
	defer stop()
	connections := client.NewConnections(nil)
	defer connections.HangUp()
	client.FollowNames(ctx, random, func(ctx context.Context, anew bool) error {
		to := client.NewUpstream(connections.Dial, address, o.Identity)
		defer to.Close()
		return to.Names(ctx, client.NamesOf(o.Store), anew)
	}, func(err error) {
		o.Log.Warn("take the names from the leader", "server", address, "err", err, "hint", reason.Of(err).Hint)
	})
}

package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// Names is where a host, a relay or a server keeps what there is by name. Its functions are called by one goroutine.
type Names struct {
	// Mark is the edition that is here.
	Mark func() wire.NamesMark
	// Take takes a part. After an error the way begins anew.
	Take func(*wire.Names) error
}

// NamesOf are names that are kept in a Store, and nobody else is told of.
func NamesOf(s *edition.Store) Names {
	return Names{Mark: s.Mark, Take: func(m *wire.Names) error {
		_, err := s.Take(m, time.Now())
		return err
	}}
}

const (
	// namesSilence is how long a stream of names may be silent: two and a half of the longest pause between two signs of life.
	namesSilence = 150 * time.Second
	// namesLong is how long one must have been open for its end not to count as another failure.
	namesLong = time.Minute
)

// Names takes what there is by name, and all that comes, until something ends it. With anew it takes all of it, whatever is here.
func (u *Upstream) Names(ctx context.Context, into Names, anew bool) error {
	return takeNames(ctx, u.server, into, anew)
}

func takeNames(ctx context.Context, s *server, into Names, anew bool) error {
	r := wire.NamesRequest{Protocol: wire.Protocol}
	if !anew {
		r.Have = into.Mark()
	}
	return stream(ctx, s, wire.PathNames, r, namesSilence, func() {}, into.Take)
}

// FollowNames has take called again and again, until ctx ends: take is one stream. It is called with anew after what came by the last one was not
// right, and after a pause that grows while streams end soon; log is told why one has ended, once for each reason in a row.
func FollowNames(ctx context.Context, random *rand.Rand, take func(ctx context.Context, anew bool) error, log func(error)) {
	var backoff core.Backoff
	var said reason.Code
	anew := false
	for ctx.Err() == nil {
		began := time.Now()
		err := take(ctx, anew)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= namesLong {
			backoff.Reset()
		}
		anew = reason.Is(err, reason.TransferWrong)
		switch {
		case errors.Is(err, errMoved):
			continue
		case errors.Is(err, io.EOF):
			said = 0
		default:
			if e := reason.Of(err); e.Code != said {
				said = e.Code
				log(err)
			}
		}
		wait(ctx, max(backoff.Next(random), PauseOf(err)), nil)
	}
}

var errMoved = errors.New("the watch is with another server")

// names keeps a stream of names open with whichever server has the watch.
func (c *Client) names(ctx context.Context, random *rand.Rand) {
	FollowNames(ctx, random, c.namesOnce, func(err error) {
		c.opts.Log.Warn("take the names", warning(err, reason.Of(err))...)
	})
}

// namesOnce has one stream open, once there is a watch and until that is with another server.
func (c *Client) namesOnce(ctx context.Context, anew bool) error {
	to, moved := c.reports.where()
	for to == nil {
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		to, moved = c.reports.where()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var guard sync.WaitGroup
	defer guard.Wait()
	defer cancel(nil)
	guard.Go(func() {
		for now := to; now == nil || now == to; now, moved = c.reports.where() {
			select {
			case <-moved:
			case <-ctx.Done():
				return
			}
		}
		cancel(errMoved)
	})
	err := takeNames(ctx, to, *c.opts.Names, anew)
	if errors.Is(context.Cause(ctx), errMoved) {
		return errMoved
	}
	return err
}

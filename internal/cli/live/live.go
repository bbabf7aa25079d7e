// Package live shows something again whenever it may have become another. Follow owns one goroutine for each kind that it watches, and
// they end with it:
//
//	watch of each kind (package follow) -> changed -> show, at most twice a second
//
// A change tells that there is something to look at, and never what: so a burst of changes is one look, and a slow reader is behind by
// one look at most.
package live

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

const (
	// pause is how long nothing is shown after something was: twice a second is as often as a person reads.
	pause = 500 * time.Millisecond
	// heartbeat is how often it is looked without a change: as often as hosts are heard. Most of what they say is no change that a
	// watch tells, because it is not stored.
	heartbeat = 30 * time.Second
)

// Source is what is followed.
type Source struct {
	Server    *remote.Server
	Resources []string // with their group
	Namespace string   // of those that stand in one; empty: all
	// Show looks, and shows what has changed. It must be set.
	Show func(context.Context) error
	// Say is told once that the server is away, and why. It must be set.
	Say func(text string)
}

// errOver ends the watches when what shows has ended.
var errOver = errors.New("over")

// Follow shows what there is, and then what changes, until the context ends, which is no error. The first look must succeed; later ones
// may fail while the server is away. A kind that may not be seen is not watched. Errors are those of Show and of package failure.
func (s Source) Follow(ctx context.Context) error {
	if err := s.Show(ctx); err != nil {
		return s.end(ctx, err)
	}
	changed := make(chan struct{}, 1)
	group, inner := errgroup.WithContext(ctx)
	for _, resource := range s.Resources {
		kind, err := s.Server.Find(inner, resource)
		if err != nil {
			return s.end(ctx, failure.Of(err, "ask which kinds there are"))
		}
		query := remote.Query{Kind: kind}
		if kind.Namespaced {
			query.Namespace = s.Namespace
		}
		feed := follow.Feed{Server: s.Server, Query: query, Tables: true, Say: func(string) {}} // a look that fails says the same
		group.Go(func() error {
			err := feed.Run(inner, nudge(changed))
			if err != nil && failure.Of(err, "").Exit == reason.ExitNotAllowed {
				return nil
			}
			return err
		})
	}
	group.Go(func() error {
		err := s.looks(inner, changed)
		if err == nil {
			err = errOver
		}
		return err
	})
	err := group.Wait()
	if errors.Is(err, errOver) {
		err = nil
	}
	return s.end(ctx, err)
}

// looks looks at every change, and now and then.
func (s Source) looks(ctx context.Context, changed <-chan struct{}) error {
	isTold := false
	took, wait := time.Duration(0), heartbeat
	for {
		select {
		case <-ctx.Done():
		case <-time.After(max(pause, took)): // who has much to read is not asked all the time
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(wait):
		}
		began := time.Now()
		err := s.Show(ctx)
		took = time.Since(began)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			isTold, wait = false, heartbeat
			continue
		case !follow.IsPassing(err):
			return err
		}
		if !isTold {
			s.Say(failure.Of(err, "").Error() + "; going on")
			isTold = true
		}
		wait = pause
	}
}

// end leaves out the error of what was asked for when the context ended.
func (s Source) end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// nudge is a view that tells that something has changed.
type nudge chan struct{}

func (n nudge) Show(follow.Change) error {
	select {
	case n <- struct{}{}:
	default: // one is on its way
	}
	return nil
}

func (n nudge) Flush() error { return nil }

package client

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/place"
)

// Bounds of asking the fallback locations.
const (
	// fallbackAfter is how long a host has been without a server before it asks one: a server that is replaced is back by then.
	fallbackAfter = time.Minute
	// fallbackMin and fallbackMax are the shortest and the longest pause between two rounds; the pause doubles while nothing new comes.
	fallbackMin = time.Minute
	fallbackMax = 15 * time.Minute
	// locationMax is how long one location is read.
	locationMax = 10 * time.Minute
	gitPrefix   = "git+"
)

// fallBack asks the locations that the trust documents name, one after the other, while no server has the host's watch.
func (c *Client) fallBack(ctx context.Context, random *rand.Rand) {
	pause := fallbackMin
	timer := time.NewTimer(fallbackAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		silent := c.opts.Links.State().silent(time.Now())
		if silent < fallbackAfter {
			c.hand.keepFound(nil) // there is a server, or was a moment ago
			pause = fallbackMin
			timer.Reset(fallbackAfter - silent)
			continue
		}
		if c.askLocations(ctx) {
			pause = fallbackMin
		}
		timer.Reset(pause + time.Duration(random.Int64N(int64(pause)))) // many hosts lose one server at the same time
		pause = min(2*pause, fallbackMax)
	}
}

// askLocations asks every location, and reports whether there was anything new. One that answers may be behind, or have a head without all that it
// names, so that none keeps the host from the others; what a head names is looked for in all of them.
func (c *Client) askLocations(ctx context.Context) (news bool) {
	all := c.opts.Identity.Trust().Current().Fallback
	c.hand.keepFound(all)
	if err := place.KeepRepositories(c.opts.Spool, repositories(all)); err != nil {
		c.opts.Log.Warn("remove what fallback locations had that are not asked any more", "err", err)
	}
	for _, address := range all {
		if c.opts.Links.State().Connected {
			return news
		}
		had, err := c.askLocation(ctx, address)
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			c.opts.Log.Warn("ask a fallback location", "location", address, "err", err, "hint", reason.Of(err).Hint)
		}
		news = news || had
	}
	return news
}

// repositories are those of the locations that are repositories of Git, as git knows them.
func repositories(locations []string) []string {
	var all []string
	for _, address := range locations {
		if repository, git := strings.CutPrefix(address, gitPrefix); git {
			all = append(all, repository)
		}
	}
	return all
}

func (c *Client) askLocation(ctx context.Context, address string) (news bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, locationMax)
	defer cancel()
	var p *place.Place
	if repository, git := strings.CutPrefix(address, gitPrefix); git {
		p, err = place.Repository(ctx, repository, c.opts.Spool)
	} else {
		p, err = place.Location(address, c.opts.Spool, place.Dial(c.opts.Dial))
	}
	if err != nil {
		c.hand.forget(address)
		return false, err
	}
	b, err := c.takePlace(ctx, p, address)
	if err != nil {
		return false, err
	}
	if b.News {
		c.opts.Log.Info("take a head from a fallback location", "location", address, "version", b.Mark.Version)
	}
	return b.News, nil
}

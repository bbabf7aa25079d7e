package agent

import (
	"context"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/ground"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// standing yields what stands on this host, and what is held there without being declared: a file that somebody has restored.
func (l *loop) standing(yield func(converge.ID, ground.Member) bool) {
	for i, p := range l.parts {
		if p.removal != nil && p.removal.done {
			continue
		}
		if !yield(converge.ID(i), ground.Member{Claim: p.claim(), Type: p.kind, Resource: p.res}) {
			return
		}
	}
	for _, h := range l.holds() {
		claim, ok := declare.ParseClaim(h.Claim)
		if ok && time.Now().Unix() < h.Until && !yield(converge.None, ground.Member{Claim: claim}) {
			return
		}
	}
}

// layGround looks again at what is about everything below a directory, where what stands there has changed.
func (l *loop) layGround(ctx context.Context) { l.lookBelow(ctx, l.ground.Lay(l.standing)) }

// lookBelow looks again at what is about everything below a directory, as if the kernel had told of it: what differs then was not missed.
func (l *loop) lookBelow(ctx context.Context, ids []converge.ID) {
	if len(ids) > 0 {
		l.step(ctx, converge.Touched{IDs: ids})
	}
}

// follow watches what a check of a resource has found of it. It reports whether that has to be looked at again.
func (l *loop) follow(p *part) bool {
	f, ok := p.res.(host.Following)
	if !ok || p.removal != nil || p.when != "" {
		return false
	}
	id := l.engine.Graph().ID(p.Key())
	if id == converge.None || l.parts[id] != p {
		return false
	}
	drop, add := f.Follow()
	l.subs.Follow(id, p, drop, add)
	return len(add) > 0
}

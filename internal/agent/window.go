package agent

import (
	"context"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

func (l *loop) goOn(ctx context.Context, subject string) error {
	var ids []converge.ID
	if subject != "" {
		if ids = l.find(subject); ids == nil {
			return report.Unknown(subject)
		}
	}
	l.step(ctx, converge.Release{IDs: ids})
	return nil
}

// refreshedByOthers finds out, outside of the window of a part, whether what it is notified of has been done by somebody else.
func (l *loop) refreshedByOthers(ctx context.Context, t host.Type, p *part, upto uint64) outcome {
	s, ok := t.(host.Satisfier)
	if !ok {
		_, ever := t.(host.Refresher)
		return outcome{result: converge.Result{Owed: ever}}
	}
	done, note := s.Satisfied(ctx, p.res, l.store.Since(p.Key(), upto))
	return outcome{result: converge.Result{Owed: !done}, note: note}
}

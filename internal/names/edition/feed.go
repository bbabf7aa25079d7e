package edition

import (
	"context"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

// beat is after how long without anything new a sign of life is sent: whoever waits gives up after two and a half times as long.
const beat = time.Minute

// Feed sends the way from an edition to the newest one, and on to each later one that is there when the one before was sent, until the context ends, stop is
// closed, or send fails.
func (s *Store) Feed(ctx context.Context, have wire.NamesMark, stop <-chan struct{}, send func(wire.Names) error) {
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		parts, mark, changed := s.After(have)
		for i := range parts {
			if send(parts[i]) != nil {
				return
			}
		}
		have, parts = mark, nil
		timer.Reset(beat)
		select {
		case <-changed:
		case <-timer.C:
			if send(wire.Names{}) != nil {
				return
			}
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

package assignments

import (
	"context"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/layers"
)

// size is how many entries some rows have, and how many bytes: hosts take no more than that. Of a row that stays although it cannot be
// compiled any more only the sum is known in which it was: what has come since is added to that, and what has gone is taken off where that
// can still be compiled. So it may be more than there is, until all can be compiled again, and never less; the same rows come to the same.
func (p *planner) size(ctx context.Context, rows []v1alpha1.AssignedLayer, compiled map[string]*layers.Layer) (entries, bytes int64) {
	count := func(l *layers.Layer, times int64) {
		entries += times * int64(l.Entries)
		bytes += times * l.Bytes
	}
	if len(compiled) == len(rows) {
		for _, l := range compiled {
			count(l, 1)
		}
		return entries, bytes
	}
	entries, bytes = p.was.Entries, p.was.Bytes
	for i := range rows {
		if old := layerOf(p.was.Layers, rows[i].Config); old == nil || old.Root != rows[i].Root {
			count(compiled[rows[i].Config], 1)
		}
	}
	for i := range p.was.Layers {
		old := &p.was.Layers[i]
		if now := layerOf(rows, old.Config); now != nil && now.Root == old.Root {
			continue
		}
		if l, err := layerAt(ctx, p.layers, old.Config, old.Revision, old.Root); err == nil {
			count(l, -1)
		}
	}
	return max(entries, 0), max(bytes, 0)
}

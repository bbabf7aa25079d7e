package ground

import (
	"context"
	"errors"
	"iter"
	"maps"
	"path"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// Sweep has types remove what killed runs have left in the directories that their resources stand in. Files go first, and go wherever anything
// stands at a path: they keep old content that is among it.
func Sweep(ctx context.Context, types map[declare.ResourceType]host.Type, members iter.Seq2[converge.ID, Member]) error {
	files, _ := types[declare.TypeFile].(host.Sweeper) // which makes directories and symlinks too
	dirs := map[host.Sweeper][]string{}
	for _, m := range members {
		s, _ := types[m.Type].(host.Sweeper)
		if m.Claim.Kind == declare.ClaimPath && files != nil {
			dirs[files] = append(dirs[files], path.Dir(m.Claim.ID))
		}
		if s != nil && s != files && m.Resource != nil {
			dirs[s] = append(dirs[s], host.Around(m.Resource)...)
		}
	}
	order := []host.Sweeper{files}
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		if s, is := types[kind].(host.Sweeper); is && !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	var errs []error
	for _, s := range order {
		if s != nil {
			slices.Sort(dirs[s])
			errs = append(errs, s.Sweep(ctx, slices.Compact(dirs[s])))
		}
	}
	return errors.Join(errs...)
}

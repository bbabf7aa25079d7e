package cli

import (
	"context"

	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
)

// declared are the flags that say what is declared, by whom and as part of what: apply and diff have them in common, so that what one shows the other does.
type declared struct {
	files
	inSet
	ownership
}

// decided is what a declaration changes on the server, and nothing of it is done yet.
type decided struct {
	source    *documents.Source
	server    *remote.Server
	options   plan.Options
	changes   []*plan.Change
	leftovers []prune.Leftover // of the set and declared no more, with --prune
}

// decide reads the documents and asks the server what they change.
func (p *program) decide(ctx context.Context, f *declared) (*decided, error) {
	source, err := f.load(p)
	if err != nil {
		return nil, err
	}
	if err := f.checkFiles(source); err != nil {
		return nil, err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return nil, err
	}
	options, err := p.planOptions(ctx, server, namespace, f.inSet, f.ownership)
	if err != nil {
		return nil, err
	}
	changes, err := plan.Make(ctx, server, source, options)
	if err != nil {
		return nil, err
	}
	leftovers, err := p.leftovers(ctx, server, f.inSet, options, changes)
	if err != nil {
		return nil, err
	}
	p.warnOfStays(changes, options)
	return &decided{source: source, server: server, options: options, changes: changes, leftovers: leftovers}, nil
}

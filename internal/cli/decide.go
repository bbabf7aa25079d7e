package cli

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
)

// declared are the flags that say what is declared, by whom and as part of what: apply and diff have them in common, so that what one shows the other does.
type declared struct {
	files
	inSet
	ownership
	try time.Duration // hosts go back after that, unless it is confirmed; 0: they do not
}

// checkTry wants a time that hosts can wait for.
func (f *declared) checkTry() error {
	if f.try != 0 && (f.try < time.Second || f.try > 24*time.Hour || f.try%time.Second != 0) {
		return failure.Usage("read --try "+f.try.String(), "hosts can wait for 1s to 24h, in whole seconds", "")
	}
	return nil
}

// mark makes the configs in a source ones that are tried.
func (f *declared) mark(source *documents.Source) {
	if f.try == 0 {
		return
	}
	for _, d := range source.Documents {
		if kind := d.Object.GetKind(); kind == declare.KindNodeConfig || kind == declare.KindClusterNodeConfig {
			// A rollout that is no map is refused with all other mistakes.
			_ = unstructured.SetNestedField(d.Object.Object, f.try.String(), "spec", "rollout", "try")
		}
	}
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
	if err := f.checkTry(); err != nil {
		return nil, err
	}
	source, err := f.load(p)
	if err != nil {
		return nil, err
	}
	f.mark(source)
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
	if f.try > 0 {
		plan.TriedFirst(changes)
	}
	leftovers, err := p.leftovers(ctx, server, f.inSet, options, changes)
	if err != nil {
		return nil, err
	}
	p.warnOfStays(changes, options)
	return &decided{source: source, server: server, options: options, changes: changes, leftovers: leftovers}, nil
}

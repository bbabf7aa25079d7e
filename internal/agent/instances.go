package agent

import (
	"context"
	"strings"

	"tako.dev/tako/internal/agent/instances"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/systemd"
	"tako.dev/tako/internal/transfer/wire"
)

// keepInstances makes the Keeper of a host that has joined. What it tells of comes from its own goroutine.
func (l *loop) keepInstances(ctx context.Context) (err error) {
	j := l.joined
	boot, err := systemd.BootID()
	if err != nil {
		return err
	}
	j.instances, err = instances.New(instances.Options{
		StateDir: l.opts.StateDir, Boot: boot, Runtimes: l.opts.Instances.Runtimes, Devices: l.opts.Instances.Devices, Objects: l.opts.Objects, Open: j.vault.Open, Clean: j.vault.Scrub,
		Changed: j.tell, Ready: j.naming.Ready, Services: j.naming.Environment,
		Note:    func(h store.Happening) { l.keepNote(ctx, h) },
		Trouble: func(doing string, err error) { l.post(ctx, func() { l.book.Trouble(doing, err) }) },
	})
	return err
}

// keepNote has the history know what became of an instance. It may be called from any goroutine.
func (l *loop) keepNote(ctx context.Context, h store.Happening) {
	if err := l.store.Append(h); err != nil {
		l.post(ctx, func() { l.book.Trouble("write the history", err) })
	}
}

// tell has a report sent.
func (j *joined) tell() {
	select {
	case j.news <- struct{}{}:
	default:
	}
}

// wantInstances says which instances the enforced state has. Where that cannot be read nothing is said, and what runs goes on.
func (l *loop) wantInstances() {
	j := l.joined
	if j == nil || j.list == nil || j.life.Enforced.Root == (catalog.Digest{}) {
		return
	}
	j.instances.Want(instances.Wanted{Instances: j.own.Instances, Templates: j.templates, Offers: l.offers(), Node: l.opts.NodeName, Labels: j.own.Labels})
}

// offers is what the host has for instances.
func (l *loop) offers() wire.Offers {
	o := l.joined.instances.Offers(l.lookup, l.opts.Instances.Directories)
	if err := l.joined.instances.Trouble(); err != nil {
		l.book.Trouble("look for devices", err)
	}
	return o
}

// instance explains an instance; false where the subject is something else.
func (l *loop) instance(ctx context.Context, subject string) (*Answer, bool, error) {
	name, is := strings.CutPrefix(subject, instances.Subject)
	if !is || l.joined == nil {
		return nil, false, nil
	}
	account, err := l.joined.instances.Account(ctx, name)
	if err != nil {
		return nil, true, err
	}
	a := &Answer{Instance: &account}
	a.History, err = l.store.History(store.Asked{Subject: instances.Claim(name), Limit: report.HistoryShown})
	return a, true, err
}

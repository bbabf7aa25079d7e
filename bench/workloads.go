package main

import (
	"context"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/running"
)

// workloads is a row of package running.
func workloads(row func(*running.Bench, context.Context) error) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		return row(&running.Bench{
			Quick: b.quick, Crowd: b.crowd, Fleet: b.emptyFleet,
			Judge: func(what, measured, bar string, met bool) { b.table.add(what, measured, bar, judge(met)) },
			State: func(what, measured string) { b.table.add(what, measured, "stated", noVerdict) },
		}, ctx)
	}
}

// emptyFleet starts a server with one agent that has nothing to do, and makes a directory for what it will have.
func (b *bench) emptyFleet(ctx context.Context) (f *load.Fleet, dir string, err error) {
	if err := b.pathPrograms(ctx); err != nil {
		return nil, "", err
	}
	home, err := b.newDir()
	if err != nil {
		return nil, "", err
	}
	if dir, err = b.newDir(); err != nil {
		return nil, "", err
	}
	f, err = load.StartFleet(ctx, b.tako, home)
	return f, dir, err
}

package instances

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

const (
	// startsMax is how many tasks are started at once: enough that one that takes its time holds up nobody, few enough that a host on which
	// everything starts goes on.
	startsMax = 16
	// startTime bounds one try to start a task: what unpacks an image takes long.
	startTime = 2 * time.Minute
	// callTime bounds what else runtimes are asked for.
	callTime = 30 * time.Second
	// startPause is how long after a start that waits, or of which nothing is known, it is asked for again.
	startPause = time.Second
)

// lane is a task, about which one thing is done at a time, in order.
type lane struct{ instance, task string }

func laneOf(id run.ID) lane { return lane{id.Instance, id.Task} }

// step steps the machine, and does what must be done before the next event at once. The rest waits for carryOn.
func (k *Keeper) step(e core.Event) {
	at := core.Now{Boot: k.opts.Boot, At: now(), Wall: time.Now(), Heard: run.Moment(k.heard.Load())}
	for _, f := range k.machine.Step(at, e) {
		switch f := f.(type) {
		case core.Save:
			k.save(f)
		case core.Drop:
			k.drop(f)
		case core.Bind:
			b := bind(f)
			k.post(func() { k.step(b) })
		case core.Renew:
			k.opts.Changed() // the answer to a report is a word of a server, which has heard this host then
		case core.Note:
			k.opts.Note(k.happening(f))
		case core.Start:
			k.start(f)
		case core.Ask:
			record := *f.Record
			f.Record = &record
			r := k.runtimes[f.Runtime]
			k.carry(lane{f.ID.Instance, f.ID.Task + probeSuffix + f.Probe.String()}, func(ctx context.Context) { k.ask(ctx, f, r) })
		case core.Signal:
			k.call(f.Runtime, f.ID, "stop", func(ctx context.Context, r run.Runtime) error { return r.Stop(ctx, f.ID, f.Signal) })
		case core.Extend:
			k.extend(f)
		case core.Kill:
			k.call(f.Runtime, f.ID, "kill", func(ctx context.Context, r run.Runtime) error { return r.Kill(ctx, f.ID) })
		case core.Remove:
			k.remove(f.Runtime, f.ID)
		}
	}
}

// happening is what became of an instance, as the history keeps it.
func (k *Keeper) happening(n core.Note) store.Happening {
	h := store.Happening{At: time.Now(), Title: Subject + n.Instance, Claim: Claim(n.Instance), Outcome: reason.Kept.String(), Message: k.opts.Clean(n.Words)}
	if n.Task != "" {
		h.Message = "task " + n.Task + ": " + h.Message
	}
	if n.Code != 0 {
		h.Outcome, h.Code = reason.Failed.String(), n.Code.String()
	}
	return h
}

// carryOn starts what the steps have brought, and tells what has changed.
func (k *Keeper) carryOn(ctx context.Context) {
	for l, jobs := range k.lanes {
		if len(jobs) > 0 && jobs[0] != nil {
			k.next(ctx, l)
		}
	}
	k.hungry.Store(k.machine.Hungry())
	if !k.machine.News() {
		return
	}
	told := k.machine.Told()
	for i := range told {
		told[i].Message = k.opts.Clean(told[i].Message)
	}
	k.mu.Lock()
	k.told = told
	k.mu.Unlock()
	k.name()
	k.opts.Changed()
}

// carry puts a job behind the others of its lane. A lane that is at work has nil in front.
func (k *Keeper) carry(l lane, job func(context.Context)) { k.lanes[l] = append(k.lanes[l], job) }

// next does the first job of a lane.
func (k *Keeper) next(ctx context.Context, l lane) {
	job := k.lanes[l][0]
	k.lanes[l][0] = nil
	k.work.Go(func() {
		job(ctx)
		k.post(func() {
			if k.lanes[l] = k.lanes[l][1:]; len(k.lanes[l]) == 0 {
				delete(k.lanes, l)
			}
		})
	})
}

// save makes a record durable. Where that cannot be, nothing of the instance is started: what would be lost is how often it has failed.
func (k *Keeper) save(f core.Save) {
	err := k.records.put(f.UID, f.Data)
	if err != nil && k.unsaved[f.UID] == nil {
		k.opts.Trouble("keep an instance", err)
	}
	if k.unsaved[f.UID] = err; err == nil {
		delete(k.unsaved, f.UID)
	}
}

// drop forgets an instance.
func (k *Keeper) drop(f core.Drop) {
	delete(k.unsaved, f.UID)
	for _, id := range f.Attempts {
		k.remove(f.Runtime, id)
	}
	k.forget(f.UID)
}

// remove has a runtime forget an attempt. The kernel may need a moment after its end, which the next attempt does not wait for.
func (k *Keeper) remove(name workload.Runtime, id run.ID) {
	r := k.runtimes[name]
	if r == nil {
		return // it is found when there is one
	}
	k.carry(lane{id.Instance, id.String()}, func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		if err := removed(limited, r, id); err != nil && ctx.Err() == nil {
			k.opts.Trouble("remove "+id.String(), err)
		}
	})
}

// removed has an attempt forgotten, and tries it again as long as its end is too near.
func removed(ctx context.Context, r run.Runtime, id run.ID) error {
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		err := r.Remove(ctx, id)
		if !reason.Is(err, reason.TaskBusy) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// forget removes the directories of an instance. Its record goes at once, so that another one of that UID begins anew.
func (k *Keeper) forget(uid string) {
	gone, err := k.records.away(uid)
	if err != nil {
		k.opts.Trouble("forget an instance", err)
	}
	if gone != "" {
		k.work.Go(func() { removeAll(gone) })
	}
}

// call has a runtime do something about an attempt.
func (k *Keeper) call(name workload.Runtime, id run.ID, what string, do func(context.Context, run.Runtime) error) {
	r := k.runtimes[name]
	if r == nil {
		return // it is not here any more, and nobody knows how to ask for anything
	}
	k.carry(laneOf(id), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		switch err := do(ctx, r.Runtime); {
		case err == nil, ctx.Err() != nil:
		case reason.Is(err, reason.TaskUnknown):
			// It was never begun, or is gone: nothing else will tell of its end.
			lost := run.Status{ID: id, Phase: run.Ended, Boot: k.opts.Boot, Ending: run.Ending{Cause: run.Lost, At: now(), Words: "the runtime does not have it"}}
			k.post(func() { k.step(core.Changed{Runtime: name, Status: lost}) })
		default:
			k.opts.Trouble(what+" "+id.String(), err)
		}
	})
}

// extend tells a runtime until when an attempt may run. One that it does not have yet, or any more, has that from its start.
func (k *Keeper) extend(f core.Extend) {
	r := k.runtimes[f.Runtime]
	if r == nil {
		return
	}
	k.carry(laneOf(f.ID), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		if err := r.Extend(ctx, f.ID, f.Until); err != nil && ctx.Err() == nil && !reason.Is(err, reason.TaskUnknown) {
			k.opts.Trouble("extend "+f.ID.String(), err)
		}
	})
}

// start starts an attempt, and comes back with what came of it.
func (k *Keeper) start(f core.Start) {
	record := *f.Record
	f.Record = &record
	not := func(err error) {
		k.post(func() { k.step(core.NotStarted{ID: f.ID, Number: f.Number, Err: k.clean(reason.Of(err))}) })
	}
	r := k.runtimes[f.Runtime]
	if err := k.unsaved[f.ID.Instance]; err != nil || r == nil {
		if err == nil {
			err = &reason.Error{Code: reason.TaskNotStarted, Doing: "start " + f.ID.String(), Cause: errors.New("runtime " + string(f.Runtime) + " could not be opened")}
		}
		not(err)
		return
	}
	b := k.builder(f)
	k.carry(laneOf(f.ID), func(ctx context.Context) {
		select {
		case k.starts <- struct{}{}:
			defer func() { <-k.starts }()
		case <-ctx.Done():
			return
		}
		task, err := b.build(r.Capabilities())
		switch {
		case reason.Is(err, reason.ObjectComing):
			k.post(func() {
				k.step(core.Awaited{ID: f.ID, Number: f.Number, Err: reason.Of(err)})
				k.again(ctx, f)
			})
			return
		case err != nil:
			not(err)
			return
		}
		limited, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		s, err := r.Start(limited, task)
		switch {
		case ctx.Err() != nil:
		case limited.Err() != nil:
			// It may run or not: asking again is what tells.
			k.post(func() { k.again(ctx, f) })
		case err != nil:
			not(err)
		default:
			k.post(func() { k.step(core.Changed{Runtime: f.Runtime, Status: s}) })
		}
	})
}

// again asks once more for a start that waits, or of which nothing is known, unless something else is to be done about the task by now.
func (k *Keeper) again(ctx context.Context, f core.Start) {
	if len(k.lanes[laneOf(f.ID)]) > 1 {
		return
	}
	k.carry(laneOf(f.ID), func(context.Context) {
		pause := time.NewTimer(startPause)
		defer pause.Stop()
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	})
	k.start(f)
}

// clean is an error without the values of secrets.
func (k *Keeper) clean(err *reason.Error) *reason.Error {
	if err.Cause == nil {
		return err
	}
	clean := *err
	clean.Cause = errors.New(k.opts.Clean(err.Cause.Error()))
	return &clean
}

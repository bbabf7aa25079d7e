package assignments

import (
	"context"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/rollout"
)

// countsEvery is how often the status of a config is written because other numbers of nodes are how far: twice a second is as often as
// a person sees, and no load.
const countsEvery = 500 * time.Millisecond

// statusesMax is how many statuses are written before Assignments are looked at again: ours, eight for each of those that write, which is
// some tens of milliseconds on a disk of any kind.
const statusesMax = 8 * writesMax

// letter is what is to be told about a config.
type letter struct {
	mayWrite time.Time // before, only what is urgent is
	known    toldPhase
}

// toldPhase is what people were told last.
type toldPhase struct {
	is        bool // they were told something
	phase     rollout.Phase
	target    rollout.Target
	conflicts bool
}

// statusJobs are the statuses to be written, by ID: not all at once, because Assignments wait for them.
func (a *Assignments) statusJobs(w *world, now time.Time) []job {
	var jobs []job
	w.unwritten = false
	for _, c := range slices.SortedFunc(maps.Keys(w.stale), compareConfigs) {
		if len(jobs) == statusesMax {
			w.unwritten = true
			break
		}
		next := c.statusOn(c.status)
		if sameStatus(&next, &c.status) {
			delete(w.stale, c)
			a.tell(c)
			continue
		}
		if now.Before(c.mayWrite) && !urgent(&next, &c.status) {
			continue
		}
		a.tell(c)
		jobs = append(jobs, a.statusJob(w, c))
	}
	return jobs
}

// failureJobs are the statuses of configs that have failed just now. They are written before any node is given something else because of it: a server that
// dies in between knows of it, and does not try again.
func (a *Assignments) failureJobs(w *world) []job {
	var jobs []job
	for _, c := range slices.SortedFunc(maps.Keys(w.stale), compareConfigs) {
		next := c.statusOn(c.status)
		if r := next.Rollout; r == nil || r.Failure == nil || c.status.Rollout != nil && equality.Semantic.DeepEqual(r.Failure, c.status.Rollout.Failure) {
			continue
		}
		a.tell(c)
		jobs = append(jobs, a.statusJob(w, c))
	}
	return jobs
}

func (a *Assignments) statusJob(w *world, c *config) job {
	var written v1alpha1.NodeConfigStatus
	key := types.NamespacedName{Namespace: c.namespace, Name: c.name}
	return job{
		do: func(ctx context.Context) error {
			o, status := newConfig(c.kind)
			if err := a.options.Objects.Get(ctx, key, o); err != nil {
				return err
			}
			*status = c.statusOn(*status)
			if err := a.options.Objects.UpdateStatus(ctx, o); err != nil {
				return err
			}
			written = *status
			return nil
		},
		done: func(err error) {
			switch {
			case err == nil:
				c.status, c.mayWrite = written, time.Now().Add(countsEvery)
				delete(w.stale, c)
			case apierrors.IsNotFound(err):
				delete(w.stale, c) // it goes, and that is told
			default:
				c.mayWrite = time.Now().Add(countsEvery)
				if !apierrors.IsConflict(err) {
					a.options.Log.Warn("status of a config is not written", "config", c.id, "err", err)
				}
			}
		},
	}
}

// newConfig is an object of the kind of a config, and its status.
func newConfig(kind string) (runtime.Object, *v1alpha1.NodeConfigStatus) {
	if kind == v1alpha1.KindClusterNodeConfig {
		o := &v1alpha1.ClusterNodeConfig{}
		return o, &o.Status
	}
	o := &v1alpha1.NodeConfig{}
	return o, &o.Status
}

// tell makes the Events about what has become of a config since people were told last. What was so when this server began is no news.
func (a *Assignments) tell(c *config) {
	is := toldPhase{true, c.was.Phase, c.was.Target, len(c.told.Conflicts) > 0}
	was := c.known
	if !was.is {
		was = toldPhase{is: true, conflicts: len(c.status.Conflicts) > 0}
		if r := c.status.Rollout; r != nil {
			was.phase, was.target = rollout.Phase(r.Phase), wasOf(r).Target
		}
	}
	c.known = is
	about := core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: c.kind, Namespace: c.namespace, Name: c.name, UID: c.uid}
	say := func(kind, why, words string) { a.options.Recorder.Tell(about, kind, why, words) }
	if is.phase != was.phase || is.target != was.target {
		switch {
		case is.phase == rollout.Halted:
			say(core.EventTypeWarning, "RolloutHalted", c.words())
		case is.phase == rollout.RollingBack:
			say(core.EventTypeWarning, "RollingBack", c.words())
		case is.phase == rollout.RolledBack:
			say(core.EventTypeWarning, "RolledBack", c.words())
		case is.phase == rollout.Complete:
			say(core.EventTypeNormal, "RolloutComplete", c.words())
		case is.target != was.target && is.phase == rollout.Rolling:
			say(core.EventTypeNormal, "RolloutStarted", c.words())
		case is.phase == rollout.Paused:
			say(core.EventTypeNormal, "RolloutPaused", c.words())
		}
	}
	switch {
	case is.conflicts && !was.conflicts:
		say(core.EventTypeWarning, "Conflict", c.conflictText())
	case was.conflicts && !is.conflicts:
		say(core.EventTypeNormal, "ConflictResolved", "no other config is in the way any more")
	}
}

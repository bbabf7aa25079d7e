package workloads

import (
	"context"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/jobs"
	fleet "tako.dev/tako/internal/fleet/workload"
)

// job is one object to write. do may run beside others; done is called by the loop's goroutine afterwards.
type job struct {
	do   func(context.Context) error
	done func(error)
}

// write writes: those of one list in any order.
func (c *Workloads) write(ctx context.Context, jobs []job) {
	errs := make([]error, len(jobs))
	var group errgroup.Group
	group.SetLimit(c.options.Writers)
	for i, j := range jobs {
		group.Go(func() error {
			call, cancel := context.WithTimeout(ctx, callMax)
			defer cancel()
			errs[i] = j.do(call)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, j := range jobs {
		j.done(errs[i])
	}
}

// expected: somebody else was faster, and the watch tells how.
func expected(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// failed has a workload decided about again of which something is not written.
func (c *Workloads) failed(w *world, of *workload, what string, err error) {
	w.retry(of)
	c.metrics.Failures.Inc()
	if !expected(err) {
		c.options.Log.Warn("a write of a workload has failed", "namespace", of.key.Namespace, "name", of.key.Name, "what", what, "err", err)
	}
}

// storeFirst stores the statuses that go before everything else, and returns the decisions that are to be carried out: of those whose status is
// refused nothing is.
func (c *Workloads) storeFirst(ctx context.Context, w *world, decided []*decision, now time.Time) []*decision {
	var jobs []job
	refused := map[*decision]bool{}
	for _, d := range decided {
		if d.Make != nil {
			continue // there is nothing to tell before the revision is there
		}
		if d.of.told = &d.status; !d.first {
			if !sameStatus(&d.status, &d.of.o.Status) {
				w.stale[d.of] = true
			}
			continue
		}
		jobs = append(jobs, c.statusJob(w, d.of, d.status, func(err error) {
			if err != nil {
				refused[d] = true
				c.failed(w, d.of, "status", err)
			}
		}))
	}
	c.write(ctx, jobs)
	return slices.DeleteFunc(decided, func(d *decision) bool { return refused[d] || ctx.Err() != nil })
}

// statusJob stores a status in the place of the one that was decided on.
func (c *Workloads) statusJob(w *world, of *workload, status v1alpha1.WorkloadStatus, then func(error)) job {
	o := of.o.DeepCopy()
	o.Status = status
	return job{
		do: func(ctx context.Context) error { return c.options.Objects.UpdateStatus(ctx, o) },
		done: func(err error) {
			if err == nil {
				was := of.o.Status
				w.renew(of, o)
				of.mayWrite, of.written = w.now.Add(countsEvery), w.now
				delete(w.stale, of)
				c.tell(of, &was)
			}
			then(err)
		},
	}
}

// carry does what was decided but to create instances: what is missing is pending after it. Where it is too much for a round it does a part, as if this
// server had died in the middle: what is written of instances has their workload decided about again.
func (c *Workloads) carry(ctx context.Context, w *world, decided []*decision, now time.Time) {
	var gone, changed []job
	for _, d := range decided {
		gone = append(gone, c.dropJobs(w, d)...)
		changed = append(changed, c.revisionJobs(w, d)...)
		changed = append(changed, c.instanceJobs(w, d, now)...)
		changed = append(changed, c.ownJobs(w, d)...)
	}
	c.write(ctx, gone)
	c.write(ctx, changed)
	for _, d := range decided {
		w.pend(d)
	}
}

// dropJobs delete the objects of instances of which nothing runs.
func (c *Workloads) dropJobs(w *world, d *decision) []job {
	drop := map[string]bool{}
	for _, mark := range d.Drop {
		drop[mark.UID] = true
	}
	if d.job != nil {
		for _, uid := range d.job.Remove {
			drop[uid] = true
		}
		if d.job.Delete { // what is left of it to be looked at
			for _, in := range d.of.instances {
				drop[in.seen.UID] = drop[in.seen.UID] || in.seen.Phase.Ended() && in.seen.Owner == string(d.of.o.UID)
			}
		}
	}
	var jobs []job
	for _, in := range d.of.sorted() {
		if !drop[in.seen.UID] {
			continue
		}
		if len(jobs) == writesPerRound {
			break
		}
		jobs = append(jobs, job{
			do: func(ctx context.Context) error {
				return c.options.Objects.Delete(ctx, in.o, metav1.NewUIDPreconditions(string(in.o.UID)))
			},
			done: func(err error) {
				if err == nil || apierrors.IsNotFound(err) {
					w.lose(in)
					return
				}
				c.failed(w, d.of, "delete instance "+in.o.Name, err)
			},
		})
	}
	return jobs
}

// sorted are the instances by name.
func (of *workload) sorted() []*instance {
	all := make([]*instance, 0, len(of.instances))
	for _, in := range of.instances {
		all = append(all, in)
	}
	slices.SortFunc(all, func(a, b *instance) int { return int(a.o.Spec.Slot) - int(b.o.Spec.Slot) })
	return all
}

// revisionJobs make, number and forget revisions.
func (c *Workloads) revisionJobs(w *world, d *decision) []job {
	of := d.of
	then := func(what string, o *v1alpha1.Revision) func(error) {
		return func(err error) {
			switch {
			case err != nil:
				c.failed(w, of, what, err)
			case o == nil:
			default:
				w.takeRevision(o)
			}
		}
	}
	var jobs []job
	if d.Make != nil {
		o := newRevision(of.o, d.Make)
		jobs = append(jobs, job{
			do:   func(ctx context.Context) error { return c.options.Objects.Create(ctx, o) },
			done: then("make revision "+d.Make.Name, o),
		})
	}
	if d.Renumber != nil {
		o := of.revisions[d.Renumber.Name].DeepCopy()
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.AnnotationNumber, strconv.Itoa(d.Renumber.Number))
		jobs = append(jobs, job{
			do:   func(ctx context.Context) error { return c.options.Objects.Update(ctx, o) },
			done: then("number revision "+o.Name, o),
		})
	}
	for _, name := range d.Forget {
		o := of.revisions[name]
		jobs = append(jobs, job{
			do: func(ctx context.Context) error {
				return c.options.Objects.Delete(ctx, o, metav1.NewUIDPreconditions(string(o.UID)))
			},
			done: func(err error) {
				if apierrors.IsNotFound(err) {
					err = nil
				}
				if err == nil {
					w.loseRevision(keyOf(o))
					w.snapshot.RemoveWorkload(keyWithUID(of.o), o.Name)
					delete(of.classes, o.Name)
				}
				then("forget revision "+o.Name, nil)(err)
			},
		})
	}
	return jobs
}

func newRevision(of *v1alpha1.Workload, r *fleet.Revision) *v1alpha1.Revision {
	return &v1alpha1.Revision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: r.Name, Labels: map[string]string{v1alpha1.LabelWorkload: of.Name}, OwnerReferences: ownedBy(of),
			Annotations: map[string]string{v1alpha1.AnnotationNumber: strconv.Itoa(r.Number)},
		},
		Spec: v1alpha1.RevisionSpec{
			Source:   &v1alpha1.RevisionSource{Kind: v1alpha1.KindWorkload, Name: of.Name, UID: of.UID},
			Template: of.Spec.Template.DeepCopy(),
		},
	}
}

// ownedBy says that an object goes with a workload.
func ownedBy(of *v1alpha1.Workload) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: declare.APIVersion, Kind: v1alpha1.KindWorkload, Name: of.Name, UID: of.UID, Controller: &yes, BlockOwnerDeletion: &yes}}
}

// instanceJobs take instances back, tell others to end, note which are given up, and keep what became of those of jobs. A round may do the first of them
// alone: those are taken back first in whose favour others end.
func (c *Workloads) instanceJobs(w *world, d *decision, now time.Time) []job {
	var jobs []job
	written := map[string]bool{} // two writes of one object would meet
	change := func(uid, what string, status bool, change func(*v1alpha1.Instance)) {
		in := w.uids[types.UID(uid)]
		if in == nil || written[uid] || len(jobs) == writesPerRound { // it is pending, or gone
			return
		}
		written[uid] = true
		o := in.o.DeepCopy()
		change(o)
		do := c.options.Objects.Update
		if status {
			do = c.options.Objects.UpdateStatus
		}
		jobs = append(jobs, job{
			do: func(ctx context.Context) error { return do(ctx, o) },
			done: func(err error) {
				if err != nil {
					c.failed(w, d.of, what+" instance "+o.Name, err)
					return
				}
				w.take(in, o)
			},
		})
	}
	for _, mark := range d.Reclaim {
		change(mark.UID, "take back", true, func(o *v1alpha1.Instance) { o.Status.Abandoned = nil })
	}
	for _, s := range d.Stop {
		change(s.UID, "stop", false, func(o *v1alpha1.Instance) {
			if o.Spec.Stop == nil {
				o.Spec.Stop = &v1alpha1.InstanceStop{Code: statuses.CodeText(s.Why), Since: statuses.Seconds(now)}
			}
		})
	}
	for _, u := range d.Update {
		change(u.UID, "change the revision of", false, func(o *v1alpha1.Instance) { o.Spec.Revision = u.Revision })
	}
	for _, mark := range d.Abandon {
		change(mark.UID, "give up", true, func(o *v1alpha1.Instance) {
			at := statuses.Seconds(now)
			o.Status.Abandoned = &at
			o.Status.Losses++
		})
	}
	for _, wish := range d.wishes {
		change(wish.uid, "note who wants away", true, func(o *v1alpha1.Instance) { o.Status.Leave = wish.leave })
	}
	lease := leaseSeconds(&d.of.o.Spec)
	for _, in := range d.of.sorted() {
		if in.o.Spec.LeaseSeconds != lease && in.o.Spec.Stop == nil {
			change(in.seen.UID, "bound the lease of", false, func(o *v1alpha1.Instance) { o.Spec.LeaseSeconds = lease })
		}
	}
	if d.job == nil {
		return jobs
	}
	for _, in := range d.of.sorted() {
		if in.seen.Phase.Ended() && !statuses.PhaseOf(in.o.Status.Phase).Ended() {
			change(in.seen.UID, "keep the end of", true, func(o *v1alpha1.Instance) {
				at := statuses.Seconds(in.over)
				o.Status.Phase, o.Status.Ended, o.Status.Failure = statuses.PhaseName(in.seen.Phase), &at, statuses.EncodeFailure(in.seen.Failure)
			})
		}
	}
	return jobs
}

// leaseSeconds is how long an instance may run after its host has heard its servers last; 0: however long.
func leaseSeconds(spec *declared.Spec) int32 { return int32(fleet.Lease(spec).Seconds()) }

// ownJobs are about the workload itself: its finalizer comes before its first instance and goes after its last, the next run of a schedule is
// made, and a run goes that was kept for long enough.
func (c *Workloads) ownJobs(w *world, d *decision) []job {
	of := d.of
	switch o := of.o; {
	case !d.start.IsZero():
		return []job{c.startJob(w, d)}
	case o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, finalizer) && len(of.own()) == 0:
		return []job{c.finalizerJob(w, of, slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer }))}
	case o.DeletionTimestamp == nil && !slices.Contains(o.Finalizers, finalizer) && o.Spec.Schedule == nil:
		return []job{c.finalizerJob(w, of, append(slices.Clone(o.Finalizers), finalizer))}
	case d.job != nil && d.job.Delete && of.parent != nil && o.DeletionTimestamp == nil:
		// A job that people have declared stays: whoever declares it again would run it again.
		return []job{{
			do: func(ctx context.Context) error {
				return c.options.Objects.Delete(ctx, o, metav1.NewUIDPreconditions(string(o.UID)))
			},
			done: func(err error) {
				if err != nil {
					c.failed(w, of, "delete the run", err)
				}
			},
		}}
	}
	return nil
}

// own are the instances of this very workload.
func (of *workload) own() []*instance {
	var own []*instance
	for _, in := range of.instances {
		if in.seen.Owner == string(of.o.UID) {
			own = append(own, in)
		}
	}
	return own
}

func (c *Workloads) finalizerJob(w *world, of *workload, finalizers []string) job {
	o := of.o.DeepCopy()
	o.Finalizers = finalizers
	return job{
		do: func(ctx context.Context) error { return c.options.Objects.Update(ctx, o) },
		done: func(err error) {
			if err != nil {
				c.failed(w, of, "finalizer", err)
				return
			}
			if len(o.Finalizers) > 0 || o.DeletionTimestamp == nil {
				w.renew(of, o)
			}
		},
	}
}

// startJob begins a run of a schedule: before the status says so, which its name makes right.
func (c *Workloads) startJob(w *world, d *decision) job {
	run := newRun(d.of.o, d.start)
	return job{
		do: func(ctx context.Context) error { return c.options.Objects.Create(ctx, run) },
		done: func(err error) {
			if err != nil {
				c.failed(w, d.of, "begin run "+run.Name, err)
				return
			}
			w.takeWorkload(run) // and with it, that the time is dealt with
		},
	}
}

func newRun(of *v1alpha1.Workload, at time.Time) *v1alpha1.Workload {
	run := &v1alpha1.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: jobs.RunName(of.Name, at), Labels: map[string]string{v1alpha1.LabelWorkload: of.Name}, OwnerReferences: ownedBy(of),
			Finalizers: []string{finalizer},
		},
		Spec: *of.Spec.DeepCopy(),
	}
	run.Spec.Schedule = nil
	return run
}

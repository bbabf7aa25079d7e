package workloads

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/rollout/pace"
	fleet "tako.dev/tako/internal/fleet/workload"
)

// finalizer keeps a workload that is deleted until nothing of it runs.
const finalizer = "tako.dev/instances"

// decision is what was decided about one workload.
type decision struct {
	fleet.Decision
	of     *workload
	job    *jobs.RunDecision // of a job
	start  time.Time         // of a schedule: the run that begins; zero: none
	status v1alpha1.WorkloadStatus
	first  bool   // the status is to be stored before anything else is done
	wishes []wish // that are to be stored of instances
	// measureAt is when what is measured is looked at again; zero: it decides nothing.
	measureAt time.Time
}

// round takes in what was told, decides and writes. It returns when to do so again though nothing has happened (zero: not by itself), and before
// when not.
func (c *Workloads) round(ctx context.Context, w *world, now time.Time) (next, pause time.Time) {
	began := time.Now()
	now = now.Truncate(time.Microsecond) // what is stored of it is what was decided
	c.absorb(w, now)
	c.showLeases(w)
	decided := c.decideAll(w, now)
	pause = time.Now().Add(thinkingPause * time.Since(began))
	decided = c.storeFirst(ctx, w, decided, now)
	c.carry(ctx, w, decided, now)
	// What was decided may be for tens of thousands, and to decide about the next ones takes the longer the more there are.
	for c.place(ctx, w, now) >= placeMax && time.Now().Before(pause) {
		continue
	}
	c.storeStale(ctx, w, now)
	c.settle(ctx, w)
	c.want(w, now)
	c.show(w)
	c.metrics.Observe(w.waiting(), len(w.instances), time.Since(began))
	return w.wakeAt(now), pause
}

// waiting is how many instances have no node.
func (w *world) waiting() (n int) {
	for _, of := range w.workloads {
		n += len(of.pending)
	}
	return n
}

// wakeAt is when time alone changes something.
func (w *world) wakeAt(now time.Time) time.Time {
	at := earlier(w.queue.WakeAt(), w.settleAt)
	if len(w.dirty) > 0 {
		at = earlier(at, now)
	}
	for of := range w.stale {
		at = earlier(at, w.telling.mayAt(of.mayWrite))
	}
	for _, wake := range w.wakes {
		at = earlier(at, wake)
	}
	return at
}

// retry has a workload decided about soon, because something of it could not be written.
func (w *world) retry(of *workload) { w.wake(of, earlier(w.wakes[of], w.now.Add(retryAfter))) }

// decideAll decides about the workloads that something has touched, in order of their names: first schedules, because runs follow from them. When it is
// enough to write for a round the others have their turn in the next one.
func (c *Workloads) decideAll(w *world, now time.Time) []*decision {
	var all []*decision
	writes := 0
	for _, schedules := range []bool{true, false} {
		for _, of := range w.inTurn() {
			if of.o != nil && (of.o.Spec.Schedule != nil) != schedules {
				continue
			}
			if writes >= writesPerRound {
				return all
			}
			if !schedules { // which write nothing here
				w.turn = of.key.String()
			}
			delete(w.dirty, of)
			if of.o == nil {
				w.leave(of)
				continue
			}
			w.wake(of, time.Time{})
			d := &decision{of: of, status: *of.o.Status.DeepCopy()}
			if schedules {
				w.schedule(of, d, now)
			} else {
				c.decide(w, of, d, now)
			}
			c.metrics.Decisions.Inc()
			all = append(all, d)
			writes += d.writes()
		}
	}
	w.turn = ""
	return all
}

// inTurn are the workloads that something has touched, by name from the one on whose turn it is.
func (w *world) inTurn() []*workload {
	dirty := slices.SortedFunc(maps.Keys(w.dirty), func(a, b *workload) int { return cmp.Compare(a.key.String(), b.key.String()) })
	next := 0
	if w.turn != "" {
		next = max(0, slices.IndexFunc(dirty, func(of *workload) bool { return of.key.String() > w.turn }))
	}
	return slices.Concat(dirty[next:], dirty[:next])
}

// writes is how many instances are written when a decision is carried out.
func (d *decision) writes() int {
	n := len(d.Stop) + len(d.Update) + len(d.Drop) + len(d.Abandon) + len(d.Reclaim) + len(d.wishes)
	if d.job != nil {
		n += len(d.job.Remove)
	}
	return n
}

// decide decides about a workload that has instances.
func (c *Workloads) decide(w *world, of *workload, d *decision, now time.Time) {
	wanted := c.scaleOf(w, of, d, now)
	if of.o.Spec.Mode == declared.RunToCompletion {
		wanted = w.run(of, d, now)
	}
	v, wake := w.viewOf(of, wanted)
	v.Gates = measures.Readings(c.options.Measures, of.o.Namespace, of.gates())
	d.Decision = fleet.Decide(v, now)
	d.Status.Counts.Pending = of.pendingAfter(&d.Decision)
	statuses.Encode(&d.Status, &d.status)
	d.status.Selector = v1alpha1.LabelWorkload + "=" + of.o.Name
	w.snapshot.SetBudget(keyWithUID(of.o), fleet.Disruptable(&v.Spec, &d.Status))
	if d.job != nil {
		wake = earlier(wake, d.job.WakeAt)
	}
	w.wishes(d)
	w.wake(of, earlier(earlier(earlier(wake, d.WakeAt), of.held), d.measureAt))
	of.explain(&d.status, w)
	of.conclude(&d.status, now)
	w.unsettle(of)
	// What only tells how far it is waits; what another decision depends on does not, and neither does what goes with something that is done.
	d.first = d.Make == nil && (significant(&d.status, &of.o.Status) || len(d.Stop)+len(d.Update)+len(d.Abandon)+len(d.Reclaim) > 0 && !sameStatus(&d.status, &of.o.Status))
}

// run decides how many instances of a job are wanted.
func (w *world) run(of *workload, d *decision, now time.Time) (wanted int) {
	spec := &of.o.Spec
	v := jobs.RunView{Job: spec.Job, Restart: spec.Template.Restart, Began: of.o.CreationTimestamp.Time, Was: statuses.DecodeJob(of.o.Status.Job)}
	if v.Job == nil {
		v.Job = &declared.Job{}
	}
	if of.parent != nil && of.parent.o != nil {
		v.Scheduled, _ = of.scheduled()
		v.Remembered = statuses.DecodeSchedule(of.parent.o.Status.Schedule).Last
		v.Replaced = of.parent.replaced[v.Scheduled.Unix()]
	}
	for _, in := range of.instances {
		if in.seen.Owner == string(of.o.UID) {
			v.Instances = append(v.Instances, in.asRun())
		}
	}
	job := jobs.Decide(v, now)
	d.job = &job
	d.status.Job = statuses.EncodeJob(&job.Status)
	return job.Wanted
}

// asRun is an instance as jobs count it. What was told to end, and what failed with its node, has done nothing wrong.
func (in *instance) asRun() jobs.Instance {
	s := &in.seen
	j := jobs.Instance{UID: s.UID, Terminating: in.o.Spec.Stop != nil, Ended: in.over}
	if in.said != nil {
		j.Restarts = int(in.said.Restarts)
	}
	switch {
	case !s.Phase.Ended():
	case j.Terminating, s.Phase == fleet.Failed && s.Failure != nil && s.Failure.OfNode:
		j.Phase = jobs.Lost
	case s.Phase == fleet.Done:
		j.Phase = jobs.Succeeded
	default:
		j.Phase = jobs.Failed
	}
	return j
}

// scheduled is the scheduled time of a run, by its name.
func (of *workload) scheduled() (time.Time, bool) {
	const minute = 60
	digits, ok := strings.CutPrefix(of.key.Name, of.parent.key.Name+"-")
	minutes, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return time.Time{}, false
	}
	return time.Unix(minutes*minute, 0), true
}

// schedule decides which run of a scheduled job begins.
func (w *world) schedule(of *workload, d *decision, now time.Time) {
	d.Generation = of.o.Generation
	v := jobs.ScheduleView{Spec: of.o.Spec.Schedule, Created: of.o.CreationTimestamp.Time, Was: statuses.DecodeSchedule(of.o.Status.Schedule), Zone: time.LoadLocation}
	var active []string
	for run := range of.runs {
		at, ok := run.scheduled()
		if !ok || run.o == nil {
			continue
		}
		v.Runs = append(v.Runs, jobs.Run{At: at, Over: over(run.o)})
		if !over(run.o) {
			active = append(active, run.key.Name)
		}
	}
	slices.Sort(active)
	var s jobs.ScheduleDecision
	if of.o.DeletionTimestamp == nil {
		s = jobs.Schedule(v, now)
	} else {
		s.Status = v.Was
	}
	of.replaced = map[int64]bool{}
	for _, at := range s.Stop {
		of.replaced[at.Unix()] = true
	}
	if len(s.Stop) > 0 {
		for run := range of.runs {
			w.touch(run)
		}
	}
	d.start = s.Start
	const activeMax = 100
	d.status.Schedule = statuses.EncodeSchedule(&s.Status, s.WakeAt, active[:min(len(active), activeMax)])
	d.status.ObservedGeneration, d.status.Phase, d.status.Message = of.o.Generation, string(pace.Complete), s.Why
	if s.Why == "" && of.o.Status.Phase == d.status.Phase {
		d.status.Message = of.o.Status.Message // why the last one was left out is worth reading until the next one is due
	}
	if of.o.Status.Phase != d.status.Phase {
		d.status.Since = statuses.Seconds(now)
	}
	w.wake(of, s.WakeAt)
	of.conclude(&d.status, now)
	d.first = s.Start.IsZero() && significant(&d.status, &of.o.Status)
}

// pendingAfter is how many have no node when a decision is carried out.
func (of *workload) pendingAfter(d *fleet.Decision) int {
	stopped := make(map[string]bool, len(d.Stop))
	for _, s := range d.Stop {
		stopped[s.UID] = true
	}
	n := len(d.Create)
	for _, p := range of.pending {
		if !stopped[p.uid] {
			n++
		}
	}
	return n
}

// significant reports whether two statuses differ in what decisions depend on, or people wait for. How far something has come at best, and since
// when nothing goes on, may be lost for a moment: it is found out again. Conditions follow from what is compared here, and from how many are available.
func significant(a, b *v1alpha1.WorkloadStatus) bool {
	plain := func(s *v1alpha1.WorkloadStatus) *v1alpha1.WorkloadStatus {
		p := s.DeepCopy()
		p.Replicas, p.UpdatedReplicas, p.PendingReplicas, p.ReadyReplicas, p.AvailableReplicas, p.UnreachableReplicas, p.UnheardReplicas = 0, 0, 0, 0, 0, 0, 0
		p.TerminatingReplicas, p.AbandonedReplicas, p.Message, p.Culprits, p.Since = 0, 0, "", nil, metav1.Time{}
		for i := range p.Leaving { // who drains a node is told at once why it does not go on
			p.Leaving[i].Message, p.Leaving[i].Since = "", nil
		}
		if p.Pending != nil {
			p.Pending = &v1alpha1.PendingExplanation{}
		}
		if s := p.Scale; s != nil {
			p.Scale = &v1alpha1.ScaleStatus{Replicas: s.Replicas, Declared: s.Declared, Code: s.Code}
		}
		if r := p.Rollout; r != nil {
			r.BestAvailable, r.BestOld = 0, 0
			if r.Clock != nil {
				r.Clock = &metav1.MicroTime{}
			}
		}
		p.Conditions = nil
		return p
	}
	return !equality.Semantic.DeepEqual(plain(a), plain(b))
}

// sameStatus reports whether two statuses say the same.
func sameStatus(a, b *v1alpha1.WorkloadStatus) bool { return equality.Semantic.DeepEqual(a, b) }

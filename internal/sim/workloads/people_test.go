package workloads

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
)

// people are what they have declared, counted.
type people struct {
	versions int
	jobs     int
}

// names are the workloads that are declared, with how many instances each has at most for fifty nodes.
var names = []struct {
	name     string
	replicas int
}{{"web", 20}, {"api", 12}, {"cache", 8}, {"db", 6}, {"queue", 10}, {"probe", 0}}

// spec is what a workload is when it is declared first.
func (w *world) spec(name string, replicas int32) declared.Spec {
	probe := &declared.Probe{}
	s := declared.Spec{Replicas: &replicas, Template: declared.Template{
		Runtime: declared.Process, ShutdownDelay: "2s", TerminationGrace: "5s", Restart: declared.Restart{BackoffMax: "30s"},
		Tasks: []declared.Task{{Name: "main", Command: []string{"/bin/main"}, Readiness: probe, Resources: declared.Resources{Requests: declared.Amounts{CPU: "900m", Memory: "512Mi"}}}},
	}}
	s.Rollout.ProgressDeadline = "3m"
	switch name {
	case "web":
		s.OnUnreachable = &declared.OnUnreachable{After: "1m"}
		s.Template.Tasks[0].Ports = []declared.Port{{Name: "http"}}
	case "api":
		s.Rollout.Strategy, s.Rollout.Steps = declared.Canary, []declared.CanaryStep{{Replicas: "10%", Pause: "10s"}, {Replicas: "50%"}}
		s.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "2"}
		s.OnUnreachable = &declared.OnUnreachable{After: "2m", Reconnect: declared.KeepLongestReady}
	case "cache":
		s.Rollout.Strategy, s.Rollout.KeepOld = declared.BlueGreen, "20s"
		s.OnUnreachable = &declared.OnUnreachable{After: "30s", Reconnect: declared.KeepReplacement}
	case "db":
		s.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "40s"}
		s.Priority = 10
	case "queue":
		s.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "3m"}
		s.Template.Tasks[0].Ports = []declared.Port{{Name: "amqp"}}
	case "probe":
		s.Mode, s.Replicas = declared.PerNode, nil
		s.Template.Tasks[0].Resources.Requests.CPU = "100m"
	}
	return s
}

// size is how many instances a workload has at most in this world.
func (w *world) size(replicas int) int32 { return int32(max(replicas*len(w.hosts)/nodesDefault, 1)) }

// declare changes a workload, or makes it.
func (w *world) declare(name string, change func(*declared.Spec)) {
	var err error
	for range 5 {
		o := w.store.workload(name)
		if o == nil {
			return
		}
		o = copied(o)
		change(&o.Spec)
		if err = w.store.update(o); err == nil {
			w.truth.declared(o)
			return
		}
	}
	panic(err)
}

func (w *world) create(name string, spec declared.Spec) {
	o := &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: environment, Name: name}, Spec: spec}
	if err := w.store.create(o); apierrors.IsAlreadyExists(err) {
		return // it is being deleted still
	} else if err != nil {
		panic(err)
	}
	w.say("%s is declared", name)
	w.truth.declared(o)
}

// found declares everything for the first time.
func (w *world) found() {
	for _, n := range names {
		spec := w.spec(n.name, w.size(n.replicas))
		spec.Template.Tasks[0].Args = []string{w.version(good)}
		w.create(n.name, spec)
	}
	for _, name := range schedules {
		w.schedule(name)
	}
}

// node changes what is declared of a node.
func (w *world) node(h *host, change func(*v1alpha1.Node)) {
	o := copied(w.store.node(h.name))
	change(o)
	if err := w.store.update(o); err != nil {
		panic(err)
	}
}

// act is something that people do.
func (w *world) act() {
	n := one(w, names)
	o := w.store.workload(n.name)
	h := one(w, w.hosts)
	switch w.random.IntN(16) {
	case 0, 1, 2:
		q := one(w, []quality{good, good, good, slow, unready, crashing})
		v := w.version(q)
		w.say("people: %s is to run %s", n.name, v)
		w.did("rollout of " + string(q))
		w.declare(n.name, func(s *declared.Spec) { s.Template.Tasks[0].Args = []string{v} })
	case 3, 4:
		to := int32(w.random.IntN(int(w.size(n.replicas)) + 1))
		if o != nil && o.Spec.Mode != declared.PerNode {
			w.say("people: %s is to have %d", n.name, to)
			w.did("scaled")
			w.declare(n.name, func(s *declared.Spec) { s.Replicas = &to })
		}
	case 5:
		w.did("paused")
		w.declare(n.name, func(s *declared.Spec) {
			s.Rollout.Pause = !s.Rollout.Pause
			w.say("people: %s is paused: %v", n.name, s.Rollout.Pause)
		})
	case 6:
		if o != nil && w.chance(0.3) {
			w.say("people: %s is deleted", n.name)
			w.did("workload deleted")
			w.must(w.store.delete(o, nil))
		}
	case 7:
		spec := w.spec(n.name, w.size(n.replicas))
		spec.Template.Tasks[0].Args = []string{w.version(good)}
		w.create(n.name, spec)
	case 8:
		w.say("people: %s is to be drained", h.name)
		w.did("drained")
		w.node(h, func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
	case 9:
		w.say("people: %s has a taint", h.name)
		w.did("tainted")
		w.node(h, func(n *v1alpha1.Node) {
			n.Spec.Taints = []declare.Taint{{Key: "broken", Effect: declare.TaintNoExecute}}
		})
	case 10, 11:
		w.truth.freed = w.now
		w.node(h, plain)
	case 12:
		w.node(h, func(n *v1alpha1.Node) { n.Spec.Unschedulable = true })
	case 13:
		w.job()
	case 14:
		w.suspend(one(w, schedules), w.chance(0.3))
	case 15:
		if name := one(w, schedules); w.store.workload(name) == nil {
			w.schedule(name)
		} else if w.chance(0.1) {
			w.say("people: %s is deleted", name)
			w.must(w.store.delete(w.store.workload(name), nil))
		}
	}
}

// plain is a node of which nobody wants anything.
func plain(n *v1alpha1.Node) { n.Spec.Drain, n.Spec.Taints, n.Spec.Unschedulable = nil, nil, false }

// job declares a job.
func (w *world) job() {
	const jobsMax = 8
	if w.folk.jobs++; w.folk.jobs > jobsMax {
		return
	}
	w.did("job")
	spec := w.jobSpec(one(w, []quality{ending, doubtful}))
	if w.chance(0.5) {
		w.did("gang")
		spec.Job.Gang, spec.Job.Completions, spec.Job.Parallelism = true, new(int32(gangSize)), new(int32(gangSize))
	}
	w.create(fmt.Sprint("job-", w.folk.jobs), spec)
}

// jobSpec is a job whose tasks end.
func (w *world) jobSpec(q quality) declared.Spec {
	spec := w.spec("job", 0)
	spec.Mode, spec.Replicas, spec.OnUnreachable, spec.Rollout = declared.RunToCompletion, nil, nil, declared.Rollout{}
	spec.Job = &declared.Job{Completions: new(int32(4)), Parallelism: new(int32(2)), BackoffLimit: new(int32(20))}
	spec.Template.Tasks[0].Readiness = nil
	spec.Template.Tasks[0].Args = []string{w.version(q)}
	return spec
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// mend has people declare what works, where it is to.
func (w *world) mend() {
	for _, h := range w.hosts {
		w.node(h, plain)
	}
	for _, n := range names {
		if w.store.workload(n.name) == nil {
			spec := w.spec(n.name, w.size(n.replicas))
			spec.Template.Tasks[0].Args = []string{w.version(good)}
			w.create(n.name, spec)
			continue
		}
		v := w.version(good)
		w.declare(n.name, func(s *declared.Spec) {
			s.Template.Tasks[0].Args, s.Rollout.Pause = []string{v}, false
		})
	}
	w.truth.freed = w.now
}

// again does something now and then, until the world heals.
func (w *world) again(mean time.Duration, do func()) {
	w.after(time.Duration(w.random.ExpFloat64()*float64(mean)), func() {
		if w.healed {
			return
		}
		do()
		w.again(mean, do)
	})
}

package workloads

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

var now = time.Date(2026, 3, 4, 15, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func micro(d time.Duration) *metav1.MicroTime {
	t := metav1.NewMicroTime(now.Add(d))
	return &t
}

// web is a workload of four instances that is as declared.
func web(change ...func(*Workload)) *Workload {
	w := &Workload{Workload: v1alpha1.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u-1", Generation: 2},
		Status: v1alpha1.WorkloadStatus{ObservedGeneration: 2, Phase: "Complete", Wanted: 4, Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 4,
			Rollout: &v1alpha1.WorkloadRollout{Target: "web-b", Goal: "web-b", Over: true}, Stable: "web-b", Since: ago(time.Hour)},
	}}
	w.ref.Name, w.ref.Namespace, w.ref.Kind.Kind = "web", "prod", v1alpha1.KindWorkload
	for i := range int32(4) {
		w.Instances = append(w.Instances, v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("web", i), Namespace: "prod"},
			Spec: v1alpha1.InstanceSpec{Workload: "web", Revision: "web-b", Slot: i, Node: fmt.Sprint("n", i)}, Status: v1alpha1.InstanceStatus{Phase: v1alpha1.InstanceRunning, Ready: true}})
	}
	for _, f := range change {
		f(w)
	}
	return w
}

// phase is a rollout from web-a to web-b in a phase.
func phase(name string) func(*Workload) {
	return func(w *Workload) {
		s := &w.Status
		s.Phase, s.Stable, s.Rollout.Over, s.UpdatedReplicas, s.AvailableReplicas = name, "web-a", false, 1, 3
		s.Since = ago(2 * time.Minute)
	}
}

func crashed(w *Workload) {
	since := ago(time.Minute)
	w.Status.Culprits = []v1alpha1.WorkloadCulprit{{Instance: "web-3", Node: "n3", Code: reason.RolloutFailed.String(), Message: "readiness: GET /health: 503", Since: &since}}
	w.Instances[3].Status = v1alpha1.InstanceStatus{Phase: v1alpha1.InstanceFailed, Failure: &v1alpha1.InstanceFailure{Code: reason.RolloutFailed.String(), Message: "readiness: GET /health: 503", Since: since}}
}

// TestFindings: what is said of a workload, in order, each with its weight and what helps.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change []func(*Workload)
		want   []string // WEIGHT WHAT: part of the text > next
	}{
		{"as declared", nil, nil},
		{"changed a moment ago", []func(*Workload){func(w *Workload) { w.Generation = 3 }}, []string{"1 Not looked at: generation 3 >"}},
		{"rolling", []func(*Workload){phase("Rolling")}, []string{"1 Rolling: 1 of 4 instances have web-b, 3 are available >"}},
		{"failures count", []func(*Workload){phase("Monitoring"), func(w *Workload) { w.Status.Message = "failures count until then" }}, []string{"1 Monitoring: failures count until then >"}},
		{"halted", []func(*Workload){phase("Halted"), crashed, func(w *Workload) {
			w.Status.Rollout.Halt = &v1alpha1.FailedRevision{Revision: "web-b", Code: "TK0750"}
		}}, []string{"3 Halted: 1 of 4 > tako rollout undo workload/web -n prod", "3 Failed: on node/n3: readiness: GET /health: 503 > tako why instance/web-3 -n prod"}},
		{"halted, and nothing was stable", []func(*Workload){phase("Halted"), func(w *Workload) { w.Status.Stable = "" }}, []string{"3 Halted: 1 of 4 > tako edit workload/web -n prod"}},
		{"rolled back", []func(*Workload){phase("RolledBack"), func(w *Workload) {
			w.Status.Rollout.Goal, w.Status.Rollout.Over, w.Status.Message = "web-a", true, "3 of 3 instances have failed"
			w.Status.Failed = []v1alpha1.FailedRevision{{Revision: "web-b", Code: "TK0750"}}
		}}, []string{"3 Rolled back TK0750: have web-a, 3 are available; 3 of 3 instances have failed > tako edit workload/web -n prod"}},
		{"rolling back", []func(*Workload){phase("RollingBack"), func(w *Workload) { w.Status.Rollout.Goal = "web-a" }}, []string{"1 Rolling back: have web-a >"}},
		{"paused", []func(*Workload){phase("Paused"), func(w *Workload) { w.Spec.Rollout.Pause = true }}, []string{"0 Paused: 1 of 4 > tako rollout resume workload/web -n prod"}},
		{"paused for the next change", []func(*Workload){func(w *Workload) { w.Spec.Rollout.Pause = true }}, []string{"0 Paused: the next change waits > tako rollout resume workload/web -n prod"}},
		{"to be approved", []func(*Workload){phase("Waiting"), canary, func(w *Workload) { w.Status.Rollout.Held = micro(-11 * time.Minute) }},
			[]string{"1 Waits for approval: 1 of 4 > tako rollout promote workload/web -n prod"}},
		{"looked at before that", []func(*Workload){phase("Waiting"), canary, func(w *Workload) { w.Status.Rollout.Held = micro(-9 * time.Minute) }}, []string{"1 Waiting: 1 of 4 >"}},
		{"deleted", []func(*Workload){phase("Stopping"), func(w *Workload) { w.Status.TerminatingReplicas = 2 }}, []string{"1 Stopping: 2 instances may still run >"}},
		{"nothing wanted", []func(*Workload){phase("Empty")}, []string{"0 Empty: no instance is wanted >"}},
		{"stalled", []func(*Workload){func(w *Workload) {
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "TK0750", Message: "it cannot go on"}}
		}}, []string{"3 Stalled TK0750: it cannot go on >"}},
		{"not ready, and that is all that is known", []func(*Workload){func(w *Workload) {
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "Unknown", Message: "nobody knows"}}
		}}, []string{"2 Not ready: nobody knows >"}},
		{"no room", []func(*Workload){func(w *Workload) { w.Status.Pending = noRoom() }}, []string{"3 Pending: 2 instances have no node, 3 that were asked for with them have one: 0 of 40 nodes take one > tako get nodes -o wide"}},
		{"crashes when all was over", []func(*Workload){func(w *Workload) { crashed(w); w.Status.Culprits = nil }}, []string{"3 Failed TK0750: on node/n3: > tako why instance/web-3 -n prod"}},
		{"not ready yet", []func(*Workload){func(w *Workload) {
			w.Status.Culprits = []v1alpha1.WorkloadCulprit{{Instance: "web-1", Node: "n1", Message: "running, not ready"}}
		}}, []string{"1 Running: on node/n1: running, not ready > tako why instance/web-1 -n prod"}},
		{"away", []func(*Workload){func(w *Workload) {
			w.Status.UnreachableReplicas, w.Status.AbandonedReplicas, w.Status.UnheardReplicas = 1, 2, 3
		}}, []string{"2 Unreachable: 1 instances > tako get nodes", "2 Abandoned: 2 instances >", "1 Not heard: 3 instances >"}},
		{"backing off", []func(*Workload){func(w *Workload) { w.Status.BackoffFailed, w.Status.BackoffUntil = 3, micro(time.Minute) }},
			[]string{"1 Backing off: 3 instances have ended badly since all were available: none is made before 2026-03-04T15:01:00Z >"}},
		{"backed off", []func(*Workload){func(w *Workload) { w.Status.BackoffUntil = micro(-time.Minute) }}, nil},
		{"held on a node", []func(*Workload){func(w *Workload) {
			w.Status.Leaving = []v1alpha1.WorkloadCulprit{{Instance: "web-0", Node: "n0", Code: "TK0759", Message: "not before another one is available"}}
		}}, []string{"1 Leaving TK0759: it stays on node/n0 for now: not before another one is available >"}},
		{"scaled", []func(*Workload){func(w *Workload) { w.Status.Scale = &v1alpha1.ScaleStatus{Replicas: 4, Message: "cpu is at 80%"} }}, []string{"0 Scaled: to 4: cpu is at 80% >"}},
		{"not measured", []func(*Workload){func(w *Workload) {
			w.Status.Scale = &v1alpha1.ScaleStatus{Replicas: 4, Code: "TK0780", Message: "queue: main does not answer"}
		}},
			[]string{"2 Not measured TK0780: it stays at 4: queue: main does not answer > tako top instances -n prod"}},
		{"bounded", []func(*Workload){func(w *Workload) {
			w.Status.Scale = &v1alpha1.ScaleStatus{Replicas: 4, Code: "TK0781", Message: "cpu needs 9"}
		}},
			[]string{"1 At its bound TK0781: to 4: cpu needs 9 > tako edit workload/web -n prod"}},
		{"a job that runs", []func(*Workload){phase("Rolling"), job(nil)}, []string{"1 Running: 1 of 3 instances have ended well, 0 badly, 4 run >"}},
		{"a job that has failed", []func(*Workload){job(func(w *Workload) { w.Status.Job.Result, w.Status.Job.Failed = "FailedTooOften", 7 })},
			[]string{"3 FailedTooOften: 1 of 3 instances have ended well, 7 badly > tako get instances -n prod -l tako.dev/workload=web"}},
		{"a job that is over", []func(*Workload){job(func(w *Workload) { w.Status.Job.Result = "Complete" })}, nil},
		{"a schedule", []func(*Workload){job(func(w *Workload) {
			next := metav1.NewTime(now.Add(time.Hour))
			w.Spec.Schedule, w.Status.Job = &workload.Schedule{Cron: "@daily"}, nil
			w.Status.Schedule = &v1alpha1.ScheduleStatus{Next: &next, Active: []string{"a"}}
		})}, []string{"0 Scheduled: the next run begins at 2026-03-04T16:00:00Z; 1 are not over >"}},
	} {
		var got []string
		for _, x := range web(c.change...).Findings(now) {
			got = append(got, line(&x))
			if x.Subject == "" || x.Text == "" || x.What == "" {
				t.Errorf("%s: nothing is said: %+v", c.name, x)
			}
		}
		for i := range max(len(got), len(c.want)) {
			if i >= len(got) || i >= len(c.want) || !says(got[i], c.want[i]) {
				t.Errorf("%s: says %q, want %q", c.name, got, c.want)
				break
			}
		}
	}
}

func line(x *fleet.Finding) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", x.Weight, x.What, x.Code)) + ": " + x.Text + " > " + x.Next
}

// says compares a finding with what is wanted: how it begins, a part of the text, and how it ends.
func says(got, want string) bool {
	head, rest, _ := strings.Cut(want, ": ")
	text, next, _ := strings.Cut(rest, " >")
	return strings.HasPrefix(got, head) && strings.Contains(got, text) && strings.HasSuffix(got, " >"+next) || next == "" && strings.HasPrefix(got, head) && strings.Contains(got, text) && strings.HasSuffix(got, " > ")
}

func canary(w *Workload) {
	w.Spec.Rollout = workload.Rollout{Strategy: workload.Canary, Promotion: workload.ManualPromotion,
		Steps: []workload.CanaryStep{{Replicas: "1", Pause: "10m"}, {Replicas: "2", Promotion: workload.AutomaticPromotion}, {Replicas: "3"}}}
}

func job(change func(*Workload)) func(*Workload) {
	return func(w *Workload) {
		three := int32(3)
		w.Spec.Mode, w.Spec.Job = workload.RunToCompletion, &workload.Job{Completions: &three}
		w.Status.Job = &v1alpha1.JobStatus{Succeeded: 1}
		if change != nil {
			change(w)
		}
	}
}

func noRoom() *v1alpha1.PendingExplanation {
	return &v1alpha1.PendingExplanation{Since: ago(time.Minute), Instances: 2, Placed: 3, Nodes: 40, Message: "0 of 40 nodes take one",
		Reasons: []v1alpha1.PendingReason{{Reason: "selector", Nodes: 9, Left: 31}, {Reason: "memory", Nodes: 31, Left: 0, Example: "web-3", Message: "needs 512Mi memory, 128Mi is free"}},
		Nearest: []v1alpha1.NearMiss{{Node: "web-3", Cures: []string{"+384Mi memory"}}}}
}

// TestPendingShowsTheFunnel: how many nodes are left after each reason, and what would make one fit.
func TestPendingShowsTheFunnel(t *testing.T) {
	text := fleet.Explain("workload/web", web(func(w *Workload) { w.Status.Pending = noRoom() }).Findings(now), now, present.Style{})
	for _, want := range []string{
		"    | 40 nodes -> 31 after selector -> 0 after memory\n",
		"    | memory keeps 31 away, such as web-3: needs 512Mi memory, 128Mi is free\n",
		"    | web-3 would fit with +384Mi memory\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestManyUnwell: of many instances the first are told, and how many more there are.
func TestManyUnwell(t *testing.T) {
	w := web(func(w *Workload) {
		w.Instances = nil
		for i := range int32(500) {
			w.Instances = append(w.Instances, v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("web", i)},
				Status: v1alpha1.InstanceStatus{Phase: v1alpha1.InstanceFailed, Failure: &v1alpha1.InstanceFailure{Code: "TK0750"}}})
		}
	})
	list := w.Findings(now)
	if last := list[len(list)-1]; len(list) != unwellMax+1 || last.Text != "490 more instances do not work" {
		t.Errorf("%d are told, the last is %+v", len(list), last)
	}
}

// TestInstanceFindings: what is said of an instance.
func TestInstanceFindings(t *testing.T) {
	since := ago(time.Minute)
	for _, c := range []struct {
		name   string
		change func(*Instance)
		want   []string
	}{
		{"works", func(*Instance) {}, nil},
		{"unknown", func(i *Instance) { i.Status = v1alpha1.InstanceStatus{} }, []string{"2 Unknown: has not heard of it >"}},
		{"starting", func(i *Instance) { i.Status = v1alpha1.InstanceStatus{Phase: v1alpha1.InstanceStarting} }, []string{"1 Starting: not started yet >"}},
		{"not ready", func(i *Instance) { i.Status.Ready = false }, []string{"1 Not ready: it runs >"}},
		{"failed", func(i *Instance) {
			i.Status = v1alpha1.InstanceStatus{Phase: v1alpha1.InstanceFailed, Restarts: 5, Failure: &v1alpha1.InstanceFailure{Code: "TK0750", Message: "exit code 3", Since: since, OfNode: true}}
		}, []string{"3 Failed TK0750: exit code 3 >", "0 Restarted: again 5 times >"}},
		{"told to end", func(i *Instance) { i.Spec.Stop = &v1alpha1.InstanceStop{Code: "TK0757", Since: since} }, []string{"1 Terminating TK0757: asked to end >"}},
		{"ended", func(i *Instance) {
			i.Spec.Stop, i.Status.Phase = &v1alpha1.InstanceStop{Code: "TK0757"}, v1alpha1.InstanceDone
		}, nil},
		{"given up", func(i *Instance) { i.Status.Abandoned = &since }, []string{"2 Abandoned: nobody hears its node >"}},
		{"to leave", func(i *Instance) {
			i.Status.Leave = &v1alpha1.InstanceLeave{Code: "TK0759", Since: since, Force: &since}
		},
			[]string{"1 Leaving TK0759: at 2026-03-04T14:59:00Z whatever that says > tako why workload/web -n prod"}},
		{"its node gone", func(i *Instance) { i.NodeGone = true }, []string{"3 Gone: not there any more >"}},
		{"its node silent", func(i *Instance) {
			i.Node = &v1alpha1.Node{Status: v1alpha1.NodeStatus{Conditions: []metav1.Condition{{Type: node.Ready, Status: metav1.ConditionUnknown, Reason: "AgentSilent", Message: "nothing was heard"}}}}
		}, []string{"2 Node unknown: AgentSilent: nothing was heard > tako why node/n1"}},
	} {
		i := &Instance{Instance: web().Instances[1]}
		c.change(i)
		var got []string
		for _, x := range i.Findings() {
			got = append(got, line(&x))
		}
		for n := range max(len(got), len(c.want)) {
			if n >= len(got) || n >= len(c.want) || !says(got[n], c.want[n]) {
				t.Errorf("%s: says %q, want %q", c.name, got, c.want)
				break
			}
		}
	}
	i := &Instance{Instance: web().Instances[1]}
	i.Status.Restarts = 2
	if got := i.Title(); got != "instance/web-1 -n prod  Running  on node/n1  web-b  2 restarts" {
		t.Error(got)
	}
}

// TestEarlier: what an undo goes back to.
func TestEarlier(t *testing.T) {
	list := []Revision{{Name: "web-d", Number: 10}, {Name: "web-c", Number: 9}, {Name: "web-b", Number: 8}, {Name: "web-a", Number: 2}}
	failed := func(names ...string) func(*Workload) {
		return func(w *Workload) {
			for _, name := range names {
				w.Status.Failed = append(w.Status.Failed, v1alpha1.FailedRevision{Revision: name, Code: "TK0750"})
			}
		}
	}
	at := func(target, stable string) func(*Workload) {
		return func(w *Workload) { w.Status.Rollout.Target, w.Status.Stable = target, stable }
	}
	for _, c := range []struct {
		name   string
		change []func(*Workload)
		to     string
		want   string
		code   reason.Code
	}{
		{"what was stable", []func(*Workload){at("web-d", "web-b")}, "", "web-b", 0},
		{"what was stable, of a newer one", []func(*Workload){at("web-a", "web-b")}, "", "web-b", 0},
		{"the one before", []func(*Workload){at("web-d", "web-d")}, "", "web-c", 0},
		{"the one before that has not failed", []func(*Workload){at("web-d", "web-d"), failed("web-c", "web-d")}, "", "web-b", 0},
		{"nothing before", []func(*Workload){at("web-a", "web-a")}, "", "", reason.Stalled},
		{"the stable one, before anybody has looked", []func(*Workload){at("web-d", "web-d"), func(w *Workload) { w.Generation = 9 }}, "", "web-d", 0},
		{"before anybody has looked, and nothing was stable", []func(*Workload){at("web-d", ""), func(w *Workload) { w.Generation = 9 }}, "", "", reason.Stalled},
		{"by name", []func(*Workload){at("web-d", "web-d")}, "web-a", "web-a", 0},
		{"by number", []func(*Workload){at("web-d", "web-d")}, "9", "web-c", 0},
		{"one that there is not", []func(*Workload){at("web-d", "web-d")}, "web-x", "", reason.ObjectUnknown},
		{"what is declared", []func(*Workload){at("web-d", "web-d")}, "10", "", reason.Stalled},
	} {
		got, err := web(c.change...).earlier(list, c.to, "undo")
		switch {
		case c.want == "" && !isCoded(err, c.code):
			t.Errorf("%s: %+v, %v, want %s", c.name, got, err, c.code)
		case c.want != "" && (err != nil || got.Name != c.want):
			t.Errorf("%s: %+v, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func isCoded(err error, code reason.Code) bool {
	var known *failure.Error
	return errors.As(err, &known) && known.Code == code
}

// TestApproval: a promotion approves of the step that is under way, of the revision that instances are to have, and of nothing else.
func TestApproval(t *testing.T) {
	green := func(w *Workload) {
		w.Spec.Rollout = workload.Rollout{Strategy: workload.BlueGreen, Promotion: workload.ManualPromotion}
	}
	step := func(n int32) func(*Workload) { return func(w *Workload) { w.Status.Rollout.Step = n } }
	for _, c := range []struct {
		name   string
		change []func(*Workload)
		all    bool
		want   string
		said   string // or a part of the error
	}{
		{"the first step", []func(*Workload){phase("Waiting"), canary}, false, "web-b/0", "web-b, step 1 of 3"},
		{"the last step", []func(*Workload){phase("Waiting"), canary, step(2)}, false, "web-b/2", "web-b, step 3 of 3"},
		{"all steps", []func(*Workload){phase("Waiting"), canary}, true, "web-b/2", "web-b, step 3 of 3"},
		{"a step that goes on by itself", []func(*Workload){phase("Rolling"), canary, step(1)}, false, "", "goes on by itself"},
		{"a green half", []func(*Workload){phase("Waiting"), green}, false, "web-b/0", "web-b"},
		{"a green half that took over", []func(*Workload){phase("Rolling"), green, func(w *Workload) { w.Status.Rollout.Passed = micro(0) }}, false, "", "goes on by itself"},
		{"a rolling one", []func(*Workload){phase("Rolling")}, false, "", "goes on by itself"},
		{"one that is over", nil, false, "", "no rollout is under way"},
		{"one that is rolled back", []func(*Workload){phase("RollingBack"), canary, func(w *Workload) { w.Status.Rollout.Goal = "web-a" }}, false, "", "web-b has failed"},
		{"one that nobody has looked at", []func(*Workload){phase("Waiting"), canary, func(w *Workload) { w.Generation = 7 }}, false, "", "nobody has looked"},
	} {
		w := web(c.change...)
		text, said, err := w.approval(c.all)
		if err != nil {
			said = err.Error()
		}
		if text != c.want || !strings.Contains(said, c.said) || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %q, want %q and %q", c.name, text, said, c.want, c.said)
		}
	}
	w := web(phase("Waiting"), canary, func(w *Workload) { w.Status.Rollout.Held = micro(-time.Hour) })
	if !w.awaited(now) {
		t.Error("nothing is waited for")
	}
	w.Annotations = map[string]string{v1alpha1.AnnotationApproved: "web-a/2"}
	if !w.awaited(now) {
		t.Error("an approval of another revision is one")
	}
	w.Annotations[v1alpha1.AnnotationApproved] = "web-b/0"
	if w.awaited(now) {
		t.Error("it is approved of")
	}
}

// TestRevisionNotes: a revision says what it is to the workload.
func TestRevisionNotes(t *testing.T) {
	w := web(phase("RolledBack"), func(w *Workload) {
		w.Status.Rollout.Goal, w.Instances[0].Spec.Revision = "web-a", "web-a"
		w.Status.Failed = []v1alpha1.FailedRevision{{Revision: "web-b", Code: "TK0750"}}
	})
	old := w.revision(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "web-a", Annotations: map[string]string{v1alpha1.AnnotationNumber: "9"}, CreationTimestamp: ago(time.Hour)}})
	latest := w.revision(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "web-b", Annotations: map[string]string{v1alpha1.AnnotationNumber: "10"}, CreationTimestamp: ago(time.Minute)}})
	title, found := w.ofRevision(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "web-a", Annotations: map[string]string{v1alpha1.AnnotationNumber: "9"}},
		Spec: v1alpha1.RevisionSpec{Source: &v1alpha1.RevisionSource{UID: "u-1"}}}, now)
	if last := found[len(found)-1]; title != "revision web-a of workload/web -n prod" || last.Text != "1 instances have it, which is number 9: rolledback, stable" {
		t.Errorf("%s: %+v", title, found)
	}
	_, found = w.ofRevision(&v1alpha1.Revision{Spec: v1alpha1.RevisionSpec{Source: &v1alpha1.RevisionSource{UID: "u-0"}}}, now)
	if len(found) != 1 || found[0].What != "Left over" {
		t.Errorf("of another workload of that name: %+v", found)
	}
	var b strings.Builder
	if err := WriteRevisions(&b, []Revision{latest, old}, now, present.Style{}); err != nil {
		t.Fatal(err)
	}
	const want = "NUMBER  REVISION  INSTANCES  STATE                    AGE\n" +
		"10      web-b     3          declared, failed TK0750  1m\n" +
		"9       web-a     1          rolledback, stable       1h\n"
	if b.String() != want {
		t.Errorf("have\n%s, want\n%s", b.String(), want)
	}
}

package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	running "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// About finds what is to be said of a workload, of an instance, or of a revision of a workload; false for anything else.
func About(ctx context.Context, server *remote.Server, ref remote.Ref, now time.Time) (title string, found []fleet.Finding, is bool, err error) {
	switch ref.Kind.GroupKind() {
	case v1alpha1.Kind(v1alpha1.KindWorkload):
		w, err := Read(ctx, server, ref)
		if err != nil {
			return "", nil, false, err
		}
		return w.Title(), w.Findings(now), true, nil
	case v1alpha1.Kind(v1alpha1.KindInstance):
		i, err := ReadInstance(ctx, server, ref)
		if err != nil {
			return "", nil, false, err
		}
		return i.Title(), i.Findings(), true, nil
	case v1alpha1.Kind(v1alpha1.KindRevision):
		return aboutRevision(ctx, server, ref, now)
	}
	return "", nil, false, nil
}

// aboutRevision finds what is to be said of a revision; false where it is of a config, or not there.
func aboutRevision(ctx context.Context, server *remote.Server, ref remote.Ref, now time.Time) (title string, found []fleet.Finding, is bool, err error) {
	object, err := server.Get(ctx, ref)
	if err != nil {
		return "", nil, false, nil // whoever looks among the configs says so
	}
	r, err := as[v1alpha1.Revision](object)
	if err != nil || r.Spec.Template == nil || r.Spec.Source == nil {
		return "", nil, false, err
	}
	kind, err := server.Find(ctx, v1alpha1.ResourceWorkloads+"."+v1alpha1.GroupName)
	if err != nil {
		return "", nil, false, failure.Of(err, "ask which kinds there are")
	}
	w, err := Read(ctx, server, remote.Ref{Kind: kind, Namespace: ref.Namespace, Name: r.Spec.Source.Name})
	if err != nil {
		return "", nil, false, err
	}
	title, found = w.ofRevision(&r, now)
	return title, found, true, nil
}

// ofRevision is how many instances have a revision, what it is to the workload, and how that stands.
func (w *Workload) ofRevision(r *v1alpha1.Revision, now time.Time) (title string, found []fleet.Finding) {
	title = "revision " + r.Name + " of " + w.Argument()
	if r.Spec.Source.UID != w.UID {
		return title, []fleet.Finding{{Weight: fleet.Note, Subject: w.Argument(), What: "Left over", Text: "it is of an earlier workload of that name"}}
	}
	is := w.revision(r)
	text := fmt.Sprintf("%d instances have it, which is number %d", is.Instances, is.Number)
	if len(is.Notes) > 0 {
		text += ": " + strings.Join(is.Notes, ", ")
	}
	return title, ranked(append([]fleet.Finding{{Weight: fleet.Note, Subject: w.Argument(), What: "Used", Text: text}}, w.Findings(now)...))
}

// Title is a workload on one line.
func (w *Workload) Title() string {
	s := &w.Status
	parts := []string{w.Argument(), fmt.Sprintf("%d of %d ready · %d up to date · %d available", s.ReadyReplicas, s.Wanted, s.UpdatedReplicas, s.AvailableReplicas)}
	if s.Job != nil {
		parts = append(parts, fmt.Sprintf("%d of %d ended well", s.Job.Succeeded, w.Spec.Job.CompletionsOrDefault()))
	}
	if s.Phase != "" {
		parts = append(parts, s.Phase)
	}
	if r := s.Rollout; r != nil && r.Goal != "" {
		parts = append(parts, r.Goal)
	}
	return strings.Join(parts, "  ")
}

// Findings are why a workload is not as declared, and what else is worth knowing: the heaviest first, of equal ones the oldest.
func (w *Workload) Findings(now time.Time) []fleet.Finding {
	s := &w.Status
	var list []fleet.Finding
	add := func(x fleet.Finding) {
		x.Subject = cmp.Or(x.Subject, w.Argument())
		list = append(list, x)
	}
	if s.ObservedGeneration < w.Generation {
		add(fleet.Finding{Weight: fleet.Waiting, What: "Not looked at", Text: fmt.Sprintf("nobody has looked at generation %d yet", w.Generation)})
	}
	rolling, isRolling := w.rollout(now)
	if isRolling {
		add(rolling)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue && (!isRolling || rolling.Weight != fleet.Broken) {
		add(fleet.Finding{Weight: fleet.Broken, What: "Stalled", Text: c.Message, Code: codeIn(c.Reason), Since: c.LastTransitionTime})
	}
	if s.Pending != nil {
		add(pending(s.Pending))
	}
	list = append(list, w.unwell()...)
	for i := range s.Leaving {
		c := &s.Leaving[i]
		weight := fleet.Waiting
		if c.Code == reason.DisruptionStuck.String() {
			weight = fleet.Broken
		}
		add(fleet.Finding{Weight: weight, Subject: argumentOf(c.Instance, w.Namespace), What: leavingWhat, Text: "it stays on node/" + c.Node + " for now: " + c.Message, Code: c.Code, Since: sinceOf(c.Since)})
	}
	for _, x := range w.counts(now) {
		add(x)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); len(list) == 0 && c != nil && c.Status != metav1.ConditionTrue {
		add(fleet.Finding{Weight: fleet.Unclear, What: "Not ready", Text: c.Message, Code: codeIn(c.Reason), Since: c.LastTransitionTime})
	}
	return ranked(list)
}

// FindingsOf are those of a workload of which the instances were not asked for.
func FindingsOf(w *v1alpha1.Workload, now time.Time) []fleet.Finding {
	return (&Workload{Workload: *w}).Findings(now)
}

func ranked(list []fleet.Finding) []fleet.Finding {
	slices.SortStableFunc(list, func(a, b fleet.Finding) int {
		return cmp.Or(-cmp.Compare(a.Weight, b.Weight), a.Since.Compare(b.Since.Time))
	})
	return list
}

func codeIn(text string) string {
	if strings.HasPrefix(text, "TK") {
		return text
	}
	return ""
}

func sinceOf(t *metav1.Time) metav1.Time {
	if t == nil {
		return metav1.Time{}
	}
	return *t
}

// progress is how far a rollout is, in words.
func (w *Workload) progress() string {
	s := &w.Status
	if s.Rollout == nil {
		return fmt.Sprintf("%d of %d instances are available", s.AvailableReplicas, s.Wanted)
	}
	return fmt.Sprintf("%d of %d instances have %s, %d are available", s.UpdatedReplicas, s.Wanted, s.Rollout.Goal, s.AvailableReplicas)
}

// rollout is how the way of a revision over the instances stands, unless it is over and well.
func (w *Workload) rollout(now time.Time) (fleet.Finding, bool) {
	s := &w.Status
	x := fleet.Finding{Weight: fleet.Waiting, What: s.Phase, Text: w.progress(), Since: s.Since}
	if s.Message != "" {
		x.Text += "; " + s.Message
	}
	if w.Spec.ModeOrDefault() == workload.RunToCompletion {
		return w.run()
	}
	switch rollout.Phase(s.Phase) {
	case "", rollout.Complete:
		return x, false
	case rollout.Empty:
		x.Weight, x.Text = fleet.Note, "no instance is wanted"
	case rollout.Paused:
		x.Weight, x.Next = fleet.Note, "tako rollout resume "+w.Argument()
	case rollout.Halted:
		x.Weight, x.Next = fleet.Broken, w.back()
		if r := s.Rollout; r != nil && r.Halt != nil {
			x.Code = r.Halt.Code
		}
	case rollout.RolledBack:
		x.Weight, x.What, x.Next = fleet.Broken, "Rolled back", "tako edit "+w.Argument()
		x.Code = w.failureCode()
	case rollout.RollingBack:
		x.What, x.Code = "Rolling back", w.failureCode()
	case running.Stopping:
		x.Text = fmt.Sprintf("it is being deleted, and %d instances may still run", s.TerminatingReplicas)
	case rollout.Waiting:
		if w.awaited(now) {
			x.What, x.Next = "Waits for approval", "tako rollout promote "+w.Argument()
		}
	}
	return x, true
}

// run is how a job stands that is not over.
func (w *Workload) run() (fleet.Finding, bool) {
	s := &w.Status
	x := fleet.Finding{Weight: fleet.Waiting, What: "Running", Text: fmt.Sprintf("%d instances run", s.Replicas), Since: s.Since}
	if j := s.Job; j != nil {
		x.Text = fmt.Sprintf("%d of %d instances have ended well, %d badly, %d run", j.Succeeded, w.Spec.Job.CompletionsOrDefault(), j.Failed, s.Replicas)
	}
	if s.Message != "" {
		x.Text += "; " + s.Message
	}
	return x, s.Phase != "" && w.Spec.Schedule == nil && (s.Job == nil || s.Job.Result == "")
}

// back is what helps where a rollout stays where it is: going back, where there is something to go back to.
func (w *Workload) back() string {
	if s := &w.Status; s.Stable == "" || s.Rollout != nil && s.Stable == s.Rollout.Target {
		return "tako edit " + w.Argument()
	}
	return "tako rollout undo " + w.Argument()
}

// failureCode is why the revision that is declared has failed.
func (w *Workload) failureCode() string {
	for i := len(w.Status.Failed) - 1; i >= 0; i-- {
		if f := &w.Status.Failed[i]; w.Status.Rollout != nil && f.Revision == w.Status.Rollout.Target {
			return f.Code
		}
	}
	return ""
}

// pending says why instances have no node: of all nodes, how many are left after each reason, and what would make one fit.
func pending(p *v1alpha1.PendingExplanation) fleet.Finding {
	x := fleet.Finding{Weight: fleet.Broken, What: "Pending", Since: p.Since, Next: "tako get nodes -o wide"}
	x.Text = fmt.Sprintf("%d instances have no node", p.Instances)
	if p.Placed > 0 {
		x.Text += fmt.Sprintf(", %d that were asked for with them have one", p.Placed)
	}
	if p.Message != "" {
		x.Text += ": " + p.Message
	}
	lines := []string{funnel(p)}
	for i := range p.Reasons {
		r := &p.Reasons[i]
		line := fmt.Sprintf("%s keeps %d away", r.Reason, r.Nodes)
		if r.Example != "" {
			line += ", such as " + r.Example
		}
		if r.Message != "" {
			line += ": " + r.Message
		}
		lines = append(lines, line)
	}
	for i := range p.Nearest {
		lines = append(lines, fmt.Sprintf("%s would fit with %s", p.Nearest[i].Node, strings.Join(p.Nearest[i].Cures, ", ")))
	}
	x.Evidence = strings.Join(lines, "\n")
	return x
}

// funnel is how many nodes are left after each reason.
func funnel(p *v1alpha1.PendingExplanation) string {
	parts := []string{fmt.Sprintf("%d nodes", p.Nodes)}
	for i := range p.Reasons {
		parts = append(parts, fmt.Sprintf("%d after %s", p.Reasons[i].Left, p.Reasons[i].Reason))
	}
	return strings.Join(parts, " -> ")
}

// leavingWhat is about what is wanted away, and is there still.
const leavingWhat = "Leaving"

// unwellMax is how many instances are told of; the rest is counted.
const unwellMax = 10

// unwell are the instances that hold the workload up, and those that do not work, each once.
func (w *Workload) unwell() []fleet.Finding {
	var list []fleet.Finding
	told := map[string]bool{}
	more := 0
	add := func(instance, node, what, code, message string, since metav1.Time) {
		switch {
		case told[instance]:
			return
		case len(list) == unwellMax:
			more++
			return
		}
		told[instance] = true
		text := message
		if node != "" {
			text = "on node/" + node + ": " + cmp.Or(message, "nothing more is known")
		}
		list = append(list, fleet.Finding{Weight: fleet.Broken, Subject: argumentOf(instance, w.Namespace), What: what, Text: text, Code: code, Since: since, Next: "tako why " + argumentOf(instance, w.Namespace)})
	}
	for i := range w.Status.Culprits {
		if c := &w.Status.Culprits[i]; c.Instance != "" {
			add(c.Instance, c.Node, cmp.Or(w.phaseOf(c.Instance), "Not available"), c.Code, c.Message, sinceOf(c.Since))
		}
	}
	for i := range w.Instances {
		if in := &w.Instances[i]; in.Status.Failure != nil && in.Spec.Stop == nil {
			f := in.Status.Failure
			add(in.Name, in.Spec.Node, string(cmp.Or(in.Status.Phase, "Not available")), f.Code, f.Message, f.Since)
		}
	}
	for i := range list {
		if list[i].Code == "" && list[i].What != string(v1alpha1.InstanceFailed) {
			list[i].Weight = fleet.Waiting // nothing is wrong with it that is known
		}
	}
	if more > 0 {
		list = append(list, fleet.Finding{Weight: fleet.Waiting, Subject: w.Argument(), What: "More", Text: fmt.Sprintf("%d more instances do not work", more), Next: "tako get instances -n " + w.Namespace + " -l " + v1alpha1.LabelWorkload + "=" + w.Name})
	}
	return list
}

// phaseOf is how far an instance has come; empty where that is not known.
func (w *Workload) phaseOf(instance string) string {
	for i := range w.Instances {
		if w.Instances[i].Name == instance {
			return string(w.Instances[i].Status.Phase)
		}
	}
	return ""
}

// counts is what numbers and times in the status say that nothing else does.
func (w *Workload) counts(now time.Time) []fleet.Finding {
	s := &w.Status
	var list []fleet.Finding
	if n := s.UnreachableReplicas; n > 0 {
		list = append(list, fleet.Finding{Weight: fleet.Unclear, What: "Unreachable", Text: fmt.Sprintf("%d instances are on nodes that nobody hears", n), Next: "tako get nodes"})
	}
	if n := s.UnheardReplicas; n > 0 {
		list = append(list, fleet.Finding{Weight: fleet.Waiting, What: "Not heard", Text: fmt.Sprintf("%d instances are on nodes that have not had the time yet to be heard by this server", n)})
	}
	if n := s.AbandonedReplicas; n > 0 {
		list = append(list, fleet.Finding{Weight: fleet.Unclear, What: "Abandoned", Text: fmt.Sprintf("%d instances were given up because nobody hears their nodes, and may still run there beside those in their place", n)})
	}
	if t := s.BackoffUntil; t != nil && t.After(now) {
		list = append(list, fleet.Finding{Weight: fleet.Waiting, What: "Backing off", Text: fmt.Sprintf("%d instances have ended badly since all were available: none is made before %s", s.BackoffFailed, t.UTC().Format(time.RFC3339))})
	}
	if r := s.Rollout; r != nil && w.Spec.Rollout.Pause && rollout.Phase(s.Phase) != rollout.Paused {
		list = append(list, fleet.Finding{Weight: fleet.Note, What: "Paused", Text: "the next change waits until it is resumed", Next: "tako rollout resume " + w.Argument()})
	}
	if c := s.Scale; c != nil && c.Message != "" {
		list = append(list, w.scaled(c))
	}
	return append(list, w.job()...)
}

// scaled is why there are as many as there are, where that follows what is measured.
func (w *Workload) scaled(s *v1alpha1.ScaleStatus) fleet.Finding {
	x := fleet.Finding{Weight: fleet.Note, What: "Scaled", Text: fmt.Sprintf("to %d: %s", s.Replicas, s.Message), Code: s.Code}
	switch s.Code {
	case reason.NoSamples.String():
		x.Weight, x.What, x.Next = fleet.Unclear, "Not measured", "tako top instances -n "+w.Namespace
		x.Text = fmt.Sprintf("it stays at %d: %s", s.Replicas, s.Message)
	case reason.ScaleBounded.String():
		x.Weight, x.What, x.Next = fleet.Waiting, "At its bound", "tako edit "+w.Argument()
	}
	return x
}

// job is how a job, or the schedule of one, stands.
func (w *Workload) job() []fleet.Finding {
	var list []fleet.Finding
	if j := w.Status.Job; j != nil {
		text := fmt.Sprintf("%d of %d instances have ended well, %d badly", j.Succeeded, w.Spec.Job.CompletionsOrDefault(), j.Failed)
		switch jobs.Result(j.Result) {
		case "", jobs.Complete:
		case jobs.Replaced:
			list = append(list, fleet.Finding{Weight: fleet.Note, What: "Replaced", Text: text + "; a later run has taken its place"})
		default:
			list = append(list, fleet.Finding{Weight: fleet.Broken, What: j.Result, Text: text, Next: "tako get instances -n " + w.Namespace + " -l " + v1alpha1.LabelWorkload + "=" + w.Name})
		}
	}
	if s := w.Status.Schedule; s != nil {
		switch {
		case w.Spec.Schedule != nil && w.Spec.Schedule.Suspend:
			list = append(list, fleet.Finding{Weight: fleet.Note, What: "Suspended", Text: "nothing is started, and what is due meanwhile is not made up for"})
		case s.Next != nil:
			list = append(list, fleet.Finding{Weight: fleet.Note, What: "Scheduled", Text: fmt.Sprintf("the next run begins at %s; %d are not over", s.Next.UTC().Format(time.RFC3339), len(s.Active))})
		}
	}
	return list
}

// Title is an instance on one line.
func (i *Instance) Title() string {
	parts := []string{i.Argument(), string(cmp.Or(i.Status.Phase, "Unknown")), "on node/" + i.Spec.Node, i.Spec.Revision}
	if i.Status.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("%d restarts", i.Status.Restarts))
	}
	return strings.Join(parts, "  ")
}

// Findings are why an instance does not work, and what else is worth knowing, as those of a workload.
func (i *Instance) Findings() []fleet.Finding {
	s := &i.Status
	var list []fleet.Finding
	add := func(x fleet.Finding) {
		x.Subject = cmp.Or(x.Subject, i.Argument())
		list = append(list, x)
	}
	ended := s.Phase == v1alpha1.InstanceFailed || s.Phase == v1alpha1.InstanceDone
	if f := s.Failure; f != nil {
		x := fleet.Finding{Weight: fleet.Broken, What: string(cmp.Or(s.Phase, "Failed")), Text: f.Message, Code: f.Code, Since: f.Since}
		if f.OfNode {
			x.Evidence = "it is about the node, and says nothing of the revision"
		}
		add(x)
	}
	switch {
	case s.Abandoned != nil:
		add(fleet.Finding{Weight: fleet.Unclear, What: "Abandoned", Text: "nobody hears its node, and another one has taken its place; it may still run there", Since: *s.Abandoned})
	case i.Spec.Stop != nil && !ended:
		add(fleet.Finding{Weight: fleet.Waiting, What: "Terminating", Text: "it was asked to end", Code: i.Spec.Stop.Code, Since: i.Spec.Stop.Since})
	case s.Failure != nil, ended:
	case s.Phase == "":
		add(fleet.Finding{Weight: fleet.Unclear, What: "Unknown", Text: "the server has not heard of it"})
	case s.Phase == v1alpha1.InstancePlaced, s.Phase == v1alpha1.InstanceStarting:
		add(fleet.Finding{Weight: fleet.Waiting, What: string(s.Phase), Text: "it has not started yet"})
	case !s.Ready:
		add(fleet.Finding{Weight: fleet.Waiting, What: "Not ready", Text: "it runs, and is not ready"})
	}
	if l := s.Leave; l != nil && i.Spec.Stop == nil && !ended {
		text := "it is to leave its node within the disruption budget"
		if l.For != "" {
			text = "it is to make room for " + l.For + " within the disruption budget"
		}
		if l.Force != nil {
			text += ", at " + l.Force.UTC().Format(time.RFC3339) + " whatever that says"
		}
		add(fleet.Finding{Weight: fleet.Waiting, What: leavingWhat, Text: text, Code: l.Code, Since: l.Since, Next: "tako why workload/" + i.Spec.Workload + " -n " + i.Namespace})
	}
	if s.Restarts > 0 {
		add(fleet.Finding{Weight: fleet.Note, What: "Restarted", Text: fmt.Sprintf("its tasks were started again %d times", s.Restarts)})
	}
	if x, ok := i.ofNode(); ok {
		add(x)
	}
	return ranked(list)
}

// ofNode is what its node has to do with it.
func (i *Instance) ofNode() (fleet.Finding, bool) {
	subject := "node/" + i.Spec.Node
	if i.NodeGone {
		return fleet.Finding{Weight: fleet.Broken, Subject: subject, What: "Gone", Text: "the node is not there any more, or is another one of that name"}, true
	}
	if i.Node == nil {
		return fleet.Finding{}, false
	}
	c := meta.FindStatusCondition(i.Node.Status.Conditions, node.Ready)
	if c == nil || c.Status == metav1.ConditionTrue {
		return fleet.Finding{}, false
	}
	return fleet.Finding{Weight: fleet.Unclear, Subject: subject, What: "Node unknown", Text: c.Reason + ": " + c.Message, Since: c.LastTransitionTime, Next: "tako why " + subject}, true
}

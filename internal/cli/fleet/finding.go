package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Weight says how much a finding matters. The heaviest comes first.
type Weight uint8

// The weights.
const (
	Note    Weight = iota // worth knowing, and nothing is wrong
	Waiting               // it goes on by itself
	Unclear               // nobody knows
	Broken                // somebody has to do something
)

var weightMarks = [...]reason.Outcome{Note: reason.NotApplicable, Waiting: reason.Deferred, Unclear: reason.Unknown, Broken: reason.Failed}

// Finding is one reason why something is not as declared, or something else worth knowing.
type Finding struct {
	Weight  Weight      `json:"-"`
	Subject string      `json:"subject"`        // as it is named on a command line
	What    string      `json:"what"`           // one or two words: Halted
	Text    string      `json:"text,omitempty"` // the rest of the sentence
	Code    string      `json:"code,omitempty"`
	Since   metav1.Time `json:"since,omitzero"`
	// Evidence is what shows it, in lines.
	Evidence string `json:"evidence,omitempty"`
	// Next is a command that helps.
	Next string `json:"next,omitempty"`
	// Node and Claim are what it is about where a host itself knows more.
	Node  string `json:"-"`
	Claim string `json:"-"`
}

// sorted puts the heaviest first, of equal ones the oldest.
func sorted(list []Finding) []Finding {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(-cmp.Compare(a.Weight, b.Weight), a.Since.Compare(b.Since.Time))
	})
	return list
}

// OfNode is what is to be said of a node.
func (f *Fleet) OfNode(n *v1alpha1.Node) []Finding {
	subject := "node/" + n.Name
	var list []Finding
	add := func(x Finding) {
		x.Subject = cmp.Or(x.Subject, subject)
		list = append(list, x)
	}
	if r := n.Status.JoinRequest; r != nil && r.Key != n.Spec.ApprovedKey {
		add(Finding{Weight: Broken, What: joinRefused, Since: r.At, Text: "a host at " + r.From + " wants to join under this name and has another key: " + r.Key,
			Evidence: "it gets nothing as long as nobody approves it; approve it only if that key is of a host of yours, which then takes the place of this one;\n" +
				"tako node reject " + n.Name + " dismisses it",
			Next: "tako node approve " + n.Name})
	}
	if n.Status.Identity == nil {
		add(Finding{Weight: Unclear, What: "Not joined", Since: n.CreationTimestamp, Text: "no host has joined under this name",
			Next: "tako token create join --name " + n.Name})
		return list
	}
	for _, x := range ofConditions(n) {
		add(x)
	}
	for _, x := range ofState(n) {
		add(x)
	}
	for _, x := range ofDrain(n) {
		add(x)
	}
	list = append(list, problemsOf(n, "")...)
	for i := range n.Status.Statements {
		add(ofStatement(&n.Status.Statements[i]))
	}
	if d := n.Status.Disbelieved; d != nil {
		add(Finding{Weight: Note, What: "Disbelieved", Text: disbeliefText(d), Next: "tako events --for node/" + n.Name})
	}
	for i := range n.Spec.Holds {
		h := &n.Spec.Holds[i]
		add(Finding{Weight: Note, What: "Held", Text: holdText(h), Next: "tako resume " + subject})
	}
	for i := range f.Configs {
		for _, x := range conflictsOf(&f.Configs[i], n.Name) {
			add(x)
		}
	}
	return sorted(list)
}

// problemsOf are the resources of a node that are not as declared, of one config or of all.
func problemsOf(n *v1alpha1.Node, config string) []Finding {
	var list []Finding
	for i := range n.Status.Problems {
		p := &n.Status.Problems[i]
		if config == "" || p.Config == config {
			list = append(list, Finding{Weight: weightOf(p.Outcome), Subject: "node/" + n.Name, What: capital(p.Outcome), Text: p.Resource + problemText(p), Code: p.Code,
				Since: p.Since, Next: "tako why " + p.Resource + " --node " + n.Name, Node: n.Name, Claim: p.Claim})
		}
	}
	return list
}

func problemText(p *v1alpha1.ResourceProblem) string {
	text := " of " + p.Config
	if p.Message != "" {
		text += ": " + p.Message
	}
	if p.RetryAt != nil {
		text += "; tried again at " + p.RetryAt.UTC().Format(time.RFC3339)
	}
	return text
}

// ofStatement is what is to be said of an order of an operator.
func ofStatement(s *v1alpha1.LayerStatement) Finding {
	if s.Code != "" {
		return Finding{Weight: Broken, What: "Order refused", Code: s.Code, Text: fmt.Sprintf("number %d about %s was brought to the host by hand, and what was enforced before stays: %s", s.Number, s.Config, s.Message)}
	}
	return Finding{Weight: Note, What: "Ordered", Text: fmt.Sprintf("in place of %s the host enforces order %d, which was brought to it by hand, until the same is declared", s.Config, s.Number),
		Next: "tako apply -f the file that the order was made of"}
}

// disbeliefText says what a host was sent that it has done nothing with.
func disbeliefText(d *v1alpha1.Disbelieved) string {
	var parts []string
	for _, part := range []struct {
		count int64
		words string
	}{{d.Forged, "forged states"}, {d.Old, "states older than its own"}, {d.Equivocation, "states that contradict another one"}, {d.Content, "parts that were not what it had asked for"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.words))
		}
	}
	return strings.Join(parts, ", ") + " were sent to it since its agent was installed, and changed nothing"
}

func holdText(h *v1alpha1.NodeHold) string {
	return fmt.Sprintf("%s is looked at and not changed, by %s until %s: %s", cmp.Or(h.Resource, h.Config, "everything"), h.Owner, h.Until.UTC().Format(time.RFC3339), h.Reason)
}

func weightOf(outcome string) Weight {
	switch o, err := reason.ParseOutcome(outcome); {
	case err != nil || o == reason.Unknown:
		return Unclear
	case o == reason.Deferred || o == reason.Blocked:
		return Waiting
	}
	return Broken
}

// joinRefused is about another host than the one that is the node.
const joinRefused = "Join refused"

// ofConditions is whether the host is there, and whether it is the one that it says.
func ofConditions(n *v1alpha1.Node) []Finding {
	var list []Finding
	if c := meta.FindStatusCondition(n.Status.Conditions, node.Ready); c != nil && c.Status != metav1.ConditionTrue && c.Reason != node.Cloned {
		list = append(list, Finding{Weight: Unclear, What: "Unknown", Text: c.Reason + ": " + c.Message, Since: c.LastTransitionTime,
			Next: "on " + n.Name + " itself: systemctl status tako-agent, and tako-agent status"})
	}
	for _, kind := range []string{node.Cloned, node.RollbackSuspected, node.Stale} {
		if c := meta.FindStatusCondition(n.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			found := Finding{Weight: Broken, What: kind, Text: c.Message, Since: c.LastTransitionTime}
			if c.Reason == node.ReasonStoreBehind {
				found.Next = bumpEpoch
			}
			list = append(list, found)
		}
	}
	return list
}

// ofState is how the host stands to the newest signed state.
func ofState(n *v1alpha1.Node) []Finding {
	v := n.Status.Verdict
	if v != nil {
		refused := Finding{Weight: Broken, What: string(v.Type), Text: fmt.Sprintf("state %d: %s", v.Version, v.Message), Code: v.Code, Since: v.Since}
		switch v.Type {
		case v1alpha1.VerdictRejected, v1alpha1.VerdictQuarantined:
			refused.Next = "tako history node/" + n.Name
			return []Finding{refused}
		case v1alpha1.VerdictWithheld:
			refused.Next = "tako resume node/" + n.Name
			return []Finding{refused}
		}
	}
	assigned, applied := n.Status.AssignedHead, n.Status.AppliedHead
	switch {
	case assigned == nil:
		return nil
	case applied == nil:
		return []Finding{{Weight: Waiting, What: "Not fetched", Text: fmt.Sprintf("state %d is there for it, and it has none yet", assigned.Version)}}
	case applied.Version < assigned.Version || applied.Epoch < assigned.Epoch:
		behind := Finding{Weight: Waiting, What: "Behind", Text: fmt.Sprintf("it has state %d, and state %d is there for it", applied.Version, assigned.Version)}
		if assigned.Since != nil {
			behind.Since = *assigned.Since
		}
		return []Finding{behind}
	}
	return nil
}

// OfConfig is what is to be said of a config.
func (f *Fleet) OfConfig(c *Config) []Finding {
	subject := c.Argument()
	var list []Finding
	add := func(x Finding) {
		x.Subject = subject
		list = append(list, x)
	}
	if c.Status.ObservedGeneration < c.Meta.Generation {
		add(Finding{Weight: Waiting, What: "Not looked at", Text: fmt.Sprintf("nobody has looked at generation %d yet", c.Meta.Generation)})
	}
	r := c.Status.Rollout
	if r != nil {
		if x, ok := ofRollout(c, r); ok {
			add(x)
		}
		for _, culprit := range r.Culprits {
			if n := f.Node(culprit.Node); n != nil {
				list = append(list, problemsOf(n, c.ID)...)
			}
		}
	}
	stalled := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled != nil && stalled.Status == metav1.ConditionTrue && (r == nil || !stopped(rollout.Phase(r.Phase))) {
		add(Finding{Weight: Broken, What: "Stalled", Text: stalled.Message, Code: codeIn(stalled.Reason), Since: stalled.LastTransitionTime})
	}
	if c.Spec.Rollout.Pause && r != nil && rollout.Phase(r.Phase) != rollout.Paused {
		add(Finding{Weight: Note, What: "Paused", Text: "the next change waits until it is resumed", Next: "tako rollout resume " + subject})
	}
	if c.Spec.Rollout.Try != "" && r != nil && r.Target != "" {
		add(Finding{Weight: Waiting, What: "Tried", Text: "hosts go back " + c.Spec.Rollout.Try + " after they took it up, unless it is confirmed",
			Next: "tako rollout confirm " + subject})
	}
	list = append(list, conflictsOf(c, "")...)
	return sorted(list)
}

// stopped: a rollout in that phase says itself what is wrong.
func stopped(p rollout.Phase) bool { return p == rollout.Halted || p == rollout.RolledBack }

func codeIn(text string) string {
	if strings.HasPrefix(text, "TK") {
		return text
	}
	return ""
}

// ofRollout is how the way of a revision over the nodes stands, unless it is complete.
func ofRollout(c *Config, r *v1alpha1.RolloutStatus) (Finding, bool) {
	x := Finding{What: r.Phase, Text: progress(r), Since: r.Since}
	if r.Message != "" {
		x.Text += "; " + r.Message
	}
	var evidence []string
	for _, culprit := range r.Culprits {
		evidence = append(evidence, "node/"+culprit.Node+": "+strings.TrimSpace(culprit.Code+" "+culprit.Message))
	}
	x.Evidence = strings.Join(evidence, "\n")
	if failedTarget(r) {
		x.Code = reason.RolloutFailed.String()
	}
	switch rollout.Phase(r.Phase) {
	case rollout.Complete:
		return x, false
	case rollout.Halted:
		x.Weight, x.Next = Broken, "tako rollout undo "+c.Argument()
		if r.Proven == "" { // nothing to go back to
			x.Next = "tako edit " + c.Argument()
		}
		if ofOtherValue(r) {
			x.Text += "; a value that it takes from a Secret or a ConfigMap is another: put the old one back, and the hosts that have the new one get it"
			x.Next = "tako why " + c.Argument()
		}
	case rollout.RolledBack:
		x.Weight, x.What, x.Next = Broken, "Rolled back", "tako edit "+c.Argument()
	case rollout.RollingBack:
		x.Weight, x.What = Waiting, "Rolling back"
	case rollout.Paused:
		x.Weight, x.Next = Note, "tako rollout resume "+c.Argument()
	case rollout.Empty:
		x.Weight, x.Text = Note, "it selects no node"
	default:
		x.Weight = Waiting
	}
	return x, true
}

// failedTarget reports whether what is declared has failed, and is not tried again.
func failedTarget(r *v1alpha1.RolloutStatus) bool {
	return r.Failure != nil && r.Failure.Revision == r.Target && r.Failure.Root == r.TargetRoot && r.Failure.Priority == r.TargetPriority
}

// GoalOf is the name of the revision that nodes are to have.
func GoalOf(r *v1alpha1.RolloutStatus) string {
	if failedTarget(r) && r.Failure.Goal != "" {
		return r.Failure.Goal
	}
	return r.Target
}

// progress is how far a rollout is, in words.
func progress(r *v1alpha1.RolloutStatus) string {
	parts := []string{fmt.Sprintf("%d of %d nodes have %s", r.Done, r.Selected, GoalOf(r))}
	for _, part := range []struct {
		count int32
		words string
	}{{r.OnTheWay, "on the way"}, {r.Failed, "failed"}, {r.Silent, "silent"}, {r.Unheard, "not heard yet"}, {r.Refused, "kept out"}, {r.Left, "left"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.words))
		}
	}
	return strings.Join(parts, ", ")
}

// conflictsOf are the conflicts of a config on a node, or on all.
func conflictsOf(c *Config, onNode string) []Finding {
	var list []Finding
	for i := range c.Status.Conflicts {
		x := &c.Status.Conflicts[i]
		if onNode != "" && !slices.Contains(x.Nodes, onNode) {
			continue
		}
		found := Finding{Weight: Broken, Subject: c.Argument(), What: "Conflict", Text: x.Message, Evidence: evidenceOf(c, x)}
		if condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionConflict); condition != nil {
			found.Since = condition.LastTransitionTime
		}
		list = append(list, found)
	}
	return list
}

func evidenceOf(c *Config, x *v1alpha1.ConfigConflict) string {
	lines := []string{"on " + strings.Join(x.Nodes, ", ")}
	if more := int(x.NodeCount) - len(x.Nodes); more > 0 {
		lines[0] += fmt.Sprintf(" and %d more nodes", more)
	}
	if x.Field != "" {
		lines = append(lines, fmt.Sprintf("%s of %s: %q in %s, %q in %s", x.Field, x.Claim, x.Value, c.ID, x.OtherValue, x.Config))
	}
	return strings.Join(lines, "\n")
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// NodeTitle is a node on one line.
func (f *Fleet) NodeTitle(n *v1alpha1.Node) string {
	p := &n.Status.Promises
	parts := []string{"node/" + n.Name, fmt.Sprintf("Kept %d · Repaired %d · Failed %d", p.Kept, p.Repaired, p.Failed)}
	if n.Spec.Environment != "" {
		parts = append(parts, "environment "+n.Spec.Environment)
	}
	if n.Status.LastHeard == nil {
		return strings.Join(append(parts, "never heard"), "  ")
	}
	if a := n.Status.Agent; a != nil && a.Usage != nil {
		parts = append(parts, "agent takes "+takes(a.Usage))
	}
	heard := "last heard " + n.Status.LastHeard.UTC().Format(time.RFC3339)
	if n.Status.Through != "" {
		heard += " through relay " + n.Status.Through
	}
	return strings.Join(append(parts, heard), "  ")
}

// takes is what an agent takes of its host: memory, processor time, and what its commands took beside that.
func takes(u *v1alpha1.AgentUsage) string {
	text := fmt.Sprintf("%s, %s of processor time", present.Bytes(u.Memory.Value()), u.CPU.Round(10*time.Millisecond))
	if u.CommandsCPU.Duration > 0 {
		text += fmt.Sprintf(" and %s in commands", u.CommandsCPU.Round(10*time.Millisecond))
	}
	return text
}

// OfRevision is where a revision is, and where its config has something else. The title is empty where no config has it.
func (f *Fleet) OfRevision(namespace, name string) (title string, list []Finding) {
	for i := range f.Configs {
		c := &f.Configs[i]
		if c.Meta.Namespace != namespace {
			continue
		}
		has := false
		var on, others []string
		for j := range f.Nodes {
			a := f.Assignments[f.Nodes[j].Name]
			if a == nil {
				continue
			}
			layer := layerOf(a, c.ID)
			switch {
			case layer == nil:
			case layer.Revision == name:
				on = append(on, f.Nodes[j].Name)
			default:
				others = append(others, f.Nodes[j].Name+" has "+layer.Revision)
			}
		}
		has = len(on) > 0 || c.Status.Revision == name
		if r := c.Status.Rollout; r != nil {
			has = has || r.Target == name || r.Proven == name
		}
		if !has {
			continue
		}
		title = "revision " + name + " of " + c.Argument()
		if len(on) > 0 {
			list = append(list, Finding{Weight: Note, Subject: c.Argument(), What: "Assigned", Text: fmt.Sprintf("%d nodes: %s", len(on), few(on))})
		}
		if c.Status.Revision == name && len(others) > 0 {
			list = append(list, Finding{Weight: Waiting, Subject: c.Argument(), What: "Not there", Text: fmt.Sprintf("%d nodes: %s", len(others), few(others))})
		}
		if c.Status.Revision != name {
			list = append(list, Finding{Weight: Note, Subject: c.Argument(), What: "Replaced", Text: "the newest revision is " + c.Status.Revision})
		}
		list = append(list, f.OfConfig(c)...)
		return title, sorted(list)
	}
	return "", nil
}

// namesMax is how many nodes are named; the rest is counted.
const namesMax = 10

func few(names []string) string {
	if len(names) <= namesMax {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesMax], ", "), len(names)-namesMax)
}

// About finds what is to be said of an object.
func (f *Fleet) About(ref remote.Ref) (title string, found []Finding, err error) {
	switch ref.Kind.Kind {
	case v1alpha1.KindNode:
		if n := f.Node(ref.Name); n != nil {
			return f.NodeTitle(n), append(f.OfNode(n), transferOf(n)...), nil
		}
	case v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig:
		if c := f.ConfigOf(ref); c != nil {
			return c.Argument(), sorted(slices.Concat(f.OfConfig(c), f.sharedBy(c), f.heldOf(c))), nil
		}
	case v1alpha1.KindRevision, v1alpha1.KindClusterRevision:
		title, found = f.OfRevision(ref.Namespace, ref.Name)
		if title != "" {
			return title, found, nil
		}
	case v1alpha1.KindSource:
		if s := f.Source(ref.Namespace, ref.Name); s != nil {
			return SourceTitle(s), f.OfSource(s), nil
		}
	default:
		return "", nil, failure.Usage("why "+ref.String(), "it has nothing to do with hosts", "nodes, configs, workloads, instances, revisions, sources and resources of hosts can be explained; tako trace "+ref.Argument()+" says where it is from")
	}
	return "", nil, failure.NotFound("why "+ref.String(), "there is none", "tako get "+ref.Kind.Resource)
}

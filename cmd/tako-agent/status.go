package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func newStatus(c *common) *cobra.Command {
	var all bool
	var check string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how this host is: what was repaired, what is wrong",
		Example: `  tako-agent status                 what is not plainly in order; exit 0 only when converged
  tako-agent status --all           every resource
  tako-agent status --check deep    look at everything again first, content included`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := c.stateDir()
			if err != nil {
				return err
			}
			var r *agent.Report
			running := true
			switch check {
			case "":
				r, running, err = local.StatusOf(cmd.Context(), state, all)
			case "shallow", "deep":
				r, err = local.CheckNow(cmd.Context(), state, check == "deep")
			default:
				err = &reason.Error{Code: reason.Usage, Doing: "read --check " + check, Hint: "write shallow or deep"}
			}
			if err != nil {
				return err
			}
			return c.showReport(r, running)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every resource")
	cmd.Flags().StringVar(&check, "check", "", "check everything first: shallow or deep")
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON")
	return cmd
}

// showReport prints a report. Its exit code is 0 only when the host is converged, and what is new reaches it if it has joined a cluster.
func (c *common) showReport(r *agent.Report, running bool) error {
	now := time.Now()
	verdict := error(nil)
	why, _ := cutOff(r.Cluster, running, now)
	if exit := exitOf(r, why); exit != reason.ExitOK {
		verdict = shown{exit}
	}
	if c.json {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
		return verdict
	}
	heard := fmt.Sprintf("agent %d", r.PID)
	if !running {
		heard = "agent not running; as of " + present.Ago(r.At, now)
	}
	fmt.Printf("● %s  %s  %s\n", present.Quote(r.Node), countsText(r), heard)
	if r.Cluster != nil {
		fmt.Print(clusterText(r.Cluster, running, now))
	}
	fmt.Print(holdsText(r.Holds, now))
	for _, p := range r.Refused {
		fmt.Printf("! %s: the newest declaration is refused, the last good one is enforced\n%s", reason.DeclarationStale, indent(problemText(&p)))
	}
	for _, p := range r.Degraded {
		fmt.Printf("! Degraded\n%s", indent(problemText(&p)))
	}
	worst := ""
	for _, res := range r.Resources {
		if worst == "" && !res.Outcome.Converged() {
			worst = res.Title
		}
		fmt.Print(resourceText(&res, now, c.style(os.Stdout)))
	}
	fmt.Print(instancesText(r.Instances, now))
	if r.Omitted > 0 {
		fmt.Printf("… and %d more\n", r.Omitted)
	}
	if worst != "" {
		fmt.Printf("next: tako-agent why %s%s\n", present.Quote(worst), c.rootFlag())
	}
	return verdict
}

// exitOf is the exit code of a report: what is not as declared comes before that nothing new reaches the host.
func exitOf(r *agent.Report, cutOff reason.Code) reason.Exit {
	row, known := reason.Lookup(cutOff)
	unwritable := func(p agent.Problem) bool { return p.Code == reason.StateUnwritable }
	switch {
	case !r.Converged, slices.ContainsFunc(r.Degraded, unwritable): // what happens now is known to nobody after the next start
		return reason.ExitFailed
	case cutOff == 0:
		return reason.ExitOK
	case known:
		return row.Exit
	}
	return reason.ExitUnreachable
}

// clusterText says how a host stands to its cluster: what it was told last, and what people have asked for. Without an agent that runs it is
// how the host stood when the last one wrote it down.
func clusterText(c *agent.Cluster, running bool, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  Cluster  %s  version %d", c.Name, c.Version)
	switch {
	case c.Newest == 0:
		b.WriteString("; nothing was told to this host yet")
	case c.Newest != c.Version:
		fmt.Fprintf(&b, "; the newest is %d: %s", c.Newest, c.Verdict)
	default:
		fmt.Fprintf(&b, ": %s", c.Verdict)
	}
	if !c.Since.IsZero() {
		fmt.Fprintf(&b, "  %s", present.Ago(c.Since, now))
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "  Server   %s  %s", present.Escape(strings.Join(c.Servers, ", ")), connectionText(c, running, now))
	if c.Stale {
		fmt.Fprintf(&b, "; stale since %s, the last good state is enforced", present.Ago(c.Expires, now))
		if running && c.Connected {
			b.WriteString("; a server is heard all the same: is the clock of this host ahead?")
		}
	}
	b.WriteByte('\n')
	if t := c.Trouble; t != nil && running {
		b.WriteString(indent(indent(problemText(&agent.Problem{Code: t.Code, Message: t.Message, Hint: t.Hint}))))
	}
	b.WriteString(cutOffText(c, running, now))
	b.WriteString(peersText(c, running, now))
	if d := c.Disbelieved; d != nil {
		fmt.Fprintf(&b, "  Refused  %d forged heads, %d old ones, %d that contradict another; %d times content that was not signed\n", d.Forged, d.Old, d.Equivocation, d.Content)
	}
	if !c.TryUntil.IsZero() {
		fmt.Fprintf(&b, "  Trial    falls back in %s unless it is confirmed\n", present.Duration(c.TryUntil.Sub(now)))
	}
	b.WriteString(expiredText(c.Expired, now))
	b.WriteString(statementsText(c.Statements))
	b.WriteString(holdsText(c.Holds, now))
	return b.String()
}

// peersText says how a host stands to the others that it asks while it reaches no server; empty where it has asked none.
func peersText(c *agent.Cluster, running bool, now time.Time) string {
	p := c.Peers
	if !running || p == nil || p.Asked == 0 {
		return ""
	}
	text := fmt.Sprintf("  Peers    %d of the other hosts may be asked; %d of %d questions were answered", p.Known, p.Answered, p.Asked)
	if p.Lied > 0 {
		text += fmt.Sprintf(", %d of them with what is not signed", p.Lied)
	}
	if p.From != "" {
		text += fmt.Sprintf("; %s had something new %s", present.Quote(p.From), present.Ago(p.At, now))
	}
	return text + "\n"
}

// expiredText says what is left out because the servers were not heard for too long; empty where nothing is.
func expiredText(e *agent.Expired, now time.Time) string {
	if e == nil {
		return ""
	}
	what := "1 resource"
	if e.Count > 1 {
		what = fmt.Sprintf("%d resources", e.Count)
	}
	return fmt.Sprintf("  Expired  %s, %s of %s first, %s: the newest that was heard of the servers is from %s, and its ttl is %s\n", what, present.Quote(e.First),
		present.Escape(e.Config), present.Ago(e.Since, now), e.Heard.UTC().Format(time.RFC3339), e.TTL)
}

// statementsText says which layers operators have replaced, without the servers.
func statementsText(list []agent.Statement) string {
	var b strings.Builder
	for _, s := range list {
		state := map[agent.StatementState]string{agent.StatementInForce: "in force", agent.StatementComing: "on its way", agent.StatementRefused: "refused, the one before stays"}[s.State]
		fmt.Fprintf(&b, "  Order    statement %d about %s: %s\n", s.Number, present.Quote(s.Layer), state)
		if s.Problem != nil {
			b.WriteString(indent(indent(problemText(s.Problem))))
		}
	}
	return b.String()
}

// holdsText says what people keep as it is.
func holdsText(list []agent.Hold, now time.Time) string {
	var b strings.Builder
	for _, h := range list {
		fmt.Fprintf(&b, "  Held     %s by %s for %s: %s\n", present.Quote(heldText(h)), present.Escape(h.Owner), present.Duration(h.Until.Sub(now)), present.Escape(h.Reason))
	}
	return b.String()
}

// cutOff is why nothing new reaches a host, and since when, where that needs a person; 0 where not, and where no agent runs that could
// say so.
func cutOff(c *agent.Cluster, running bool, now time.Time) (why reason.Code, since time.Time) {
	if c == nil || !running {
		return 0, time.Time{}
	}
	if t := c.CutOff(now); t != nil {
		return t.Code, t.Since
	}
	return 0, time.Time{}
}

// cutOffText says that, in a line; empty where there is nothing to say.
func cutOffText(c *agent.Cluster, running bool, now time.Time) string {
	why, since := cutOff(c, running, now)
	if why == 0 {
		return ""
	}
	return fmt.Sprintf("  ! Cut off since %s (%s): nothing new reaches this host; what it was told last stays enforced\n", present.Ago(since, now), why)
}

func connectionText(c *agent.Cluster, running bool, now time.Time) string {
	switch {
	case !running:
		return "not connected, because no agent runs"
	case c.Connected:
		return "connected since " + present.Ago(c.ConnectedSince, now)
	case !c.ConnectedSince.IsZero():
		return "not connected since " + present.Ago(c.ConnectedSince, now)
	}
	return "not connected yet"
}

func (c *common) rootFlag() string {
	if c.root == "/" {
		return ""
	}
	return " --root " + c.root
}

// countsText is the first line of a status: the outcomes that there are, the plain ones first.
func countsText(r *agent.Report) string {
	var parts []string
	for _, o := range []reason.Outcome{reason.Kept, reason.Repaired, reason.NotApplicable, reason.Failed, reason.Contended, reason.Blocked,
		reason.Deferred, reason.Unknown} {
		if n := r.Counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", present.Outcome(o, ""), n))
		}
	}
	if r.Delivered > 0 {
		parts = append(parts, deliveredText("", r.Delivered))
	}
	if len(parts) == 0 {
		return "nothing declared"
	}
	return strings.Join(parts, " · ")
}

// resourceText is a resource in a status: one line, and why where it is not in order.
func resourceText(r *agent.Resource, now time.Time, style present.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s  %s", present.Outcome(r.Outcome, r.Detail).Render(style), present.Quote(r.Title))
	if !r.Since.IsZero() {
		fmt.Fprintf(&b, "  %s", present.Ago(r.Since, now))
	}
	switch wait := present.Duration(r.RetryAt.Sub(now)); {
	case r.RetryAt.IsZero():
	case r.Attempts > 0:
		fmt.Fprintf(&b, "  (attempt %d, next in %s)", r.Attempts, wait)
	default:
		fmt.Fprintf(&b, "  (next in %s)", wait)
	}
	b.WriteByte('\n')
	if len(r.Owes) > 0 {
		fmt.Fprintf(&b, "    %s: changes of %s have not reached it yet\n", reason.NotifyPending, present.Escape(strings.Join(r.Owes, ", ")))
	}
	if r.Problem != nil {
		b.WriteString(indent(indent(problemText(r.Problem))))
	}
	return b.String()
}

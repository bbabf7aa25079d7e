package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// linesMax is how many lines about a first converge are shown one by one; a person reads no more, and the history has all.
const linesMax = 50

// printer shows what happens, line by line, on standard output.
type printer struct {
	watch   bool
	changes int
	kept    int
}

func (p *printer) line(l agent.Line) {
	if l.Trouble != nil {
		fmt.Fprintf(os.Stderr, "warning[%s]: %s\n", l.Trouble.Code, present.Escape(l.Trouble.Message))
		if l.Trouble.Hint != "" {
			fmt.Fprintf(os.Stderr, "help: %s\n", present.Escape(l.Trouble.Hint))
		}
		return
	}
	r := l.Resource
	if r.Outcome == reason.Kept {
		p.kept++
		return
	}
	if r.Outcome == reason.Repaired && r.Detail == reason.Change {
		if p.changes++; p.changes == linesMax+1 {
			fmt.Printf("… more changes; tako-agent history has all\n")
		}
		if p.changes > linesMax {
			return
		}
	}
	text := fmt.Sprintf("%-22s %s", present.Outcome(r.Outcome, r.Detail).String(), present.Quote(r.Title))
	if r.Removal != "" {
		text += " (not declared any more: " + r.Removal + ")"
	}
	if len(l.Changes) > 0 {
		text += ": " + present.Escape(strings.Join(l.Changes, ", "))
	}
	if l.Note != "" {
		text += "; " + present.Escape(l.Note)
	}
	if l.Writer != "" {
		text += "; changed by " + present.Escape(l.Writer)
	}
	fmt.Println(text)
	if r.Problem != nil && r.Outcome != reason.NotApplicable {
		fmt.Print(indent(problemText(r.Problem)))
	}
}

// end sums up a run that is over.
func (p *printer) end() {
	if p.changes > linesMax {
		fmt.Printf("%d changes in all\n", p.changes)
	}
}

// deliveredText says how many values of data the host has; nothing where it has none.
func deliveredText(before string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s%d of data delivered", before, n)
}

func problemText(p *agent.Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Code, present.Escape(p.Message))
	for _, line := range strings.Split(p.Evidence, "\n") {
		if line != "" {
			fmt.Fprintf(&b, "  | %s\n", present.Escape(line))
		}
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, "help: %s\n", present.Escape(p.Hint))
	}
	return b.String()
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}

// preview shows what converging would do.
func (f *convergeFlags) preview(ctx context.Context, opts agent.Options) error {
	doc := f.begin(modePlan, opts.NodeName)
	opts.OnLine = new(printer).line
	if f.output != "" {
		opts.OnLine = (&recorder{report: doc}).line
	}
	planned, delivered, err := agent.Preview(ctx, opts)
	switch {
	case err != nil && f.output != "":
		return doc.end(os.Stdout, err)
	case err != nil:
		return err
	case f.output != "":
		doc.plan(planned)
		doc.Delivered = delivered
		return doc.end(os.Stdout, f.verdict(doc.differs(), doc.Counts[wouldFail]))
	}
	style := f.style(os.Stdout)
	var changes, waits, failures, same int
	for _, p := range planned {
		switch {
		case p.When != "":
			fmt.Printf("%-22s %s: %s is false here\n", present.Outcome(reason.NotApplicable, ""), present.Quote(p.Title), present.Escape(p.When))
		case p.Err != nil:
			if p.Defers() {
				waits++
			} else {
				failures++
			}
			row := p.Err.Entry()
			fmt.Printf("%-22s %s\n%s", present.Outcome(row.Outcome, row.Detail), present.Quote(p.Title),
				indent(problemText(&agent.Problem{Code: p.Err.Code, Message: p.Err.Error(), Hint: p.Err.Hint, Evidence: p.Err.Evidence})))
		case p.Empty():
			same++
		default:
			changes++
			if err := f.showPlanned(p, style); err != nil {
				return err
			}
		}
	}
	waiting := ""
	if waits > 0 {
		waiting = fmt.Sprintf(", %d would wait", waits)
	}
	fmt.Printf("%d to change, %d as declared%s, %d would fail%s\n", changes, same, waiting, failures, deliveredText(", ", delivered))
	return f.verdict(changes+waits, failures)
}

// verdict is what a preview ends with. Of --diff 1 says that there are differences, so what would fail is told apart from them.
func (f *convergeFlags) verdict(changes, failures int) error {
	switch {
	case failures > 0 && f.diff:
		return shown{reason.ExitUsage}
	case failures > 0, f.diff && changes > 0:
		return shown{reason.ExitFailed}
	}
	return nil
}

func (f *convergeFlags) showPlanned(p agent.Planned, style present.Style) error {
	var what []string
	for _, c := range p.Changes {
		what = append(what, present.Escape(agent.Describe(c)))
	}
	if p.Unknown != "" {
		what = append(what, present.Escape(p.Unknown))
	}
	fmt.Printf("~ Would change         %s: %s\n", present.Quote(p.Title), strings.Join(what, ", "))
	if p.Waits != "" {
		fmt.Printf("  not now: %s\n", present.Escape(p.Waits))
	}
	if !f.diff {
		return nil
	}
	for _, c := range p.Changes {
		if c.Text == nil {
			continue
		}
		if err := present.WriteDiff(os.Stdout, diffOf(p.Claim, c), style); err != nil {
			return err
		}
	}
	return nil
}

// diffOf is a change of a text as a unified diff. Where a resource has several texts, it says of which it is.
func diffOf(claim declare.Claim, c agent.Change) string {
	name := claim.ID
	if which, several := strings.CutSuffix(c.Field, " content"); several {
		name += " " + which
	}
	return present.UnifiedDiff(c.Text.From, c.Text.To, name+" (now)", name+" (declared)")
}

package plan

import (
	"fmt"
	"io"

	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
)

// Report tells what was applied: lines where Table is set, otherwise objects.
type Report struct {
	Out     io.Writer
	Err     io.Writer
	Objects *output.Objects
	Table   bool
	Warn    func(text string) // tells a person what may be wrong
}

// Add tells of a change.
func (r *Report) Add(c *Change, verb string) error {
	if r.Table {
		_, err := fmt.Fprintf(r.Out, "%s %s\n", c.Ref, verb)
		return err
	}
	if c.After == nil {
		return nil
	}
	return r.Objects.Add(output.Named{Name: c.Ref.String(), Object: c.After})
}

// Deleted tells of an object that is not declared any more: with the data in a table, beside it in any other form.
func (r *Report) Deleted(ref remote.Ref, word string) error {
	if !r.Table {
		_, err := fmt.Fprintln(r.Err, ref.String()+" "+word)
		return err
	}
	_, err := fmt.Fprintf(r.Out, "%s %s\n", ref, word)
	return err
}

// Close ends the report; nothing is told after it.
func (r *Report) Close() error {
	if r.Table {
		return nil
	}
	return r.Objects.Close()
}

// Preview tells what would be done, and ends the report.
func (r *Report) Preview(changes []*Change, leftovers []prune.Leftover) error {
	for _, c := range changes {
		if c.Unchecked != "" {
			r.Warn(fmt.Sprintf("%s was not checked by the server: %s", c.Ref.Long(), c.Unchecked))
		}
		if err := r.Add(c, c.Verb()+" (dry run)"); err != nil {
			return err
		}
	}
	for _, l := range leftovers {
		if err := r.Deleted(l.Ref, "deleted (dry run)"); err != nil {
			return err
		}
	}
	return r.Close()
}

// Undo says on standard error what has been applied before a failure, and how each is taken back. What was
// before is saved in the directory. Manager is under whose name it was applied, so that undoing gives up what that one owns.
func (r *Report) Undo(changes []*Change, directory, manager string) {
	var changed []*Change
	for _, c := range changes {
		if c.Applied && c.Verb() != "unchanged" {
			changed = append(changed, c)
		}
	}
	if len(changed) == 0 {
		fmt.Fprintln(r.Err, "nothing was changed before the failure")
		return
	}
	file, err := saveBefore(changed, directory)
	fmt.Fprintln(r.Err, "changed before the failure, newest first, with what undoes it:")
	for i := len(changed) - 1; i >= 0; i-- {
		c := changed[i]
		switch {
		case c.Before == nil:
			fmt.Fprintf(r.Err, "  %s was created: tako delete %s\n", c.Ref, c.Ref.Argument())
		case err == nil:
			fmt.Fprintf(r.Err, "  %s was configured: tako apply --force-conflicts --field-manager=%s -f %s\n", c.Ref, shellWord(manager), file)
		default:
			fmt.Fprintf(r.Err, "  %s was configured, and what it was could not be saved: %v\n", c.Ref, err)
		}
	}
}

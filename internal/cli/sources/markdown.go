package sources

import (
	"fmt"
	"html"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

const (
	// commentMax bounds a comment, bytes: forges take 65,536 characters at most, and who posts it may add some.
	commentMax = 60 << 10
	// objectMax bounds the difference of one object, bytes, so that one large one does not hide all others.
	objectMax = 16 << 10
	// namedMax bounds how many objects and faults are named.
	namedMax = 100
)

// markdown is a comparison as a comment on a pull request. What is left out is said.
func markdown(source string, c *comparison) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### tako: %s\n\n", code(source))
	switch {
	case c.forbidden():
		fmt.Fprintf(&b, "✗ It is not known what %s would change: the check may not ask for it.\n\n", plain(c.from))
		writeFaults(&b, c.faults)
		return b.String()
	case len(c.faults) > 0:
		fmt.Fprintf(&b, "✗ %s has %s; nothing of it would be applied.\n\n", plain(c.from), count(len(c.faults), "mistake"))
		writeFaults(&b, c.faults)
		return b.String()
	case c.failed != nil: // its words may name what not everybody is to know who sees the comment
		row, _ := reason.Lookup(c.failed.Code)
		fmt.Fprintf(&b, "✗ It is not known what this would change: %s: %s. The log of the check says more.\n", c.failed.Code, plain(row.Title))
		return b.String()
	case len(c.changes) == 0:
		fmt.Fprintf(&b, "– %s would change nothing.\n", plain(c.from))
		writeNotes(&b, c)
		return b.String()
	}
	fmt.Fprintf(&b, "%s would change %s: %s.\n\n", plain(c.from), count(len(c.changes), "object"), sums(c.changes))
	for i, d := range c.changes {
		if i == namedMax {
			fmt.Fprintf(&b, "- … and %d more\n", len(c.changes)-i)
			break
		}
		fmt.Fprintf(&b, "- %s %s\n", d.verb, code(d.object))
	}
	writeNotes(&b, c)
	for i, d := range c.changes {
		part := detail(d)
		if b.Len()+len(part) > commentMax-len(cutWords)-20 { // 20: for the number
			fmt.Fprintf(&b, cutWords, len(c.changes)-i)
			break
		}
		b.WriteString(part)
	}
	return b.String()
}

const cutWords = "\n**The differences of %d more objects are left out here: the comment would be too long.**\n"

// notesMax bounds how much of what was not looked at is named.
const notesMax = 10

// writeNotes says how much a comparison is worth.
func writeNotes(b *strings.Builder, c *comparison) {
	if c.readOnly {
		b.WriteString("\nThe server was asked for what there is, and has checked nothing.\n")
	}
	for i, note := range c.notes {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == notesMax {
			fmt.Fprintf(b, "- … and %d more that were not looked at\n", len(c.notes)-i)
			return
		}
		fmt.Fprintf(b, "- %s\n", plain(note))
	}
}

// sums counts what becomes of objects.
func sums(changes []difference) string {
	counts := map[string]int{}
	for _, d := range changes {
		counts[d.verb]++
	}
	var parts []string
	for _, verb := range []string{"created", "configured", "deleted"} {
		if counts[verb] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[verb], verb))
		}
	}
	return strings.Join(parts, ", ")
}

// detail is the difference of one object, folded away.
func detail(d difference) string {
	text := d.diff
	if len(text) > objectMax {
		at := strings.LastIndexByte(text[:objectMax], '\n') + 1
		text = strings.ToValidUTF8(text[:at], "") + fmt.Sprintf("… %d more lines\n", strings.Count(d.diff[at:], "\n"))
	}
	fence := fenceFor(text)
	return fmt.Sprintf("\n<details><summary>%s %s</summary>\n\n%sdiff\n%s%s\n\n</details>\n", d.verb, inHTML(d.object), fence, text, fence)
}

// fenceFor is a fence that nothing in the text closes.
func fenceFor(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

func writeFaults(b *strings.Builder, faults []declare.Fault) {
	for i := range faults {
		f := &faults[i]
		line := "- "
		if f.File != "" {
			line += code(placeOf(f)) + " "
		}
		line += f.Code.String() + ": " + plain(f.Message)
		if f.Hint != "" {
			line += "; " + plain(f.Hint)
		}
		if i == namedMax || b.Len()+len(line) > commentMax-100 { // 100: for the words of what is left out
			fmt.Fprintf(b, "- … and %d more\n", len(faults)-i)
			return
		}
		b.WriteString(line + "\n")
	}
}

// placeOf is where a fault is; that of a whole file has no line.
func placeOf(f *declare.Fault) string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// code shows a text as it is.
func code(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + oneLine(text) + " " + fence
	}
	return fence + oneLine(text) + fence
}

// apart keeps forges from making something of a text that is no markup at all: a zero-width space behind each of these. Nobody is called by
// an @, nothing is named by a # or a !, and no address becomes a link.
var apart = strings.NewReplacer("@", "@\u200b", "#", "#\u200b", "!", "!\u200b", "://", "://\u200b", "www.", "www\u200b.")

// plain is a text of somebody else in which nothing is markup, a mention or a link.
func plain(text string) string {
	var b strings.Builder
	for _, r := range oneLine(text) {
		if strings.ContainsRune("\\`*_{}[]()<>#+!|~$&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return apart.Replace(b.String())
}

// inHTML is the same where Markdown is not read, but HTML is.
func inHTML(text string) string { return html.EscapeString(apart.Replace(oneLine(text))) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

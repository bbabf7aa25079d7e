package present

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/declare"
)

// Bounds of what is printed. A person repairs the first ones; that there are more of the same is seen on one line each, and a file
// with a thousand mistakes is another file.
const (
	faultsShownMax  = 20
	faultsListedMax = 1000
)

// Faults writes faults for a person with the file open: what, where, an excerpt of the file, what to do. The source
// returns a file's bytes, as os.ReadFile does; where it cannot, the excerpt is left out.
func Faults(w io.Writer, faults []declare.Fault, source func(file string) ([]byte, error), style Style) error {
	x := excerpts{source: source}
	var b strings.Builder
	for i, f := range faults {
		if i == faultsShownMax {
			listFaults(&b, faults[i:], style)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		writeFault(&b, f, &x, style)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// listFaults writes a line for each fault.
func listFaults(b *strings.Builder, faults []declare.Fault, style Style) {
	fmt.Fprintf(b, "\n%d more %s:\n", len(faults), plural(len(faults), "error"))
	for i, f := range faults {
		if i == faultsListedMax-faultsShownMax {
			fmt.Fprintf(b, "  and %d more, which are not listed\n", len(faults)-i)
			break
		}
		b.WriteString("  " + style.paint(blue, placeText(f.Place())) + ": " + f.Code.String() + ": " + Escape(f.Message) + "\n")
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func writeFault(b *strings.Builder, f declare.Fault, x *excerpts, style Style) {
	b.WriteString(style.paint(red, "error["+f.Code.String()+"]") + ": " + style.paint(bold, Escape(f.Message)) + "\n")
	if place := placeText(f.Place()); place != "" {
		b.WriteString(style.paint(blue, "  --> ") + place + "\n")
		x.write(b, f.File, f.Line, f.Column, style)
	}
	for _, r := range f.Related {
		note := r.Note
		if note == "" {
			note = "see also"
		}
		b.WriteString(style.paint(blue, "  ::: ") + placeText(r) + ": " + Escape(note) + "\n")
	}
	if f.Hint != "" {
		b.WriteString(style.paint(green, "help") + ": " + Escape(f.Hint) + "\n")
	}
}

func placeText(p declare.Place) string {
	p.File = Quote(p.File)
	if p.File == `""` {
		p.File = ""
	}
	p.Path = Escape(p.Path)
	return p.String()
}

// excerpts shows lines of files; it keeps the last one, because faults come sorted by file.
type excerpts struct {
	source func(file string) ([]byte, error)
	file   string
	lines  []string // as they are shown
	whole  []string // as they are
}

const (
	excerptBefore     = 1   // lines shown before the one meant, and as many after it
	excerptLineMax    = 120 // columns of a line that are shown
	excerptCaretRight = 40  // columns kept to the right of the caret in a line that is longer
)

func (x *excerpts) load(file string) {
	if x.file == file || x.source == nil {
		return
	}
	x.file, x.lines, x.whole = file, nil, nil
	data, err := x.source(file)
	if err != nil {
		return
	}
	text := strings.TrimPrefix(string(data), "\uFEFF")
	x.whole = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	x.lines = hideSecrets(x.whole)
}

func (x *excerpts) write(b *strings.Builder, file string, line, column int, style Style) {
	x.load(file)
	if line < 1 || line > len(x.lines) {
		return
	}
	column = shownColumn(x.whole[line-1], x.lines[line-1], column)
	first, last := max(line-excerptBefore, 1), min(line+excerptBefore, len(x.lines))
	digits := len(fmt.Sprint(last))
	gutter := func(number string) string {
		return style.paint(blue, fmt.Sprintf(" %*s | ", digits, number))
	}
	for n := first; n <= last; n++ {
		text, caret, length := clipLine(strings.TrimSuffix(x.lines[n-1], "\r"), column, n == line)
		b.WriteString(strings.TrimRight(gutter(fmt.Sprint(n))+text, " ") + "\n")
		if n == line {
			b.WriteString(gutter("") + strings.Repeat(" ", caret) + style.paint(red, strings.Repeat("^", length)) + "\n")
		}
	}
}

// shownColumn is where the character of a column stands in a line in which something before it may be hidden. A column within
// what is hidden stays as it is.
func shownColumn(whole, shown string, column int) int {
	at := byteOfColumn(whole, column)
	word := whole[at : at+wordLength(whole[at:])]
	if strings.HasPrefix(shown, whole[:at]) || word == "" || strings.Count(shown, word) != 1 {
		return column
	}
	return utf8.RuneCountInString(shown[:strings.Index(shown, word)]) + 1
}

// clipLine makes a line fit and finds where the caret stands in it, in columns of the terminal from 0, and how long it is.
func clipLine(line string, column int, marked bool) (text string, caret, length int) {
	if !marked {
		return truncate(Escape(line), excerptLineMax), 0, 0
	}
	at := byteOfColumn(line, column)
	before, word := Escape(line[:at]), Escape(line[at:at+wordLength(line[at:])])
	text = Escape(line)
	caret, length = Width(before), max(Width(word), 1)
	if caret+min(length, excerptCaretRight) > excerptLineMax {
		cut := lastColumns(before, excerptLineMax-excerptCaretRight)
		text = "…" + cut + text[len(before):]
		caret = Width(cut) + 1
	}
	text = truncate(text, excerptLineMax)
	return text, caret, min(length, max(Width(text)-caret, 1))
}

// lastColumns returns the end of a safe text that takes no more than a number of columns.
func lastColumns(s string, columns int) string {
	n, i := 0, len(s)
	for i > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n += runeWidth(r); n > columns {
			break
		}
		i -= size
	}
	return s[i:]
}

// byteOfColumn turns a column, counted in characters from 1, into a byte.
func byteOfColumn(line string, column int) int {
	i := 0
	for n := 1; n < column && i < len(line); n++ {
		_, size := utf8.DecodeRuneInString(line[i:])
		i += size
	}
	return i
}

// wordLength is how much of a line the caret underlines: a quoted text, or a word.
func wordLength(s string) int {
	if s == "" {
		return 0
	}
	if s[0] == '"' || s[0] == '\'' {
		if end := strings.IndexByte(s[1:], s[0]); end >= 0 {
			return end + 2
		}
		return len(strings.TrimRight(s, " "))
	}
	if end := strings.IndexAny(s, " \t,:{}[]#\"'"); end > 0 {
		return end
	} else if end == 0 {
		return 1
	}
	return len(s)
}

package mount

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	fstabFile   = "/etc/fstab"
	kindSwap    = "swap"
	optDefaults = "defaults"
)

// fstabLine is a line of fstab(5). What is no entry has no source.
type fstabLine struct {
	raw     string // with its end
	source  string
	path    string // clean, where it is a path
	kind    string
	options string
	dump    string
	pass    int
}

// parseFstab reads the lines of an fstab. Joined, their raw texts are the file.
func parseFstab(body string) []fstabLine {
	var lines []fstabLine
	for raw := range strings.Lines(body) {
		lines = append(lines, parseFstabLine(raw))
	}
	return lines
}

func parseFstabLine(raw string) fstabLine {
	l := fstabLine{raw: raw}
	f := strings.FieldsFunc(raw, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	if len(f) < 3 || f[0][0] == '#' {
		return l
	}
	l.source, l.path, l.kind, l.options, l.dump = unquoteTag(unescape(f[0])), unescape(f[1]), f[2], optDefaults, "0"
	if strings.HasPrefix(l.path, "/") {
		l.path = path.Clean(l.path)
	}
	if len(f) > 3 {
		l.options = unescape(f[3])
	}
	if len(f) > 4 {
		l.dump = f[4]
	}
	if len(f) > 5 {
		l.pass, _ = strconv.Atoi(f[5]) // what is no number is none to mount(8) either
	}
	return l
}

// unquoteTag takes the quotes from a value: LABEL="x" is LABEL=x.
func unquoteTag(source string) string {
	if tag, value, ok := strings.Cut(source, "="); ok && len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		return tag + "=" + value[1:len(value)-1]
	}
	return source
}

// unescape undoes what fstab and the kernel's lists write as \ooo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// escape writes a field of fstab.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\' || c == '#' && i == 0 {
			b.WriteByte('\\')
			b.WriteByte('0' + c>>6)
			b.WriteByte('0' + c>>3&7)
			b.WriteByte('0' + c&7)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// written is the line with its text, made of its fields.
func (l fstabLine) written() fstabLine {
	l.raw = l.text() + "\n"
	return l
}

// text is what the line says, for a person too.
func (l fstabLine) text() string {
	return strings.Join([]string{escape(l.source), escape(l.path), l.kind, escape(l.options), l.dump, strconv.Itoa(l.pass)}, " ")
}

// says reports whether two lines have the same effect.
func (l fstabLine) says(o fstabLine) bool {
	return l.source == o.source && l.path == o.path && l.kind == o.kind && l.options == o.options && l.pass == o.pass
}

func (l fstabLine) isEntry() bool { return l.source != "" }

// optionList splits options at commas outside of quotes.
func optionList(options string) []string {
	var list []string
	quoted, start := false, 0
	for i := 0; i <= len(options); i++ {
		if i < len(options) && options[i] == '"' {
			quoted = !quoted
		}
		if i == len(options) || options[i] == ',' && !quoted {
			if i > start {
				list = append(list, options[start:i])
			}
			start = i + 1
		}
	}
	return list
}

// owner says which lines are a resource's.
type owner func(fstabLine) bool

// put makes want the one line of its owner: in the place of the first that is there, untouched where that says the same; a new one before the
// first that is for a path below it, because they are mounted in their order, and otherwise at the end. No other line changes.
func put(lines []fstabLine, mine owner, want fstabLine) []fstabLine {
	var out []fstabLine
	done := false
	for _, l := range lines {
		switch {
		case !mine(l):
			out = append(out, l)
		case !done:
			done = true
			if !l.says(want) {
				want.dump = l.dump
				l = want.written()
			}
			out = append(out, l)
		}
	}
	if done {
		return out
	}
	want.dump = "0"
	below := slices.IndexFunc(out, func(l fstabLine) bool { return strings.HasPrefix(l.path, want.path+"/") })
	if below < 0 {
		below = len(out)
	}
	return insert(out, below, want.written())
}

// insert puts a line among others, and an end on the line before it.
func insert(lines []fstabLine, at int, l fstabLine) []fstabLine {
	if at > 0 && !strings.HasSuffix(lines[at-1].raw, "\n") {
		lines[at-1].raw += "\n"
	}
	return slices.Insert(lines, at, l)
}

// drop takes all lines of an owner away.
func drop(lines []fstabLine, mine owner) []fstabLine {
	return slices.DeleteFunc(slices.Clone(lines), mine)
}

// oldLine is a line as an original keeps it.
type oldLine struct {
	At  int    `json:"at"`
	Raw string `json:"raw"`
}

func oldLines(lines []fstabLine, mine owner) []oldLine {
	kept := []oldLine{}
	for i, l := range lines {
		if mine(l) {
			kept = append(kept, oldLine{i, l.raw})
		}
	}
	return kept
}

// restore puts old lines back where they were, as far as there are as many lines, in the place of those that are there now.
func restore(lines []fstabLine, mine owner, old []oldLine) []fstabLine {
	out := drop(lines, mine)
	for _, o := range old {
		raw := o.Raw
		at := min(o.At, len(out))
		if at < len(out) && !strings.HasSuffix(raw, "\n") {
			raw += "\n"
		}
		out = insert(out, at, parseFstabLine(raw))
	}
	return out
}

func joinFstab(lines []fstabLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.raw)
	}
	return b.String()
}

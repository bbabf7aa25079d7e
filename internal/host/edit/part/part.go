package part

import (
	"fmt"
	"strings"

	"tako.dev/tako/declare"
)

// BytesMax is how large a text may be, before and after.
const BytesMax = 16 << 20

// Bounds of what a text is made of: whoever may write the file is not to fill the agent's memory, or keep it busy.
const (
	linesMax   = 500_000 // a line takes 32 bytes while a text is edited
	entriesMax = 100_000 // of one mapping or list on the way, and values of a YAML document; each takes 150 bytes
	goneMax    = 1000    // lines that can be put back
	equalMax   = 100     // equal items of a list that can go
)

// byteOrderMark may stand at the beginning of a text in UTF-8, as some editors write it. It is not part of the first line.
const byteOrderMark = "\ufeff"

// Refusal says why a text cannot be edited: Why in a few words, with the line where there is one, and Hint what to do.
type Refusal struct{ Why, Hint string }

func (r *Refusal) Error() string { return r.Why }

func refuse(hint, why string, args ...any) error {
	return &Refusal{Why: fmt.Sprintf(why, args...), Hint: hint}
}

// Remnant is what there was of a part, in a form that is stored. Later versions read it too: fields may be added, and none ever gets
// another meaning. Exactly one field is set where there was anything; the zero Remnant is a part that was not there.
type Remnant struct {
	Same   bool     `json:"same,omitempty"`   // it was as declared
	Line   *string  `json:"line,omitempty"`   // the line in whose place the declared one stands
	Alike  int      `json:"alike,omitempty"`  // how many other lines were as the declared one
	Gone   []Gone   `json:"gone,omitempty"`   // the lines that a removal takes away
	Block  *string  `json:"block,omitempty"`  // what was between the marks
	Values []string `json:"values,omitempty"` // of a key, as they stood behind it, with the separator
	Value  *Value   `json:"value,omitempty"`  // of a pointer
	Made   Made     `json:"made,omitzero"`    // what had to be made around the part
}

// Made is what is around a part that is not there.
type Made struct {
	Section bool `json:"section,omitempty"` // the section of a key
	Blank   bool `json:"blank,omitempty"`   // a blank line before that
	Steps   bool `json:"steps,omitempty"`   // the pointer led to nothing; Depth steps of it lead to something
	Depth   int  `json:"depth,omitempty"`
}

// Value is a value that stood in a document.
type Value struct {
	Raw   string `json:"raw"`             // as it was written, from what is before it on
	Below bool   `json:"below,omitempty"` // it began on a line of its own
	At    int    `json:"at,omitempty"`    // its place among its neighbours, where it was removed
	Gap   int    `json:"gap,omitempty"`   // how many lines with nothing, or a comment, were between it and the one before; of the first one, after
	// Around is what it was in, where nothing else was in there.
	Around *Value `json:"around,omitempty"`
	// More are the items behind it that are equal, and were removed with it.
	More []Value `json:"more,omitempty"`
}

// core is one kind of part. Texts are without a byte order mark. All its methods are pure.
type core interface {
	edit(text string) (string, error)
	drop(text string) (string, error)
	// shown says in a few words what there is of the part; "" is nothing.
	shown(text string) string
	// wanted is shown of what is declared.
	wanted() string
	keep(text string) (Remnant, error)
	restore(text string, r Remnant) (string, error)
}

// Part is a declared part of a text.
type Part struct {
	field string
	core
	absent bool
}

// New makes a Part of a declared edit that has passed validation, and of a resource's name. What was filled in on the host may be wrong
// still, which is a Refusal.
func New(e *declare.Edit, name string) (*Part, error) {
	absent := e.State == declare.EditAbsent
	var c core
	var err error
	field := ""
	switch {
	case e.Line != nil:
		field = "line"
		c, err = newLine(e.Line, absent)
	case e.Block != nil:
		field = "block"
		c, err = newBlock(e.Block, name, absent)
	case e.Ini != nil:
		field = "value"
		c, err = newKey(e.Ini, absent)
	case e.JSON != nil:
		field = "value"
		c, err = newPointer(e.JSON, absent, jsonText{})
	case e.YAML != nil:
		field = "value"
		c, err = newPointer(e.YAML, absent, yamlText{})
	default:
		return nil, refuse("", "the edit has no kind")
	}
	if err != nil {
		return nil, err
	}
	return &Part{field: field, core: c, absent: absent}, nil
}

// Field names the kind of part in a word.
func (p *Part) Field() string { return p.field }

// Edit returns the text as declared: text itself where it is. The error is a Refusal.
func (p *Part) Edit(text string) (string, error) {
	out, err := p.change(text, p.edit)
	if err != nil || out == text {
		return text, err
	}
	again, err := p.change(out, p.edit)
	if err != nil || again != out {
		return text, refuse("declare the whole file instead", "the result would not be as declared either")
	}
	return out, nil
}

// Drop returns the text without the part; a part that is declared absent stays away. The error is a Refusal.
func (p *Part) Drop(text string) (string, error) {
	if p.absent {
		return text, nil
	}
	return p.change(text, p.drop)
}

// Shown says in a few words what there is of the part, and what is declared; "" is nothing.
func (p *Part) Shown(text string) (have, want string) {
	if !p.absent {
		want = p.wanted()
	}
	if strings.Count(text, "\n") > linesMax {
		return "", want
	}
	return p.shown(strings.TrimPrefix(text, byteOrderMark)), want
}

// Keep returns what there is of the part. The error is a Refusal.
func (p *Part) Keep(text string) (Remnant, error) {
	out, err := p.Edit(text)
	if err != nil {
		return Remnant{}, err
	}
	if out == text {
		return Remnant{Same: true}, nil
	}
	r, err := p.keep(strings.TrimPrefix(text, byteOrderMark))
	if err == nil && len(r.Gone) > goneMax {
		err = refuse("declare another `onRemove` than restore", "%d lines would have to be kept, at most %d can be", len(r.Gone), goneMax)
	}
	return r, err
}

// Restore returns the text with what was kept in the part's place. The error is a Refusal.
func (p *Part) Restore(text string, r Remnant) (string, error) {
	if r.Same {
		return text, nil
	}
	return p.change(text, func(text string) (string, error) { return p.restore(text, r) })
}

// change changes a text that can be.
func (p *Part) change(text string, how func(string) (string, error)) (string, error) {
	if len(text) > BytesMax {
		return text, refuse("", "the file has more than %d bytes", BytesMax)
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return text, refuse("only text files can be edited: declare the whole file", "the file holds a NUL byte at offset %d, so it is no text", at)
	}
	if strings.Count(text, "\n") > linesMax {
		return text, refuse("declare the whole file", "the file has more than %d lines", linesMax)
	}
	body, marked := strings.CutPrefix(text, byteOrderMark)
	out, err := how(body)
	if err != nil {
		return text, err
	}
	if marked {
		out = byteOrderMark + out
	}
	if len(out) > BytesMax {
		return text, refuse("", "the file would have more than %d bytes", BytesMax)
	}
	return out, nil
}

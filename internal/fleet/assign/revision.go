package assign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// Revision is what a revision wants, by claim. It is immutable: make it once and put it into every view.
type Revision struct {
	resources []declare.Resource
	desires   map[declare.Claim]desire
}

type desire struct {
	digest catalog.Digest
	index  int  // in resources
	taken  bool // its content is from elsewhere: it is not for everybody who reads of the config
	vague  bool // and nobody knows what it is
}

// NewRevision is NewRevisionWith where nothing is known of contents that are from elsewhere: equal references are equal then.
func NewRevision(resources []declare.Resource) (*Revision, error) {
	return NewRevisionWith(resources, func(declare.Claim) (catalog.Desired, bool) { return catalog.Desired{}, false })
}

// NewRevisionWith reads the resources of a revision, which must have passed Validate, and keeps them: change them no more. compiled says
// what became of a file that takes its content from elsewhere; it is asked for no other resource. So such files are compared as hosts
// compare them. The error is InternalFault.
func NewRevisionWith(resources []declare.Resource, compiled func(declare.Claim) (catalog.Desired, bool)) (*Revision, error) {
	r := &Revision{resources, make(map[declare.Claim]desire, len(resources))}
	for i := range resources {
		claim, entry := resources[i].Claim(), catalog.Entry{}
		d := desire{index: i, taken: resources[i].Source() != nil}
		if d.taken {
			is, known := compiled(claim)
			if d.vague = !known; known {
				resources[i], entry.Sealed = is.Resource, is.Sealed
			}
		}
		var err error
		if d.digest, err = entry.DesireOf(resources[i]); err != nil {
			return nil, err
		}
		r.desires[claim] = d
	}
	return r, nil
}

// clash is what two revisions want different things of, as far as is known.
type clash struct {
	first declare.Claim // of kind and ID
	count int
	sure  bool // of some of it that is certain
}

func clashOf(a, b *Revision) clash {
	if len(a.desires) > len(b.desires) {
		a, b = b, a
	}
	var c clash
	for claim, mine := range a.desires {
		other, both := b.desires[claim]
		if !both || other.digest == mine.digest || claim.Kind.Own() {
			continue
		}
		if c.count == 0 || cmp.Or(cmp.Compare(claim.Kind, c.first.Kind), cmp.Compare(claim.ID, c.first.ID)) < 0 {
			c.first = claim
		}
		c.count++
		c.sure = c.sure || !mine.vague && !other.vague
	}
	return c
}

// difference is about a claim that both have.
func (r *Revision) difference(other *Revision, claim declare.Claim) (Difference, error) {
	mine, others := r.desires[claim], other.desires[claim]
	d, err := DifferenceOf(r.resources[mine.index], other.resources[others.index])
	if d == (Difference{}) || (mine.taken || others.taken) && strings.HasPrefix(d.Field, "file.content") {
		d = Difference{"file.content", valuePrivate, valuePrivate}
	}
	return d, err
}

// Difference is the first field in which two resources that claim one thing differ, and both values, as a person would
// recognise them: texts are cut, and the content of a private file is not told.
type Difference struct {
	Field      string // such as file.mode
	Value      string
	OtherValue string
}

// What stands for a value that is not told, or not there.
const (
	valuePrivate = "(private)"
	valueUnset   = "(not set)"
)

// valueMax is how much of a value is told, in bytes: ours, a good part of a line.
const valueMax = 80

// DifferenceOf finds the first field in which two resources differ: the type, then the fields of the type in the order of the alphabet,
// then those of every resource. Name, require and notify are no difference. The error is InternalFault.
func DifferenceOf(a, b declare.Resource) (Difference, error) {
	if a.Type() != b.Type() {
		return Difference{"type", string(a.Type()), string(b.Type())}, nil
	}
	private := isPrivate(&a) || isPrivate(&b)
	mine, err := fieldsOf(a)
	var others map[string]any
	if err == nil {
		others, err = fieldsOf(b)
	}
	if err != nil {
		return Difference{}, &reason.Error{Code: reason.InternalFault, Doing: "compare " + a.Title() + " and " + b.Title(), Cause: err}
	}
	kind := string(a.Type())
	inner, otherInner := inside(mine, kind), inside(others, kind)
	if field, ok := firstDifferent(inner, otherInner); ok {
		d := Difference{kind + "." + field, shown(inner[field]), shown(otherInner[field])}
		if d.Field == "user.passwordHash" {
			d.Value, d.OtherValue = valuePrivate, valuePrivate
		}
		if d.Field == "file.content" || d.Field == "file.check" {
			d = contentDifference(d.Field, inner[field], otherInner[field], private)
		}
		return d, nil
	}
	if field, ok := firstDifferent(mine, others); ok {
		return Difference{field, shown(mine[field]), shown(others[field])}, nil
	}
	return Difference{}, nil
}

func isPrivate(r *declare.Resource) bool { return r.File != nil && r.File.Private() }

// fieldsOf are the fields of a resource as they are declared.
func fieldsOf(r declare.Resource) (map[string]any, error) {
	text, err := json.Marshal(r.Unrelated())
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return fields, decoder.Decode(&fields)
}

// inside takes the fields of the type out of those of the resource.
func inside(fields map[string]any, kind string) map[string]any {
	inner, _ := fields[kind].(map[string]any)
	delete(fields, kind)
	return inner
}

func firstDifferent(a, b map[string]any) (string, bool) {
	var names []string
	for _, side := range []map[string]any{a, b} {
		for name := range side {
			if !reflect.DeepEqual(a[name], b[name]) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return slices.Min(names), true
}

func shown(value any) string {
	switch v := value.(type) {
	case nil:
		return valueUnset
	case string:
		return clip(fmt.Sprintf("%q", v))
	}
	return clip(fmt.Sprint(value))
}

// contentDifference tells of the first line that differs.
func contentDifference(field string, a, b any, private bool) Difference {
	mine, isText := a.(string)
	other, isText2 := b.(string)
	switch {
	case private:
		return Difference{field, valuePrivate, valuePrivate}
	case !isText || !isText2:
		return Difference{field, shown(a), shown(b)}
	}
	lines, others := strings.Split(mine, "\n"), strings.Split(other, "\n")
	at := 0
	for at < min(len(lines), len(others)) && lines[at] == others[at] {
		at++
	}
	return Difference{fmt.Sprintf("%s, line %d", field, at+1), lineAt(lines, at), lineAt(others, at)}
}

func lineAt(lines []string, at int) string {
	if at >= len(lines) {
		return valueUnset
	}
	return shown(lines[at])
}

func clip(text string) string {
	if len(text) <= valueMax {
		return text
	}
	return strings.ToValidUTF8(text[:valueMax], "") + "..."
}

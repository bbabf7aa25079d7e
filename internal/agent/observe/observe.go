// Package observe tells a person how what stands on a host differs from what is declared of it, with the text of a file where that may
// be shown, so that it can be declared. It asks a type for the plan that a dry run would show; what is in that plan from the host's
// side is what is observed. A private content, and one that may be a secret, is in no such plan; one that not everybody on the host
// may read is left out here. What a unit has logged is passed on without secrets, too.
//
// The package owns no goroutine. It changes nothing on the host.
package observe

import (
	"context"
	"errors"
	"strconv"
	"unicode/utf8"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// contentMax is the longest content that is told, bytes: a declaration has at most 1 MiB for all of its resource, and an answer that
// people read has no use for more than a quarter of that.
const contentMax = 256 << 10

// Difference is one field of a resource that is not as declared.
type Difference struct {
	Field string `json:"field"`          // as in a plan: content, mode, owner, group, target, type; "" for the thing as a whole
	Have  string `json:"have,omitempty"` // what is there, short
	Want  string `json:"want,omitempty"` // what is declared
	// Content is the text that is there; left out where it may not be told, and then Hidden says why.
	Content *string `json:"content,omitempty"`
	Hidden  string  `json:"hidden,omitempty"`
}

// Resource lists how a resource differs from what d declares. A resource of its own is bound for that: the one that the agent enforces
// may be in use. clean takes secrets out of a text. Errors are those of the type: the resource cannot be looked at; or NotChecked
// where it cannot be told without running something.
func Resource(ctx context.Context, t host.Type, d host.Declared, clean func(string) string) ([]Difference, error) {
	var err error
	if d.Resource, err = d.Body(); err != nil {
		return nil, err
	}
	bound, err := t.Bind(ctx, d)
	if err != nil {
		return nil, err
	}
	plans := t.Check(ctx, []host.Resource{bound}, host.Explain)
	if err := plans[0].Err; err != nil {
		return nil, err
	}
	if unknown := plans[0].Unknown; unknown != "" {
		return nil, &reason.Error{Code: reason.NotChecked, Doing: "look at " + d.Title, Cause: errors.New(clean(unknown))}
	}
	changes := plans[0].Changes
	public := isPublic(d.Resource.File, changes)
	list := make([]Difference, 0, len(changes))
	for i := range changes {
		list = append(list, of(&changes[i], public, clean))
	}
	return list, nil
}

// isPublic reports whether everybody on the host may read a file, and may when it is as declared. Who asks from afar sees no more than
// that: to see how a host is takes fewer rights than to change it.
func isPublic(f *declare.File, changes []host.Change) bool {
	const others = 0o004
	if f == nil || !f.Public() {
		return false
	}
	for i := range changes {
		if c := &changes[i]; c.Field == "mode" && c.From != "" {
			mode, err := strconv.ParseUint(c.From, 8, 32)
			return err == nil && mode&others != 0
		}
	}
	return true
}

func of(c *host.Change, public bool, clean func(string) string) Difference {
	d := Difference{Field: c.Field, Have: clean(c.From), Want: clean(c.To)}
	if c.Field != "content" || c.From == "" { // nothing is there
		return d
	}
	switch {
	case c.Text == nil:
		d.Hidden = "it is private, or too long"
	case !public:
		d.Hidden = "not everybody on the host may read it"
	case len(c.Text.From) > contentMax:
		d.Hidden = "it is longer than 256 KiB"
	case !utf8.Valid(c.Text.From):
		d.Hidden = "it is no text"
	case clean(string(c.Text.From)) != string(c.Text.From):
		d.Hidden = "it holds the value of a Secret"
	default:
		text := string(c.Text.From)
		d.Content = &text
	}
	return d
}

// Problem is why a resource could not be looked at, for an answer.
func Problem(err error) string {
	e := reason.Of(err)
	text := e.Code.String() + ": " + e.Error()
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

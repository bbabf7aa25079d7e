package hosttest

import (
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// TypeOf finds the Type of a resource.
type TypeOf func(r declare.Resource) host.Type

// Among finds the Type of a resource among types.
func Among(types map[declare.ResourceType]host.Type) TypeOf {
	return func(r declare.Resource) host.Type { return types[r.Type()] }
}

// Ground is where the tests of a type converge resources one by one, as an agent would for a declaration that has just come.
type Ground struct {
	testing.TB
	Of TypeOf
}

// Declared is a resource as an agent gives it to Bind.
func Declared(r declare.Resource) host.Declared {
	return host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }, Below: func(string) []host.Place { return nil }}
}

// Bound binds a resource that must be one that can be bound.
func (g *Ground) Bound(r declare.Resource) (host.Type, host.Resource) {
	g.Helper()
	typ := g.Of(r)
	bound, err := typ.Bind(g.Context(), Declared(r))
	if err != nil {
		g.Fatalf("bind %s: %s", r.Title(), Told(err))
	}
	return typ, bound
}

// Converge checks a resource and applies what there is to do. Nothing to do is an empty result.
func (g *Ground) Converge(r declare.Resource) host.Result {
	g.Helper()
	typ := g.Of(r)
	bound, err := typ.Bind(g.Context(), Declared(r))
	if err != nil {
		return host.Result{Err: err}
	}
	plan := typ.Check(g.Context(), []host.Resource{bound}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return host.Result{Err: plan.Err}
	}
	return typ.Apply(g.Context(), []host.Plan{plan})[0]
}

// Made converges a resource, which must go well and leave nothing to do.
func (g *Ground) Made(r declare.Resource) host.Result {
	g.Helper()
	res := g.Converge(r)
	if res.Err != nil {
		g.Fatalf("%s: %s", r.Title(), Told(res.Err))
	}
	if again := g.Converge(r); again.Err != nil || again.Changed {
		g.Errorf("%s: a second time: %+v", r.Title(), again)
	}
	return res
}

// Refused converges a resource, which must fail with a code, and with words that a person is shown.
func (g *Ground) Refused(r declare.Resource, code reason.Code, words ...string) host.Result {
	g.Helper()
	res := g.Converge(r)
	text := Told(res.Err)
	if !reason.Is(res.Err, code) {
		g.Errorf("%s: %s, want %v", r.Title(), text, code)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			g.Errorf("%s: there is no %q in: %s", r.Title(), w, text)
		}
	}
	return res
}

// Told is all that a person is shown of an error.
func Told(err error) string {
	if err == nil {
		return "no error"
	}
	e := reason.Of(err)
	return strings.Join([]string{e.Code.String() + " " + e.Error(), e.Hint, e.Holder, e.Evidence}, " | ")
}

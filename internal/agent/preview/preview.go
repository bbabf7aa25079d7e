// Package preview says what converging would do: it checks every resource in the order in which converging would take them, with the
// code that converging runs, and writes nothing.
//
// The package owns no goroutine.
package preview

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/ground"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// checkTime bounds binding and checking one resource.
const checkTime = time.Minute

// Planned is what converging would do to one resource.
type Planned struct {
	Title   string
	Claim   declare.Claim
	Config  string
	Place   string
	When    string        // it is not applicable: this condition is false
	Err     *reason.Error // it would fail, would be waited for, or cannot be looked at
	Unknown string        // why it cannot be told without converging
	Waits   string        // why nothing would be done of it now: it is held, outside of its window, or requires what would fail
	Changes []host.Change
}

// Empty reports whether nothing would be done.
func (p *Planned) Empty() bool { return p.Err == nil && p.Unknown == "" && len(p.Changes) == 0 }

// Defers reports whether it cannot be had now and would be waited for, which is no failure: a service of another host that does not answer.
func (p *Planned) Defers() bool { return p.Err != nil && p.Err.Entry().Outcome == reason.Deferred }

// Input is what a preview is made of.
type Input struct {
	Desired *load.State
	Types   map[declare.ResourceType]host.Type
	Now     time.Time // in the host's zone
}

// Of checks every resource, and returns them in the order in which converging would take them. The error is Interrupted.
func Of(ctx context.Context, in Input) ([]Planned, error) {
	items := in.Desired.Compiled.Items
	v := preview{Input: in, planned: make([]Planned, len(items)), bound: make([]bound, len(items))}
	for i := range items {
		if it := &items[i]; it.When == "" && it.Err == nil && it.Removal < 0 {
			v.bound[i] = v.bind(ctx, it)
		}
	}
	v.ground.Lay(v.standing)
	var out []Planned
	for _, id := range in.Desired.Compiled.Graph.Order() {
		if err := ctx.Err(); err != nil {
			return nil, &reason.Error{Code: reason.Interrupted, Doing: "preview", Cause: err}
		}
		v.planned[id] = v.plan(ctx, id)
		out = append(out, v.planned[id])
	}
	return out, nil
}

type preview struct {
	Input
	planned []Planned // by converge.ID
	bound   []bound   // by converge.ID
	ground  ground.Ground
}

// bound is a resource that is ready to be looked at, or why it is not.
type bound struct {
	res host.Resource
	err error
}

// standing yields what stands on the host.
func (v *preview) standing(yield func(converge.ID, ground.Member) bool) {
	for i := range v.bound {
		if !yield(converge.ID(i), ground.Member{Claim: v.Desired.Compiled.Items[i].Claim, Type: v.Desired.Compiled.Items[i].Type, Resource: v.bound[i].res}) {
			return
		}
	}
}

func (v *preview) bind(ctx context.Context, it *core.Item) bound {
	resource := *it.Resource
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	res, err := v.Types[it.Type].Bind(ctx, host.Declared{Title: it.Title, Key: it.Claim.String(), Resource: resource, Below: v.ground.Below,
		Body: func() (declare.Resource, error) { return resource, nil }})
	return bound{res, err}
}

func (v *preview) plan(ctx context.Context, id converge.ID) Planned {
	it := &v.Desired.Compiled.Items[id]
	p := Planned{Title: it.Title, Claim: it.Claim, Config: it.Config, Place: it.Place.String(), When: it.When, Err: it.Err}
	switch {
	case it.When != "" || it.Err != nil:
		return p
	case v.standsBy(id) != "":
		p.When = v.standsBy(id)
		return p
	case it.Removal >= 0:
		how := map[declare.OnRemove]string{declare.OnRemoveDelete: "deleted", declare.OnRemoveRestore: "restored to what was there before"}
		p.Changes = []host.Change{{To: how[it.OnRemove] + ", because it is not declared any more"}}
		return p
	}
	plan := v.check(ctx, id)
	before := v.pending(id)
	switch {
	case plan.Err != nil && before != "" && len(plan.Changes) > 0 && v.onlyPaths(id):
		p.Changes = plan.Changes // in the directory that comes first, which is new
	case plan.Err != nil && before != "":
		// What fails now may be cured by what comes first: the parent directory, the package that brings the unit.
		p.Unknown = fmt.Sprintf("cannot say before %s is as declared", before)
	case plan.Err != nil:
		p.Err = reason.Of(plan.Err)
	default:
		p.Changes, p.Unknown = plan.Changes, plan.Unknown
	}
	by := v.notifiers(id)
	if by != "" && p.Err == nil {
		p.Changes = append(p.Changes, host.Change{Field: "notified", To: "by " + by})
	}
	if p.Waits = v.waits(id, by != ""); p.Waits == "" {
		p.Waits = v.blocked(id)
	}
	return p
}

// blocked says what id requires and cannot be had; empty where there is nothing.
func (v *preview) blocked(id converge.ID) string {
	for _, e := range v.Desired.Compiled.Graph.Before(id) {
		if e.Kind != converge.Require {
			continue
		}
		switch from := &v.planned[e.From]; {
		case from.Err != nil:
			return "it requires " + from.Title + ", which would not be as declared"
		case from.Waits != "" && !from.Empty():
			return "it requires " + from.Title + ", which waits"
		}
	}
	return ""
}

// waits says why nothing would be done of what is planned for id now; empty where it would.
func (v *preview) waits(id converge.ID, notified bool) string {
	it, vertex := &v.Desired.Compiled.Items[id], &v.Desired.Compiled.Graph.Vertices[id]
	if it.Hold != nil {
		return hold.Reason(it.Title, it.Hold).Cause.Error()
	}
	if vertex.Window == nil || !vertex.Frozen && !notified {
		return ""
	}
	switch open, next := vertex.Window.Open(v.Now); {
	case open:
		return ""
	case next.IsZero():
		return "none of its windows opens again"
	default:
		return "its window opens at " + next.Format(time.RFC3339)
	}
}

func (v *preview) check(ctx context.Context, id converge.ID) host.Plan {
	if err := v.bound[id].err; err != nil {
		return host.Plan{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	return v.Types[v.Desired.Compiled.Items[id].Type].Check(ctx, []host.Resource{v.bound[id].res}, host.Explain)[0]
}

// pending names something that id comes after and that is not as declared yet; empty where there is nothing.
func (v *preview) pending(id converge.ID) string {
	for _, claim := range v.Desired.Compiled.Items[id].After {
		if from := v.Desired.Compiled.Graph.ID(core.Key(claim)); from != converge.None && !v.planned[from].Empty() {
			return v.planned[from].Title
		}
	}
	return ""
}

// onlyPaths reports whether everything that id comes after, and that is not as declared yet, is a directory, a file or a link of which it
// is known what becomes of it: then nothing else brings anything to where id stands.
func (v *preview) onlyPaths(id converge.ID) bool {
	for _, claim := range v.Desired.Compiled.Items[id].After {
		from := v.Desired.Compiled.Graph.ID(core.Key(claim))
		if from == converge.None || v.planned[from].Empty() {
			continue
		}
		switch v.Desired.Compiled.Items[from].Type {
		case declare.TypeDirectory, declare.TypeFile, declare.TypeSymlink:
		default:
			return false
		}
		if v.planned[from].Unknown != "" || v.planned[from].Err != nil {
			return false
		}
	}
	return true
}

// standsBy says what would have to fail for id to be wanted; empty where it is wanted.
func (v *preview) standsBy(id converge.ID) string {
	var callers []string
	for _, e := range v.Desired.Compiled.Graph.Before(id) {
		if e.Kind != converge.Rescue {
			continue
		}
		if from := &v.planned[e.From]; from.Err != nil && !from.Defers() {
			return ""
		}
		callers = append(callers, v.planned[e.From].Title+" has failed")
	}
	return strings.Join(callers, " || ")
}

// notifiers names something that would change and notify id; empty where there is nothing.
func (v *preview) notifiers(id converge.ID) string {
	it := &v.Desired.Compiled.Items[id]
	for _, claim := range it.After {
		from := v.Desired.Compiled.Graph.ID(core.Key(claim))
		if from == converge.None || len(v.planned[from].Changes) == 0 || v.Desired.Compiled.Items[from].Entry < 0 {
			continue
		}
		if notifies(&v.Desired.Entries[v.Desired.Compiled.Items[from].Entry], it.Claim) {
			return v.planned[from].Title
		}
	}
	return ""
}

func notifies(e *catalog.Entry, claim declare.Claim) bool {
	for _, ref := range e.Notify {
		if ref.Claim == claim {
			return true
		}
	}
	return false
}

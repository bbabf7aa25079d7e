package unit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// laneBatch is how many unit files share a daemon-reload. One batch at a time: two would have two.
const laneBatch = 64

// Type is the resource type unit.
type Type struct{ files }

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// New makes the Type, for an agent that runs as this process does. In a sandbox it writes files only: nobody verifies or reads them there.
func New(o Options) *Type { return &Type{newFiles(o)} }

// Lane returns the lane of unit files.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeUnit), Parallel: 1, Batch: laneBatch}
}

// resource is one declared unit file. It keeps no text: that is read again.
type resource struct {
	target
	body func() (declare.Resource, error)
}

// Watches names the file.
func (r *resource) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: r.path}}
}

// Bind makes a unit file ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	u := d.Resource.Unit
	if u == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a unit file")}
	}
	name := d.Resource.Name
	r := &resource{body: d.Body, target: target{path: u.Path(name), unit: u.UnitOr(name), dropIn: u.DropIn != "", digest: content.DigestOf([]byte(u.Content)), size: len(u.Content)}}
	t.own(&r.target)
	return r, nil
}

// text reads the declared text again. The declaration may have been replaced since Bind; then the plan that asks for it is void.
func (r *resource) text() (string, error) {
	declared, err := r.body()
	if err != nil {
		return "", err
	}
	if declared.Unit == nil || content.DigestOf([]byte(declared.Unit.Content)) != r.digest {
		return "", &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("its declaration has just been replaced")}
	}
	return declared.Unit.Content, nil
}

// step is what Apply needs of a plan: its State.
type step struct {
	was   disk.Signature
	files bool // the file has to be changed
	whole bool // its content too
}

// Check looks at each file, and whether systemd has read it.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	now := disk.Tick()
	for i, res := range rs {
		p := &plans[i]
		p.Resource = res
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended("look at unit files", err)
			continue
		}
		p.Err = t.check(ctx, res.(*resource), depth, now, p)
	}
	return plans
}

func (t *Type) check(ctx context.Context, r *resource, depth host.Depth, now int64, p *host.Plan) error {
	v, remembered, err := t.look(&r.target, depth == host.Shallow, now)
	if err != nil {
		return err
	}
	if len(v.changes) == 0 {
		if remembered {
			p.Recognised = true
			return nil
		}
		stale, err := t.stale(ctx, &r.target)
		if err != nil || stale {
			r.seen = disk.Signature{}
		}
		if stale {
			p.Changes, p.State = []host.Change{unread()}, step{was: v.sig}
		}
		return err
	}
	s := step{was: v.sig, files: true, whole: v.rewrite()}
	if s.whole && depth == host.Explain {
		text, err := r.text()
		if err != nil {
			return err
		}
		v.show(text)
	}
	p.Changes, p.State = v.changes, s
	return nil
}

// unread is the change of a file that systemd has not read.
func unread() host.Change {
	return host.Change{Field: fieldReload, From: "unit files changed", To: "read"}
}

// show adds the texts to the change of the content.
func (v *view) show(text string) {
	if isPrivate(v.sig) {
		return
	}
	for i := range v.changes {
		if isContent(v.changes[i]) {
			v.changes[i].Text = &host.Text{From: v.text, To: []byte(text)}
		}
	}
}

// Apply writes what has to be written, and has systemd read all of it at once.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	drafts := make([]*draft, len(plans))
	var writing []*draft
	for i, p := range plans {
		r, s := p.Resource.(*resource), p.State.(step)
		d := &draft{target: &r.target, was: s.was, whole: s.whole}
		drafts[i] = d
		if d.err = ctx.Err(); d.err != nil {
			d.err = reason.Ended(r.doing(), d.err)
			continue
		}
		if s.whole {
			d.text, d.err = r.text()
		}
		if s.files {
			writing = append(writing, d)
		} else if d.err = t.unchanged(d); d.err == nil {
			d.changed = true
		}
	}
	t.verify(ctx, writing)
	t.writeAll(ctx, writing)
	t.settle(ctx, drafts)
	for i, d := range drafts {
		results[i] = host.Result{Err: d.err, Changed: d.changed, Note: strings.Join(d.notes, "; ")}
	}
	return results
}

// unchanged refuses a plan for a file that is not as it was.
func (t *Type) unchanged(d *draft) error {
	st, err := t.root.Stat(d.path)
	if err == nil && st.Signature != d.was {
		err = disk.Stale("have systemd read", d.path)
	}
	return err
}

// settle has systemd read what was changed, and notes what a person should know.
func (t *Type) settle(ctx context.Context, drafts []*draft) {
	if !slices.ContainsFunc(drafts, func(d *draft) bool { return d.changed }) {
		return
	}
	err := t.reload(ctx)
	for _, d := range drafts {
		if !d.changed || d.err != nil {
			continue
		}
		if d.err = err; err != nil {
			d.seen = disk.Signature{}
			continue
		}
		if from := t.overrides(d.target); from != "" {
			d.notes = append(d.notes, "it takes the place of "+from)
		}
	}
}

// overrides returns the file of a package that a unit file keeps from being read.
func (f *files) overrides(g *target) string {
	if g.dropIn {
		return ""
	}
	for _, dir := range []string{"/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"} {
		if st, err := f.root.Stat(dir + g.unit); err == nil && st.Exists() {
			return dir + g.unit
		}
	}
	return ""
}

// Original describes what is there.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	o, err := t.original(&res.(*resource).target)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// Remove removes the file, or puts back the text that was there, and has systemd read that. What runs goes on.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	var o original
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		if err := json.Unmarshal(originally, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore unit file " + disk.Shown(r.path), Cause: err}
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove unit file " + disk.Shown(r.path), Cause: errors.New("onRemove is neither delete nor restore")}
	}
	if err := ctx.Err(); err != nil {
		return reason.Ended("remove unit file "+disk.Shown(r.path), err)
	}
	changed, err := t.restore(ctx, &r.target, o)
	if err != nil {
		return err
	}
	if !changed && !t.forgotten(ctx, &r.target) {
		return nil
	}
	return t.reload(ctx)
}

// forgotten reports whether systemd still has a file in mind that is gone, because the agent was killed before it said so.
func (f *files) forgotten(ctx context.Context, g *target) bool {
	if f.bus == nil || isTemplate(g.unit) {
		return false
	}
	s, err := f.bus.Unit(ctx, g.unit)
	return err == nil && s.NeedDaemonReload
}

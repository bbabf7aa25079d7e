package packages

import (
	"context"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// The fields of a package's changes.
const (
	fieldState   = "state"
	fieldVersion = "version"
)

// The words for what is there and what is wanted.
const (
	wordPresent = "present"
	wordAbsent  = "absent"
)

// Check looks the packages up in dpkg's database.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	names := make([]string, len(rs))
	for i, res := range rs {
		plans[i].Resource = res
		names[i] = res.(*resource).name
	}
	err := ctx.Err()
	if err != nil {
		err = ended("look at packages", err)
	}
	var now snapshot
	if err == nil {
		now, err = t.database.look(names, depth != host.Shallow)
	}
	for i, res := range rs {
		if err != nil {
			plans[i].Err = err
			continue
		}
		plans[i].Changes, plans[i].Err = res.(*resource).compare(now.entries[i])
		if plans[i].Err == nil {
			plans[i].State = now.entries[i]
		}
	}
	return plans
}

// compare says what has to change for the package to be as declared, or why that may not be. It is pure.
func (r *resource) compare(e entry) ([]host.Change, error) {
	changes := r.changes(e)
	if len(changes) > 0 && e.held && !e.state.absent() {
		return nil, &reason.Error{Code: reason.PackageHeld, Doing: r.doing(),
			Hint: "somebody asked for it to stay as it is; `apt-mark unhold " + r.name + "` lets it change"}
	}
	return changes, nil
}

func (r *resource) changes(e entry) []host.Change {
	from := e.state.String()
	switch {
	case e.state.absent():
		from = wordAbsent
	case e.finished():
		from = wordPresent
	}
	if !r.present {
		if from == wordAbsent {
			return nil
		}
		return []host.Change{{Field: fieldState, From: from, To: wordAbsent}}
	}
	var changes []host.Change
	if from != wordPresent {
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordPresent})
	}
	if r.version != "" && e.version != r.version {
		changes = append(changes, host.Change{Field: fieldVersion, From: e.version, To: r.version})
	}
	return changes
}

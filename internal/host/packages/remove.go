package packages

import (
	"context"
	"encoding/json"
	"errors"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// original is the stored form of what a package was before tako changed it. Later versions read it too: fields may be added,
// and none ever gets another meaning.
type original struct {
	Installed bool   `json:"installed"`
	Version   string `json:"version,omitempty"`
	Held      bool   `json:"held,omitempty"`
}

// Original describes the package. One that is only half there counts as installed: that is what somebody was about.
func (t *Type) Original(ctx context.Context, res host.Resource) ([]byte, error) {
	now, err := lookAt(ctx, []*resource{res.(*resource)}, true)
	if err != nil {
		return nil, err
	}
	e := now.Entries[0]
	return json.Marshal(original{Installed: !e.Gone(), Version: e.Version, Held: e.Held})
}

// Remove removes the package, or installs the version that was there before. A mark is put back only where it was managed. Configuration
// that was purged is lost.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	was := res.(*resource)
	back := &resource{back: was.back, name: was.name, state: declare.PackageAbsent, olderToo: true, choices: was.choices}
	if was.hold != nil {
		back.hold = new(bool)
	}
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		var o original
		if err := json.Unmarshal(originally, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore package " + back.name, Cause: err}
		}
		if o.Installed {
			back.state, back.version = declare.PackagePresent, declare.VersionRange{Exact: o.Version}
		}
		if back.hold != nil {
			*back.hold = o.Held
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove package " + back.name, Cause: errors.New("onRemove is neither delete nor restore")}
	}
	plan := t.Check(ctx, []host.Resource{back}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	return t.Apply(ctx, []host.Plan{plan})[0].Err
}

package service

import (
	"context"
	"encoding/json"
	"errors"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// original is the stored form of what a unit was before tako changed it. Later versions read it too: fields may be added,
// and none ever gets another meaning.
type original struct {
	Running bool `json:"running"`
	Enabled bool `json:"enabled"`
	Masked  bool `json:"masked,omitempty"` // for good
}

// Original describes the unit. One that does not exist neither runs nor starts at boot.
func (t *Type) Original(ctx context.Context, res host.Resource) ([]byte, error) {
	s, err := t.bus.Unit(ctx, res.(*resource).unit)
	if err != nil {
		return nil, err
	}
	return json.Marshal(original{Running: isUp(s) || isStarting(s), Enabled: s.UnitFileState == wordEnabled, Masked: s.UnitFileState == wordMasked})
}

// Remove stops and disables the unit, or makes it as it was. Starting at boot and a mask are restored only where they were declared.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	back := &resource{unit: r.unit, enabled: disabled}
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		var o original
		if err := json.Unmarshal(originally, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore unit " + r.unit, Cause: err}
		}
		back.running = o.Running
		switch {
		case r.enabled == unmanaged:
			back.enabled = unmanaged
		case o.Enabled:
			back.enabled = enabled
		}
		if r.mask != maskOfOthers {
			back.mask = unmasked
			if o.Masked {
				back.mask, back.running, back.enabled = maskedForGood, false, unmanaged
			}
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove unit " + r.unit, Cause: errors.New("onRemove is neither delete nor restore")}
	}
	changes, err := t.check(ctx, back)
	if how == declare.OnRemoveDelete && (reason.Is(err, reason.UnitNotInstalled) || reason.Is(err, reason.UnitEnableRefused)) {
		back.enabled = unmanaged // there is nothing of its own that could be disabled
		changes, err = t.check(ctx, back)
	}
	if err != nil || len(changes) == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		return reason.Ended("change unit "+r.unit, err)
	}
	_, err = t.apply(ctx, back, changes)
	return err
}

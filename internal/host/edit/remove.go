package edit

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/edit/part"
	"tako.dev/tako/internal/reason"
)

// original is the stored form of what a part was before tako changed it. Later versions read it too: fields may be added, and none ever
// gets another meaning.
type original struct {
	There   bool         `json:"there"` // the file was
	Remnant part.Remnant `json:"remnant"`
}

// keptMax bounds what is kept: in JSON, it must be less than the 1 MiB that the agent keeps of a resource.
const keptMax = 700 << 10

// Original keeps what there is of the part.
func (t *Type) Original(ctx context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	now, err := t.again(ctx, r)
	if err != nil {
		return nil, err
	}
	w, err := r.declared()
	if err != nil {
		return nil, err
	}
	o := original{There: now.Exists()}
	if o.Remnant, err = w.Keep(now.text); err != nil {
		return nil, r.refused(err)
	}
	b, err := json.Marshal(o)
	if len(b) > keptMax {
		return nil, &reason.Error{Code: reason.BackupFailed, Doing: r.doing(), Cause: errors.New("what is there of the part is too large to be kept"), Hint: "declare another `onRemove` than restore"}
	}
	return b, err
}

// Remove takes the part out of the file, or puts back what was there of it. The old text is backed up first.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	r.remember(disk.Signature{}, false)
	s := t.site(r.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := t.root.Stat(r.path); err != nil || !now.Exists() {
		return err // the part has gone with the file
	}
	now, err := t.again(ctx, r)
	if err != nil {
		return err
	}
	text, gone, err := r.after(now.text, how, originally)
	if err != nil || text == now.text && !gone {
		return err
	}
	if gone {
		if _, err := t.keep(ctx, r.path, now); err != nil {
			return err
		}
		return durable.Remove(ctx, t.root, durable.RemoveSpec{Path: r.path, Expect: &now.Signature})
	}
	_, _, err = t.write(ctx, s, now, text, []*job{{resource: r}})
	return err
}

// after is the text after the removal, or that the file goes: it was made for the part, and nothing is left in it.
func (r *resource) after(text string, how declare.OnRemove, originally []byte) (out string, gone bool, err error) {
	w, err := r.declared()
	if err != nil {
		return "", false, err
	}
	switch how {
	case declare.OnRemoveDelete:
		out, err = w.Drop(text)
		return out, err == nil && r.create && out != text && isEmpty(out), r.refused(err)
	case declare.OnRemoveRestore:
		var o original
		if err := json.Unmarshal(originally, &o); err != nil {
			return "", false, &reason.Error{Code: reason.RestoreLost, Doing: "restore a part of " + disk.Shown(r.path), Cause: err}
		}
		out, err = w.Restore(text, o.Remnant)
		return out, err == nil && !o.There && isEmpty(out), r.refused(err)
	case declare.OnRemoveKeep:
	}
	return "", false, &reason.Error{Code: reason.InternalFault, Doing: r.doing(), Cause: errors.New("onRemove is neither delete nor restore")}
}

// isEmpty reports whether nothing is in a text: an empty object of JSON is what is left of one.
func isEmpty(text string) bool {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	return text == "" || text == "{}"
}

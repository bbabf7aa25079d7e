package account

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// originalKeys is the stored form of what a file of keys was before tako changed it. Later versions read it too: fields may be added, and
// none ever gets another meaning.
type originalKeys struct {
	There bool   `json:"there"`
	Text  []byte `json:"text,omitempty"`
	Mode  uint32 `json:"mode,omitempty"`
}

// keptMax bounds the text that is kept: in JSON, it must be less than the 1 MiB that the agent keeps of a resource.
const keptMax = 700 << 10

// Original keeps the text of the file.
func (k *Keys) Original(_ context.Context, res host.Resource) ([]byte, error) {
	f := res.(*keyFile)
	v, err := k.see(f, closely)
	if err != nil {
		return nil, err
	}
	switch {
	case v.foreign:
		return nil, v.notHis()
	case v.large, len(v.text) > keptMax:
		return nil, &reason.Error{Code: reason.BackupFailed, Doing: f.doing(), Cause: errors.New("the file that is there is too large to be kept"), Hint: "look at it, and remove it"}
	}
	return json.Marshal(originalKeys{There: v.have.Exists(), Text: []byte(v.text), Mode: v.have.Perm()})
}

// Remove takes the declared keys out of the file, or puts back the text that was there. With membership exact the whole file was
// declared, and goes.
func (k *Keys) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, original []byte) error {
	f := res.(*keyFile)
	if how == declare.OnRemoveKeep {
		return &reason.Error{Code: reason.InternalFault, Doing: f.doing(), Cause: errors.New("onRemove is neither delete nor restore")}
	}
	var o originalKeys
	if how == declare.OnRemoveRestore {
		if err := json.Unmarshal(original, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: f.doing(), Cause: err}
		}
	}
	s, err := k.databases.read(false)
	if err != nil {
		return err
	}
	at, err := k.place(f, s)
	if reason.Is(err, reason.UnknownOwner) {
		return nil // the user has gone, and nobody can log in
	}
	if err != nil {
		return err
	}
	f.at = at
	v, err := k.see(f, closely)
	switch {
	case reason.Is(err, reason.ParentMissing), err == nil && !v.holder && !o.There:
		return nil
	case err != nil:
		return err
	}
	text, gone, err := f.after(v, how, &o)
	switch {
	case err != nil:
		return err
	case gone && !v.have.Exists():
		return nil
	case gone:
		return durable.Remove(ctx, k.root, durable.RemoveSpec{Path: at.path, Expect: &v.have, OnBackup: k.store.Keeper(ctx, at.path)})
	}
	back := &keyFile{user: f.user, path: f.path, restore: &text, mode: keysMode, at: at}
	if how == declare.OnRemoveRestore {
		back.mode = o.Mode
	}
	plan := k.Check(ctx, []host.Resource{back}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	return k.Apply(ctx, []host.Plan{plan})[0].Err
}

// after is the text of the file after the removal of the declared keys, or that it goes.
func (f *keyFile) after(v *view, how declare.OnRemove, o *originalKeys) (text string, gone bool, err error) {
	switch {
	case how == declare.OnRemoveRestore:
		return string(o.Text), !o.There, nil
	case !f.minimal, !v.have.Exists():
		return "", true, nil
	case v.foreign:
		return "", false, v.notHis()
	}
	lines, err := f.lines()
	if err != nil {
		return "", false, err
	}
	text = without(v.text, lines)
	return text, strings.TrimSpace(text) == "", nil
}

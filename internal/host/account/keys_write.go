package account

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Apply writes the files.
func (k *Keys) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		f := p.Resource.(*keyFile)
		was := p.State.(found)
		results[i].Changed, results[i].Err = k.write(ctx, f, was)
		if len(was.weak) > 0 && results[i].Err == nil {
			results[i].Note = "weak: " + strings.Join(was.weak, "; ")
		}
	}
	return results
}

// write writes one file, if everything is as it was checked.
func (k *Keys) write(ctx context.Context, f *keyFile, was found) (changed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, reason.Ended(f.doing(), err)
	}
	v, err := k.again(f, was)
	if err != nil {
		return false, err
	}
	_, text, err := v.compare()
	if err != nil {
		return false, err
	}
	if !v.holder {
		if err := k.makeDirectory(ctx, f); err != nil {
			return false, err
		}
		changed = true
	}
	if err := k.Beside(ctx, f.at.path); err != nil {
		return changed, err
	}
	res, err := durable.Write(ctx, k.root, durable.WriteSpec{
		Path: was.at.path, Content: strings.NewReader(text), Size: int64(len(text)), Mode: int(f.mode),
		UID: int(was.at.uid), GID: int(was.at.gid), Expect: &was.have, OnBackup: k.store.Keeper(ctx, was.at.path),
	})
	if res.Changed {
		changed = true
		f.seen, f.settled = res.Signature, false
	}
	return changed, err
}

// again looks once more at what a plan is about.
func (k *Keys) again(f *keyFile, was found) (*view, error) {
	s, err := k.databases.read(false)
	if err != nil {
		return nil, err
	}
	at, err := k.place(f, s)
	if err != nil {
		return nil, err
	}
	f.at = at
	v, err := k.see(f, closely)
	if err != nil {
		return nil, err
	}
	if v.at != was.at || v.have != was.have || v.holder != was.holder {
		return nil, &reason.Error{Code: reason.ConcurrentEdit, Doing: f.doing()}
	}
	return v, nil
}

// makeDirectory makes .ssh in the user's home. Where the agent is root and the user is not, that is done with the user's rights: between
// making a directory and giving it away, its name may come to stand for another one.
func (k *Keys) makeDirectory(ctx context.Context, f *keyFile) error {
	dir := f.at.holder()
	if k.uid == f.at.uid {
		_, err := durable.Mkdir(ctx, k.root, durable.MkdirSpec{Path: dir, Mode: 0o700, UID: int(f.at.uid), GID: int(f.at.gid)})
		return err
	}
	c := tool("/bin/mkdir", "-m", "0700", "--", filepath.Join(k.root.Path(), dir))
	c.as = &syscall.Credential{Uid: f.at.uid, Gid: f.at.gid}
	output, err := run(ctx, c)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return reason.Ended(f.doing(), err)
	}
	return &reason.Error{Code: reason.PermissionDenied, Doing: "make directory " + shown(dir) + " as user " + f.user, Cause: err, Evidence: reason.Clip(output),
		Hint: "the user must be able to write to his home"}
}

package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Admin works on the state of a server that runs, on its machine: what it does needs no rights in the API but those of the
// server's user, or root's. What root makes in the data directory belongs to the server's user.
type Admin struct {
	dir    *Dir // not locked
	client *kubernetes.Client
}

// OpenAdmin reaches the etcd of the server that runs on a data directory, or the cluster that it uses.
func OpenAdmin(ctx context.Context, path string, cluster etcd.Connection) (*Admin, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: "open the data directory " + path, Cause: err, Hint: "see --data-dir; it takes the server's user, or root"}
	}
	d := &Dir{path: path, root: root}
	if len(cluster.Endpoints) == 0 {
		socket, err := filepath.EvalSymlinks(d.Join(databaseName + "/client.sock"))
		if err != nil {
			return nil, errors.Join(&reason.Error{Code: reason.StoreUnreachable, Doing: "reach the server of " + path, Cause: err, Hint: "is it running? See --data-dir; with an etcd cluster, --etcd-servers"}, root.Close())
		}
		cluster.Endpoints = []string{"unix://" + socket}
	}
	client, err := etcd.Connect(ctx, cluster)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Admin{dir: d, client: client}, nil
}

// Close ends the connection.
func (a *Admin) Close() error { return errors.Join(a.client.Close(), a.dir.root.Close()) }

// Chain reads the trust documents.
func (a *Admin) Chain(ctx context.Context) (*trust.Chain, error) {
	c, _, err := a.chain(ctx)
	return c, err
}

func (a *Admin) chain(ctx context.Context) (*trust.Chain, int64, error) {
	secret, err := trust.LoadSecret(a.dir.Join(secretName))
	if err != nil {
		return nil, 0, err
	}
	keys, err := readKeys(ctx, a.client.Client, secret)
	if err != nil {
		return nil, 0, err
	}
	c, revision, err := readChain(ctx, a.client.Client, keys)
	if err == nil && c == nil {
		err = &reason.Error{Code: reason.StateCorrupt, Doing: "read the trust documents", Cause: errors.New("there are none"), Hint: "start the server once"}
	}
	return c, revision, err
}

// Change makes the next trust document and signs it with the root key of the data directory, if that is there. When this is
// not enough, nothing is changed: the error is SignaturesMissing, and the proposal is returned for others to sign.
func (a *Admin) Change(ctx context.Context, now time.Time, edits ...trust.Edit) (trust.Signed, error) {
	c, _, err := a.chain(ctx)
	if err != nil {
		return trust.Signed{}, err
	}
	proposal, err := c.Next(now, edits...)
	if err != nil {
		return trust.Signed{}, err
	}
	key, err := a.rootKey(c)
	switch {
	case err == nil:
		if proposal, err = proposal.Sign(key); err != nil {
			return trust.Signed{}, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return trust.Signed{}, err
	}
	_, err = a.Accept(ctx, proposal, now)
	return proposal, err
}

// nextSuffix is added to the name of a root key that trust documents may not name yet.
const nextSuffix = ".next"

// rootKey reads the root key of the data directory that is in force. It ends a rotation that was cut off first. The cause of the
// error is fs.ErrNotExist when there is none: it is offline, or what is there is void.
func (a *Admin) rootKey(c *trust.Chain) (*trust.SigningKey, error) {
	inForce := func(k *trust.SigningKey) bool { return slices.Contains(c.Current().Root.Keys, k.Public()) }
	next, err := trust.LoadSigningKey(a.dir.rootKeyPath() + nextSuffix)
	if err == nil && inForce(next) {
		return next, a.finishRotation(next)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := trust.LoadSigningKey(a.dir.rootKeyPath())
	if err != nil {
		return nil, err
	}
	if !inForce(key) {
		return nil, &reason.Error{
			Code: reason.KeyFileDamaged, Doing: "use " + a.dir.rootKeyPath(), Cause: &voidKey{key.Public().ID()},
			Hint: "use a root key that `tako trust show` lists",
		}
	}
	return key, nil
}

// voidKey is that a key is there which is none any more.
type voidKey struct{ id trust.KeyID }

func (v *voidKey) Error() string   { return "key " + string(v.id) + " is no root key any more" }
func (*voidKey) Is(err error) bool { return err == fs.ErrNotExist }

// finishRotation puts the staged root key into its place.
func (a *Admin) finishRotation(staged *trust.SigningKey) error {
	name := filepath.Join(trustDir, rootKeyName)
	if err := trust.WritePrivateIn(a.dir.root, name, staged.EncodePEM()); err != nil {
		return err
	}
	return a.remove(name + nextSuffix)
}

// remove removes a key for good.
func (a *Admin) remove(name string) error {
	err := a.dir.root.Remove(name)
	if err == nil {
		err = trust.SyncDirectory(a.dir.root, filepath.Dir(name))
	}
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove key file " + a.dir.Join(name), Cause: err}
	}
	return nil
}

// Accept stores the next trust document, if enough root keys have signed it, and not in the future. It returns the keys that have
// signed it and are no root keys; their signatures are left out.
func (a *Admin) Accept(ctx context.Context, next trust.Signed, now time.Time) (others []trust.KeyID, err error) {
	c, revision, err := a.chain(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.CheckIssued(next, now); err != nil {
		return nil, err
	}
	next, others = c.Relevant(next)
	if c, err = c.Extend([]trust.Signed{next}); err != nil {
		return others, err
	}
	return others, writeChain(ctx, a.client.Client, c, revision)
}

// Rotation is that one root key has taken the place of another.
type Rotation struct {
	Number   uint64      // of the trust document
	Old, New trust.KeyID // Old is void, with all copies of it
	Path     string      // of the file with New
}

// RotateRoot puts a fresh root key into the place of the one in the data directory, whose file it replaces once everybody has
// agreed. The old key signs for the last time.
func (a *Admin) RotateRoot(ctx context.Context, now time.Time) (*Rotation, error) {
	c, revision, err := a.chain(ctx)
	if err != nil {
		return nil, err
	}
	old, err := a.rootKey(c)
	if err != nil {
		return nil, err
	}
	fresh, err := a.stage()
	if err != nil {
		return nil, err
	}
	next, err := c.Next(now, trust.RotateRoot(old.Public().ID(), fresh.Public()))
	if err != nil {
		return nil, err
	}
	for _, key := range []*trust.SigningKey{old, fresh} {
		if next, err = next.Sign(key); err != nil {
			return nil, err
		}
	}
	if c, err = c.Extend([]trust.Signed{next}); err != nil {
		return nil, err
	}
	if err := writeChain(ctx, a.client.Client, c, revision); err != nil {
		return nil, err
	}
	return &Rotation{Number: next.Document.Number, Old: old.Public().ID(), New: fresh.Public().ID(), Path: a.dir.rootKeyPath()}, a.finishRotation(fresh)
}

// stage makes a key that is safe before anybody knows of it. What an earlier run has staged is taken again, not written over: the
// store may yet come to name it.
func (a *Admin) stage() (*trust.SigningKey, error) {
	name := filepath.Join(trustDir, rootKeyName) + nextSuffix
	key, err := trust.LoadSigningKey(a.dir.Join(name))
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = trust.NewSigningKey()
	return key, trust.WritePrivateIn(a.dir.root, name, key.EncodePEM())
}

// ExportRoot writes the root key of the data directory that is in force to another place, and says which one it is; remove takes
// it away from here, after the copy is durable and was read back.
func (a *Admin) ExportRoot(ctx context.Context, to string, remove bool) (trust.KeyID, error) {
	c, _, err := a.chain(ctx)
	if err != nil {
		return "", err
	}
	key, err := a.rootKey(c)
	if err != nil {
		return "", err
	}
	if err := trust.SaveSigningKey(key, to); err != nil {
		return "", err
	}
	if remove {
		err = a.remove(filepath.Join(trustDir, rootKeyName))
	}
	return key.Public().ID(), err
}

// RootKeyPath is where the root key of the data directory is, or was.
func (a *Admin) RootKeyPath() string { return a.dir.rootKeyPath() }

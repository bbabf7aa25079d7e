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
// server's user.
type Admin struct {
	dir    *Dir // not locked
	client *kubernetes.Client
}

// OpenAdmin reaches the etcd of the server that runs on a data directory, or the cluster that it uses.
func OpenAdmin(ctx context.Context, path string, cluster etcd.Connection) (*Admin, error) {
	d := &Dir{path: path}
	if len(cluster.Endpoints) == 0 {
		socket := d.Join("etcd/client.sock")
		if _, err := filepath.EvalSymlinks(socket); err != nil {
			return nil, &reason.Error{Code: reason.StoreUnreachable, Doing: "reach the server of " + path, Cause: err, Hint: "is it running? See --data-dir; with an etcd cluster, --etcd-servers"}
		}
		cluster.Endpoints = []string{"unix://" + socket}
	}
	client, err := etcd.Connect(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return &Admin{dir: d, client: client}, nil
}

// Close ends the connection.
func (a *Admin) Close() error { return a.client.Close() }

// Chain reads the trust documents.
func (a *Admin) Chain(ctx context.Context) (*trust.Chain, error) {
	c, _, err := a.chain(ctx)
	return c, err
}

func (a *Admin) chain(ctx context.Context) (*trust.Chain, int64, error) {
	c, revision, err := readChain(ctx, a.client.Client)
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
	return proposal, a.Accept(ctx, proposal, now)
}

// rootKey reads the root key of the data directory. A rotation that was cut off has left the new one under its first name.
func (a *Admin) rootKey(c *trust.Chain) (*trust.SigningKey, error) {
	next, err := trust.LoadSigningKey(a.dir.rootKeyPath() + nextSuffix)
	if err == nil && slices.Contains(c.Current().Root.Keys, next.Public()) {
		return next, nil
	}
	return trust.LoadSigningKey(a.dir.rootKeyPath())
}

// nextSuffix is added to the name of a root key that nobody knows of yet.
const nextSuffix = ".next"

// Accept stores the next trust document, if enough root keys have signed it, and not in the future.
func (a *Admin) Accept(ctx context.Context, next trust.Signed, now time.Time) error {
	c, revision, err := a.chain(ctx)
	if err != nil {
		return err
	}
	if err := c.CheckIssued(next, now); err != nil {
		return err
	}
	if c, err = c.Extend([]trust.Signed{next}); err != nil {
		return err
	}
	return writeChain(ctx, a.client.Client, c, revision)
}

// RotateRoot puts a fresh root key into the place of the one in the data directory, whose file it replaces once everybody has
// agreed. The old key signs for the last time.
func (a *Admin) RotateRoot(ctx context.Context, now time.Time) error {
	c, revision, err := a.chain(ctx)
	if err != nil {
		return err
	}
	old, err := a.rootKey(c)
	if err != nil {
		return err
	}
	fresh := trust.NewSigningKey()
	next, err := c.Next(now, trust.RotateRoot(old.Public().ID(), fresh.Public()))
	if err != nil {
		return err
	}
	for _, key := range []*trust.SigningKey{old, fresh} {
		if next, err = next.Sign(key); err != nil {
			return err
		}
	}
	if c, err = c.Extend([]trust.Signed{next}); err != nil {
		return err
	}
	// The new key is safe before anybody knows of it.
	staged := a.dir.rootKeyPath() + nextSuffix
	if err := trust.WritePrivate(staged, fresh.EncodePEM()); err != nil {
		return err
	}
	if err := writeChain(ctx, a.client.Client, c, revision); err != nil {
		return err
	}
	if err := trust.WritePrivate(a.dir.rootKeyPath(), fresh.EncodePEM()); err != nil {
		return err
	}
	return os.Remove(staged)
}

// ExportRoot writes the root key of the data directory to another place; remove takes it away from here.
func (a *Admin) ExportRoot(to string, remove bool) error {
	return trust.MoveKey(a.dir.rootKeyPath(), to, remove)
}

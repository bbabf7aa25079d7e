package state

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Restore says how a data directory is made from a backup.
type Restore struct {
	From   string // the backup
	Dir    string // the new data directory; it must not be there, or hold a machine secret and a root key only
	Secret string // file of the machine secret; default that of Dir
	Root   string // file of a root key that signs the new epoch; default that of Dir
	// Trust is a file with trust documents that are newer than the backup's, as `tako trust show --json` writes them. Hosts have
	// seen those, and refuse a number that was made from older ones.
	Trust string
}

// Run restores. What was signed since the backup was taken is lost, and hosts may have it: so there is always a new epoch, which
// makes void what was signed before, and no restore without it.
func (r Restore) Run(ctx context.Context, now time.Time) (_ *Manifest, err error) {
	f, err := os.Open(r.From)
	if err != nil {
		return nil, backupFault("open "+r.From, err)
	}
	defer f.Close()
	in := tar.NewReader(f)
	m, err := readManifest(in)
	if err != nil {
		return nil, backupFault("read "+r.From, err)
	}
	if m.Format > dataFormat {
		return nil, &reason.Error{Code: reason.StateNewer, Doing: "restore " + r.From, Cause: fmt.Errorf("it has format %d, and this version knows up to %d", m.Format, dataFormat), Hint: "use the version of tako that wrote it, or a later one"}
	}
	d, err := Open(r.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	root, err := r.keys(d, m)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(d.Join("etcd/member")); err == nil {
		return nil, &reason.Error{Code: reason.TypeInTheWay, Doing: "restore into " + r.Dir, Hint: "there is a database: restore into an empty directory"}
	}
	if err := unpack(in, d); err != nil {
		return nil, errors.Join(backupFault("unpack "+r.From, err), os.RemoveAll(d.Join("etcd")))
	}
	if err := r.bump(ctx, d, root, now); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.Join("etcd"))) // without a new epoch nothing is restored
	}
	return m, nil
}

// keys makes sure that the machine secret opens the backup, and reads the root key.
func (r Restore) keys(d *Dir, m *Manifest) (*trust.SigningKey, error) {
	for from, to := range map[string]string{r.Secret: d.Join("machine-secret"), r.Root: d.rootKeyPath()} {
		if from == "" || from == to {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, dataFault("make a directory in", d.path, err)
		}
		b, err := trust.ReadPrivate(from, manifestMax)
		if err != nil {
			return nil, err
		}
		if err := trust.WritePrivate(to, b); err != nil {
			return nil, err
		}
	}
	secret, err := trust.LoadSecret(d.Join("machine-secret"))
	if err != nil {
		return nil, err
	}
	if secret.ID() != m.KeyID {
		return nil, &reason.Error{Code: reason.SealKeyUnknown, Doing: "restore " + r.From,
			Cause: fmt.Errorf("it was sealed under machine secret %s, and this one is %s", m.KeyID, secret.ID()), Hint: "put the machine secret of that time there: --machine-secret"}
	}
	root, err := trust.LoadSigningKey(d.rootKeyPath())
	if err != nil {
		return nil, fmt.Errorf("a restore needs a root key, to sign a new epoch (--root-key): %w", err)
	}
	return root, nil
}

// unpack makes a database of the snapshot.
func unpack(in *tar.Reader, d *Dir) error {
	h, err := in.Next()
	if err != nil {
		return err
	}
	if h.Name != snapshotName {
		return fmt.Errorf("there is %q, want %s", h.Name, snapshotName)
	}
	if err := os.MkdirAll(d.Join("etcd"), 0o700); err != nil {
		return err
	}
	path := d.Join("etcd/" + snapshotName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	peer := url.URL{Scheme: "unix", Path: d.Join("etcd/peer.sock")}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, OutputDataDir: d.Join("etcd/member"), Name: etcd.MemberName,
		PeerURLs: []string{peer.String()}, InitialCluster: etcd.MemberName + "=" + peer.String(), InitialClusterToken: "tako",
	})
	return errors.Join(err, os.Remove(path))
}

// bump starts the database alone and gives the fleet a new epoch.
func (r Restore) bump(ctx context.Context, d *Dir, root *trust.SigningKey, now time.Time) error {
	member, err := etcd.Start(ctx, etcd.Options{Dir: d.Join("etcd")})
	if err != nil {
		return err
	}
	defer member.Close()
	a, err := OpenAdmin(ctx, d.path, etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		return err
	}
	defer a.Close()
	c, revision, err := a.chain(ctx)
	if err != nil {
		return err
	}
	if r.Trust != "" {
		if c, err = newer(c, r.Trust); err != nil {
			return err
		}
	}
	next, err := c.Next(now, trust.BumpEpoch())
	if err != nil {
		return err
	}
	if next, err = next.Sign(root); err != nil {
		return err
	}
	if c, err = c.Extend([]trust.Signed{next}); err != nil {
		return err
	}
	return writeChain(ctx, a.client.Client, c, revision)
}

// newer adds the trust documents of a file that the backup has not.
func newer(c *trust.Chain, path string) (*trust.Chain, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, backupFault("read "+path, err)
	}
	documents, err := trust.DecodeDocuments(b)
	if err != nil {
		return nil, err
	}
	have := c.Current().Number
	var later []trust.Signed
	for _, s := range documents {
		if s.Document.Number > have {
			later = append(later, s)
		}
	}
	return c.Extend(later)
}

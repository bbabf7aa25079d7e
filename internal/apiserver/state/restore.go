package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/state/archive"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Restore says how a data directory is made from a backup.
type Restore struct {
	From   string // the backup
	Dir    string // the new data directory; it must not be there, or hold a machine secret and a root key only
	Secret string // file of the machine secret; default that of Dir
	Root   string // file of a root key that signs the new epoch; default that of Dir
	// Trust is a file with trust documents that are newer than the backup's, as `tako trust show` prints them. Hosts have
	// seen those, and refuse a number that was made from older ones.
	Trust string
}

// Run restores. What was signed since the backup was taken is lost, and hosts may have it: so there is always a new epoch, which
// makes void what was signed before, and no restore without it. When it fails it leaves nothing behind but an empty data directory.
func (r Restore) Run(ctx context.Context, now time.Time) (_ *archive.Manifest, err error) {
	f, err := os.Open(r.From)
	if err != nil {
		return nil, backupFault("open "+r.From, err)
	}
	defer f.Close()
	m, err := archive.Inspect(r.From, f, dataFormat)
	if err != nil {
		return nil, err
	}
	keys, err := r.keys(m)
	if err != nil {
		return nil, err
	}
	d, err := Open(r.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if _, err := os.Lstat(d.Join(databaseName)); !errors.Is(err, fs.ErrNotExist) {
		return nil, &reason.Error{Code: reason.TypeInTheWay, Doing: "restore into " + r.Dir, Cause: err, Hint: "there is a database: restore into an empty directory"}
	}
	placed, err := keys.place(d)
	if err == nil {
		err = r.fill(ctx, d, f, keys.root, now)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.Join(unfinishedName)), remove(placed))
	}
	return m, nil
}

const (
	// databaseName is the server's own etcd in the data directory.
	databaseName = "etcd"
	// unfinishedName is one that has no new epoch yet. No server looks there: so one that was cut off is none.
	unfinishedName = "etcd.restoring"
)

// fill makes the database.
func (r Restore) fill(ctx context.Context, d *Dir, f *os.File, root *trust.SigningKey, now time.Time) error {
	if err := os.RemoveAll(d.Join(unfinishedName)); err != nil {
		return dataFault("clear", d.Join(unfinishedName), err)
	}
	if err := unpack(f, d); err != nil {
		return backupFault("unpack "+r.From, err)
	}
	if err := r.bump(ctx, d, root, now); err != nil {
		return err
	}
	if err := os.Rename(d.Join(unfinishedName), d.Join(databaseName)); err != nil {
		return dataFault("finish the database in", d.path, err)
	}
	return d.sync()
}

// keyFiles are the files of keys that a restored server needs.
type keyFiles struct {
	root     *trust.SigningKey
	contents map[string][]byte // by the name in the data directory
}

// keys reads the machine secret and the root key, and makes sure that the former opens the backup.
func (r Restore) keys(m *archive.Manifest) (*keyFiles, error) {
	d := &Dir{path: r.Dir}
	secretPath, rootPath := cmp.Or(r.Secret, d.Join(secretName)), cmp.Or(r.Root, d.rootKeyPath())
	secret, err := trust.LoadSecret(secretPath)
	if err != nil {
		return nil, err
	}
	if secret.ID() != m.KeyID {
		return nil, &reason.Error{
			Code: reason.SealKeyUnknown, Doing: "restore " + r.From,
			Cause: fmt.Errorf("it was sealed under machine secret %s, and this one is %s", m.KeyID, secret.ID()), Hint: "put the machine secret of that time there: --machine-secret",
		}
	}
	root, err := trust.LoadSigningKey(rootPath)
	if err != nil {
		return nil, fmt.Errorf("a restore needs a root key, to sign a new epoch (--root-key): %w", err)
	}
	k := &keyFiles{root: root, contents: map[string][]byte{}}
	for name, path := range map[string]string{secretName: secretPath, trustDir + "/" + rootKeyName: rootPath} {
		if k.contents[name], err = trust.ReadPrivate(path, keyFileMax); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// keyFileMax is far more than a file of a key has, bytes.
const keyFileMax = 64 << 10

// place puts the files into the data directory, and returns the paths of those that it has made. It writes over nothing: another key
// that is there may be the only copy of it.
func (k *keyFiles) place(d *Dir) (placed []string, err error) {
	for name, content := range k.contents {
		path := d.Join(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return placed, dataFault("make a directory in", d.path, err)
		}
		err := trust.CreatePrivate(path, content)
		if err == nil {
			placed = append(placed, path)
			continue
		}
		if !errors.Is(err, fs.ErrExist) {
			return placed, err
		}
		have, err := trust.ReadPrivate(path, keyFileMax)
		if err != nil {
			return placed, err
		}
		if !bytes.Equal(have, content) {
			return placed, &reason.Error{Code: reason.TypeInTheWay, Doing: "restore " + path, Cause: errors.New("there is another one"), Hint: "restore into an empty directory, or move that file to where it is safe"}
		}
	}
	return placed, nil
}

func remove(paths []string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.Remove(p))
	}
	return errors.Join(errs...)
}

// unpack makes a database of the snapshot in a backup.
func unpack(backup *os.File, d *Dir) error {
	if _, err := backup.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, size, err := archive.Snapshot(backup)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.Join(unfinishedName), 0o700); err != nil {
		return err
	}
	path := d.Join(unfinishedName + "/snapshot")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, in, size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	peer := url.URL{Scheme: "unix", Path: d.Join(databaseName + "/peer.sock")}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, OutputDataDir: d.Join(unfinishedName + "/member"), Name: etcd.MemberName,
		PeerURLs: []string{peer.String()}, InitialCluster: etcd.MemberName + "=" + peer.String(), InitialClusterToken: "tako",
	})
	return errors.Join(err, os.Remove(path))
}

// bump starts the database alone and gives the fleet a new epoch.
func (r Restore) bump(ctx context.Context, d *Dir, root *trust.SigningKey, now time.Time) error {
	member, err := etcd.Start(ctx, etcd.Options{Dir: d.Join(unfinishedName)})
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

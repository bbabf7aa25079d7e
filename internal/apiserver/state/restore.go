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
	"slices"
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
	// Roots are files of root keys that sign the new epoch; default that of Dir. One is put into Dir. Several, which sign only
	// together, are kept apart on purpose: none of them is.
	Roots []string
	// Trust is a file with trust documents that are newer than the backup's, as `tako trust show` prints them. Hosts have
	// seen those, and refuse a number that was made from older ones.
	Trust string
}

// Run restores. What was signed since the backup was taken is lost, and hosts may have it: so there is always a new epoch, which
// makes void what was signed before, and no restore without it. When it fails it leaves everything as it was. Root may restore into
// the directory of another user, whose it stays.
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
	d, err := open(r.Dir, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if d.has(databaseName) {
		return nil, &reason.Error{Code: reason.TypeInTheWay, Doing: "restore into " + r.Dir, Cause: errors.New("there is a database"), Hint: "restore into an empty directory"}
	}
	placed, err := r.fill(ctx, d, f, keys, now)
	if err != nil {
		return nil, errors.Join(err, remove(placed), os.RemoveAll(d.Join(unfinishedName)), d.undo())
	}
	return m, nil
}

// fill makes the database. What is unfinished is there before anything else, and makes way for the database in the end: so no server
// starts on what was cut off. It returns the paths of the keys that it has made.
func (r Restore) fill(ctx context.Context, d *Dir, f *os.File, keys *keyFiles, now time.Time) (placed []string, err error) {
	if err := os.RemoveAll(d.Join(unfinishedName)); err != nil {
		return nil, dataFault("clear", d.Join(unfinishedName), err)
	}
	if err := os.Mkdir(d.Join(unfinishedName), 0o700); err != nil {
		return nil, dataFault("make", d.Join(unfinishedName), err)
	}
	if err := d.sync(); err != nil {
		return nil, err
	}
	if placed, err = keys.place(d); err != nil {
		return placed, err
	}
	if err := unpack(f, d); err != nil {
		return placed, backupFault("unpack "+r.From, err)
	}
	if err := r.bump(ctx, d, keys.roots, now); err != nil {
		return placed, err
	}
	if err := os.Rename(d.Join(unfinishedName), d.Join(databaseName)); err != nil {
		return placed, dataFault("finish the database in", d.path, err)
	}
	return nil, d.sync()
}

// keyFiles are the files of keys that a restored server needs.
type keyFiles struct {
	roots    []*trust.SigningKey
	contents map[string][]byte // by the name in the data directory
}

// keys reads the machine secret and the root key, and makes sure that the former opens the backup.
func (r Restore) keys(m *archive.Manifest) (*keyFiles, error) {
	d := &Dir{path: r.Dir}
	secretPath := cmp.Or(r.Secret, d.Join(secretName))
	secret, err := trust.LoadSecret(secretPath)
	if err != nil {
		return nil, hinted(err, "name the file of the machine secret of that time with --machine-secret")
	}
	if secret.ID() != m.KeyID {
		return nil, &reason.Error{
			Code: reason.SealKeyUnknown, Doing: "restore " + r.From,
			Cause: fmt.Errorf("it was sealed under machine secret %s, and this one is %s", m.KeyID, secret.ID()), Hint: "put the machine secret of that time there: --machine-secret",
		}
	}
	k := &keyFiles{contents: map[string][]byte{}}
	paths := r.Roots
	if paths == nil {
		paths = []string{d.rootKeyPath()}
	}
	if k.roots, err = r.rootKeys(paths); err != nil {
		return nil, err
	}
	files := map[string]string{secretName: secretPath}
	if len(paths) == 1 {
		files[trustDir+"/"+rootKeyName] = paths[0]
	}
	for name, path := range files {
		if k.contents[name], err = trust.ReadPrivate(path, keyFileMax); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// hinted adds a hint to an error that has none.
func hinted(err error, hint string) error {
	if e := new(reason.Error); errors.As(err, &e) && e.Hint == "" {
		e.Hint = hint
	}
	return err
}

// rootKeys reads the root keys. In a data directory a rotation that was cut off may have left two.
func (r Restore) rootKeys(paths []string) (keys []*trust.SigningKey, err error) {
	for _, path := range paths {
		key, err := trust.LoadSigningKey(path)
		if err != nil {
			return nil, hinted(err, "name the file of a root key with --root-key: a restore begins a new epoch, which root keys have to sign")
		}
		keys = append(keys, key)
	}
	if r.Roots != nil {
		return keys, nil
	}
	next, err := trust.LoadSigningKey(paths[0] + nextSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return keys, nil
	}
	return append(keys, next), err
}

// keyFileMax is far more than a file of a key has, bytes.
const keyFileMax = 64 << 10

// place puts the files into the data directory, and returns the paths of those that it has made. It writes over nothing: another key
// that is there may be the only copy of it.
func (k *keyFiles) place(d *Dir) (placed []string, err error) {
	if !d.has(trustDir) {
		if err := os.Mkdir(d.Join(trustDir), 0o700); err != nil {
			return nil, dataFault("make a directory in", d.path, err)
		}
		placed = append(placed, d.Join(trustDir)) // the first, so it is empty when it is removed as the last
	}
	for name, content := range k.contents {
		path := d.Join(name)
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

// remove removes what place has made.
func remove(paths []string) error {
	var errs []error
	for _, p := range slices.Backward(paths) {
		errs = append(errs, os.Remove(p))
	}
	return errors.Join(errs...)
}

// revisionBump is by how much the revision of the store goes up with a restore. What was written after the backup had revisions that
// clients remember: without it a watch from then would go on silently in another history, and an update could meet another object's
// version. A billion is what a store that writes 1,000 times a second needs eleven days for.
const revisionBump = 1_000_000_000

// unpack makes a database of the snapshot in a backup.
func unpack(backup *os.File, d *Dir) error {
	if _, err := backup.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, size, err := archive.Snapshot(backup)
	if err != nil {
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
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	return errors.Join(err, os.Remove(path))
}

// bump starts the database alone and gives the fleet a new epoch.
func (r Restore) bump(ctx context.Context, d *Dir, roots []*trust.SigningKey, now time.Time) error {
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
	// Of the two that a rotation may have left one is none: it signs only if a key was named, to be told that it is none.
	for _, key := range roots {
		if len(roots) > 1 && r.Roots == nil && !slices.Contains(c.Current().Root.Keys, key.Public()) {
			continue
		}
		if next, err = next.Sign(key); err != nil {
			return err
		}
	}
	c, err = c.Extend([]trust.Signed{next})
	if reason.Is(err, reason.SignaturesMissing) {
		reason.Of(err).Hint = "give --root-key once for each key that has to sign"
	}
	if err != nil {
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

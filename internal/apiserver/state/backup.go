package state

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"tako.dev/tako/internal/apiserver/state/archive"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// backupMax bounds a backup; two GiB of database take a minute on a slow disk.
const backupMax = 30 * time.Minute

// Backup writes everything that the server keeps to a new file, readable for its owner only, while the server runs.
func (a *Admin) Backup(ctx context.Context, to string, now time.Time) (_ *archive.Manifest, err error) {
	ctx, cancel := context.WithTimeout(ctx, backupMax)
	defer cancel()
	c, err := a.Chain(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := trust.LoadSecret(a.dir.Join(secretName))
	if err != nil {
		return nil, err
	}
	current := c.Current()
	m := &archive.Manifest{Format: dataFormat, Cluster: current.Cluster, Epoch: current.Epoch, Number: current.Number, KeyID: secret.ID(), Taken: now.UTC().Truncate(time.Second)}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, backupFault("make "+to, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(to) // half a backup is none
		}
	}()
	if err := a.write(ctx, f, m); err != nil {
		return nil, backupFault("write "+to, err)
	}
	if err := f.Sync(); err != nil {
		return nil, backupFault("write "+to, err)
	}
	return m, check(f)
}

// check reads back what was written.
func check(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return backupFault("read back "+f.Name(), err)
	}
	_, err := archive.Inspect(f.Name(), f, dataFormat)
	return err
}

// write writes the two parts. The snapshot comes over the wire, so its length is known only when it is there: it waits in a
// file without a name.
func (a *Admin) write(ctx context.Context, f *os.File, m *archive.Manifest) error {
	snapshot, err := a.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	// Beside the backup: the file system of the database has to keep room for the database.
	spool, err := os.CreateTemp(filepath.Dir(f.Name()), ".tako-backup-")
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return err
	}
	size, err := io.Copy(spool, snapshot)
	if err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return archive.Write(f, m, spool, size)
}

func backupFault(doing string, err error) error {
	return &reason.Error{Code: reason.BackupUnusable, Doing: doing, Cause: err}
}

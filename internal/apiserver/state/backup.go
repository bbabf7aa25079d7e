package state

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// backupMax bounds a backup; two GiB of database take a minute on a slow disk.
const backupMax = 30 * time.Minute

// Names in a backup, which is a tar file.
const (
	manifestName = "backup.json"
	snapshotName = "etcd.snapshot"
)

// Manifest says what a backup is. The machine secret is not in it: who has both has everything.
type Manifest struct {
	Format  int             `json:"format"`
	Cluster trust.ClusterID `json:"cluster"`
	Epoch   uint64          `json:"epoch"`
	Number  uint64          `json:"number"` // of the newest trust document
	KeyID   string          `json:"keyID"`  // of the machine secret that it can be opened with
	Taken   time.Time       `json:"taken"`
}

// Backup writes everything that the server keeps to a new file, readable for its owner only, while the server runs.
func (a *Admin) Backup(ctx context.Context, to string, now time.Time) (_ *Manifest, err error) {
	ctx, cancel := context.WithTimeout(ctx, backupMax)
	defer cancel()
	c, err := a.Chain(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := trust.LoadSecret(a.dir.Join("machine-secret"))
	if err != nil {
		return nil, err
	}
	current := c.Current()
	m := &Manifest{Format: dataFormat, Cluster: current.Cluster, Epoch: current.Epoch, Number: current.Number, KeyID: secret.ID(), Taken: now.UTC().Truncate(time.Second)}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
	return m, f.Sync()
}

// write writes the two parts. The snapshot comes over the wire, so its length is known only when it is there: it waits in a
// file without a name.
func (a *Admin) write(ctx context.Context, f io.Writer, m *Manifest) error {
	snapshot, err := a.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	spool, err := os.CreateTemp(a.dir.path, "backup-")
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
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	out := tar.NewWriter(f)
	if err := out.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(text)), ModTime: m.Taken}); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: snapshotName, Mode: 0o600, Size: size, ModTime: m.Taken}); err != nil {
		return err
	}
	if _, err := io.Copy(out, spool); err != nil {
		return err
	}
	return out.Close()
}

func backupFault(doing string, err error) error {
	return &reason.Error{Code: reason.BackupUnusable, Doing: doing, Cause: err}
}

// readManifest reads the first part of a backup.
func readManifest(in *tar.Reader) (*Manifest, error) {
	h, err := in.Next()
	if err != nil {
		return nil, err
	}
	if h.Name != manifestName || h.Size > manifestMax {
		return nil, fmt.Errorf("it begins with %q, want %s", h.Name, manifestName)
	}
	var m Manifest
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	return &m, nil
}

// manifestMax is far more than a manifest has, bytes.
const manifestMax = 64 << 10

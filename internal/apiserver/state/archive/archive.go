// Package archive is the form of a backup: a tar file of two parts, of which the first says what the second is.
//
//	backup.json     Manifest
//	etcd.snapshot   what etcd sends as a snapshot, which ends with the SHA-256 of what is before
//
// It knows nothing of where the parts come from or go to, and owns no goroutine.
package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Names in the file.
const (
	manifestName = "backup.json"
	snapshotName = "etcd.snapshot"
)

const (
	// manifestMax is far more than a manifest has, bytes.
	manifestMax = 64 << 10
	// private is the mode of both parts, for who unpacks a backup by hand.
	private = 0o600
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

// Write writes a backup with a snapshot of size bytes.
func Write(to io.Writer, m *Manifest, snapshot io.Reader, size int64) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	out := tar.NewWriter(to)
	if err := out.WriteHeader(header(manifestName, int64(len(text)), m.Taken)); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if err := out.WriteHeader(header(snapshotName, size, m.Taken)); err != nil {
		return err
	}
	if _, err := io.CopyN(out, snapshot, size); err != nil {
		return err
	}
	return out.Close()
}

// header is that of a part. GNU's form has room for any size without records beside it, of which next takes none.
func header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Name: name, Mode: private, Size: size, ModTime: at, Format: tar.FormatGNU}
}

// Inspect reads a whole backup, and says what it is. The name is for errors, and known is the highest format that the caller knows.
// Errors: BackupUnusable when it is cut off or damaged, StateNewer when a later version has written it.
func Inspect(name string, from io.Reader, known int) (*Manifest, error) {
	doing, in := "read "+name, tar.NewReader(from)
	m, err := readManifest(in)
	if err != nil {
		return nil, &reason.Error{Code: reason.BackupUnusable, Doing: doing, Cause: err}
	}
	if m.Format > known {
		return nil, &reason.Error{
			Code: reason.StateNewer, Doing: doing, Cause: fmt.Errorf("it has format %d, and this version knows up to %d", m.Format, known),
			Hint: "use the version of tako that wrote it, or a later one",
		}
	}
	if err := checkSnapshot(in); err != nil {
		return nil, &reason.Error{Code: reason.BackupUnusable, Doing: doing, Cause: err}
	}
	return m, nil
}

// Snapshot returns the snapshot in a backup that Inspect has found good, and its size.
func Snapshot(from io.Reader) (io.Reader, int64, error) {
	in := tar.NewReader(from)
	if _, err := readManifest(in); err != nil {
		return nil, 0, err
	}
	h, err := next(in, snapshotName)
	if err != nil {
		return nil, 0, err
	}
	return in, h.Size, nil
}

// readManifest reads the first part.
func readManifest(in *tar.Reader) (*Manifest, error) {
	h, err := next(in, manifestName)
	if err != nil {
		return nil, err
	}
	if h.Size > manifestMax {
		return nil, fmt.Errorf("its %s has %d bytes, at most %d", manifestName, h.Size, manifestMax)
	}
	var m Manifest
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if m.Format < 1 {
		return nil, fmt.Errorf("its format is %d", m.Format)
	}
	return &m, nil
}

// next goes to the next part, which is a plain file: of one with holes a few bytes would stand for as much as anybody likes.
func next(in *tar.Reader, name string) (*tar.Header, error) {
	h, err := in.Next()
	if err != nil {
		return nil, err
	}
	if h.Name != name {
		return nil, fmt.Errorf("there is %q, want %s", h.Name, name)
	}
	if h.Typeflag != tar.TypeReg || h.PAXRecords != nil {
		return nil, fmt.Errorf("its %s is no plain file", name)
	}
	return h, nil
}

// checkSnapshot reads the second part and checks that it is what etcd has sent. Nothing comes after it.
func checkSnapshot(in *tar.Reader) error {
	h, err := next(in, snapshotName)
	if err != nil {
		return err
	}
	if h.Size < sha256.Size {
		return fmt.Errorf("its %s has %d bytes", snapshotName, h.Size)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, in, h.Size-sha256.Size); err != nil {
		return err
	}
	want, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, sum.Sum(nil)) {
		return fmt.Errorf("its %s is damaged: its SHA-256 is not the one at its end", snapshotName)
	}
	if h, err := in.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("there is something behind %s: %v", snapshotName, h), err)
	}
	return nil
}

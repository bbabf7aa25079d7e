package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// known is the highest format that the tests know.
const known = 1

// summed is a snapshot as etcd sends it.
func summed(content string) []byte {
	sum := sha256.Sum256([]byte(content))
	return append([]byte(content), sum[:]...)
}

// part is one of a file that somebody else has made.
type part struct {
	header  tar.Header
	content []byte
}

func made(tb testing.TB, parts ...part) []byte {
	tb.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, p := range parts {
		p.header.Size = int64(len(p.content))
		if err := out.WriteHeader(&p.header); err != nil {
			tb.Fatal(err)
		}
		if _, err := out.Write(p.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestComesBack(t *testing.T) {
	m := &Manifest{Format: known, Cluster: "c", Epoch: 2, Number: 3, KeyID: "k", Taken: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}
	snapshot := summed("content")
	var b bytes.Buffer
	if err := Write(&b, m, bytes.NewReader(snapshot), int64(len(snapshot))); err != nil {
		t.Fatal(err)
	}
	got, err := Inspect("b", bytes.NewReader(b.Bytes()), known)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
	in, size, err := Snapshot(&b)
	if err != nil || size != int64(len(snapshot)) {
		t.Fatalf("%d bytes, %v", size, err)
	}
	if back, err := io.ReadAll(in); err != nil || !bytes.Equal(back, snapshot) {
		t.Errorf("%q, %v", back, err)
	}
	if err := Write(io.Discard, m, bytes.NewReader(snapshot), int64(len(snapshot))+1); err == nil {
		t.Error("a snapshot that is cut off was written")
	}
}

// TestLargeSnapshot: tar's oldest form knows sizes up to 8 GiB, and a database may be larger.
func TestLargeSnapshot(t *testing.T) {
	const size = 20 << 30
	var b bytes.Buffer
	if err := Write(&b, &Manifest{Format: known}, bytes.NewReader(nil), size); !errors.Is(err, io.EOF) {
		t.Fatalf("want the end of what there is, got %v", err)
	}
	if _, got, err := Snapshot(&b); err != nil || got != size {
		t.Errorf("%d bytes, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	manifest := part{tar.Header{Name: manifestName}, []byte(`{"format":1}`)}
	snapshot := part{tar.Header{Name: snapshotName}, summed("content")}
	with := func(p part, change func(*part)) part {
		p.content = bytes.Clone(p.content)
		change(&p)
		return p
	}
	whole := made(t, manifest, snapshot)
	for name, c := range map[string]struct {
		b    []byte
		want reason.Code // 0 is none
	}{
		"good":                     {whole, 0},
		"nothing":                  {nil, reason.BackupUnusable},
		"no tar file":              {bytes.Repeat([]byte("x"), 2000), reason.BackupUnusable},
		"cut off":                  {whole[:len(whole)-1600], reason.BackupUnusable},
		"no manifest":              {made(t, snapshot), reason.BackupUnusable},
		"no snapshot":              {made(t, manifest), reason.BackupUnusable},
		"in another order":         {made(t, snapshot, manifest), reason.BackupUnusable},
		"more behind it":           {made(t, manifest, snapshot, snapshot), reason.BackupUnusable},
		"manifest of something":    {made(t, with(manifest, func(p *part) { p.content = []byte(`{"format":1,"more":1}`) }), snapshot), reason.BackupUnusable},
		"manifest without format":  {made(t, with(manifest, func(p *part) { p.content = []byte(`{}`) }), snapshot), reason.BackupUnusable},
		"manifest too large":       {made(t, with(manifest, func(p *part) { p.content = make([]byte, manifestMax+1) }), snapshot), reason.BackupUnusable},
		"of a later version":       {made(t, with(manifest, func(p *part) { p.content = []byte(`{"format":2}`) }), snapshot), reason.StateNewer},
		"snapshot too small":       {made(t, manifest, with(snapshot, func(p *part) { p.content = p.content[:31] })), reason.BackupUnusable},
		"snapshot damaged":         {made(t, manifest, with(snapshot, func(p *part) { p.content[0]++ })), reason.BackupUnusable},
		"sum damaged":              {made(t, manifest, with(snapshot, func(p *part) { p.content[len(p.content)-1]++ })), reason.BackupUnusable},
		"snapshot of another kind": {made(t, manifest, with(snapshot, func(p *part) { p.header.PAXRecords = map[string]string{"tako.x": "y"} })), reason.BackupUnusable},
	} {
		_, err := Inspect("b", bytes.NewReader(c.b), known)
		if c.want == 0 && err != nil || c.want != 0 && !reason.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// FuzzInspect reads what may be a backup: it is one that this version can restore, or refused with a code.
func FuzzInspect(f *testing.F) {
	manifest := part{tar.Header{Name: manifestName}, []byte(`{"format":1,"cluster":"c","epoch":1,"number":1,"keyID":"k","taken":"2026-11-21T08:00:00Z"}`)}
	snapshot := part{tar.Header{Name: snapshotName}, summed("content")}
	good := made(f, manifest, snapshot)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(made(f, manifest))
	f.Add(made(f, manifest, part{tar.Header{Name: snapshotName, Format: tar.FormatPAX, PAXRecords: map[string]string{"tako.x": "y"}}, summed("")}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Inspect("b", bytes.NewReader(b), known)
		if err != nil {
			if !reason.Is(err, reason.BackupUnusable) && !reason.Is(err, reason.StateNewer) {
				t.Errorf("refused without a code: %v", err)
			}
			return
		}
		if m.Format < 1 || m.Format > known {
			t.Errorf("taken: %+v", m)
		}
		in, size, err := Snapshot(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(in); err != nil || int64(len(content)) != size || size > int64(len(b)) {
			t.Errorf("a snapshot of %d bytes in %d: %v", size, len(b), err)
		}
	})
}

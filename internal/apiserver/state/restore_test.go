package state

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// server is what a server keeps, without the server: its etcd runs until the test ends.
type server struct {
	dir    string
	keys   *trust.Keys
	member *etcd.Member
	admin  *Admin
}

func start(t *testing.T, dir string) *server {
	t.Helper()
	d, err := Open(dir)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: d.Join("etcd")})
	must(t, err)
	t.Cleanup(member.Close)
	a, err := OpenAdmin(t.Context(), dir, etcd.Connection{})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	secret, _, err := MachineSecret(t.Context(), a.client.Client, d)
	must(t, err)
	keys, err := ClusterKeys(t.Context(), a.client.Client, secret, time.Now())
	must(t, err)
	_, _, err = Chain(t.Context(), a.client.Client, d, keys, time.Now())
	must(t, err)
	return &server{dir: dir, keys: keys, member: member, admin: a}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBackupAndRestore(t *testing.T) {
	s := start(t, t.TempDir())
	_, err := s.admin.client.KV.Put(t.Context(), "/tako/object", "kept")
	must(t, err)
	file := filepath.Join(t.TempDir(), "backup")
	m, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 || m.Cluster != s.keys.Cluster() || m.Epoch != 1 {
		t.Errorf("backup: %v, %v, %+v", st, err, m)
	}
	if _, err := s.admin.Backup(t.Context(), file, time.Now()); !reason.Is(err, reason.BackupUnusable) {
		t.Errorf("over another backup: %v", err)
	}
	_, err = s.admin.client.KV.Put(t.Context(), "/tako/object", "later")
	must(t, err)

	secret, root := filepath.Join(s.dir, secretName), filepath.Join(s.dir, trustDir, rootKeyName)
	dir := filepath.Join(t.TempDir(), "new")
	_, err = Restore{From: file, Dir: dir, Secret: secret, Roots: []string{root}}.Run(t.Context(), time.Now())
	must(t, err)
	again := start(t, dir)
	if again.keys.Cluster() != s.keys.Cluster() {
		t.Errorf("cluster %s, was %s", again.keys.Cluster(), s.keys.Cluster())
	}
	got, err := again.admin.client.KV.Get(t.Context(), "/tako/object")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "kept" {
		t.Errorf("object: %v, %v", got, err)
	}
	c, err := again.admin.Chain(t.Context())
	if err != nil || c.Current().Epoch != 2 || c.Current().Number != 2 {
		t.Errorf("trust: %+v, %v", c, err)
	}
}

// TestRestoreIsNotThePast: nobody who remembers what was after the backup takes the restored store for a continuation.
func TestRestoreIsNotThePast(t *testing.T) {
	s := start(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	_, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	later, err := s.admin.client.KV.Put(t.Context(), "/tako/object", "lost")
	must(t, err)
	dir := filepath.Join(t.TempDir(), "new")
	_, err = Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName), Roots: []string{filepath.Join(s.dir, trustDir, rootKeyName)}}.Run(t.Context(), time.Now())
	must(t, err)
	again := start(t, dir)
	for _, from := range []int64{2, later.Header.Revision, later.Header.Revision + 1, later.Header.Revision + 1_000_000} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		got := <-again.admin.client.Watch(ctx, "/tako/", clientv3.WithPrefix(), clientv3.WithRev(from))
		cancel()
		if got.CompactRevision == 0 {
			t.Errorf("a watch from %d goes on: %+v", from, got)
		}
	}
	put, err := again.admin.client.KV.Put(t.Context(), "/tako/object", "new")
	must(t, err)
	if put.Header.Revision <= later.Header.Revision+revisionBump/2 {
		t.Errorf("revision %d after %d", put.Header.Revision, later.Header.Revision)
	}
}

// TestRestoreRefused: what cannot be restored leaves everything as it was.
func TestRestoreRefused(t *testing.T) {
	s := start(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	_, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	whole, err := os.ReadFile(file)
	must(t, err)
	secret, root := filepath.Join(s.dir, secretName), filepath.Join(s.dir, trustDir, rootKeyName)
	other := filepath.Join(t.TempDir(), "other")
	must(t, trust.CreatePrivate(other, trust.NewSigningKey().EncodePEM()))
	stopped := stoppedDir(t)
	ready := t.TempDir() // for a server whose etcd is elsewhere: it has keys and no database
	must(t, os.Rename(anotherSecret(t), filepath.Join(ready, secretName)))
	for name, c := range map[string]struct {
		r    Restore
		want reason.Code
	}{
		"no machine secret":         {Restore{From: file, Roots: []string{root}}, reason.KeyFileDamaged},
		"no root key":               {Restore{From: file, Secret: secret}, reason.KeyFileDamaged},
		"a root key of no use":      {Restore{From: file, Secret: secret, Roots: []string{secret}}, reason.KeyFileDamaged},
		"a secret of no use":        {Restore{From: file, Secret: file, Roots: []string{root}}, reason.KeyFileDamaged},
		"into another's directory":  {Restore{From: file, Secret: secret, Roots: []string{root}, Dir: filled(t, "notes.txt")}, reason.DirectoryNotEmpty},
		"another's root key":        {Restore{From: file, Secret: secret, Roots: []string{other}}, reason.TrustRefused},
		"another's secret":          {Restore{From: file, Secret: anotherSecret(t), Roots: []string{root}}, reason.SealKeyUnknown},
		"no backup":                 {Restore{From: secret, Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"not there":                 {Restore{From: file + "x", Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"empty":                     {Restore{From: damaged(t, nil), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"half a backup":             {Restore{From: damaged(t, whole[:len(whole)/2]), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"without its last byte":     {Restore{From: damaged(t, whole[:len(whole)-tarEnd-1]), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"one bit in the middle":     {Restore{From: damaged(t, flipped(whole, len(whole)/2)), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"one bit at the end":        {Restore{From: damaged(t, flipped(whole, len(whole)-tarEnd-1)), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"one bit in the manifest":   {Restore{From: damaged(t, flipped(whole, 512)), Secret: secret, Roots: []string{root}}, reason.BackupUnusable},
		"of a later version":        {Restore{From: damaged(t, bytes.Replace(whole, []byte(`"format": 1`), []byte(`"format": 9`), 1)), Secret: secret, Roots: []string{root}}, reason.StateNewer},
		"over what is in use":       {Restore{From: file, Secret: secret, Roots: []string{root}, Dir: s.dir}, reason.AnotherServer},
		"over what was stopped":     {Restore{From: file, Secret: secret, Roots: []string{root}, Dir: stopped}, reason.TypeInTheWay},
		"over another's secret":     {Restore{From: file, Secret: secret, Roots: []string{root}, Dir: ready}, reason.TypeInTheWay},
		"with another's documents":  {Restore{From: file, Secret: secret, Roots: []string{root}, Trust: anotherTrust(t)}, reason.TrustRefused},
		"with documents of nothing": {Restore{From: file, Secret: secret, Roots: []string{root}, Trust: secret}, reason.TrustRefused},
	} {
		t.Run(name, func(t *testing.T) {
			if c.r.Dir == "" {
				c.r.Dir = filepath.Join(t.TempDir(), "new")
			}
			before := contents(t, c.r.Dir)
			_, missing := os.Stat(c.r.Dir)
			if _, err := c.r.Run(t.Context(), time.Now()); !reason.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.r.Dir == s.dir {
				return // its server writes
			}
			after := contents(t, c.r.Dir)
			if _, err := os.Stat(c.r.Dir); (err == nil) != (missing == nil) {
				t.Errorf("the directory: %v, was %v", err, missing)
			}
			if !maps.Equal(before, after) {
				t.Errorf("there was %v, and there is %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// tarEnd is what is behind the last byte of a backup's content: the rest of the block of 512 bytes, of which the sum of the snapshot
// takes the first 32, and the two empty blocks that end a tar file.
const tarEnd = 480 + 1024

// contents are the files of a directory, by their path in it.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		files[name] = string(b)
		return errors.Join(err, relErr)
	})
	must(t, err)
	return files
}

// filled is a directory with a file.
func filled(t *testing.T, name string) string {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
	return dir
}

// stoppedDir is the data directory of a server that does not run.
func stoppedDir(t *testing.T) string {
	dir := t.TempDir()
	t.Run("a server", func(t *testing.T) { start(t, dir) }) // its cleanups stop it
	return dir
}

// anotherTrust is a file with the trust documents of another cluster.
func anotherTrust(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "trust.json")
	t.Run("another server", func(t *testing.T) {
		s := start(t, t.TempDir())
		_, err := s.admin.Change(t.Context(), time.Now(), trust.BumpEpoch())
		must(t, err)
		c, err := s.admin.Chain(t.Context())
		must(t, err)
		b, err := c.Encode()
		must(t, err)
		must(t, os.WriteFile(path, b, 0o600))
	})
	return path
}

// TestRestoreOfAnotherYear: a fleet whose trust documents were made while the server's clock was ahead, or behind, is restored; what
// is made then is not dated before what hosts know already.
func TestRestoreOfAnotherYear(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for name, issued := range map[string]time.Time{"a year ahead": now.AddDate(1, 0, 0), "a year ago": now.AddDate(-1, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir())
			first, err := s.admin.Chain(t.Context())
			must(t, err)
			_, err = s.admin.Change(t.Context(), issued, trust.BumpEpoch())
			must(t, err)
			file := filepath.Join(t.TempDir(), "backup")
			_, err = s.admin.Backup(t.Context(), file, issued)
			must(t, err)
			// After the backup trust changes once more, and hosts know it.
			_, err = s.admin.Change(t.Context(), issued, trust.SetFallback("https://fallback.example"))
			must(t, err)
			c, err := s.admin.Chain(t.Context())
			must(t, err)
			documents, err := c.Encode()
			must(t, err)
			newer := filepath.Join(t.TempDir(), "trust.json")
			must(t, os.WriteFile(newer, documents, 0o600))
			dir := filepath.Join(t.TempDir(), "new")
			_, err = Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName), Roots: []string{filepath.Join(s.dir, trustDir, rootKeyName)}, Trust: newer}.Run(t.Context(), now)
			must(t, err)
			again := start(t, dir)
			c, err = again.admin.Chain(t.Context())
			must(t, err)
			got, latest := c.Current(), first.Current().Issued
			if issued.After(latest) {
				latest = issued
			}
			if got.Number != 4 || got.Epoch != 3 || got.Issued.Before(latest) || len(got.Fallback) != 1 {
				t.Errorf("number %d, epoch %d, issued %v (want not before %v)", got.Number, got.Epoch, got.Issued, latest)
			}
		})
	}
}

// TestRestoreAfterOneThatWasCutOff: what a killed restore has left is no database, for a server neither.
func TestRestoreAfterOneThatWasCutOff(t *testing.T) {
	s := start(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	_, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	dir := filepath.Join(t.TempDir(), "new")
	must(t, os.MkdirAll(filepath.Join(dir, unfinishedName, "member"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, unfinishedName, "snapshot"), []byte("half"), 0o600))
	_, err = Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName), Roots: []string{filepath.Join(s.dir, trustDir, rootKeyName)}}.Run(t.Context(), time.Now())
	must(t, err)
	if _, err := os.Lstat(filepath.Join(dir, unfinishedName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", unfinishedName, err)
	}
	if again := start(t, dir); again.keys.Cluster() != s.keys.Cluster() {
		t.Errorf("cluster %s, was %s", again.keys.Cluster(), s.keys.Cluster())
	}
}

func anotherSecret(t *testing.T) string {
	path := filepath.Join(t.TempDir(), secretName)
	_, _, err := trust.LoadOrCreateSecret(path)
	must(t, err)
	return path
}

// damaged is a file with the content.
func damaged(t *testing.T, content []byte) string {
	path := filepath.Join(t.TempDir(), "damaged")
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// flipped is a copy with another bit at a place.
func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x80
	return b
}

// TestLostMachineSecret: nothing is made in its place, which would only hide what is missing.
func TestLostMachineSecret(t *testing.T) {
	s := start(t, t.TempDir())
	path := filepath.Join(s.dir, secretName)
	must(t, os.Remove(path))
	if _, created, err := MachineSecret(t.Context(), s.admin.client.Client, s.admin.dir); created || !reason.Is(err, reason.KeyFileDamaged) {
		t.Errorf("created %t, %v", created, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is one: %v", err)
	}
}

// TestTrustGoesOffline takes the root key away, and changes trust documents with keys that are elsewhere.
func TestTrustGoesOffline(t *testing.T) {
	s := start(t, t.TempDir())
	now := time.Now()
	_, err := s.admin.RotateRoot(t.Context(), now)
	must(t, err)
	first, err := trust.LoadSigningKey(filepath.Join(s.dir, trustDir, rootKeyName))
	must(t, err)
	second := trust.NewSigningKey()
	proposal, err := s.admin.Change(t.Context(), now, trust.AddRoot(second.Public(), 2))
	if !reason.Is(err, reason.SignaturesMissing) {
		t.Fatalf("two of two, signed by one: %v", err)
	}
	proposal, err = proposal.Sign(second)
	must(t, err)
	_, err = s.admin.Accept(t.Context(), proposal, now)
	must(t, err)
	offline := filepath.Join(t.TempDir(), "root-key")
	_, err = s.admin.ExportRoot(t.Context(), offline, true)
	must(t, err)
	if _, err := os.Stat(filepath.Join(s.dir, trustDir, rootKeyName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the root key is still there: %v", err)
	}
	proposal, err = s.admin.Change(t.Context(), now, trust.BumpEpoch())
	if !reason.Is(err, reason.SignaturesMissing) {
		t.Fatalf("with no key at hand: %v", err)
	}
	for _, key := range []*trust.SigningKey{first, second} {
		proposal, err = proposal.Sign(key)
		must(t, err)
	}
	_, err = s.admin.Accept(t.Context(), proposal, now)
	must(t, err)
	c, err := s.admin.Chain(t.Context())
	if err != nil || c.Current().Epoch != 2 || c.Current().Number != 4 || c.Current().Root.Threshold != 2 {
		t.Errorf("%+v, %v", c.Current(), err)
	}
}

// TestRestoreByTwo: where two root keys must sign, both sign the new epoch, and neither comes to the server.
func TestRestoreByTwo(t *testing.T) {
	s := start(t, t.TempDir())
	now, dir := time.Now(), t.TempDir()
	second, offline := filepath.Join(dir, "second"), filepath.Join(dir, "first")
	key := trust.NewSigningKey()
	must(t, trust.SaveSigningKey(key, second))
	proposal, err := s.admin.Change(t.Context(), now, trust.AddRoot(key.Public(), 2))
	if !reason.Is(err, reason.SignaturesMissing) {
		t.Fatal(err)
	}
	proposal, err = proposal.Sign(key)
	must(t, err)
	_, err = s.admin.Accept(t.Context(), proposal, now)
	must(t, err)
	_, err = s.admin.ExportRoot(t.Context(), offline, true)
	must(t, err)
	file := filepath.Join(dir, "backup")
	_, err = s.admin.Backup(t.Context(), file, now)
	must(t, err)
	r := Restore{From: file, Dir: filepath.Join(dir, "new"), Secret: filepath.Join(s.dir, secretName), Roots: []string{offline}}
	if _, err = r.Run(t.Context(), now); !reason.Is(err, reason.SignaturesMissing) || !strings.Contains(reason.Of(err).Hint, "--root-key") {
		t.Fatalf("signed by one of two: %v", err)
	}
	r.Roots = append(r.Roots, second)
	_, err = r.Run(t.Context(), now)
	must(t, err)
	for path := range contents(t, r.Dir) {
		if filepath.Base(path) == rootKeyName {
			t.Errorf("there is %s", path)
		}
	}
}

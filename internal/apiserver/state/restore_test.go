package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

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

	secret, root := filepath.Join(s.dir, "machine-secret"), filepath.Join(s.dir, trustDir, rootKeyName)
	other := filepath.Join(t.TempDir(), "other")
	must(t, trust.CreatePrivate(other, trust.NewSigningKey().EncodePEM()))
	for name, c := range map[string]struct {
		r    Restore
		want reason.Code
	}{
		"no machine secret":   {Restore{From: file, Root: root}, reason.KeyFileDamaged},
		"no root key":         {Restore{From: file, Secret: secret}, reason.KeyFileDamaged},
		"another's root key":  {Restore{From: file, Secret: secret, Root: other}, reason.TrustRefused},
		"another's secret":    {Restore{From: file, Secret: anotherSecret(t), Root: root}, reason.SealKeyUnknown},
		"no backup":           {Restore{From: secret, Secret: secret, Root: root}, reason.BackupUnusable},
		"half a backup":       {Restore{From: half(t, file), Secret: secret, Root: root}, reason.BackupUnusable},
		"over what is in use": {Restore{From: file, Secret: secret, Root: root, Dir: s.dir}, reason.AnotherServer},
	} {
		if c.r.Dir == "" {
			c.r.Dir = filepath.Join(t.TempDir(), "new")
		}
		if _, err := c.r.Run(t.Context(), time.Now()); !reason.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := os.Stat(filepath.Join(c.r.Dir, "etcd", "member")); c.r.Dir != s.dir && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a database is left: %v", name, err)
		}
	}

	dir := filepath.Join(t.TempDir(), "new")
	_, err = Restore{From: file, Dir: dir, Secret: secret, Root: root}.Run(t.Context(), time.Now())
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

func anotherSecret(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "machine-secret")
	_, _, err := trust.LoadOrCreateSecret(path)
	must(t, err)
	return path
}

func half(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	must(t, err)
	path := filepath.Join(t.TempDir(), "half")
	must(t, os.WriteFile(path, b[:len(b)/2], 0o600))
	return path
}

// TestLostMachineSecret: nothing is made in its place, which would only hide what is missing.
func TestLostMachineSecret(t *testing.T) {
	s := start(t, t.TempDir())
	path := filepath.Join(s.dir, "machine-secret")
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
	must(t, s.admin.RotateRoot(t.Context(), now))
	first, err := trust.LoadSigningKey(filepath.Join(s.dir, trustDir, rootKeyName))
	must(t, err)
	second := trust.NewSigningKey()
	proposal, err := s.admin.Change(t.Context(), now, trust.AddRoot(second.Public(), 2))
	if !reason.Is(err, reason.SignaturesMissing) {
		t.Fatalf("two of two, signed by one: %v", err)
	}
	proposal, err = proposal.Sign(second)
	must(t, err)
	must(t, s.admin.Accept(t.Context(), proposal))
	offline := filepath.Join(t.TempDir(), "root-key")
	must(t, s.admin.ExportRoot(offline, true))
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
	must(t, s.admin.Accept(t.Context(), proposal))
	c, err := s.admin.Chain(t.Context())
	if err != nil || c.Current().Epoch != 2 || c.Current().Number != 4 || c.Current().Root.Threshold != 2 {
		t.Errorf("%+v, %v", c.Current(), err)
	}
}

package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// TestRotationCutOff ends a rotation at each of its steps: the key that is exported then is the one in force, and no copy of a key in
// force is lost. So it is for a restore from the directory's own keys.
func TestRotationCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		chain, key bool // what was written of the three: the staged key always, the chain, the key in its place
	}{
		"nobody knows the new key":       {},
		"the documents name the new key": {chain: true},
		"only the staged file is left":   {chain: true, key: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir())
			path := filepath.Join(s.dir, trustDir, rootKeyName)
			old, err := trust.LoadSigningKey(path)
			must(t, err)
			fresh, err := s.admin.stage()
			must(t, err)
			inForce := old
			if c.chain {
				chain, revision, err := s.admin.chain(t.Context())
				must(t, err)
				next, err := chain.Next(time.Now(), trust.RotateRoot(old.Public().ID(), fresh.Public()))
				must(t, err)
				for _, key := range []*trust.SigningKey{old, fresh} {
					next, err = next.Sign(key)
					must(t, err)
				}
				chain, err = chain.Extend([]trust.Signed{next})
				must(t, err)
				must(t, writeChain(t.Context(), s.admin.client.Client, chain, revision))
				inForce = fresh
			}
			if c.key {
				must(t, trust.WritePrivate(path, fresh.EncodePEM()))
			}
			// A restore with the keys as they are.
			file, dir := filepath.Join(t.TempDir(), "backup"), t.TempDir()
			_, err = s.admin.Backup(t.Context(), file, time.Now())
			must(t, err)
			must(t, os.CopyFS(filepath.Join(dir, trustDir), os.DirFS(filepath.Join(s.dir, trustDir))))
			for _, f := range []string{rootKeyName, rootKeyName + nextSuffix} {
				must(t, os.Chmod(filepath.Join(dir, trustDir, f), 0o600))
			}
			_, err = Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName)}.Run(t.Context(), time.Now())
			must(t, err)

			offline := filepath.Join(t.TempDir(), "root-key")
			id, err := s.admin.ExportRoot(t.Context(), offline, true)
			must(t, err)
			got, err := trust.LoadSigningKey(offline)
			if err != nil || id != inForce.Public().ID() || got.Public() != inForce.Public() {
				t.Errorf("exported %s, in force is %s (%v)", id, inForce.Public().ID(), err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a root key is still there: %v", err)
			}
			if _, err := os.Stat(path + nextSuffix); errors.Is(err, fs.ErrNotExist) != c.chain {
				t.Errorf("the staged key: %v", err)
			}
		})
	}
}

// TestRotationAfterOneThatWasCutOff: the staged key may come to be named by a write that is still under way, so it is not written over.
func TestRotationAfterOneThatWasCutOff(t *testing.T) {
	s := start(t, t.TempDir())
	staged, err := s.admin.stage()
	must(t, err)
	r, err := s.admin.RotateRoot(t.Context(), time.Now())
	must(t, err)
	if r.New != staged.Public().ID() || r.Number != 2 {
		t.Errorf("%+v, staged was %s", r, staged.Public().ID())
	}
	again, err := s.admin.RotateRoot(t.Context(), time.Now())
	must(t, err)
	if again.Old != r.New || again.New == r.New {
		t.Errorf("%+v after %+v", again, r)
	}
}

// TestVoidRootKey: a root key that was taken out is not exported as one, and what is proposed goes to others.
func TestVoidRootKey(t *testing.T) {
	s := start(t, t.TempDir())
	mine, err := trust.LoadSigningKey(s.admin.RootKeyPath())
	must(t, err)
	other := trust.NewSigningKey()
	proposal, err := s.admin.Change(t.Context(), time.Now(), trust.AddRoot(other.Public(), 1), trust.RemoveRoot(mine.Public().ID()))
	if !reason.Is(err, reason.SignaturesMissing) {
		t.Fatal(err)
	}
	proposal, err = proposal.Sign(other)
	must(t, err)
	proposal, err = proposal.Sign(trust.NewSigningKey())
	must(t, err)
	if others, err := s.admin.Accept(t.Context(), proposal, time.Now()); err != nil || len(others) != 1 {
		t.Fatalf("with a signature too many: %v, %v", others, err)
	}
	if _, err := s.admin.ExportRoot(t.Context(), filepath.Join(t.TempDir(), "key"), false); !reason.Is(err, reason.KeyFileDamaged) {
		t.Errorf("export: %v", err)
	}
	if _, err := s.admin.Change(t.Context(), time.Now(), trust.BumpEpoch()); !reason.Is(err, reason.SignaturesMissing) {
		t.Errorf("change: %v", err)
	}
}

// TestReplacedTrust: who writes to etcd does not become whom hosts believe.
func TestReplacedTrust(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, s *server, theirs *trust.Chain, keys *trust.Keys){
		"documents": func(t *testing.T, s *server, theirs *trust.Chain, _ *trust.Keys) {
			_, revision, err := s.admin.chain(t.Context())
			must(t, err)
			must(t, writeChain(t.Context(), s.admin.client.Client, theirs, revision))
		},
		"documents and seal": func(t *testing.T, s *server, theirs *trust.Chain, keys *trust.Keys) {
			_, revision, err := s.admin.chain(t.Context())
			must(t, err)
			must(t, writeChain(t.Context(), s.admin.client.Client, theirs, revision, clientv3.OpPut(pinKey, string(keys.SealPin(theirs.Pin())))))
		},
		"documents without seal": func(t *testing.T, s *server, theirs *trust.Chain, _ *trust.Keys) {
			_, revision, err := s.admin.chain(t.Context())
			must(t, err)
			must(t, writeChain(t.Context(), s.admin.client.Client, theirs, revision, clientv3.OpDelete(pinKey)))
		},
		"no documents": func(t *testing.T, s *server, _ *trust.Chain, _ *trust.Keys) {
			_, err := s.admin.client.Delete(t.Context(), chainKey)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir())
			// The best that he can do: cluster, authority and key of heads are ours, the root is his.
			theirs, err := trust.NewChain(trust.Genesis{Cluster: s.keys.Cluster(), CA: s.keys.CA(), Root: trust.NewSigningKey(), Heads: s.keys.Heads().Public()}, time.Now(), time.Time{})
			must(t, err)
			keys, err := trust.NewKeys(s.keys.Cluster(), time.Now())
			must(t, err)
			replace(t, s, theirs, keys)
			d, err := Open(t.TempDir())
			must(t, err)
			defer d.Close()
			_, _, err = Chain(t.Context(), s.admin.client.Client, d, s.keys, time.Now())
			if !reason.Is(err, reason.TrustRefused) && !reason.Is(err, reason.SealKeyUnknown) {
				t.Errorf("a server takes it: %v", err)
			}
			if _, err := s.admin.RotateRoot(t.Context(), time.Now()); err == nil {
				t.Error("the root key has signed it")
			}
		})
	}
}

// TestKeysOfAnotherCluster: documents that are pinned and name other keys than the server works with are refused.
func TestKeysOfAnotherCluster(t *testing.T) {
	now := time.Now()
	keys, err := trust.NewKeys(trust.NewClusterID(), now)
	must(t, err)
	others, err := trust.NewKeys(keys.Cluster(), now)
	must(t, err)
	for name, g := range map[string]trust.Genesis{
		"cluster":   {Cluster: trust.NewClusterID(), CA: keys.CA(), Heads: keys.Heads().Public()},
		"authority": {Cluster: keys.Cluster(), CA: others.CA(), Heads: keys.Heads().Public()},
		"heads":     {Cluster: keys.Cluster(), CA: keys.CA(), Heads: others.Heads().Public()},
		"":          {Cluster: keys.Cluster(), CA: keys.CA(), Heads: keys.Heads().Public()},
	} {
		g.Root = trust.NewSigningKey()
		c, err := trust.NewChain(g, now, time.Time{})
		must(t, err)
		if err := speaksFor(c, keys); (err == nil) != (name == "") {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// TestAdminOfALongPath: sockets have short paths, and are found all the same.
func TestAdminOfALongPath(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), strings.Repeat("long", 25)))
	if _, err := s.admin.Chain(t.Context()); err != nil {
		t.Error(err)
	}
}

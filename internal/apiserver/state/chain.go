package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// chainKey is where the trust documents are in etcd.
	chainKey = "/tako-trust/chain"
	// trustDir and rootKeyName are where the first root key is, until it is taken offline.
	trustDir    = "trust"
	rootKeyName = "root-key"
)

// Chain reads the trust documents, and makes number 1 when this is the first server of a new cluster. created says that it
// did: the root key is then in the data directory.
func Chain(ctx context.Context, etcd *clientv3.Client, d *Dir, keys *trust.Keys, now time.Time) (c *trust.Chain, created bool, err error) {
	c, _, err = readChain(ctx, etcd)
	if err != nil || c != nil {
		return c, false, err
	}
	root, err := d.rootKey()
	if err != nil {
		return nil, false, err
	}
	c, err = trust.NewChain(trust.Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: root, Heads: keys.Heads().Public()}, now, built())
	if err != nil {
		return nil, false, err
	}
	if err := writeChain(ctx, etcd, c, 0); err != nil {
		return nil, false, err
	}
	c, _, err = readChain(ctx, etcd)
	return c, true, err
}

// rootKey reads the root key of the data directory, and makes one where there is none.
func (d *Dir) rootKey() (*trust.SigningKey, error) {
	if err := os.MkdirAll(d.Join(trustDir), 0o700); err != nil {
		return nil, dataFault("make the directory of the root key", d.Join(trustDir), err)
	}
	key, err := trust.LoadSigningKey(d.rootKeyPath())
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = trust.NewSigningKey()
	return key, trust.CreatePrivate(d.rootKeyPath(), key.EncodePEM())
}

func (d *Dir) rootKeyPath() string { return d.Join(trustDir + "/" + rootKeyName) }

// readChain reads and verifies the trust documents; nil when there are none. What is in etcd is believed from number 1 on.
func readChain(ctx context.Context, etcd *clientv3.Client) (c *trust.Chain, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	got, err := etcd.Get(ctx, chainKey)
	if err != nil {
		return nil, 0, storeFault("read the trust documents", err)
	}
	if len(got.Kvs) == 0 {
		return nil, 0, nil
	}
	c, err = decodeChain(got.Kvs[0].Value)
	return c, got.Kvs[0].ModRevision, err
}

func decodeChain(b []byte) (*trust.Chain, error) {
	documents, err := trust.DecodeDocuments(b)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "read the trust documents", Cause: errors.New("there are none"), Hint: "restore a backup"}
	}
	pin, err := documents[0].Document.Hash()
	if err != nil {
		return nil, err
	}
	return trust.Verify(documents, pin, built())
}

// writeChain stores trust documents if nobody has changed them since revision; 0 is that there were none, and then somebody
// else's are as good.
func writeChain(ctx context.Context, etcd *clientv3.Client, c *trust.Chain, revision int64) error {
	b, err := c.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	done, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(chainKey), "=", revision)).Then(clientv3.OpPut(chainKey, string(b))).Commit()
	if err != nil {
		return storeFault("store the trust documents", err)
	}
	if !done.Succeeded && revision != 0 {
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: "store the trust documents", Hint: "somebody else has changed them: look again, then repeat"}
	}
	return nil
}

// built is when this program's source was committed, where the build noted it: no clock that says less is believed.
func built() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return t
			}
		}
	}
	return time.Time{}
}

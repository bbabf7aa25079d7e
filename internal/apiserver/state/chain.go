package state

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// trustPrefix is where everything is in etcd that is not of the API.
	trustPrefix = "/tako-trust/"
	// chainKey is where the trust documents are in etcd.
	chainKey = trustPrefix + "chain"
	// pinKey is where the hash of number 1 is, sealed under a key of the cluster: it binds the documents to it.
	pinKey = trustPrefix + "pin"
	// trustDir and rootKeyName are where the first root key is, until it is taken offline.
	trustDir    = "trust"
	rootKeyName = "root-key"
)

// Chain reads the trust documents, and makes number 1 when this is the first server of a new cluster. created says that it
// did: the root key is then in the data directory.
func Chain(ctx context.Context, etcd *clientv3.Client, d *Dir, keys *trust.Keys, now time.Time) (c *trust.Chain, created bool, err error) {
	c, _, err = readChain(ctx, etcd, keys)
	if err != nil || c != nil {
		return c, false, err
	}
	root, err := d.rootKey()
	if err != nil {
		return nil, false, err
	}
	c, err = trust.NewChain(trust.Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: root, Heads: keys.Heads().Public()}, now, trust.Built())
	if err != nil {
		return nil, false, err
	}
	if err := writeChain(ctx, etcd, c, 0, clientv3.OpPut(pinKey, string(keys.SealPin(c.Pin())))); err != nil {
		return nil, false, err
	}
	c, _, err = readChain(ctx, etcd, keys)
	return c, true, err
}

// rootKey reads the root key of the data directory, and makes one where there is none.
func (d *Dir) rootKey() (*trust.SigningKey, error) {
	if err := d.root.MkdirAll(trustDir, 0o700); err != nil {
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

// readChain reads and verifies the trust documents; nil when there are none. Who writes to etcd and has no key of the cluster's
// cannot have others believed.
func readChain(ctx context.Context, etcd *clientv3.Client, keys *trust.Keys) (c *trust.Chain, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	got, err := etcd.Get(ctx, trustPrefix, clientv3.WithPrefix()) // both at one revision
	if err != nil {
		return nil, 0, storeFault("read the trust documents", err)
	}
	var documents, pin []byte
	for _, kv := range got.Kvs {
		switch string(kv.Key) {
		case chainKey:
			documents, revision = kv.Value, kv.ModRevision
		case pinKey:
			pin = kv.Value
		}
	}
	if documents == nil && pin == nil {
		return nil, 0, nil
	}
	c, err = decodeChain(documents, pin, keys)
	return c, revision, err
}

// notOurs is what to do about trust documents that are not the cluster's.
const notOurs = "somebody else has written to etcd: find out who may, then restore a backup"

func decodeChain(b, sealedPin []byte, keys *trust.Keys) (*trust.Chain, error) {
	const doing = "read the trust documents"
	if b == nil || sealedPin == nil {
		return nil, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: errors.New("of the documents and the seal that binds them to the cluster one is missing"), Hint: notOurs}
	}
	pin, err := keys.OpenPin(sealedPin)
	if err != nil {
		return nil, err
	}
	documents, err := trust.DecodeDocuments(b)
	if err != nil {
		return nil, err
	}
	c, err := trust.Verify(documents, pin, trust.Built())
	if e := new(reason.Error); errors.As(err, &e) {
		e.Hint = notOurs
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return c, speaksFor(c, keys)
}

// speaksFor wants the trust documents in force to name the keys that the cluster works with: hosts would refuse those otherwise.
func speaksFor(c *trust.Chain, keys *trust.Keys) error {
	current := c.Current()
	heads := func(k trust.RoleKey) bool { return k.Role == trust.RoleHeads && k.Key == keys.Heads().Public() }
	if current.Cluster == keys.Cluster() && slices.Contains(current.CAs, string(keys.CA().CertificatePEM())) && slices.ContainsFunc(current.Keys, heads) {
		return nil
	}
	return &reason.Error{
		Code: reason.TrustRefused, Doing: "compare the trust documents with the cluster's keys",
		Cause: errors.New("they name another cluster, authority or key of heads"), Hint: notOurs,
	}
}

// writeChain stores trust documents if nobody has changed them since revision; 0 is that there were none, and then somebody
// else's are as good. more is stored with them.
func writeChain(ctx context.Context, etcd *clientv3.Client, c *trust.Chain, revision int64, more ...clientv3.Op) error {
	b, err := c.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	puts := append([]clientv3.Op{clientv3.OpPut(chainKey, string(b))}, more...)
	done, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(chainKey), "=", revision)).Then(puts...).Commit()
	if err != nil {
		return storeFault("store the trust documents", err)
	}
	if !done.Succeeded && revision != 0 {
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: "store the trust documents", Hint: "somebody else has changed them: look again, then repeat"}
	}
	return nil
}

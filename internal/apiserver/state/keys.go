package state

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// keysKey is where the cluster's keys are in etcd, sealed under the machine secret. It is beside what the API stores.
	keysKey = trustPrefix + "keys"
	// secretName is the machine secret in the data directory.
	secretName = "machine-secret"
	// keysMax bounds one exchange with etcd about them.
	keysMax = 10 * time.Second
)

// ClusterKeys reads the cluster's keys from etcd, and makes them when this is the first server of a new cluster.
func ClusterKeys(ctx context.Context, etcd *clientv3.Client, secret *trust.Ring, now time.Time) (*trust.Keys, error) {
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	for {
		got, err := etcd.Get(ctx, keysKey)
		if err != nil {
			return nil, keysFault("read", err)
		}
		if len(got.Kvs) == 0 {
			if err := makeKeys(ctx, etcd, secret, now); err != nil {
				return nil, err
			}
			continue // read what is there now: another server may have been first
		}
		keys, stale, err := trust.OpenKeys(secret, got.Kvs[0].Value)
		if err != nil || !stale {
			return keys, err
		}
		sealed, err := keys.Seal(secret)
		if err != nil {
			return nil, err
		}
		done, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(keysKey), "=", got.Kvs[0].ModRevision)).Then(clientv3.OpPut(keysKey, string(sealed))).Commit()
		if err != nil {
			return nil, keysFault("seal again", err)
		}
		if done.Succeeded {
			return keys, nil
		}
		// Another server was first, and a key that was missing is the one that it has made.
	}
}

// readKeys reads the cluster's keys, and makes none.
func readKeys(ctx context.Context, etcd *clientv3.Client, secret *trust.Ring) (*trust.Keys, error) {
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	got, err := etcd.Get(ctx, keysKey)
	if err != nil {
		return nil, keysFault("read", err)
	}
	if len(got.Kvs) == 0 {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "read the cluster's keys", Cause: errors.New("there are none"), Hint: "start the server once"}
	}
	keys, _, err := trust.OpenKeys(secret, got.Kvs[0].Value)
	return keys, err
}

// MachineSecret reads the machine secret, and makes one for a new cluster. Where there are keys already, a fresh secret would not
// open them: then a missing file is an error. created says that it was made.
func MachineSecret(ctx context.Context, etcd *clientv3.Client, d *Dir) (secret *trust.Ring, created bool, err error) {
	path := d.Join(secretName)
	ctx, cancel := context.WithTimeout(ctx, keysMax)
	defer cancel()
	got, err := etcd.Get(ctx, keysKey, clientv3.WithCountOnly())
	if err != nil {
		return nil, false, keysFault("look for", err)
	}
	if got.Count > 0 {
		secret, err = trust.LoadSecret(path)
		return secret, false, err
	}
	return trust.LoadOrCreateSecret(path)
}

func makeKeys(ctx context.Context, etcd *clientv3.Client, secret *trust.Ring, now time.Time) error {
	keys, err := trust.NewKeys(trust.NewClusterID(), now)
	if err != nil {
		return err
	}
	sealed, err := keys.Seal(secret)
	if err != nil {
		return err
	}
	_, err = etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(keysKey), "=", 0)).Then(clientv3.OpPut(keysKey, string(sealed))).Commit()
	if err != nil {
		return keysFault("store", err)
	}
	return nil
}

func keysFault(doing string, err error) error { return storeFault(doing+" the cluster's keys", err) }

func storeFault(doing string, err error) error {
	return &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err, Hint: "is etcd well?"}
}

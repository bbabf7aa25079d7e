package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"

	"tako.dev/tako/internal/reason"
)

const (
	dialMax = 10 * time.Second
	// A dead member is noticed after keepAlive and keepAliveMax; Kubernetes' own values.
	keepAlive, keepAliveMax = 30 * time.Second, 10 * time.Second
	// callMax bounds one message: etcd's default for lists is unlimited on its side.
	callMax = 64 << 20
)

// Connection says where a cluster is, and how it is entered.
type Connection struct {
	Endpoints []string // https://HOST:PORT, or unix:// of a Member
	CAFile    string   // PEM; needed with https
	CertFile  string   // PEM, with KeyFile: what the cluster knows this server by
	KeyFile   string
}

// Validate says what is wrong with it by itself, in words about flags; nothing when there is none. Errors: Usage.
func (c Connection) Validate() error {
	bad := func(cause error, hint string) error {
		return &reason.Error{Code: reason.Usage, Doing: "find the etcd cluster", Cause: cause, Hint: hint}
	}
	if len(c.Endpoints) == 0 && (c.CAFile != "" || c.CertFile != "" || c.KeyFile != "") {
		return bad(errors.New("--etcd-ca, --etcd-cert and --etcd-key say how a cluster is entered, and there is no --etcd-servers"), "name the cluster: --etcd-servers https://HOST:2379")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return bad(errors.New("of --etcd-cert and --etcd-key there is one"), "give both, or neither")
	}
	for _, e := range c.Endpoints {
		u, err := url.Parse(e)
		if err != nil || !slices.Contains([]string{"https", "http", "unix"}, u.Scheme) || u.Host+u.Path == "" || u.Scheme != "unix" && u.Port() == "" {
			return bad(fmt.Errorf("--etcd-servers: %q is no URL of a member", e), "it looks like https://10.0.0.1:2379; several are separated by commas")
		}
	}
	return nil
}

// Connect connects to a cluster and proves that it answers.
func Connect(ctx context.Context, c Connection) (*kubernetes.Client, error) {
	doing := "connect to etcd at " + strings.Join(c.Endpoints, ", ")
	config, err := c.tls()
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err, Hint: "see --etcd-ca, --etcd-cert and --etcd-key"}
	}
	client, err := kubernetes.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: config, DialTimeout: dialMax, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveMax,
		MaxCallRecvMsgSize: callMax, MaxCallSendMsgSize: callMax, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
	})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, dialMax)
		defer cancel()
		if _, err = client.KV.Get(ctx, "/", clientv3.WithKeysOnly(), clientv3.WithLimit(1)); err != nil {
			client.Close()
		}
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err, Hint: "is it running, and does it accept this server's certificate?"}
	}
	client.KV = worded{KV: client.KV, whose: "etcd at " + strings.Join(c.Endpoints, ", ")}
	return client, nil
}

func (c Connection) tls() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" {
		return nil, nil
	}
	return transport.TLSInfo{TrustedCAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}.ClientConfig()
}

// worded says in our words that a database has reached its quota, for an etcd whose disk is the business of others.
type worded struct {
	clientv3.KV
	whose string
}

// Put writes one key.
func (w worded) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	resp, err := w.KV.Put(ctx, key, value, opts...)
	return resp, w.say(err)
}

// Txn begins a transaction, which is how objects are written.
func (w worded) Txn(ctx context.Context) clientv3.Txn { return wordedTxn{Txn: w.KV.Txn(ctx), kv: w} }

func (w worded) say(err error) error {
	if isQuota(err) {
		return noQuota(w.whose, otherCure)
	}
	return err
}

type wordedTxn struct {
	clientv3.Txn
	kv worded
}

// If takes what must be so.
func (t wordedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cs...)
	return t
}

// Then takes what is done if it is.
func (t wordedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

// Else takes what is done if it is not.
func (t wordedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

// Commit does it.
func (t wordedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.Txn.Commit()
	return resp, t.kv.say(err)
}

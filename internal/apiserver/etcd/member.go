package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"tako.dev/tako/internal/reason"
)

const (
	// quotaDefault is etcd's own recommended maximum; a database of that size still fits the memory of a small server.
	quotaDefault = 2 << 30
	// startMax is far more than replaying the log of a full database takes.
	startMax = 2 * time.Minute
	// A single member elects itself, so it need not wait for the second that a network deserves: 100 ms save 0.9 s at start.
	tickMS, electionMS = 10, 100
	// Snapshots and what is kept for slow followers are memory; a single member has none.
	snapshotCount, catchUpEntries = 5_000, 500
	// socketPathMax is what fits into sun_path of unix(7), less the name.
	socketPathMax = 90
)

// MemberName is what a member calls itself. It is part of the data: another name is another member.
const MemberName = "tako"

// Options say where a member lives.
type Options struct {
	Dir        string       // absolute; made with mode 0700
	QuotaBytes int64        // of the database; default 2 GiB
	Log        *slog.Logger // default: nowhere
}

func (o Options) withDefaults() Options {
	if o.QuotaBytes == 0 {
		o.QuotaBytes = quotaDefault
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Member is a running etcd.
type Member struct {
	etcd    *embed.Etcd
	sockets string // directory of the sockets, if it is a temporary one
	url     string
	quiet   atomic.Bool // ends its log
	quota   int64       // bytes
	calls   calls       // of the clients that are attached
}

// Start starts a member that is the whole cluster, and returns when it serves.
func Start(ctx context.Context, opts Options) (*Member, error) {
	opts = opts.withDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fault("make directory", opts.Dir, err)
	}
	m := &Member{quota: opts.QuotaBytes}
	sockets, err := m.socketDir(opts.Dir)
	if err != nil {
		return nil, fault("make a directory for sockets", opts.Dir, err)
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "peer.sock")}
	m.url = client.String()
	// What a killed run has left.
	if err := errors.Join(remove(client.Path), remove(peer.Path)); err != nil {
		m.Close()
		return nil, fault("remove old sockets", sockets, err)
	}
	if m.etcd, err = embed.StartEtcd(config(opts, client, peer, newLogger(&m.quiet, opts.Log))); err != nil {
		m.Close()
		return nil, fault("start etcd", opts.Dir, err)
	}
	select {
	case <-m.etcd.Server.ReadyNotify():
		return m, nil
	case err = <-m.etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startMax):
		err = fmt.Errorf("it does not serve after %v", startMax)
	}
	m.Close()
	return nil, fault("start etcd", opts.Dir, err)
}

func config(opts Options, client, peer url.URL, log *zap.Logger) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = MemberName, filepath.Join(opts.Dir, "member")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	// Nobody listens for peers, of which there are none: etcd would do so on an abstract socket, which every user can reach.
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(MemberName)
	c.TickMs, c.ElectionMs = tickMS, electionMS
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	c.QuotaBackendBytes = opts.QuotaBytes
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return c
}

// socketDir is the directory of the sockets: that of the data, unless its path is too long for a socket.
func (m *Member) socketDir(dir string) (string, error) {
	if len(dir) <= socketPathMax {
		return dir, nil
	}
	var err error
	m.sockets, err = os.MkdirTemp("", "tako-etcd-")
	return m.sockets, err
}

// Endpoints are where a client of this host reaches the member.
func (m *Member) Endpoints() []string { return []string{m.url} }

// Failed tells why the member stopped by itself.
func (m *Member) Failed() <-chan error { return m.etcd.Err() }

// Close stops the member and waits for it.
func (m *Member) Close() {
	m.quiet.Store(true)
	m.calls.stop()
	if m.etcd != nil {
		m.etcd.Close()
	}
	if m.sockets != "" {
		_ = os.RemoveAll(m.sockets) // in the directory for temporary files, which somebody else tidies
	}
}

func remove(p string) error {
	if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func fault(doing, dir string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: doing + " " + dir, Cause: err, Hint: "the server's user must own the directory, and its file system must have room"}
}

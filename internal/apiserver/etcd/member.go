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
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

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
	// writableMax is how long it may take to say whether writes are taken: no longer than whoever checks the server waits.
	writableMax = time.Second
	// socketPathMax is what fits into sun_path of unix(7), less the name.
	socketPathMax = 90
)

// socketName is the socket of clients in the directory of the sockets.
const socketName = "client.sock"

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
	opts    Options
	sockets string // directory of the sockets, if it is a temporary one
	client  url.URL
	peer    url.URL
	log     *zap.Logger
	quiet   atomic.Bool // ends its log
	end     ending      // by itself
	calls   calls       // of the clients that are attached
	etcd    *embed.Etcd // nil when there is none any more; guarded by calls.mu
	reserve reserve
	coming  *semaphore.Weighted // bytes that are on their way to the database
	taken   atomic.Int64        // bytes that the database has taken since it was last made to write them
	// stuck is that the log has no next segment and gets none before the member is opened again.
	stuck     atomic.Bool
	overQuota atomic.Bool
}

// Start starts a member that is the whole cluster, and returns when it serves. It does not begin where the disk has no room for
// what etcd would write.
func Start(ctx context.Context, opts Options) (*Member, error) {
	opts = opts.withDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fault("make directory", opts.Dir, err)
	}
	if err := roomToStart(opts.Dir); err != nil {
		return nil, err
	}
	m := &Member{opts: opts, end: ending{done: make(chan struct{})}, reserve: reserve{path: databasePath(opts.Dir)}, coming: semaphore.NewWeighted(pendingMax)}
	m.log = newLogger(&m.quiet, opts.Log, &m.end)
	sockets, err := m.socketDir(opts.Dir)
	if err != nil {
		return nil, fault("make a directory for sockets", opts.Dir, err)
	}
	m.client = url.URL{Scheme: "unix", Path: filepath.Join(sockets, socketName)}
	m.peer = url.URL{Scheme: "unix", Path: filepath.Join(sockets, "peer.sock")}
	m.calls.ended, m.calls.mu = m.Err, newLock()
	m.calls.mu.Lock()
	err = m.openLocked(ctx)
	m.calls.mu.Unlock()
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// roomToStart says why a member cannot start; nil if it can.
func roomToStart(dir string) error {
	const doing = "start etcd in"
	need, err := needs(dir)
	if err != nil {
		return fault(doing, dir, err)
	}
	bytes, files, err := look(dir)
	if err != nil {
		return fault(doing, dir, err)
	}
	l := lack{of: scarceBytes, has: bytes, needs: need}
	switch {
	case bytes < need:
	case files >= 0 && files < shrinkFilesMin:
		l = lack{of: scarceFiles, has: files, needs: shrinkFilesMin}
	default:
		return nil
	}
	return &reason.Error{
		Code: reason.DiskFull, Doing: "start etcd", Cause: fmt.Errorf("the file system of %s has %v", dir, l),
		Hint: "make room on it and start again, which systemd does by itself; nothing that was acknowledged is lost",
	}
}

// openLocked starts etcd, and returns when it serves. When etcd ends itself meanwhile, what it has begun stays as it is, for the
// rest of the life of the process. calls.mu is held.
func (m *Member) openLocked(ctx context.Context) error {
	const doing = "start etcd in"
	ctx, cancel := context.WithTimeoutCause(ctx, startMax, fmt.Errorf("it does not serve after %v", startMax))
	defer cancel()
	// What a killed run has left.
	if err := errors.Join(remove(m.client.Path), remove(m.peer.Path)); err != nil {
		return fault("remove old sockets of", m.opts.Dir, err)
	}
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	starting := make(chan started, 1)
	go func() {
		e, err := embed.StartEtcd(config(m.opts, m.client, m.peer, m.log))
		starting <- started{e, err}
	}()
	var s started
	select {
	case s = <-starting:
	case <-m.end.done:
		return m.end.err
	}
	if s.err != nil {
		return fault(doing, m.opts.Dir, s.err)
	}
	m.etcd = s.etcd
	go func() {
		for err := range s.etcd.Err() { // until it is closed
			m.end.with(&reason.Error{Code: reason.StoreUnreachable, Doing: "run etcd", Cause: err})
		}
	}()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case <-m.end.done:
		return m.end.err
	case <-ctx.Done():
		return fault(doing, m.opts.Dir, context.Cause(ctx))
	}
	if err := m.reserve.extend(m.usedLocked()); err != nil {
		return fault("reserve room in", m.opts.Dir, err)
	}
	m.calls.server = v3rpc.NewQuotaKVServer(s.etcd.Server)
	return nil
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

// socketDir is the directory of the sockets: that of the data, unless its path is too long for a socket. A link in the place of the
// socket leads to it then.
func (m *Member) socketDir(dir string) (string, error) {
	if len(dir) <= socketPathMax {
		return dir, nil
	}
	var err error
	if m.sockets, err = os.MkdirTemp("", "tako-etcd-"); err != nil {
		return "", err
	}
	link := filepath.Join(dir, socketName)
	return m.sockets, errors.Join(remove(link), os.Symlink(filepath.Join(m.sockets, socketName), link))
}

// Endpoints are where a client of this host reaches the member.
func (m *Member) Endpoints() []string { return []string{m.client.String()} }

// Ended is closed when etcd has ended by itself; Err then says why. The process should end soon after: what etcd held it still
// holds.
func (m *Member) Ended() <-chan struct{} { return m.end.done }

// Err says why etcd has ended by itself, nil while it has not.
func (m *Member) Err() error {
	select {
	case <-m.end.done:
		return m.end.err
	default:
		return nil
	}
}

// Close stops the member and waits for it. One that has ended by itself is left as it is.
func (m *Member) Close() {
	m.quiet.Store(true)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.calls.mu.Lock()
		defer m.calls.mu.Unlock()
		m.closeLocked()
	}()
	select {
	case <-closed:
	case <-m.end.done:
	}
	if m.sockets != "" {
		_ = os.RemoveAll(m.sockets) // in the directory for temporary files, which somebody else tidies
	}
}

// closeLocked closes etcd, if there is one. No call is under way, and all further ones are refused. calls.mu is held.
func (m *Member) closeLocked() {
	m.calls.server = nil
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// usedLocked is how many bytes of its file the database uses. calls.mu is held.
func (m *Member) usedLocked() int64 {
	if m.etcd == nil {
		return 0
	}
	return m.etcd.Server.Backend().Size()
}

// room looks what there is for etcd. It reserves for the database what the file system can spare.
func (m *Member) room(ctx context.Context) (room, error) {
	if err := m.calls.mu.share(ctx); err != nil {
		return room{}, err
	}
	defer m.calls.mu.leave()
	bytes, files, err := look(m.opts.Dir)
	if err != nil {
		return room{}, err
	}
	used := m.usedLocked()
	r := room{bytes: bytes, files: files, reserved: m.reserve.left(used)}
	if l, ok := r.lacks(grow); ok && l.of == scarceReserved {
		if err := m.reserve.extend(used); err != nil {
			return room{}, err
		}
		r.reserved = m.reserve.left(used)
	}
	return r, nil
}

// short says why a write is not taken now; nil if it is.
func (m *Member) short(ctx context.Context, p purpose) error {
	if err := m.Err(); err != nil {
		return err
	}
	r, err := m.room(ctx)
	if err != nil {
		return fault("look for room in", m.opts.Dir, err)
	}
	if l, ok := r.lacks(p); ok {
		return noRoom(m.opts.Dir, l)
	}
	if p == grow && m.stuck.Load() {
		return noSegment(m.opts.Dir)
	}
	return nil
}

// admit waits until a write is no more than may be on its way, and says why it is not taken; done is to be called when it was.
func (m *Member) admit(ctx context.Context, p purpose, bytes int) (done func(), err error) {
	weight := min(int64(bytes), pendingMax)
	if err := m.coming.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	if err := m.short(ctx, p); err != nil {
		m.coming.Release(weight)
		return nil, err
	}
	return func() {
		m.coming.Release(weight)
		if m.taken.Add(weight) > pendingMax {
			m.taken.Store(0)
			m.commit(ctx)
		}
	}, nil
}

// commit makes the database write what it has taken, which it does by itself ten times a second.
func (m *Member) commit(ctx context.Context) {
	if m.calls.mu.share(ctx) != nil {
		return // it will soon do so by itself
	}
	defer m.calls.mu.leave()
	if m.etcd != nil {
		m.etcd.Server.Backend().ForceCommit()
	}
}

// Writable says why objects cannot be written now; nil if they can.
func (m *Member) Writable() error {
	if m.overQuota.Load() {
		return noQuota(ownDatabase, ownCure)
	}
	ctx, cancel := context.WithTimeout(context.Background(), writableMax)
	defer cancel()
	return m.short(ctx, grow)
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

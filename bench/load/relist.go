package load

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// fillBatch is how many keys are written in one transaction of etcd, which takes 128 operations as it comes.
	fillBatch = 128
	// fillers is how many of them are written at once: they wait for the disk together.
	fillers = 8
	// rangePage is how many keys a client of etcd reads at once: one answer is 2 MiB then, of the 4 that gRPC takes.
	rangePage = 10_000
	// etcdMax bounds all that is done to etcd in a row.
	etcdMax = 15 * time.Minute
)

// EntryBytes is what an entry holds, of ours and of the peers'.
const EntryBytes = 100

// Moves is what something moved, and how long that took.
type Moves struct {
	Bytes float64
	Took  time.Duration
}

// String is the measurement for the table.
func (m Moves) String() string {
	return fmt.Sprintf("%.3g MB in %v", m.Bytes/(1<<20), m.Took.Round(time.Millisecond/10))
}

// entryName is the name of an entry. All are equally long, as are their UIDs and contents: so one is made of another in whatever form a
// store has it.
func entryName(i int) string { return fmt.Sprintf("entry-%07d", i) }

func entryText(i int) string {
	digest := sha512.Sum512(binary.BigEndian.AppendUint64(nil, uint64(i))) // it cannot be compressed to much less than half
	return hex.EncodeToString(digest[:])[:EntryBytes]
}

// etcdOf is a client of the etcd of a server, with its address.
func etcdOf(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + address}, DialTimeout: serverStopMax, Logger: zap.NewNop()})
}

func socketOf(dir string) string { return filepath.Join(dir, "etcd", "client.sock") }

// FillStore puts entries into the store of a server, as ConfigMaps and as plain keys. To have the API make a million objects would take
// as long as all other rows together; the one that it does make is what the others are made of.
func (s *Server) FillStore(ctx context.Context, entries int) error {
	c := s.Client()
	defer c.Leave()
	body, err := entry(entryName(0), entryText(0))
	if err != nil {
		return err
	}
	if err := c.Post(ctx, ConfigMapsPath, body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcdMax)
	defer cancel()
	store, err := etcdOf(socketOf(s.dir))
	if err != nil {
		return err
	}
	defer store.Close()
	key, value, err := stored(ctx, store)
	if err != nil {
		return err
	}
	uid, err := c.uid(ctx, ConfigMapsPath+"/"+entryName(0))
	if err != nil {
		return err
	}
	return putAll(ctx, store, entries, func(i int) []clientv3.Op {
		is := bytes.ReplaceAll(value, []byte(entryName(0)), []byte(entryName(i)))
		is = bytes.ReplaceAll(is, []byte(entryText(0)), []byte(entryText(i)))
		is = bytes.ReplaceAll(is, []byte(uid), []byte(uuid.NewUUID()))
		all := []clientv3.Op{clientv3.OpPut(plainPrefix+entryName(i), entryText(i))}
		if i > 0 {
			all = append(all, clientv3.OpPut(strings.ReplaceAll(key, entryName(0), entryName(i)), string(is)))
		}
		return all
	})
}

// plainPrefix is where the plain keys are: the server keeps nothing there.
const plainPrefix = "/bench/"

// stored is the one object that there is, as it is stored.
func stored(ctx context.Context, store *clientv3.Client) (key string, value []byte, err error) {
	all, err := store.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		return "", nil, err
	}
	for _, kv := range all.Kvs {
		if strings.HasSuffix(string(kv.Key), "/"+entryName(0)) {
			return string(kv.Key), kv.Value, nil
		}
	}
	return "", nil, errors.New("the object that was made is not in the store")
}

// putAll writes entries.
func putAll(ctx context.Context, store *clientv3.Client, entries int, ops func(i int) []clientv3.Op) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range fillers {
		g.Go(func() error {
			for {
				var batch []clientv3.Op
				for len(batch) < fillBatch-1 {
					i := int(next.Add(1)) - 1
					if i >= entries {
						break
					}
					batch = append(batch, ops(i)...)
				}
				if len(batch) == 0 {
					return nil
				}
				if _, err := store.Txn(ctx).Then(batch...).Commit(); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// Relist has an informer read all entries, as it does at its start and whenever its watch has fallen behind.
func (s *Server) Relist(ctx context.Context, entries int) (Moves, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return Moves{}, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var read atomic.Int64
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return counting{raw, &read}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Moves{}, err
	}
	store := &filled{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), ready: make(chan struct{})}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", metav1.NamespaceDefault, fields.Everything())
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	start := time.Now()
	all.Go(func() { cache.NewReflector(lw, &core.ConfigMap{}, store, 0).RunWithContext(ctx) })
	select {
	case <-store.ready:
	case <-ctx.Done():
		return Moves{}, ctx.Err()
	}
	took := time.Since(start)
	if n := len(store.ListKeys()); n < entries {
		return Moves{}, fmt.Errorf("it has %d objects of %d", n, entries)
	}
	return Moves{float64(read.Load()), took}, nil
}

// filled is an informer's store that says when it was filled.
type filled struct {
	cache.Store
	once  sync.Once
	ready chan struct{}
}

// Replace takes in all objects.
func (f *filled) Replace(list []any, version string) error {
	defer f.once.Do(func() { close(f.ready) })
	return f.Store.Replace(list, version)
}

// counting counts what is read of a connection.
type counting struct {
	net.Conn
	read *atomic.Int64
}

// Read reads.
func (c counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// Rewatch has a client of etcd read all entries and watch what comes after, as it has to when what it had seen was compacted away.
func (s *Server) Rewatch(ctx context.Context, entries int) (Moves, error) {
	var read atomic.Int64
	between := filepath.Join(s.dir, "between.sock")
	proxy, err := net.Listen("unix", between)
	if err != nil {
		return Moves{}, err
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer proxy.Close()
	all.Go(func() { forward(&all, proxy, socketOf(s.dir), &read) })
	store, err := etcdOf(between)
	if err != nil {
		return Moves{}, err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	start := time.Now()
	have := make(map[string]string, entries)
	revision, from := int64(0), plainPrefix
	for more := true; more; {
		page, err := store.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(plainPrefix)), clientv3.WithLimit(rangePage), clientv3.WithRev(revision))
		if err != nil {
			return Moves{}, err
		}
		revision, more = page.Header.Revision, page.More
		for _, kv := range page.Kvs {
			have[string(kv.Key)] = string(kv.Value)
			from = string(kv.Key) + "\x00"
		}
	}
	watch := store.Watch(ctx, plainPrefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithCreatedNotify())
	if first := <-watch; first.Err() != nil {
		return Moves{}, first.Err()
	}
	took := time.Since(start)
	if len(have) != entries {
		return Moves{}, fmt.Errorf("it has %d keys of %d", len(have), entries)
	}
	return Moves{float64(read.Load()), took}, nil
}

// forward passes connections on, and counts what comes back. What it starts is in all, and ends with the listener's clients.
func forward(all *sync.WaitGroup, from net.Listener, to string, read *atomic.Int64) {
	for {
		near, err := from.Accept()
		if err != nil {
			return // it was closed
		}
		far, err := net.Dial("unix", to)
		if err != nil {
			_ = near.Close() // its client tells
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // whoever uses the connection tells why it ended
			_, _ = to.Close(), from.Close()
		}
		all.Go(func() { pass(far, near) })
		all.Go(func() { pass(near, counting{far, read}) })
	}
}

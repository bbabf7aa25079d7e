// Package naming answers for names on a host: by the DNS at local addresses, in files, and in the environment of tasks. All of it is from the host's own
// copy of the newest edition (package edition), which is kept on the disk, so it goes on while no server is reached and after a restart.
//
// Of the host's own instances the host itself knows best: what is ready here has a name at once, whatever the edition says.
//
//	servers  --Take-->  Store  --News-->  index of the edition  -+
//	instances of this host  --Ready-->  those that are ready    -+->  index that is answered from -> DNS, files, environment
//
// Run owns the goroutines that answer, write the files, and keep the edition; all have ended when it returns. The other methods may be called from any
// goroutine.
package naming

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/names/endpoints"
	"tako.dev/tako/internal/names/server"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// failedPause is how long after the files could not be written that is tried again.
	failedPause = 10 * time.Second
	// filesPause is the shortest between two writings of the files, and filesShare how many times as long as one has taken: with 10,000 endpoints they
	// have megabytes.
	filesPause, filesShare = 200 * time.Millisecond, 20
	// dirMode lets every program look into the directory of the files.
	dirMode = 0o755
)

// Where says where names are answered.
type Where struct {
	Addresses []netip.AddrPort // by the DNS, by UDP and TCP
	Endpoints string           // directory of the files; empty: none are written. The directory that holds it must be there
}

// Identity is whose host this is. *held.Identity is one.
type Identity interface {
	// Node is the host.
	Node() catalog.Node
	// Trust is the chain that is believed.
	Trust() *trust.Chain
}

// Options are what a Naming works with. Those without a default are required.
type Options struct {
	Where
	Root     *disk.Root // where Endpoints is
	StateDir string     // where the edition is kept
	Identity Identity
	Log      *slog.Logger // default: nowhere
}

// fileName is the file of the edition in the state directory.
const fileName = "names"

// Naming answers for names. Use New; a nil Naming answers nothing, and asks for nothing.
type Naming struct {
	opts   Options
	store  *edition.Store
	server *server.Server
	files  chan struct{} // holds one: the files may be old

	mu    sync.Mutex                 // guards what follows
	base  *names.Index               // what the edition says
	here  map[string]bool            // keys of the rows of the edition that are about instances of this host
	ready map[string]*names.Instance // of this host, by those keys; nil: not known yet
	shown *names.Index               // what is answered from; nil while there is no edition
}

// New takes up what an earlier run has kept, and starts nothing. It is nil where nothing is to be answered.
func New(o Options) (*Naming, error) {
	if len(o.Addresses) == 0 && o.Endpoints == "" {
		return nil, nil
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var servers []netip.Addr
	for _, a := range o.Addresses {
		servers = append(servers, a.Addr())
	}
	base, err1 := names.New(names.Options{Servers: servers})
	answering, err2 := server.New(server.Options{Rate: server.PublicRate(), Home: true}) // some of the addresses may be for others
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	n := &Naming{opts: o, store: edition.New(edition.Options{Cluster: o.Identity.Node().Cluster, Alone: true, Keys: func(now time.Time) catalog.Keys {
		return o.Identity.Trust().KeysOf(trust.RoleHeads, now)
	}}), server: answering, files: make(chan struct{}, 1), base: base, here: map[string]bool{}}
	news, err := n.store.Load(n.path(), time.Now())
	if err != nil {
		o.Log.Warn("the names of the last run are lost", "err", err)
	}
	n.know(news)
	return n, nil
}

// path is that of the file with the edition.
func (n *Naming) path() string { return filepath.Join(n.opts.StateDir, fileName) }

// Names is where the transfer leaves what comes; nil where nobody wants it.
func (n *Naming) Names() *client.Names {
	if n == nil {
		return nil
	}
	return &client.Names{Mark: n.store.Mark, Take: func(m *wire.Names) error {
		news, err := n.store.Take(m, time.Now())
		n.know(news)
		return err
	}}
}

// know takes in what another edition says.
func (n *Naming) know(news *edition.News) {
	if news == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	n.base, errs = news.Index(n.base)
	for _, err := range errs {
		n.opts.Log.Debug("a name is not served", "err", err)
	}
	for _, key := range news.Gone {
		delete(n.here, key)
	}
	for i := range news.Put {
		if delete(n.here, news.Put[i].Key); news.Put[i].Node == n.opts.Identity.Node().Name {
			n.here[news.Put[i].Key] = true
		}
	}
	n.showLocked()
}

// Ready says which instances of this host are ready.
func (n *Naming) Ready(all []*names.Instance) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = make(map[string]*names.Instance, len(all))
	for _, i := range all {
		n.ready[edition.InstanceKey(i.Namespace, i.Name)] = i
	}
	if n.store.Mark() != (wire.NamesMark{}) {
		n.showLocked()
	}
}

// showLocked has everybody see what there is now.
func (n *Naming) showLocked() {
	n.shown = n.base
	if n.ready != nil {
		edit := n.base.Edit()
		for key := range n.here {
			if n.ready[key] == nil {
				edition.Drop(edit, key)
			}
		}
		for _, i := range n.ready {
			if err := edit.PutInstance(i); err != nil {
				n.opts.Log.Debug("a name is not served", "err", err)
			}
		}
		n.shown = edit.Commit(n.base.Version())
	}
	n.server.Swap(n.shown)
	select {
	case n.files <- struct{}{}:
	default:
	}
}

// Environment is what an instance of a namespace learns of others; nothing before there is an edition.
func (n *Naming) Environment(namespace string, rotate uint64) []string {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	x := n.shown
	n.mu.Unlock()
	if x == nil {
		return nil
	}
	return endpoints.Environment(x, namespace, n.document(), rotate)
}

// document is the path of the file for programs, empty where none is written.
func (n *Naming) document() string {
	if n.opts.Endpoints == "" {
		return ""
	}
	return filepath.Join(n.opts.Root.Path(), n.opts.Endpoints, endpoints.DocumentFile)
}

// Run answers until the context ends. What goes wrong is logged, and tried again.
func (n *Naming) Run(ctx context.Context) error {
	if n == nil {
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		n.store.Keep(ctx, n.path(), func(err error) { n.opts.Log.Warn("keep the names", "err", err) })
	})
	all.Go(func() { n.server.Serve(ctx, n.opts.Addresses, n.opts.Log) })
	if n.opts.Endpoints != "" {
		all.Go(func() { n.write(ctx) })
	}
	<-ctx.Done()
	return nil
}

// write keeps the files as they should be.
func (n *Naming) write(ctx context.Context) {
	said := ""
	for {
		select {
		case <-n.files:
		case <-ctx.Done():
			return
		}
		n.mu.Lock()
		x := n.shown
		n.mu.Unlock()
		began := time.Now()
		err := n.writeOnce(ctx, x)
		if err != nil && ctx.Err() == nil {
			if text := err.Error(); text != said {
				said = text
				n.opts.Log.Warn("the files of endpoints are not written", "directory", n.opts.Endpoints, "err", err)
			}
			pause(ctx, failedPause)
			select {
			case n.files <- struct{}{}:
			default:
			}
			continue
		}
		said = ""
		pause(ctx, max(filesPause, filesShare*time.Since(began)))
	}
}

func (n *Naming) writeOnce(ctx context.Context, x *names.Index) error {
	d, err := n.opts.Root.Dir(n.opts.Endpoints)
	if err == nil {
		err = d.Close()
	} else {
		_, err = durable.Mkdir(ctx, n.opts.Root, durable.MkdirSpec{Path: n.opts.Endpoints, Mode: dirMode, UID: durable.Keep, GID: durable.Keep})
	}
	if err != nil {
		return err
	}
	_, err = endpoints.Write(ctx, n.opts.Root, n.opts.Endpoints, x)
	return err
}

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

package instances

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

// retryPause is how long after a runtime has failed it is begun with again.
const retryPause = 5 * time.Second

// Means are what a host runs instances with.
type Means struct {
	Runtimes    []run.Kind // that run their tasks
	Directories []string   // of the host, that they may mount
	Devices     []string   // directories that say which hardware the host has, see package run/cdi
}

// Options of a Keeper.
type Options struct {
	StateDir string
	Boot     string     // the kernel's boot ID
	Runtimes []run.Kind // that there may be
	Devices  []string   // directories that say which hardware there is, see package run/cdi
	// Objects has the images that are named by digest; nil: nobody fetches any.
	Objects *content.Objects
	// Open opens what is sealed in a template, and Clean takes the values of secrets out of what is told.
	Open  func(catalog.Sealed) ([]byte, error)
	Clean func(string) string
	// Changed is called when what Told returns has changed, Note for what the history is to have, and Trouble for what goes wrong with the Keeper
	// itself. They must not block for long.
	Changed func()
	Note    func(store.Happening)
	Trouble func(doing string, err error)
	// Ready is told which instances are ready whenever that may have changed, once it is known what is wanted. Services is what an instance of a namespace learns
	// of others by its environment, as NAME=VALUE; another number tells it of others. Neither may block. Default: nobody is told, and nothing.
	Ready    func([]*names.Instance)
	Services func(namespace string, rotate uint64) []string
}

// Wanted is what a host is to have, and what it is.
type Wanted struct {
	Instances []catalog.Instance
	Templates []catalog.Template
	Offers    wire.Offers
	Node      string
	Labels    map[string]string
}

// Keeper keeps the instances of a host. Its methods may be called from any goroutine.
type Keeper struct {
	opts    Options
	records *records
	machine *core.Machine
	images  *images
	heard   atomic.Int64 // run.Moment of the newest report that the server which leads has heard
	hungry  atomic.Bool  // something waits for that

	bell chan struct{} // has something while there is a queue; room for one
	shared

	// What follows belongs to Run's goroutine.
	wanted   Wanted
	secrets  map[string]*catalog.Template // by layer
	begun    bool                         // with the runtimes
	runtimes map[workload.Runtime]*runtime
	lanes    map[lane][]func(context.Context)
	unsaved  map[string]error // why the record of an instance could not be written
	strange  []string         // directories of no record, until it is known whether somebody wants them
	asked    map[run.ID]chan<- run.Status
	probes   uint32         // the number of the last program that was run for a probe
	starts   chan struct{}  // room for those that are being started
	work     sync.WaitGroup // everything that Run has started
}

// shared is what others than Run's goroutine look at.
type shared struct {
	mu     sync.Mutex // guards what follows
	queue  []func()   // work for Run's goroutine; bounded by what may be under way
	told   []wire.Instance
	echoes core.Echoes
	reach  string         // where instances are asked; empty: not known
	broken string         // what was told last of files about devices that cannot be read
	untold error          // what is to be told of them
	shut   []func() error // give the runtimes back
	usage
}

// New makes a Keeper of what is in the state directory; it starts nothing.
func New(opts Options) (*Keeper, error) {
	if opts.StateDir == "" || opts.Boot == "" || opts.Open == nil || opts.Clean == nil || opts.Changed == nil || opts.Note == nil || opts.Trouble == nil {
		return nil, errors.New("instances: an option is missing")
	}
	return &Keeper{opts: opts, records: &records{dir: filepath.Join(opts.StateDir, "instances")}, machine: core.New(), images: newImages(opts.Objects), bell: make(chan struct{}, 1),
		secrets: map[string]*catalog.Template{}, runtimes: map[workload.Runtime]*runtime{}, lanes: map[lane][]func(context.Context){},
		unsaved: map[string]error{}, asked: map[run.ID]chan<- run.Status{}, starts: make(chan struct{}, startsMax)}, nil
}

// Want says what the host is to have from now on. Nothing is begun or ended before it was called.
func (k *Keeper) Want(w Wanted) { k.post(func() { k.want(w) }) }

// Echo is what the answer to a report that is made now may have, for Heard.
func (k *Keeper) Echo() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.echoes.Next(now(), rand.Uint64())
}

// Heard notes that the server which leads has heard the report with an echo: it knew of this host at some time after that was made. When that
// is told says nothing, as the answer may have waited on its way, and the agent may have stood still.
func (k *Keeper) Heard(echo uint64) {
	k.mu.Lock()
	at, known := k.echoes.Of(echo)
	if known = known && int64(at) > k.heard.Load(); known {
		k.heard.Store(int64(at))
	}
	k.mu.Unlock()
	if known && k.hungry.Load() {
		k.post(func() { k.step(nil) })
	}
}

// Hungry reports whether something waits for Heard.
func (k *Keeper) Hungry() bool { return k.hungry.Load() }

// Told is what is told of the instances, by UID.
func (k *Keeper) Told() []wire.Instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.told)
}

// post hands work to Run's goroutine. It never blocks.
func (k *Keeper) post(f func()) {
	k.mu.Lock()
	k.queue = append(k.queue, f)
	k.mu.Unlock()
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// Run keeps the instances until the context ends. It may be called once.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer k.close()
	defer k.work.Wait()
	defer cancel()
	if err := k.restore(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if at, ok := k.machine.WakeAt(); ok {
			timer.Reset(max(at.Sub(now()), 0))
		}
		select {
		case <-k.bell:
			k.mu.Lock()
			queue := k.queue
			k.queue = nil
			k.mu.Unlock()
			for _, f := range queue {
				f()
			}
			k.open(ctx)
			k.carryOn(ctx)
		case <-timer.C:
			k.step(nil)
			k.carryOn(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// restore takes up what an earlier run has left.
func (k *Keeper) restore(ctx context.Context) error {
	list, strange, err := k.records.read(func(uid string, err error) { k.opts.Trouble("read the record of instance "+uid, err) })
	if err != nil {
		return err
	}
	k.strange = strange
	if len(list) == 0 {
		return nil
	}
	k.step(core.Node{Runtimes: k.kinds()})
	k.step(core.Restored{Records: list})
	k.open(ctx)
	return nil
}

func (k *Keeper) kinds() (names []workload.Runtime) {
	for _, r := range k.opts.Runtimes {
		names = append(names, r.Name)
	}
	return names
}

// want has the machine know what is wanted.
func (k *Keeper) want(w Wanted) {
	k.wanted = w
	k.mu.Lock()
	k.reach = w.Offers.Address
	k.mu.Unlock()
	o := &w.Offers
	k.step(core.Node{Runtimes: k.kinds(), Fit: fit.Node{Name: w.Node, Labels: w.Labels, Architecture: o.Arch, Capacity: fit.Amounts{CPU: o.CPU, Memory: o.Memory, Disk: o.Disk},
		Devices: o.Devices, Directories: o.Directories, Runtimes: runtimesOf(o)}})
	k.secrets = map[string]*catalog.Template{}
	for i := range w.Templates {
		t := &w.Templates[i]
		k.secrets[catalog.TemplateLayer(t.Namespace, t.Revision)] = t
	}
	k.images.want(w.Templates)
	list := make([]core.Wanted, len(w.Instances))
	for i, in := range w.Instances {
		list[i].Instance = in
		layer := catalog.TemplateLayer(in.Namespace, in.Revision)
		switch t := k.secrets[layer]; {
		case t == nil:
			list[i].Unread = &reason.Error{Code: reason.StateCorrupt, Doing: "read layer " + layer, Cause: errors.New("it is not here"), Hint: "it is fetched again when a server can be reached"}
		case len(t.Spec.Tasks) == 0: // one of which this version does not know all
			list[i].Unread = &reason.Error{Code: reason.LaterVersion, Doing: "read layer " + layer, Hint: "bring tako-agent on this host up to date"}
		default:
			list[i].Template = &t.Spec
		}
	}
	k.step(core.Desired{Instances: list})
	for _, uid := range k.strange {
		if !slices.ContainsFunc(w.Instances, func(i catalog.Instance) bool { return i.UID == uid }) {
			k.forget(uid)
		}
	}
	k.strange = nil
	k.name()
}

// runtimesOf are the runtimes that a host offers.
func runtimesOf(o *wire.Offers) (names []workload.Runtime) {
	for _, name := range o.Runtimes {
		names = append(names, workload.Runtime(name))
	}
	return names
}

// now is the time of the kernel's boot clock.
func now() run.Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // cannot fail with a valid clock and pointer
	}
	return run.Moment(ts.Nano())
}

// runtime is one that is open.
type runtime struct{ run.Runtime }

// open begins with the runtimes, when there is something to run.
func (k *Keeper) open(ctx context.Context) {
	if k.begun || len(k.machine.Told()) == 0 {
		return
	}
	k.begun = true
	for _, kind := range k.opts.Runtimes {
		k.work.Go(func() { k.follow(ctx, kind) })
	}
}

// follow opens a runtime, and tells of what it has, and of what becomes of it. What there is comes first, as a whole; so nothing is told that is
// older. What fails is tried again.
func (k *Keeper) follow(ctx context.Context, kind run.Kind) {
	var r *runtime
	for ctx.Err() == nil {
		var err error
		if r == nil {
			r, err = k.opened(kind)
		}
		if err == nil {
			err = k.listen(ctx, kind.Name, r)
		}
		if err != nil && ctx.Err() == nil {
			k.opts.Trouble("follow what runtime "+string(kind.Name)+" runs", err)
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

// opened opens a runtime. It is given back when Run ends.
func (k *Keeper) opened(kind run.Kind) (*runtime, error) {
	rt, shut, err := kind.Open(filepath.Join(k.opts.StateDir, "runtimes", strings.ToLower(string(kind.Name))))
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.shut = append(k.shut, shut)
	k.mu.Unlock()
	r := &runtime{rt}
	k.post(func() { k.runtimes[kind.Name] = r })
	return r, nil
}

// listen tells of what a runtime has until the context ends, or something fails.
func (k *Keeper) listen(ctx context.Context, name workload.Runtime, r *runtime) error {
	list, err := r.List(ctx)
	if err != nil {
		return err
	}
	k.post(func() { k.found(ctx, name, r, list) })
	return r.Run(ctx, func(s run.Status) { k.post(func() { k.changed(name, s) }) })
}

// found hands on what a runtime has, without what was run for probes: who has asked is gone.
func (k *Keeper) found(ctx context.Context, name workload.Runtime, r *runtime, list []run.Status) {
	tasks := list[:0:0]
	for _, s := range list {
		if !isProbe(s.ID) {
			tasks = append(tasks, s)
			continue
		}
		k.probes = max(k.probes, s.ID.Attempt)
		if _, open := k.asked[s.ID]; !open {
			k.work.Go(func() { k.clear(ctx, r, s.ID) })
		}
	}
	k.step(core.Found{Runtime: name, Attempts: tasks})
}

func (k *Keeper) changed(name workload.Runtime, s run.Status) {
	if isProbe(s.ID) {
		if asker, open := k.asked[s.ID]; open && s.Phase == run.Ended {
			delete(k.asked, s.ID)
			asker <- s // it has room
		}
		return
	}
	k.step(core.Changed{Runtime: name, Status: s})
}

// close gives the runtimes back; what they run goes on.
func (k *Keeper) close() {
	for _, shut := range k.shut {
		if err := shut(); err != nil {
			k.opts.Trouble("close a runtime", err)
		}
	}
	if err := k.records.close(); err != nil {
		k.opts.Trouble("close the records of instances", err)
	}
}

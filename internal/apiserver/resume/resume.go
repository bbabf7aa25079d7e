// Package resume lets a watch go on where it was after the server was started again.
//
// The watch cache of the library begins with what is there when it is filled. Whoever asks for what happened before that is told
// that this is too long ago, and lists everything again, and after a restart of the server that is everybody at once. etcd still
// knows what happened. So such a watch is served in two parts:
//
//	etcd       from the version that the client has, until everything up to the present has been told
//	the cache  from the version at which the first part ended, for the rest of its life
//
// etcd tells changes in the order of their versions, one for each, and the cache gives what is younger than the version that it is
// asked for: so nothing is left out between the two and nothing comes twice. What etcd has forgotten too is answered as before.
//
// Each watch that is served so has one goroutine, which belongs to the watch: Stop ends it and waits for it, and the end of the
// request's context ends it too.
package resume

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"tako.dev/tako/internal/apiserver/stream"
)

// progressEvery is how often etcd is asked how far it has told everything, until it has: as often as the library's cache asks.
const progressEvery = 100 * time.Millisecond

// resultsMax is how many events wait for a client who is slower than they come: as many as the library lets wait of a watch of etcd.
// Behind it the cache has room for some more, and ends the watch when that is full.
const resultsMax = 100

// Storage is a storage with a watch cache whose watches may begin before the cache did.
type Storage struct {
	storage.Interface
	store storage.Interface
}

// New puts the storage below a cache beside it.
func New(cached, store storage.Interface) Storage { return Storage{cached, store} }

// Watch watches from the version that the client has.
func (s Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	cached, err := s.Interface.Watch(ctx, key, opts)
	if err != nil || !fromThePast(opts) {
		return cached, err
	}
	// The cache says at once that it does not reach back so far.
	select {
	case first, open := <-cached.ResultChan():
		if !open {
			return cached, nil
		}
		return s.relay(ctx, key, opts, cached, first), nil
	default:
		return cached, nil
	}
}

// fromThePast says whether a watch asks for everything since a version, and not for the present first.
func fromThePast(o storage.ListOptions) bool {
	return o.ResourceVersion != "" && o.ResourceVersion != "0" && (o.SendInitialEvents == nil || !*o.SendInitialEvents)
}

// expired says whether an event says that a version is too long ago.
func expired(e watch.Event) bool {
	status, is := e.Object.(*metav1.Status)
	return is && e.Type == watch.Error && status.Reason == metav1.StatusReasonExpired
}

// relay is a watch that is served by several, one after the other.
type relay struct {
	results chan watch.Event
	cancel  context.CancelFunc
	done    chan struct{}
}

var _ watch.Interface = (*relay)(nil)

// ResultChan returns the events. It is closed when the watch ends.
func (r *relay) ResultChan() <-chan watch.Event { return r.results }

// Stop ends the watch and waits for its goroutine.
func (r *relay) Stop() {
	r.cancel()
	<-r.done
}

// relay serves a watch of which the cache has said something already.
func (s Storage) relay(ctx context.Context, key string, opts storage.ListOptions, cached watch.Interface, first watch.Event) *relay {
	ctx, cancel := context.WithCancel(ctx)
	r := &relay{results: make(chan watch.Event, resultsMax), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer close(r.results)
		defer cancel()
		if expired(first) {
			cached.Stop()
			if cached = s.catchUp(ctx, key, opts, r); cached == nil {
				return
			}
		} else if !r.send(ctx, first) {
			cached.Stop()
			return
		}
		defer cached.Stop()
		r.pass(ctx, cached)
	}()
	return r
}

// send hands an event to the client; false when he is gone.
func (r *relay) send(ctx context.Context, e watch.Event) bool {
	select {
	case r.results <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass hands on what a watch tells, until it ends.
func (r *relay) pass(ctx context.Context, from watch.Interface) {
	for {
		select {
		case e, open := <-from.ResultChan():
			if !open || !r.send(ctx, e) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// catchUp tells what happened before the cache began, and returns the cache's watch of what comes after it. nil is that the watch is
// over, also when etcd does not answer: the client begins another where this one ended.
func (s Storage) catchUp(ctx context.Context, key string, opts storage.ListOptions, r *relay) watch.Interface {
	present, err := s.store.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil
	}
	opts.ProgressNotify = true
	ctx = stream.Own(ctx)
	past, err := s.store.Watch(ctx, key, opts)
	if err != nil {
		return nil
	}
	defer past.Stop()
	opts.ProgressNotify = false
	if opts.ResourceVersion = s.tellUntil(ctx, present, past, r); opts.ResourceVersion == "" {
		return nil
	}
	cached, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil
	}
	return cached
}

// tellUntil hands on what a watch of etcd tells, until it has told everything up to a version. It returns the version that it got
// to, "" when the watch is over before.
func (s Storage) tellUntil(ctx context.Context, present uint64, past watch.Interface, r *relay) string {
	ask := time.NewTicker(progressEvery)
	defer ask.Stop()
	for {
		select {
		case e, open := <-past.ResultChan():
			if !open {
				return ""
			}
			// A bookmark only says how far this is: of the present the client hears from the cache.
			if e.Type != watch.Bookmark && !r.send(ctx, e) {
				return ""
			}
			at, err := s.Versioner().ObjectResourceVersion(e.Object)
			if e.Type == watch.Error || err != nil {
				return ""
			}
			if at >= present {
				return strconv.FormatUint(at, 10)
			}
		case <-ask.C:
			if err := s.store.RequestWatchProgress(ctx); err != nil {
				return ""
			}
		case <-ctx.Done():
			return ""
		}
	}
}

// Package stream gives watches of etcd streams of their own. etcd's client lets all watches share one, and etcd tells a stream how far it is only
// when that is true of all watches on it:
//
//   - A watch that was begun after the newest revision, which is any that was begun after a list while nobody writes, keeps all others on the stream from
//     hearing how far etcd is until somebody writes. A cache that has listed a little earlier then never becomes fresh: on a quiet fleet a server that
//     starts was not ready until the next change.
//   - The answer may reach a watch that was begun on the stream after it was given, and would tell that one that it has been told everything before it
//     has been told anything.
package stream

import (
	"context"
	"crypto/rand"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// name is that of a value that etcd's client is given with a watch: watches with the same values share a stream.
const name = "tako-watch"

// Own is a context with which one watch is begun on a stream that no other watch has. The same context asks how far etcd is on it.
func Own(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, name, rand.Text())
}

// Each is a storage each watch of which has its own stream. Of several watches that are open at a time only the one that was begun last can ask
// how far etcd is: it is for a cache, which has one.
func Each(store storage.Interface) storage.Interface { return &each{Interface: store} }

type each struct {
	storage.Interface
	newest atomic.Pointer[open] // nil while none is open
}

// open is a watch with its stream.
type open struct {
	watch.Interface
	of     *each
	stream metadata.MD
}

// Watch begins a watch on a new stream.
func (e *each) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx = Own(ctx)
	w, err := e.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	o := &open{w, e, md}
	e.newest.Store(o)
	return o, nil
}

// Stop ends the watch, and its stream with it.
func (o *open) Stop() {
	o.of.newest.CompareAndSwap(o, nil) // before: a request for a stream that has ended would begin it anew
	o.Interface.Stop()
}

// RequestWatchProgress asks how far etcd is. The answer is an event of the newest watch; where none is open nobody is there to hear it, and the one
// that is begun next says it by itself.
func (e *each) RequestWatchProgress(ctx context.Context) error {
	o := e.newest.Load()
	if o == nil {
		return nil
	}
	return e.Interface.RequestWatchProgress(metadata.NewOutgoingContext(ctx, o.stream))
}

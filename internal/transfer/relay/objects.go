package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	transfercore "tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
)

const (
	// objectMax is the largest object: as large as a server takes.
	objectMax = 1 << 30
	// objectTime is how long all of one may take: a gigabyte over a line of 300 kB/s.
	objectTime = time.Hour
)

// object is one that is kept, or comes in.
type object struct {
	body *growing
	size int64
}

// view is an object for one call.
type view struct {
	object
	wait func(at int64) error
}

// Object is part of server.Content.
func (c contents) Object(ctx context.Context, of server.Showing, key catalog.Digest, digest content.Digest) (server.Object, error) {
	name := core.ObjectName(digest.String())
	for ctx.Err() == nil {
		o, first := c.keptObject(name), false
		if o == nil {
			value, asked, err := c.relay.flights.join(ctx, name, func(ctx context.Context, x *flight) {
				c.fetchObject(ctx, x, name, client.ObjectRequest{Digest: digest, Key: key, Head: of.Head})
			})
			if err != nil {
				c.count(kindObject, asked)
				return nil, err
			}
			if o, first = value.(*object), asked; !o.body.use() {
				continue // it has ended in this moment
			}
		}
		c.count(kindObject, first)
		return &view{*o, func(at int64) error { return o.body.wait(ctx, at) }}, nil
	}
	return nil, context.Cause(ctx)
}

// keptObject is an object that is kept, in use; nil when there is none. Its digest was verified before it was kept, and is verified by the host.
func (c contents) keptObject(name string) *object {
	f := c.relay.cache.open(name)
	if f == nil {
		return nil
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close() // it is damaged in any case
		c.relay.cache.drop(name, err)
		return nil
	}
	return &object{whole(f, st.Size()), st.Size()}
}

// Size is part of server.Object.
func (v *view) Size() int64 { return v.size }

// Close is part of server.Object.
func (v *view) Close() error {
	v.body.release()
	return nil
}

// ReadAt is part of server.Object. It returns what is there, at least a byte.
func (v *view) ReadAt(p []byte, at int64) (int, error) {
	r := reader{v.body, at, v.wait}
	return r.Read(p)
}

// fetchObject brings an object in, and settles the flight when it begins to come.
func (c contents) fetchObject(ctx context.Context, x *flight, name string, r client.ObjectRequest) {
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	f := &fetchingObject{contents: c, name: name, flight: x, request: r, sum: sha256.New()}
	err := f.run(ctx)
	if f.object == nil {
		x.settle(nil, err)
		return
	}
	g := f.object.body
	defer g.release()
	if err == nil {
		err = c.relay.cache.keep(name, g.file)
	} else {
		c.relay.cache.abandon(name)
		c.relay.opts.Log.Warn("fetch an object from a server", "object", r.Digest.String(), "err", err)
	}
	g.end(err)
}

// fetchingObject is one object that comes in.
type fetchingObject struct {
	contents
	name    string
	flight  *flight
	request client.ObjectRequest
	object  *object // nil before it begins
	sum     hash.Hash
}

// run asks until all has come, and verifies it.
func (f *fetchingObject) run(ctx context.Context) error {
	var backoff transfercore.Backoff
	for failures := 0; ; {
		from := f.relay.servers.forContent(time.Now())
		was := f.request.From
		err := f.more(ctx, from)
		if err == nil && f.request.From == f.object.size {
			if sum := hashed(f.sum); sum != f.request.Digest.String() {
				return f.wrong(from, fmt.Errorf("what came for object %s has the digest %s", f.request.Digest, sum))
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f.request.From > was {
			failures = 0 // it gets on
			if err == nil {
				continue
			}
		}
		e := reason.Of(err)
		if failures++; failures > failuresMax || err != nil && (e.Code == reason.TransferWrong || e.Entry().HTTP < 500) {
			if err == nil {
				err = &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch object " + f.request.Digest.String(), Cause: errors.New("it does not get on")}
			}
			return err
		}
		if !pause(ctx, backoff.Next(f.relay.random())) {
			return context.Cause(ctx)
		}
	}
}

// more takes what comes of one call.
func (f *fetchingObject) more(ctx context.Context, from *client.Upstream) error {
	size, body, err := from.Object(ctx, f.request)
	if err != nil {
		return err
	}
	defer body.Close()
	if f.object == nil {
		if size > objectMax {
			return f.wrong(from, fmt.Errorf("object %s has %d bytes, at most %d are allowed", f.request.Digest, size, objectMax))
		}
		file, err := f.relay.cache.create(f.name)
		if err != nil {
			return err
		}
		f.object = &object{newGrowing(file), size}
		f.flight.settle(f.object, nil)
	} else if size != f.object.size {
		return f.wrong(from, fmt.Errorf("object %s had %d bytes, and now %d", f.request.Digest, f.object.size, size))
	}
	n, err := io.Copy(io.MultiWriter(f.object.body, f.sum), io.LimitReader(body, size-f.request.From))
	f.request.From += n
	f.relay.metrics.fetched.Add(float64(n))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // the server has cut it off, to be taken up again
	}
	return err
}

// hashed is a sum as the text of a digest.
func hashed(h hash.Hash) string { return "sha256:" + fmt.Sprintf("%x", h.Sum(nil)) }

package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// contents answer calls for content with what was kept, or with what a server says: asked with the head that the host has shown, once for
// all hosts that want the same at that time. What has a hash is verified, and what is missing is asked for, alone.
type contents struct{ relay *Relay }

var _ server.Content = contents{}

// Kinds of what is wanted, for metrics.
const (
	kindSync   = "sync"
	kindPart   = "part"
	kindList   = "list"
	kindObject = "object"
)

// partsTime is how long a call for parts may take: one call, and another one to another server.
const partsTime = 2 * time.Minute

// List is part of server.Content.
func (c contents) List(ctx context.Context, of server.Showing) ([]byte, error) {
	good := func(data []byte) bool { return catalog.ListRoot(data) == of.Root }
	name := core.ListName(of.Root)
	if data := c.relay.cache.read(name, wire.ReplyMax, good); data != nil {
		c.relay.metrics.hits.WithLabelValues(kindList).Inc()
		return data, nil
	}
	found, first, err := c.relay.flights.join(ctx, name, func(ctx context.Context, x *flight) {
		data, err := c.ask(ctx, of, wire.CatalogLayer, []catalog.Digest{of.Root}, func(_ catalog.Digest, data []byte) bool { return good(data) })
		if err == nil && data[of.Root] == nil {
			err = &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + of.Who.Name, Cause: fmt.Errorf("there is no catalog %s", of.Root)}
		}
		if err == nil {
			c.relay.cache.write(name, data[of.Root])
		}
		x.settle(data[of.Root], err)
	})
	c.count(kindList, first)
	if err != nil {
		return nil, err
	}
	return found.([]byte), nil
}

// count counts what was kept, or was on its way already, as hits.
func (c contents) count(kind string, asked bool) {
	if asked {
		c.relay.metrics.misses.WithLabelValues(kind).Inc()
	} else {
		c.relay.metrics.hits.WithLabelValues(kind).Inc()
	}
}

// hashes says whether data has a hash, as nodes of tries and bodies have.
func hashes(hash catalog.Digest, data []byte) bool { return sha256.Sum256(data) == hash }

// Nodes is part of server.Content.
func (c contents) Nodes(ctx context.Context, of server.Showing, at catalog.Layer, wanted []catalog.Digest) (func(catalog.Digest) ([]byte, bool, error), error) {
	parts, missing := map[catalog.Digest][]byte{}, []catalog.Digest(nil)
	for _, hash := range wanted {
		if data := c.part(of, at, hash); data != nil {
			parts[hash] = data
		} else {
			missing = append(missing, hash)
		}
	}
	c.relay.metrics.hits.WithLabelValues(kindPart).Add(float64(len(parts)))
	if len(missing) > 0 {
		came, err := c.missing(ctx, of, at, missing)
		if err != nil && len(parts) == 0 {
			return nil, err
		}
		for hash, data := range came { // what did not come is asked for again
			parts[hash] = data
		}
	}
	return func(hash catalog.Digest) ([]byte, bool, error) {
		data, found := parts[hash]
		return data, found, nil
	}, nil
}

// part is what was kept of a layer.
func (c contents) part(of server.Showing, at catalog.Layer, hash catalog.Digest) []byte {
	return c.relay.cache.read(core.PartName(at.ID, of.Who.UID, hash), wire.FrameMax, func(data []byte) bool { return hashes(hash, data) })
}

// missing asks for what was not kept of a layer, and keeps what comes.
func (c contents) missing(ctx context.Context, of server.Showing, at catalog.Layer, wanted []catalog.Digest) (map[catalog.Digest][]byte, error) {
	name := core.PartsName(at.ID, of.Who.UID, wanted)
	found, first, err := c.relay.flights.join(ctx, name, func(ctx context.Context, x *flight) {
		came, err := c.ask(ctx, of, at.ID, wanted, hashes)
		for hash, data := range came {
			c.relay.cache.write(core.PartName(at.ID, of.Who.UID, hash), data)
		}
		x.settle(came, err)
	})
	if n := float64(len(wanted)); first {
		c.relay.metrics.misses.WithLabelValues(kindPart).Add(n)
	} else {
		c.relay.metrics.hits.WithLabelValues(kindPart).Add(n)
	}
	if err != nil {
		return nil, err
	}
	return found.(map[catalog.Digest][]byte), nil
}

// ask asks a server for what has certain hashes. One that sends something else is blamed, and another one is asked.
func (c contents) ask(ctx context.Context, of server.Showing, layer string, wanted []catalog.Digest, good func(catalog.Digest, []byte) bool) (map[catalog.Digest][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partsTime)
	defer cancel()
	var err error
	for range c.relay.opts.Servers {
		from := c.relay.servers.forContent(time.Now())
		var items [][]byte
		if items, err = from.Nodes(ctx, wire.NodesRequest{Head: of.Head, Layer: layer, Hashes: wanted}); err != nil {
			return nil, err
		}
		found := map[catalog.Digest][]byte{}
		for i, data := range items {
			c.relay.metrics.fetched.Add(float64(len(data)))
			if len(data) > 0 && good(wanted[i], data) {
				found[wanted[i]] = data
			} else if len(data) > 0 {
				err = c.wrong(from, fmt.Errorf("what came for %s of layer %s has another hash", wanted[i], layer))
			}
		}
		if err == nil {
			return found, nil
		}
	}
	return nil, err
}

// wrong blames a server that has sent what nobody asked for.
func (c contents) wrong(from *client.Upstream, why error) error {
	err := &reason.Error{Code: reason.TransferWrong, Doing: "fetch from server " + from.Address(), Cause: why}
	c.relay.opts.Log.Warn("do not believe a server", "err", err)
	c.relay.metrics.wrong.Inc()
	c.relay.servers.blame(from, time.Now())
	return err
}

// Body is part of server.Content: the way to the key is asked for by hash.
func (c contents) Body(ctx context.Context, of server.Showing, at catalog.Layer, key catalog.Digest) ([]byte, error) {
	fetch := func(hash catalog.Digest) ([]byte, error) {
		find, err := c.Nodes(ctx, of, at, []catalog.Digest{hash})
		if err != nil {
			return nil, err
		}
		data, found, err := find(hash)
		if err == nil && !found {
			return nil, &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + of.Who.Name, Cause: errors.New("the server has let go what it is made of"), After: time.Second}
		}
		return data, err
	}
	digest, found, err := catalog.Lookup(at.Root, key, fetch)
	if err != nil || !found {
		return nil, err
	}
	return fetch(digest)
}

package client

import (
	"context"
	"errors"
	"io"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// syncMax is how long one request for a difference or a snapshot may go on. It is taken up again where it was.
const syncMax = 10 * time.Minute

var errEnded = errors.New("the answer has ended before its last part")

// sync asks for a difference, and feeds its parts to the machine at the pace at which they are stored.
func (c *Client) sync(ctx context.Context, e core.Sync) {
	limited, cancel := context.WithTimeout(ctx, syncMax)
	defer cancel()
	c.peers.asking("")
	if c.layerAtHand(limited, &e) {
		return
	}
	done := c.fromPeers(ctx, e.ID, e.Request.Head, func(p *server, list []byte) (bool, error) {
		r := e
		r.Request.List = list
		return c.syncWith(limited, p, &r, true)
	})
	if done {
		return
	}
	if _, err := c.syncWith(limited, c.lines.at(e.Source), &e, false); err != nil {
		c.failed(ctx, e.ID, err)
	}
}

// syncWith asks one server, or aside of them a peer, and reports whether any of the answer has come.
func (c *Client) syncWith(ctx context.Context, s *server, e *core.Sync, aside bool) (begun bool, err error) {
	last := false
	err = stream(ctx, s, wire.PathSync, e.Request, silenceMax, func() {}, func(p *wire.SyncPart) error {
		begun, last = true, p.Last || p.Kind == wire.SyncUnknownBase
		if !c.send(ctx, core.PartCame{ID: e.ID, Part: *p, Aside: aside}) || last {
			return io.EOF
		}
		return nil
	})
	switch {
	case last:
		return true, nil
	case errors.Is(err, io.EOF):
		err = &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch layer " + e.Request.Layer, Cause: errEnded}
	}
	return begun, err
}

// nodes asks for what has certain hashes.
func (c *Client) nodes(ctx context.Context, e core.Nodes) {
	c.peers.asking("")
	list := c.listThatCame(&e.Request)
	if list == nil {
		list = c.listAtHand(ctx, &e.Request)
	}
	if list != nil {
		c.send(ctx, core.NodesCame{ID: e.ID, Reply: wire.NodesReply{Items: [][]byte{list}}, Aside: true})
		return
	}
	done := e.Request.Layer != wire.CatalogLayer && c.fromPeers(ctx, e.ID, e.Request.Head, func(p *server, list []byte) (bool, error) {
		r := e.Request
		r.List = list
		var reply wire.NodesReply
		err := p.exchange(ctx, wire.PathNodes, r, wire.ReplyMax, &reply)
		if err == nil {
			c.send(ctx, core.NodesCame{ID: e.ID, Reply: reply, Aside: true})
		}
		return false, err
	})
	if done {
		return
	}
	var reply wire.NodesReply
	if err := c.lines.at(e.Source).exchange(ctx, wire.PathNodes, e.Request, wire.ReplyMax, &reply); err != nil {
		c.failed(ctx, e.ID, err)
		return
	}
	c.send(ctx, core.NodesCame{ID: e.ID, Reply: reply})
}

// listThatCame is a catalog list that has come along with its head; nil where it has not.
func (c *Client) listThatCame(r *wire.NodesRequest) []byte {
	list := c.came.Load()
	if list == nil || r.Layer != wire.CatalogLayer || len(r.Hashes) != 1 || catalog.ListRoot(*list) != r.Hashes[0] {
		return nil
	}
	return *list
}

// failed tells the machine of a request without an answer, unless it was ended from here.
func (c *Client) failed(ctx context.Context, id uint64, err error) {
	if ctx.Err() != nil {
		return
	}
	c.opts.Log.Info("fetch from the server", "err", err)
	c.doubt(err)
	c.send(ctx, core.Failed{ID: id, Err: err, After: PauseOf(err), Garbled: errors.Is(err, errGarbled)})
}

// doubt asks for trust documents when an error may be because of old ones.
func (c *Client) doubt(err error) {
	if reason.Is(err, reason.CertificateRefused) {
		poke(c.trust)
	}
}

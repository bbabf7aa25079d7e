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
	if c.layerAtHand(limited, &e) {
		return
	}
	last := false
	err := stream(limited, c.lines.at(e.Source), wire.PathSync, e.Request, silenceMax, func() {}, func(p *wire.SyncPart) error {
		last = p.Last || p.Kind == wire.SyncUnknownBase
		if !c.send(limited, core.PartCame{ID: e.ID, Part: *p}) || last {
			return io.EOF
		}
		return nil
	})
	if last {
		return
	}
	if errors.Is(err, io.EOF) {
		err = &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch layer " + e.Request.Layer, Cause: errEnded}
	}
	c.failed(ctx, e.ID, err)
}

// nodes asks for what has certain hashes.
func (c *Client) nodes(ctx context.Context, e core.Nodes) {
	list := c.listThatCame(&e.Request)
	if list == nil {
		list = c.listAtHand(ctx, &e.Request)
	}
	if list != nil {
		c.send(ctx, core.NodesCame{ID: e.ID, Reply: wire.NodesReply{Items: [][]byte{list}}})
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
	c.send(ctx, core.Failed{ID: id, Err: err, After: reason.Of(err).After})
}

// doubt asks for trust documents when an error may be because of old ones.
func (c *Client) doubt(err error) {
	if reason.Is(err, reason.CertificateRefused) {
		poke(c.trust)
	}
}

package client

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// sizeSlack is what a layer of a place may have above what the head says of all of them: as the machine has it.
const sizeSlack = 4 << 20

// hand is what is at hand besides servers, and is looked into before one of them is asked: the order and the place that were brought last, and
// the locations that have answered last.
type hand struct {
	mu      sync.Mutex // guards what follows
	order   *place.Order
	places  []placed // at most one that was brought, and one of each location that the trust documents name
	brought []byte   // the list that a peer has brought last; nil: none
}

// placed is a place with what may be read of it.
type placed struct {
	*place.Place
	extra uint64 // bytes of layers that statements there are about
	found string // the address of the location, as the trust documents name it; empty where a person has brought it
}

// keep has an order at hand, in place of another one.
func (h *hand) keep(o *place.Order) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.order
	h.order = o
	if old == nil {
		return nil
	}
	return old.Close()
}

// put has a place at hand, in place of the one that was there or was brought before.
func (h *hand) put(p placed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = append(slices.DeleteFunc(h.places, func(q placed) bool { return q.found == p.found }), p)
}

// forget drops a location that does not answer: to wait for it would cost the others their time.
func (h *hand) forget(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = slices.DeleteFunc(h.places, func(q placed) bool { return q.found == address })
}

// keepFound drops what the host has found itself, but for some locations.
func (h *hand) keepFound(addresses []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = slices.DeleteFunc(h.places, func(q placed) bool { return q.found != "" && !slices.Contains(addresses, q.found) })
}

// close gives everything back, when nothing is read from it any more.
func (h *hand) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.order != nil {
		_ = h.order.Close() // it was only read
	}
	h.order, h.places, h.brought = nil, nil, nil
}

// all is what is at hand now.
func (h *hand) all() []placed {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.places)
	if h.order != nil {
		all = append(all, placed{Place: h.order.Place, extra: h.order.Statement.Bytes})
	}
	return all
}

// listAtHand is a catalog list of a place; nil where none has it.
func (c *Client) listAtHand(ctx context.Context, r *wire.NodesRequest) []byte {
	if r.Layer != wire.CatalogLayer || len(r.Hashes) != 1 {
		return nil
	}
	if list := c.hand.list(r.Hashes[0]); list != nil {
		return list
	}
	for _, p := range c.hand.all() {
		list, err := p.List(ctx, r.Hashes[0])
		if err == nil {
			return list
		}
		c.unread(err)
	}
	return nil
}

// layerAtHand feeds the machine with a layer of a place, as a snapshot; false where none has it.
func (c *Client) layerAtHand(ctx context.Context, e *core.Sync) bool {
	most := uint64(sizeSlack)
	if _, h, err := catalog.DecodeHead(e.Request.Head); err == nil {
		most += min(h.Bytes, ^most)
	}
	for _, p := range c.hand.all() {
		fed := false
		err := p.Layer(ctx, e.Request.Target, e.Request.Cursor, most+min(p.extra, ^most), func(part wire.SyncPart) error {
			fed = true
			if !c.send(ctx, core.PartCame{ID: e.ID, Part: part, Aside: true}) {
				return ctx.Err()
			}
			return nil
		})
		switch {
		case err == nil:
			return true
		case fed:
			c.failed(ctx, e.ID, err)
			return true
		}
		c.unread(err)
	}
	return false
}

func (c *Client) unread(err error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, context.Canceled) {
		c.opts.Log.Info("read what is at hand", "err", err)
	}
}

// brought is an event that somebody waits for the machine's word on.
type brought struct {
	event core.Event
	said  chan error // room for one
}

// bring feeds the machine, and returns why it does not believe what came.
func (c *Client) bring(ctx context.Context, e core.Event) error {
	b := brought{event: e, said: make(chan error, 1)}
	select {
	case c.brought <- b:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-b.said:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heed is the loop's part of bring.
func (c *Client) heed(ctx context.Context, e core.Event) error {
	c.disbelieved = nil
	c.step(ctx, e)
	return c.disbelieved
}

// TakeOrder takes an order that somebody has brought to this host, from any goroutine while Run runs. The client owns it from then on. The error says why it does not
// count here; with none it is tried, and its layer is at hand.
func (c *Client) TakeOrder(ctx context.Context, o *place.Order) error {
	if err := c.hand.keep(o); err != nil {
		c.opts.Log.Info("close the order before", "err", err)
	}
	if err := c.bring(ctx, core.StatementCame{Signed: o.Signed}); err != nil {
		return errors.Join(err, c.hand.keep(nil))
	}
	return nil
}

// Brought is what was found in a place, and believed.
type Brought struct {
	Mark       catalog.Mark        // of the head for this host; zero where there is none
	News       bool                // it is higher than the one that was accepted before
	Statements []catalog.Statement // that count here
	Left       []error             // why others do not
}

// TakePlace takes what a place has for this host, from any goroutine while Run runs: trust documents, its head and statements. What they name
// is looked for there too from then on. The errors are PlaceUnusable where there is nothing for this host, and why its head is not believed.
func (c *Client) TakePlace(ctx context.Context, p *place.Place) (Brought, error) {
	return c.takePlace(ctx, p, "")
}

func (c *Client) takePlace(ctx context.Context, p *place.Place, found string) (b Brought, err error) {
	statements, err := c.openPlace(ctx, p, found)
	if err != nil {
		return b, err
	}
	node := c.opts.Identity.Node()
	head, err := p.Head(ctx, node.UID)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(statements) == 0:
		return b, &reason.Error{Code: reason.PlaceUnusable, Doing: "look for what is for this host in " + p.String(), Cause: errors.New("there is no head for node " + node.Name + " (" + node.UID + "), and no statement"),
			Hint: "write it anew where a server is: tako export heads --node " + node.Name + " -o DIR"}
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return b, err
	default:
		if b.Mark, b.News, err = c.headBrought(ctx, head); err != nil {
			return b, err
		}
	}
	for _, signed := range statements {
		if err := c.bring(ctx, core.StatementCame{Signed: signed}); err != nil {
			b.Left = append(b.Left, err)
			continue
		}
		_, st, err := catalog.DecodeStatement(signed)
		if err != nil {
			return b, err
		}
		b.Statements = append(b.Statements, st)
	}
	return b, nil
}

// openPlace has a place at hand whose trust documents are believed, where it has any, and returns its statements.
func (c *Client) openPlace(ctx context.Context, p *place.Place, found string) (statements [][]byte, err error) {
	documents, err := p.Trust(ctx)
	if err == nil {
		err = c.believe(ctx, documents)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		statements, err = p.Statements(ctx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if found != "" {
			c.hand.forget(found)
		}
		return nil, err
	}
	at := placed{Place: p, found: found}
	for _, signed := range statements {
		if _, st, err := catalog.DecodeStatement(signed); err == nil {
			at.extra += min(st.Bytes, ^at.extra)
		}
	}
	c.hand.put(at)
	return statements, nil
}

// headBrought feeds the machine with a head that it will believe, and says why it would not.
func (c *Client) headBrought(ctx context.Context, signed []byte) (catalog.Mark, bool, error) {
	s, _, err := catalog.DecodeHead(signed)
	if err != nil {
		return catalog.Mark{}, false, err
	}
	chain, node, now := c.opts.Identity.Trust(), c.opts.Identity.Node(), time.Now()
	h, err := s.Verify(chain.KeysOf(trust.RoleHeads, now), node)
	if err != nil {
		return catalog.Mark{}, false, err
	}
	kept, err := c.opts.Store.Kept()
	if err != nil {
		return catalog.Mark{}, false, err
	}
	standing, mark := kept.Mark.Judge(&h, chain.Time(now))
	refused := func(cause, hint string) error {
		return &reason.Error{Code: reason.HeadRefused, Doing: "take the head of node " + node.Name, Cause: errors.New(cause), Hint: hint}
	}
	switch {
	case standing == catalog.HeadExpired:
		err = refused("it has expired at "+time.Unix(h.Expires, 0).UTC().Format(time.RFC3339), "write it anew where a server is: tako export heads; if it is not old, look at the clock of this host")
	case standing == catalog.HeadUnknown:
		err = refused("this version of tako-agent is too old for it", "bring tako-agent on this host up to date")
	}
	if err != nil {
		return catalog.Mark{}, false, err
	}
	// An old one, and one that contradicts another, is counted by the machine, which says why.
	return mark, standing == catalog.HeadNews, c.bring(ctx, core.HeadCame{Signed: signed})
}

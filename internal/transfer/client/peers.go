package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	peers "tako.dev/tako/internal/transfer/peer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// peerMax is how long one question to a peer may take: the dial, and an answer of some hundred KB over a thin line.
const peerMax = 20 * time.Second

// neighbours are the peers of a host, with the connections to them.
type neighbours struct {
	mu     sync.Mutex // guards what follows
	roster peers.Roster
	lines  map[string]*server // by UID
	asked  string             // UID of who was asked last for what is signed; empty where that was a server
	told   PeerState
}

// PeerState is how a host stands to its peers, for people.
type PeerState struct {
	Known    int    `json:"known"`              // how many it may ask
	Asked    uint64 `json:"asked,omitempty"`    // questions, since this run began
	Answered uint64 `json:"answered,omitempty"` // of those
	Lied     uint64 `json:"lied,omitempty"`     // of those: with what is not signed, or not what was asked for
	// From is the name of who has had something new last, and At when; empty where nobody had.
	From string    `json:"from,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// askPeers asks peers for what is signed, round by round, while no server has the host's watch. While one has, it waits for that to end.
func (c *Client) askPeers(ctx context.Context, random *rand.Rand) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if link := c.opts.Links.State(); link.Connected {
			c.peers.leave()
		} else if silent := link.silent(time.Now()); silent < peers.SilentFor {
			timer.Reset(peers.SilentFor - silent)
		} else {
			c.round(ctx, random)
			timer.Reset(peers.Pause(random))
		}
		select {
		case <-ctx.Done():
			c.peers.leave()
			return
		case <-c.away:
		case <-timer.C:
		}
	}
}

// alone tells whether the host has been without a server for so long that it asks its peers.
func (c *Client) alone() bool {
	return c.opts.Peers != nil && c.opts.Links.State().silent(time.Now()) >= peers.SilentFor
}

// round asks some of the peers.
func (c *Client) round(ctx context.Context, random *rand.Rand) {
	n := &c.peers
	n.mu.Lock()
	n.roster.Set(c.opts.Peers())
	n.told.Known = n.roster.Len()
	list := n.roster.Round(time.Now(), random)
	n.mu.Unlock()
	for _, p := range list {
		if ctx.Err() != nil || !c.alone() {
			return
		}
		c.askPeer(ctx, p)
	}
	n.trim(time.Now())
	c.opts.Links.peers(n.state())
}

// askPeer asks one peer, and takes what it has.
func (c *Client) askPeer(ctx context.Context, p catalog.Peer) {
	ctx, cancel := context.WithTimeout(ctx, peerMax)
	defer cancel()
	r, err := c.wanted()
	if err != nil {
		c.opts.Log.Warn("ask another host", "err", err)
		return
	}
	c.peers.count(func(s *PeerState) { s.Asked++ })
	var reply wire.NewsReply
	err = c.peers.line(c, p).exchange(ctx, wire.PathNews, r, wire.NewsMax, &reply)
	if err == nil {
		err = lie(reply.Validate())
	}
	news := false
	if err == nil {
		c.peers.count(func(s *PeerState) { s.Answered++ })
		news, err = c.takeNews(ctx, r, &reply)
	}
	c.peers.judge(p, news, err, time.Now())
	switch {
	case ctx.Err() != nil && err != nil:
	case errors.Is(err, errLie):
		c.opts.Log.Warn("do not believe another host", "node", p.Name, "address", p.Address, "err", err,
			"hint", "it is left alone for a while by itself; if it goes on, somebody may have taken that host over: see its log, and who has its certificate")
	case err != nil:
		c.opts.Log.Debug("ask another host", "node", p.Name, "address", p.Address, "err", err) // some are away always
	case news:
		c.opts.Log.Info("another host has something new", "node", p.Name, "address", p.Address)
	}
}

// wanted is what the host tells a peer of what it has.
func (c *Client) wanted() (*wire.NewsRequest, error) {
	kept, err := c.opts.Store.Kept()
	if err != nil {
		return nil, err
	}
	r := &wire.NewsRequest{Protocol: wire.Protocol, Head: kept.Head, Trust: c.opts.Identity.Trust().Current().Number}
	if kept.Head != nil {
		if r.List, err = c.listOf(kept.Mark.Root); err != nil {
			return nil, err
		}
	}
	for i := range kept.Statements {
		s := &kept.Statements[i]
		r.Statements = append(r.Statements, wire.StatementMark{Layer: s.Layer, Epoch: s.Epoch, Number: s.Number})
	}
	return r, nil
}

// listOf is a list that is held, or was brought; nil where there is none.
func (c *Client) listOf(root catalog.Digest) ([]byte, error) {
	if list := c.hand.list(root); list != nil {
		return list, nil
	}
	list, err := c.opts.Store.List(root)
	if err != nil || list == nil || catalog.ListRoot(list) != root {
		return nil, err
	}
	return list, nil
}

// errLie is of an answer that no peer gives that is as it should be.
var errLie = errors.New("what it says is not signed as it should be")

// lie makes an error one that is held against a peer; nil stays nil.
func lie(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(errLie, err)
}

// takeNews takes what a peer has, by the same code as what comes from anybody else, and reports whether there was anything new. The error is errLie
// where it was not signed; then the rest is not looked at.
func (c *Client) takeNews(ctx context.Context, asked *wire.NewsRequest, reply *wire.NewsReply) (news bool, err error) {
	if len(reply.Trust) > 0 {
		documents, err := trust.DecodeDocuments(reply.Trust)
		if err == nil {
			_, err = c.opts.Identity.Trust().Extend(documents)
		}
		if err != nil {
			return false, lie(err)
		}
		if err := c.believe(ctx, documents); err != nil {
			return false, err
		}
		news = len(documents) > 0
	}
	if len(reply.Head) > 0 {
		came, err := c.takeHead(ctx, reply)
		if news = news || came; err != nil {
			return news, err
		}
	} else if len(reply.List) > 0 {
		_, h, err := catalog.DecodeHead(asked.Head)
		if root, known := h.Root(); err != nil || !known || catalog.ListRoot(reply.List) != root {
			return news, lie(errors.New("a list that is not that of the head"))
		}
		c.hand.keepList(reply.List)
		news = true
	}
	for _, signed := range reply.Statements {
		came, err := c.takeStatement(ctx, asked, signed)
		if news = news || came; err != nil {
			return news, err
		}
	}
	return news, nil
}

// takeHead takes a head with its list.
func (c *Client) takeHead(ctx context.Context, reply *wire.NewsReply) (news bool, err error) {
	s, _, err := catalog.DecodeHead(reply.Head)
	var h catalog.Head
	if err == nil {
		h, err = s.Verify(c.opts.Identity.Trust().KeysOf(trust.RoleHeads, time.Now()), c.opts.Identity.Node())
	}
	if err != nil {
		return false, lie(err)
	}
	if root, known := h.Root(); known && catalog.ListRoot(reply.List) != root {
		return false, lie(errors.New("a list that is not that of the head"))
	}
	c.hand.keepList(reply.List)
	mark, news, err := c.headBrought(ctx, reply.Head)
	if news {
		c.opts.Log.Info("take a head from another host", "version", mark.Version)
	}
	if kept, keptErr := c.opts.Store.Kept(); err != nil && keptErr == nil && (h.Epoch < kept.Mark.Epoch || h.Epoch == kept.Mark.Epoch && h.Version < kept.Mark.Version) {
		err = lie(err) // it was told what the host has
	}
	return news, err
}

// takeStatement takes a statement that is higher than the one that the host has.
func (c *Client) takeStatement(ctx context.Context, asked *wire.NewsRequest, signed []byte) (news bool, err error) {
	s, _, err := catalog.DecodeStatement(signed)
	var st catalog.Statement
	if err == nil {
		st, err = s.Verify(c.opts.Identity.Trust().KeysOf(trust.RoleOperator, time.Now()), c.opts.Identity.Node().Cluster)
	}
	if err != nil {
		return false, lie(err)
	}
	if slices.ContainsFunc(asked.Statements, func(m wire.StatementMark) bool {
		return m.Layer == st.Layer && (m.Epoch > st.Epoch || m.Epoch == st.Epoch && m.Number >= st.Number)
	}) {
		return false, lie(errors.New("a statement that it was told the host has"))
	}
	if err := c.bring(ctx, core.StatementCame{Signed: signed}); err != nil {
		c.opts.Log.Info("leave a statement that another host has", "layer", st.Layer, "number", st.Number, "err", err)
		return false, nil // whose fault that is nobody can say from here: it is signed
	}
	return true, nil
}

// fromPeers asks peers for one thing, one after the other, until one has it. done says that the machine was told what has come of it; otherwise
// servers are to be asked.
func (c *Client) fromPeers(ctx context.Context, id uint64, head []byte, ask func(p *server, list []byte) (begun bool, err error)) (done bool) {
	if !c.alone() {
		return false
	}
	list, err := c.listFor(head)
	if err != nil || list == nil {
		return false
	}
	for _, p := range c.peers.sources(time.Now()) {
		c.peers.asking(p.UID)
		begun, err := ask(c.peers.line(c, p), list)
		if err == nil || ctx.Err() != nil {
			return true
		}
		c.opts.Log.Debug("fetch from another host", "node", p.Name, "address", p.Address, "err", err)
		c.peers.failed(p, err, time.Now())
		if done = begun; begun {
			break // it goes on where it was
		}
	}
	if done || c.peers.any() {
		c.failed(ctx, id, &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch what is signed for this host", Cause: errors.New("there is no server, and no other host that was asked has it")})
		return true
	}
	c.peers.asking("")
	return false
}

// listFor is the list of a head that is shown to peers.
func (c *Client) listFor(head []byte) ([]byte, error) {
	_, h, err := catalog.DecodeHead(head)
	if err != nil {
		return nil, err
	}
	root, _ := h.Root()
	return c.listOf(root)
}

// blame holds against a peer that what it has sent is not what was asked for.
func (c *Client) blame() {
	n := &c.peers
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked != "" {
		n.told.Lied++
		n.roster.Lied(n.asked, time.Now())
	}
}

// judge notes what has come of a question.
func (n *neighbours) judge(p catalog.Peer, news bool, err error, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		n.roster.Answered(p.UID, news, now)
	case errors.Is(err, errLie):
		n.told.Lied++
		n.roster.Lied(p.UID, now)
	default:
		n.failedLocked(p, err, now)
	}
	if news {
		n.told.From, n.told.At = p.Name, now
	}
}

// failed notes that one has not given what was asked for.
func (n *neighbours) failed(p catalog.Peer, err error, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failedLocked(p, err, now)
}

func (n *neighbours) failedLocked(p catalog.Peer, err error, now time.Time) {
	switch e := reason.Of(err); e.Code {
	case reason.RootUnknown, reason.NotListed:
		n.roster.Lacks(p.UID)
	case reason.TransferBusy:
		n.roster.Busy(p.UID, e.After, now)
	default:
		n.roster.Missed(p.UID, e.After, now)
	}
}

func (n *neighbours) sources(now time.Time) []catalog.Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.roster.Sources(now)
}

// any tells whether there is anybody to ask.
func (n *neighbours) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.roster.Len() > 0
}

// asking notes who is asked now for what is signed; empty is a server.
func (n *neighbours) asking(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = uid
}

func (n *neighbours) count(change func(*PeerState)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.told)
}

func (n *neighbours) state() PeerState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told
}

// line is the way to a peer: whoever answers there has to show the certificate of that node.
func (n *neighbours) line(c *Client, p catalog.Peer) *server {
	n.mu.Lock()
	defer n.mu.Unlock()
	if have := n.lines[p.UID]; have != nil {
		if have.address == p.Address {
			return have
		}
		have.http.CloseIdleConnections()
	}
	if n.lines == nil {
		n.lines = map[string]*server{}
	}
	n.lines[p.UID] = newServer(c.lines.Dial, p.Address, ofPeer(c.opts.Identity, p.UID))
	return n.lines[p.UID]
}

// trim lets connections go to those who are not asked for what is signed.
func (n *neighbours) trim(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stay := n.roster.Sources(now)
	for uid, s := range n.lines {
		if !slices.ContainsFunc(stay, func(p catalog.Peer) bool { return p.UID == uid }) {
			s.http.CloseIdleConnections()
			delete(n.lines, uid)
		}
	}
}

// leave lets all connections go: there is a server.
func (n *neighbours) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.lines {
		s.http.CloseIdleConnections()
	}
	n.lines, n.asked = nil, ""
}

// ofPeer is for connections to the host of one node.
func ofPeer(identity Identity, uid string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Verified below: it has no name that a verifier of names knows.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := trust.VerifyNode(s.PeerCertificates, identity.Trust(), identity.Node().Cluster, time.Now())
			if err == nil && who.UID != uid {
				err = &reason.Error{Code: reason.CertificateRefused, Doing: "recognize a host", Cause: errors.New("the host of another node answers there: " + who.Name)}
			}
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return identity.Certificate() },
	}
}

// list is a list that a peer has brought; nil where that is another one.
func (h *hand) list(root catalog.Digest) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.brought == nil || catalog.ListRoot(h.brought) != root {
		return nil
	}
	return bytes.Clone(h.brought)
}

// keepList has a list at hand that a peer has brought: the last one.
func (h *hand) keepList(list []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.brought = list
}

package server

import (
	"context"
	"crypto/x509"
	"net/netip"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Identity is whose certificate a host, or a relay, has shown.
type Identity struct {
	Name string // of the Node; of a relay, of the Token that it has joined with
	UID  string // of the same
	Key  string // "sha256:" and hex of the SPKI of the certificate
	// Relay says that it is a relay, and no node.
	Relay bool
	// Through is the name of the relay that a host is connected through; empty: through none.
	Through string
	// Server is the name of the server that a host, or its relay, is connected to; empty: to this one. Of a server that calls it is its own.
	Server string
}

// relayCaller begins what a relay is called among callers: no node has a name with a stroke.
const relayCaller = "relay/"

// caller names who calls, for what each may take of the server: a node and a relay of one name are two.
func (i Identity) caller() string {
	if i.Relay {
		return relayCaller + i.Name
	}
	return i.Name
}

// isServer says whether it is another server.
func (i Identity) isServer() bool { return i.Relay && i.Server != "" }

// words are who it is, for people.
func (i Identity) words() string {
	switch {
	case i.isServer():
		return "server " + i.Name
	case i.Relay:
		return "relay " + i.Name
	}
	return "node " + i.Name
}

// Heads are what is signed for hosts. Its methods may be called from several goroutines, and at once after the start.
type Heads interface {
	// Head is the newest signed head of a node, encoded, and a channel that is closed when there may be another one. Before the first
	// is signed it is empty. It does not block, and the bytes must not be changed. The error is ObjectUnknown when there is no
	// node of this name with this UID: then the watch ends.
	Head(node Identity) (head []byte, changed <-chan struct{}, err error)
	// Shown is told of the highest head that a host says it has accepted, when it opens a watch; a zero mark is none. Where it is
	// above what this server knows it may wait for at most 2 s until the server knows it too. An error refuses the watch; its After
	// says when to come again.
	Shown(ctx context.Context, node Identity, mark catalog.Mark) error
	// HeadKeys are who may sign heads now: a head that a host shows must be by one of them. It may have expired.
	HeadKeys(now time.Time) catalog.Keys
}

// Catalogs are what hosts are to have: heads, and all that they name.
type Catalogs interface {
	Heads
	// List is the encoded list of a catalog root, of a current head or of one that was given lately; false when it is not known. The
	// server asks only for what a head of the calling node has.
	List(root catalog.Digest) ([]byte, bool)
	// Layer is the content of a layer at a root, the current one or one that is retained; false when it is not known. A node's own
	// layer (wire.OwnLayer) is found by its root like any other: the server asks only for what the list of a head of this node has.
	Layer(id string, root catalog.Digest) (Layer, bool)
}

// Layer is the content of a layer at one root. It does not change.
type Layer struct {
	Trie catalog.Trie
	// Body is a body by its digest. The bytes must not be changed. It may also know bodies that the trie does not have.
	Body func(catalog.Digest) ([]byte, bool)
	// Reader makes what Body is for one goroutine that asks for many bodies in the order of their keys; nil: Body is as good.
	Reader func() func(catalog.Digest) ([]byte, bool)
}

// Members are the hosts of the cluster. Its methods may be called from several goroutines. Their errors are coded, with words for the
// person at the host; After in one says when to come again.
type Members interface {
	// Join admits a host. It writes the audit log itself.
	Join(ctx context.Context, from netip.Addr, r wire.JoinRequest) (wire.Credentials, error)
	// Renew gives a new certificate for the same key to a host, or to a relay. The certificate of the caller may have expired.
	Renew(ctx context.Context, who Identity, r wire.RenewRequest) (wire.Credentials, error)
	// Identify says whose certificate that is: a node's or a relay's. The server has verified that an authority of the cluster has issued it
	// to a client, and looks at its time itself. The error is a refusal: it is of neither, or the node with that UID is gone, or has another key by
	// now; beside it is whose certificate it is or was, where that is known, for the audit log. It answers from memory, at most 5 s behind.
	Identify(cert *x509.Certificate) (Identity, error)
	// Remains is nil as long as somebody whom Identify has named is still that: it answers as Identify does, without the certificate.
	Remains(who Identity) error
	// Changes is another number whenever Remains may say something else of a host than before: while it is the same, those who have remained
	// need not be asked about again. Of relays it says nothing.
	Changes() uint64
	// Trust is the trust documents with numbers above after, as trust.EncodeDocuments writes them (nil when there are none), and the
	// highest number that there is. It answers from memory.
	Trust(after uint64) (documents []byte, highest uint64, err error)
}

// Presence is told what is heard of hosts. None of its methods blocks or fails. It may be called from several goroutines; for one conn
// Opened comes first and Closed last, except that of two reports the later may come first.
type Presence interface {
	// Opened is told that a node has opened a watch. Watches are numbered as they are opened, from 1 on.
	Opened(who Identity, conn uint64)
	// Closed is told that the watch has ended; dead says that TCP has found the host or the link lost.
	Closed(who Identity, conn uint64, dead bool)
	// Asked is told that a heartbeat was written.
	Asked(who Identity, conn uint64)
	// Heard is told of a report: of the one that opens a watch right after Opened, and of each status. conn is the newest watch of the
	// connection that it came over, which may have been closed; of the node, when there was none. The report belongs to Presence, and is within
	// the bounds of wire.Report.Validate.
	Heard(who Identity, conn uint64, r *wire.Report) wire.StatusReply
}

// Audit is told of what was refused. It does not block for long, and may be called from several goroutines.
type Audit interface {
	Refused(Refusal)
}

// Refusal is one call that was refused.
type Refusal struct {
	Call   string     // path: one of wire's
	From   netip.Addr // of the connection
	Who    Identity   // zero when it is not known; a relay's when it is not known of which host
	Code   reason.Code
	Status int    // of HTTP
	Reason string // in words, without secrets
}

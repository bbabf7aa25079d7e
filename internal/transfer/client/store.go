package client

import (
	"context"
	"crypto/tls"
	"io"
	"iter"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Store is what a joined host keeps of what was transferred. The suite in clienttest says what it must do.
//
// Run calls the methods that write, and those of Stage, from one goroutine. The methods of Layers that read are called by the host at
// the same time too.
// What a method has made durable is there after a crash at any later moment; a crash inside of a method leaves what was there before,
// or what is there after it. No slice is changed by who was given it.
type Store interface {
	Heads
	Layers
	Stage
}

// Heads are the signed words about this host. They outlive the loss of everything else: they are stored apart from layers.
type Heads interface {
	// Kept is what is there; the zero value when there has been no head yet. The errors are StateCorrupt and those of the disk: the
	// client does not go on without knowing the mark.
	Kept() (core.Kept, error)
	// Accept makes a mark, and the head that it is of, durable before it returns. A mark with a lower epoch or version than the one
	// that is kept, or with its version and another root, is refused with HeadRefused and changes nothing. The verdict of another
	// version or root is forgotten with it. Accepting the same mark again, or with a later expiry, is not an error.
	Accept(mark catalog.Mark, head []byte) error
	// Remember makes a verdict on the mark that is kept durable; another one replaces it. Where it is on a state that was new for a
	// statement, core.Blame says what is kept of statements then. A verdict on anything else is not remembered.
	Remember(v wire.Verdict) error
	// SetStatements makes what is kept of statements durable before it returns, in place of all that was kept. A lower number of the same
	// layer and epoch than the one that is kept is refused with StatementRefused and changes nothing.
	SetStatements(list []core.Statement) error
	// Count replaces the counters. They need not be durable before the next Accept or Remember.
	Count(refused wire.Refused) error
}

// Layers are complete catalogs and layers by their roots. What does not have the root that it stands under any more, because the disk
// has changed it, is not there: it is fetched again.
type Layers interface {
	// Lists is the roots of the catalog lists that are there, the one that was put last first.
	Lists() ([]catalog.Digest, error)
	// List is an encoded list, or nil.
	List(root catalog.Digest) ([]byte, error)
	// PutList makes a list durable, under its catalog.ListRoot. The store may then drop what is neither of this list nor of one that
	// the host still enforces or may fall back to.
	PutList(encoded []byte) error
	// Trie is the trie of a layer that is there completely; false when it is not. All of it was verified since the start. Its leaves are read
	// when they are needed, and the error of that is StateCorrupt where the disk has changed them since; then Trie looks again.
	Trie(root catalog.Digest) (catalog.Trie, bool, error)
	// Remains is what is left of a layer that was damaged: a layer of another root, which Begin takes as the base. False when there is
	// nothing left, or the layer was not damaged.
	Remains(root catalog.Digest) (catalog.Trie, bool, error)
	// Room says whether there is room for what is not here of the layers of a list that is, when all of them together have so many bytes of
	// bodies. The error is DiskFull where there is none, and those of the disk.
	Room(root catalog.Digest, bytes uint64) error
	// Body is what stands at a key of a layer that is there; nil when it is not. It has the digest that the trie says.
	Body(root, key catalog.Digest) ([]byte, error)
}

// Stage is the log of one fetch. There is one at a time; it is resumed after a crash.
type Stage interface {
	// Begin opens the log of a fetch. What was staged for the same one is still there, and is appended to. What was staged for any other is
	// thrown away. A torn end is cut off.
	Begin(f core.Fetch) (core.Staged, error)
	// Append adds changes. Their keys ascend over the whole log. The error is DiskFull where they would take room that the host needs to live
	// on, and those of the disk; then nothing is added. They need not be durable before Commit, but what is found after a crash
	// is a beginning of what was appended.
	Append(changes []wire.Change) error
	// Staged iterates over the log, with the digests of the bodies. The error is StateCorrupt where the disk has changed it.
	Staged() iter.Seq2[catalog.Change, error]
	// Outline is what becomes of a base with what is in the log, as catalog.Trie.Outline makes it. The errors are those of Staged, and of reading the
	// base.
	Outline(base catalog.Trie) (catalog.Trie, error)
	// Commit makes the target out of the base and the log, as a layer that is there completely, and ends the stage. It is durable when
	// Commit returns. Of the trie only the length and the root count: the store checks that what it writes are the rows of that, with
	// bodies of their digests, and refuses with StateCorrupt otherwise; then the stage is dropped. After any other error, such as DiskFull, it
	// is still there.
	Commit(target catalog.Trie) error
	// Drop throws the stage away. It is not an error when there is none.
	Drop() error
}

// Host is the agent as the transfer sees it. Its methods are called from several goroutines.
type Host interface {
	// Activate hands a state over, and returns what the host makes of it at once: Pending, Applied or Partial when it enforces it from now
	// on; Rejected, Withheld or Quarantined when it does not, which is remembered for this version and root. The same state may be handed
	// over more than once: after a restart, and with a later version. Type, Code, Message and Since of the verdict are the host's; the rest
	// is set by the client. An error says that the host could not take it now (disk full, ending): it is tried again after a while.
	Activate(ctx context.Context, s core.State) (wire.Verdict, error)
	// Report is how the host stands. Enforced, Verdict on Enforced or on what was handed over last, Counts, Configs, Problems and Host
	// are the host's; the rest is set by the client.
	Report() wire.Report
	// Changed gets something when a report should be sent. It has room for one, and is not closed.
	Changed() <-chan struct{}
	// Answer writes the answer to a question. It ends with ctx.
	Answer(ctx context.Context, q wire.Question, w io.Writer) error
}

// Identity is who the host is, and whom it believes. Its methods are called from several goroutines.
type Identity interface {
	// Node is whom heads must be for.
	Node() catalog.Node
	// Servers are the addresses to dial, HOST:PORT; at least one.
	Servers() []string
	// Certificate is the newest certificate with its key. It may have expired. Its Leaf is set.
	Certificate() (*tls.Certificate, error)
	// Trust is the chain that is believed.
	Trust() *trust.Chain
	// Extend makes a longer chain durable and believed from now on; it was verified by Trust().Extend.
	Extend(longer *trust.Chain) error
	// Request is a certificate request for the key of Certificate, DER.
	Request() ([]byte, error)
	// Renewed makes a new certificate durable and the one that Certificate returns. The errors are CertificateRefused, when it is not for
	// the key, the node or by an authority of Trust, and those of the disk.
	Renewed(certificate []byte) error
}

// Learner is an Identity that comes to know of further servers.
type Learner interface {
	// Learn makes the addresses of servers durable that a server has told of, at most wire.ServersMax, and has Servers return them behind those
	// that the host has joined with. What was told before and is not told any more stays while there is room: a server that is away is told of by
	// nobody. It reports whether Servers returns something else now. The errors are those of the disk.
	Learn(addresses []string) (changed bool, err error)
}

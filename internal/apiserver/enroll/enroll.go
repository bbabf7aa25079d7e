package enroll

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/trust"
)

// Objects reads and writes Nodes and Tokens, with the errors of the API.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// Create creates an object; then it is what is stored.
	Create(ctx context.Context, o runtime.Object) error
	// UpdateStatus writes the status, if the object is still the version that was read.
	UpdateStatus(ctx context.Context, o runtime.Object) error
	// ListerWatcher lists and watches all objects of a kind.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Tokens knows the Tokens by what is shown.
type Tokens interface {
	// OfHost is the Token that a text is the secret of. It is shared, and how often it was used may be behind. The errors are coded, and
	// quote nothing of the text: TokenMalformed, TokenRefused, TokenTime, StoreUnreachable.
	OfHost(ctx context.Context, text string) (*v1alpha1.Token, error)
}

// Audit is told of every host that has tried to join. It does not block for long, and may be called from several goroutines.
type Audit interface {
	Joined(Attempt)
}

// Attempt is a host that has tried to join. It holds no secret.
type Attempt struct {
	At      time.Time
	From    netip.Addr
	Relay   bool        // it wants to be a relay, and is called by the name of its Token then
	Node    string      // the name that it wanted
	UID     string      // of the Node, or of the relay's Token; empty when it was refused
	Key     string      // digest of its key; empty when its request could not be read
	Token   string      // name of the Token; empty when it has shown none that is known
	Outcome Outcome     // what became of it
	Code    reason.Code // why it was refused; 0 when it was not
	Reason  string      // the same in words
}

// Outcome is what became of a host that has tried to join.
type Outcome string

// The outcomes.
const (
	OutcomeJoined   Outcome = "joined"
	OutcomeAgain    Outcome = "joined again" // the answer before was lost
	OutcomeReplaced Outcome = "replaced"     // another host, which a person has approved
	OutcomeRefused  Outcome = "refused"
)

// Options say what to decide with. All but the last three are required.
type Options struct {
	Objects Objects
	Tokens  Tokens
	Keys    *trust.Keys
	// Chain is the newest verified chain of trust documents. It answers from memory.
	Chain func() *trust.Chain
	// Address is HOST:PORT of the transfer listener, as hosts reach it; empty while there is none. Default there is none.
	Address func() string
	// Audit is told of every attempt to join. Default nobody is.
	Audit Audit
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Now is the clock. Default the machine's.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Address == nil {
		o.Address = func() string { return "" }
	}
	if o.Audit == nil {
		o.Audit = nobody{}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) validate() error {
	if o.Objects == nil || o.Tokens == nil || o.Keys == nil || o.Chain == nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "set up who is a host", Cause: errors.New("objects, tokens, keys and trust documents are needed")}
	}
	return nil
}

type nobody struct{}

// Joined is heard by nobody.
func (nobody) Joined(Attempt) {}

// Members are the hosts of the cluster. Its methods may be called from several goroutines, before Run too.
type Members struct {
	opts     Options
	index    *index
	relays   relays
	failures *failures[netip.Addr] // by site
	again    *failures[string]     // certificates for who a host is already, by its key
	counting chan struct{}         // holds one while a use is counted: only other servers get into the way of that then
	asking   chan struct{}         // holds one for each question that Identify has for the store
}

var _ server.Members = (*Members)(nil)

// askingMax is how many questions Identify has for the store at a time: a burst of hosts that are not known is no burst of reads.
const askingMax = 16

// New checks the options and starts nothing. The error is InternalFault.
func New(o Options) (*Members, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Members{opts: o, index: newIndex(), relays: relays{seen: map[server.Identity]sighting{}}, failures: newFailures[netip.Addr](), again: newFailures[string](), counting: make(chan struct{}, 1), asking: make(chan struct{}, askingMax)}, nil
}

// Run follows the Nodes until the context ends.
func (m *Members) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.index.follow(ctx, m.opts.Objects) })
	all.Wait()
}

// Trust is the trust documents with numbers above after, nil when there are none, and the highest number that there is.
func (m *Members) Trust(after uint64) (documents []byte, highest uint64, err error) {
	chain := m.opts.Chain()
	highest = chain.Current().Number
	later := chain.After(after)
	if len(later) == 0 {
		return nil, highest, nil
	}
	documents, err = trust.EncodeDocuments(later)
	return documents, highest, err
}

// JoinLine is the line that a host joins with that is given a token: a secret. It is empty while no host can join.
func (m *Members) JoinLine(t trust.Token) string {
	address := m.opts.Address()
	if address == "" {
		return ""
	}
	return trust.JoinLine{Address: address, Trust: m.opts.Chain().Pin(), Token: t}.Reveal()
}

// named is the key of an object that is in no namespace.
func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// node reads a Node; nil when there is none.
func (m *Members) node(ctx context.Context, name string) (*v1alpha1.Node, error) {
	n := &v1alpha1.Node{}
	err := m.opts.Objects.Get(ctx, named(name), n)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, storeFault("read node "+name, err)
	}
	return n, nil
}

// storeFault is that the store did not do what it should.
func storeFault(doing string, err error) error {
	return &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err, Hint: "try again in a moment; if that does not help, see the server's log"}
}

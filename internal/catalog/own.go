package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Own is what is for one node alone: its own layer, read.
type Own struct {
	Keys   []OwnKey          // by ID
	Holds  []Hold            // by config, then claim
	Labels map[string]string // of the node, as people have decided them
	Peers  []Peer            // whom its host asks while it reaches no server, in this order
	// Instances are the instances of workloads that are on the node, by UID.
	Instances []Instance
}

// Instance is an instance of a workload, as its node gets it. What it runs is in the layer of its revision (TemplateLayer), which the
// catalog has too.
type Instance struct {
	UID       string `json:"i"`
	Namespace string `json:"p"`
	Name      string `json:"n"`
	Workload  string `json:"w"` // name
	Revision  string `json:"r"` // name
	Slot      int    `json:"x,omitempty"`
	Job       bool   `json:"j,omitempty"` // the workload is one that ends
	// Stop says that it is to end. It stays until it has, and that was told; an instance that is not in the layer any more is ended too, and
	// nobody asks what became of it.
	Stop bool `json:"s,omitempty"`
	// Lease is for how many seconds after the host has heard its servers last the instance may run; 0: however long. It is the host's clock
	// since its start that counts.
	Lease int `json:"l,omitempty"`
	// Unsupported says why this host does not know all of it: it is of a later version. Only its UID is known then, and what runs of it goes on: it was
	// not asked to end.
	Unsupported *reason.Error `json:"-"`
}

// InstancesMax is how many instances a node may have. Ours: what a host of the largest kind runs, and its report stays below 512 KiB.
const InstancesMax = 1024

// Peer is another host of the cluster.
type Peer struct {
	Name    string `json:"n"` // of its Node
	UID     string `json:"i"` // of its Node: what the certificate that it shows must be for
	Address string `json:"a"` // HOST:PORT
}

// PeersMax is how many peers a host is given.
const PeersMax = 64

// OwnKey is the key to a sealed content, wrapped so that this node alone can open it.
type OwnKey struct {
	ID     string `json:"id"` // what Sealed.Key names: 32 hexadecimal digits
	Sealed []byte `json:"s"`
}

// Hold says what is looked at and not changed.
type Hold struct {
	Config string `json:"c,omitempty"` // as ConfigName says; empty: all
	Claim  string `json:"m,omitempty"` // text form; empty: all
	Reason string `json:"r"`           // for whoever finds it
	Owner  string `json:"o"`
	Until  int64  `json:"u"` // seconds since 1970; it ends then by itself
}

// Covers reports whether the hold is about what a config wants of a claim, and has not ended.
func (h *Hold) Covers(config string, claim declare.Claim, now time.Time) bool {
	return now.Unix() < h.Until && (h.Config == "" || h.Config == config) && (h.Claim == "" || h.Claim == claim.String())
}

// The kinds of what is in an own layer, the beginnings of its claims.
const (
	ownKey      = "key:"
	ownHold     = "hold:"
	ownLabels   = "labels:"
	ownPeers    = "peers:"
	ownInstance = "instance:"
)

// ownSchema is the form of the bodies that Items writes; see schemaOf.
const ownSchema = 1

// ownClaimMax is above what holds one resource of one config: its name, and its claim.
const ownClaimMax = declare.ClaimBytesMax + 1<<10

// ownBody is the form of a body. A field that is added, and that a host must know to do right, needs another schema number.
type ownBody struct {
	Schema   uint              `json:"v"`
	Claim    string            `json:"c"`
	Key      *OwnKey           `json:"k,omitempty"`
	Hold     *Hold             `json:"h,omitempty"`
	Labels   map[string]string `json:"l,omitempty"`
	Peers    []Peer            `json:"p,omitempty"`
	Instance *Instance         `json:"i,omitempty"`
}

func (i *Instance) claim() string { return ownInstance + i.UID }

// check says what an instance cannot be.
func (i *Instance) check() error {
	if i.UID == "" || i.Namespace == "" || i.Name == "" || i.Workload == "" || i.Revision == "" || min(i.Slot, i.Lease) < 0 || max(i.Slot, i.Lease) > math.MaxInt32 {
		return fmt.Errorf("instance %.64q has no name, or nothing that it is an instance of, or slot %d with a lease of %d seconds", i.UID, i.Slot, i.Lease)
	}
	return nil
}

func (k *OwnKey) claim() string { return ownKey + k.ID }

func (h *Hold) claim() string { return ownHold + h.Config + "|" + h.Claim }

// Items are the items of the own layer, sorted by claim. The errors are InvalidValue, for two that are about one thing or are too
// large, and InternalFault.
func (o Own) Items() ([]Item, error) {
	invalid := func(format string, args ...any) error {
		return &reason.Error{Code: reason.InvalidValue, Doing: "make a node's own layer", Cause: fmt.Errorf(format, args...)}
	}
	if len(o.Peers) > PeersMax || len(o.Instances) > InstancesMax {
		return nil, invalid("it has %d peers and %d instances, at most %d and %d are allowed", len(o.Peers), len(o.Instances), PeersMax, InstancesMax)
	}
	var bodies []ownBody
	for i := range o.Keys {
		bodies = append(bodies, ownBody{Claim: o.Keys[i].claim(), Key: &o.Keys[i]})
	}
	for i := range o.Holds {
		bodies = append(bodies, ownBody{Claim: o.Holds[i].claim(), Hold: &o.Holds[i]})
	}
	if len(o.Labels) > 0 {
		bodies = append(bodies, ownBody{Claim: ownLabels, Labels: o.Labels})
	}
	if len(o.Peers) > 0 {
		bodies = append(bodies, ownBody{Claim: ownPeers, Peers: o.Peers})
	}
	for i := range o.Instances {
		if err := o.Instances[i].check(); err != nil {
			return nil, invalid("%w", err)
		}
		bodies = append(bodies, ownBody{Claim: o.Instances[i].claim(), Instance: &o.Instances[i]})
	}
	items := make([]Item, 0, len(bodies))
	for _, b := range bodies {
		b.Schema = ownSchema
		data, err := encoding.Marshal(b)
		switch {
		case err != nil:
			return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode " + b.Claim, Cause: err}
		case len(b.Claim) > ownClaimMax || len(data) > declare.BodyBytesMax:
			return nil, invalid("%.64s… has %d bytes", b.Claim, len(data))
		}
		items = append(items, Item{Claim: b.Claim, Body: data})
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Claim, b.Claim) })
	for i := 1; i < len(items); i++ {
		if items[i].Claim == items[i-1].Claim {
			return nil, invalid("%s is in it twice", items[i].Claim)
		}
	}
	return items, nil
}

// DecodeOwn reads the bodies of an own layer and the keys at which they stand. It passes over what only a later version knows.
// The errors are BodyTooLarge and StateCorrupt.
func DecodeOwn(bodies iter.Seq2[Digest, []byte]) (Own, error) {
	var o Own
	for key, data := range bodies {
		if len(data) > declare.BodyBytesMax {
			return Own{}, &reason.Error{Code: reason.BodyTooLarge, Doing: "decode a node's own layer"}
		}
		if err := o.add(key, data); err != nil {
			return Own{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a node's own layer", Cause: err}
		}
	}
	slices.SortFunc(o.Keys, func(a, b OwnKey) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(o.Holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Config, b.Config), cmp.Compare(a.Claim, b.Claim))
	})
	slices.SortFunc(o.Instances, func(a, b Instance) int { return cmp.Compare(a.UID, b.UID) })
	return o, nil
}

// add reads one body. What its schema and claim are is known of all versions; the rest only of those up to this one.
func (o *Own) add(key Digest, data []byte) error {
	var which struct {
		Schema uint   `json:"v"`
		Claim  string `json:"c"`
	}
	if err := lenient.Unmarshal(data, &which); err != nil {
		return err
	}
	if which.Claim == "" || len(which.Claim) > ownClaimMax {
		return fmt.Errorf("one has a claim of %d bytes", len(which.Claim))
	}
	if KeyOf(which.Claim) != key {
		return fmt.Errorf("one is about %s, and stands where something else belongs", which.Claim)
	}
	kind, id, _ := strings.Cut(which.Claim, ":")
	kind += ":"
	if which.Schema > ownSchema && kind == ownInstance && id != "" && len(o.Instances) < InstancesMax {
		o.Instances = append(o.Instances, Instance{UID: id, Unsupported: &reason.Error{Code: reason.LaterVersion, Doing: "read instance " + id, Hint: "bring tako-agent on this host up to date"}})
		return nil
	}
	if which.Schema > ownSchema || kind != ownKey && kind != ownHold && kind != ownLabels && kind != ownPeers && kind != ownInstance {
		return nil
	}
	var b ownBody
	if err := lenient.Unmarshal(data, &b); err != nil {
		return err
	}
	switch {
	case kind == ownKey && b.Key != nil && b.Key.claim() == b.Claim:
		o.Keys = append(o.Keys, *b.Key)
	case kind == ownHold && b.Hold != nil && b.Hold.claim() == b.Claim:
		o.Holds = append(o.Holds, *b.Hold)
	case b.Claim == ownLabels && len(b.Labels) > 0:
		o.Labels = b.Labels
	case b.Claim == ownPeers && len(b.Peers) > 0 && len(b.Peers) <= PeersMax:
		o.Peers = b.Peers
	case kind == ownInstance && b.Instance != nil && b.Instance.claim() == b.Claim && b.Instance.check() == nil && len(o.Instances) < InstancesMax:
		o.Instances = append(o.Instances, *b.Instance)
	default:
		return errors.New("one is about something else than it says")
	}
	return nil
}

package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
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
}

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
	ownKey    = "key:"
	ownHold   = "hold:"
	ownLabels = "labels:"
	ownPeers  = "peers:"
)

// ownSchema is the form of the bodies that Items writes; see schemaOf.
const ownSchema = 1

// ownClaimMax is above what holds one resource of one config: its name, and its claim.
const ownClaimMax = declare.ClaimBytesMax + 1<<10

// ownBody is the form of a body. A field that is added, and that a host must know to do right, needs another schema number.
type ownBody struct {
	Schema uint              `json:"v"`
	Claim  string            `json:"c"`
	Key    *OwnKey           `json:"k,omitempty"`
	Hold   *Hold             `json:"h,omitempty"`
	Labels map[string]string `json:"l,omitempty"`
	Peers  []Peer            `json:"p,omitempty"`
}

func (k *OwnKey) claim() string { return ownKey + k.ID }

func (h *Hold) claim() string { return ownHold + h.Config + "|" + h.Claim }

// Items are the items of the own layer, sorted by claim. The errors are InvalidValue, for two that are about one thing or are too
// large, and InternalFault.
func (o Own) Items() ([]Item, error) {
	var items []Item
	for i := range o.Keys {
		k := &o.Keys[i]
		if err := addOwn(&items, ownBody{Schema: ownSchema, Claim: k.claim(), Key: k}); err != nil {
			return nil, err
		}
	}
	for i := range o.Holds {
		h := &o.Holds[i]
		if err := addOwn(&items, ownBody{Schema: ownSchema, Claim: h.claim(), Hold: h}); err != nil {
			return nil, err
		}
	}
	if len(o.Labels) > 0 {
		if err := addOwn(&items, ownBody{Schema: ownSchema, Claim: ownLabels, Labels: o.Labels}); err != nil {
			return nil, err
		}
	}
	if len(o.Peers) > PeersMax {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "make a node's own layer", Cause: fmt.Errorf("it has %d peers, at most %d are allowed", len(o.Peers), PeersMax)}
	}
	if len(o.Peers) > 0 {
		if err := addOwn(&items, ownBody{Schema: ownSchema, Claim: ownPeers, Peers: o.Peers}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Claim, b.Claim) })
	for i := 1; i < len(items); i++ {
		if items[i].Claim == items[i-1].Claim {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: "make a node's own layer", Cause: fmt.Errorf("%s is in it twice", items[i].Claim)}
		}
	}
	return items, nil
}

func addOwn(items *[]Item, b ownBody) error {
	data, err := encoding.Marshal(b)
	switch {
	case err != nil:
		return &reason.Error{Code: reason.InternalFault, Doing: "encode " + b.Claim, Cause: err}
	case len(b.Claim) > ownClaimMax || len(data) > declare.BodyBytesMax:
		return &reason.Error{Code: reason.InvalidValue, Doing: "make a node's own layer", Cause: fmt.Errorf("%.64s… has %d bytes", b.Claim, len(data))}
	}
	*items = append(*items, Item{Claim: b.Claim, Body: data})
	return nil
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
	kind, _, _ := strings.Cut(which.Claim, ":")
	kind += ":"
	if which.Schema > Schema || kind != ownKey && kind != ownHold && kind != ownLabels && kind != ownPeers {
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
	default:
		return errors.New("one is about something else than it says")
	}
	return nil
}

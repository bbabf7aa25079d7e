package heads

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
)

const (
	// period is how long one signature is repeated: so much older may the issue be that a host sees, and each one costs a signature
	// (20 us) and 300 bytes on the way to a host.
	period = time.Hour
	// lifetime is how long a head is good: a night, and half a day for who is called in the morning to bring the servers back, before hosts
	// say that they are stale. A host that was forged to stay behind notices after that time.
	lifetime = 24 * time.Hour
	// consentMax is all.
	consentMax = 100
	// holdersMax is how many hosts keep the head of one that is away: two may be gone when it comes back, and for ten thousand nodes that
	// are away at once it is as much work again as to sign for them.
	holdersMax = 3
)

// Content is what an Assignment comes to, without what changes with time.
type Content struct {
	List     catalog.List
	Encoded  []byte         // List
	Root     catalog.Digest // of List
	Own      []catalog.Item // of the node's own layer; nil when it has none
	OwnRoot  catalog.Digest
	Fallback []byte // encoded list; nil when nothing is tried
	Try      *catalog.Try
	Entries  uint64 // in all layers, the own one too
	Bytes    uint64 // of their bodies
	Consent  uint8
	Window   uint32 // seconds; 0 is left out of a head
	// Holders are the UIDs of nodes whose hosts keep the head of this one while its own is away: the first of its peers.
	Holders  []string
	Absorbed []v1alpha1.AbsorbedOrder
}

// ContentOf reads an Assignment. The error says why nothing can be made of it: InvalidValue, and those of catalog.Own.
func ContentOf(spec *v1alpha1.AssignmentSpec) (*Content, error) {
	c := &Content{
		Entries: uint64(max(spec.Entries, 0)), Bytes: uint64(max(spec.Bytes, 0)), Consent: uint8(min(max(spec.AllowDeletions, 0), consentMax)),
		Window: uint32(max(spec.FetchWindowSeconds, 0)), Absorbed: spec.Absorbed,
	}
	ownRoot := ""
	if spec.Own != nil {
		if err := c.own(spec.Own); err != nil {
			return nil, err
		}
		ownRoot = spec.Own.Root
		for _, p := range spec.Own.Peers[:min(len(spec.Own.Peers), holdersMax)] {
			c.Holders = append(c.Holders, string(p.UID))
		}
		for i := range c.Own {
			c.Entries++
			c.Bytes += uint64(len(c.Own[i].Body))
		}
	}
	var err error
	if c.List, c.Encoded, err = listOf(spec.Layers, ownRoot); err != nil {
		return nil, err
	}
	c.Root = catalog.ListRoot(c.Encoded)
	if spec.Try == nil {
		return c, nil
	}
	if _, c.Fallback, err = listOf(spec.Try.Layers, spec.Try.OwnRoot); err != nil {
		return nil, err
	}
	fallback := catalog.ListRoot(c.Fallback)
	if fallback.String() != spec.Try.Fallback {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "read the fallback of an Assignment", Cause: fmt.Errorf("its layers have the root %s, and it says %s", fallback, spec.Try.Fallback)}
	}
	c.Try = &catalog.Try{Seconds: uint32(max(spec.Try.Seconds, 0)), Fallback: fallback}
	return c, nil
}

func listOf(assigned []v1alpha1.AssignedLayer, ownRoot string) (catalog.List, []byte, error) {
	list, err := layers.ListOf(assigned, ownRoot)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := list.Encode()
	return list, encoded, err
}

func (c *Content) own(own *v1alpha1.OwnLayer) error {
	var err error
	if c.Own, err = layers.OwnItems(own); err != nil {
		return err
	}
	c.OwnRoot = catalog.TrieOf(c.Own).Root()
	if c.OwnRoot.String() != own.Root {
		return &reason.Error{Code: reason.InvalidValue, Doing: "read the own layer of an Assignment", Cause: fmt.Errorf("it has the root %s, and says %s", c.OwnRoot, own.Root)}
	}
	return nil
}

// Derive is the head of a node, unsigned: it depends on what it is given and on nothing else, so every server makes the same. version
// is the resource version of the Assignment, issued what Issued says.
func Derive(c *Content, node catalog.Node, epoch, version uint64, issued int64) catalog.Head {
	return catalog.Head{
		Cluster: node.Cluster, Node: node.Name, UID: node.UID, Epoch: epoch, Version: version, MinProtocol: catalog.HeadProtocol,
		Roots:   []catalog.FormatRoot{{Format: catalog.FormatV1, Root: c.Root}},
		Entries: c.Entries, Bytes: c.Bytes, Window: c.Window, Consent: c.Consent, Try: c.Try, Absorbed: c.absorbed(epoch),
		Issued: issued, Expires: issued + int64(lifetime/time.Second),
	}
}

// absorbed are the orders that a head of an epoch says are absorbed: those of that epoch, because numbers begin anew with each.
func (c *Content) absorbed(epoch uint64) []catalog.AbsorbedNumber {
	var all []catalog.AbsorbedNumber
	for _, o := range c.Absorbed {
		if o.Epoch > 0 && uint64(o.Epoch) == epoch && o.Number > 0 {
			all = append(all, catalog.AbsorbedNumber{Layer: o.Config, Number: uint64(o.Number)})
		}
	}
	return all
}

// Issued is when the head of a node was issued that is good now, in seconds since 1970: the start of its period. The periods of
// different nodes start at different moments, so that the work of signing is spread over all of them. It is not after now.
func Issued(uid string, now time.Time) int64 {
	const length = int64(period / time.Second)
	hash := sha256.Sum256([]byte("tako/issued/1\n" + uid))
	start := int64(binary.BigEndian.Uint64(hash[:]) % uint64(length))
	since := (now.Unix() - start) % length
	if since < 0 { // before 1970 plus a period
		since += length
	}
	return now.Unix() - since
}

// number reads a resource version, which is a revision of etcd; 0 when it is none.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

package layers

import (
	"encoding/hex"
	"fmt"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// ListOf is the catalog that the layers of an Assignment make, with the node's own layer where ownRoot is not empty. The error is
// InvalidValue.
func ListOf(assigned []v1alpha1.AssignedLayer, ownRoot string) (catalog.List, error) {
	list := make([]catalog.Layer, 0, len(assigned)+1)
	for i := range assigned {
		a := &assigned[i]
		root, err := ParseRoot(a.Root)
		if err != nil {
			return nil, err
		}
		list = append(list, catalog.Layer{Priority: int(a.Priority), ID: a.Config, Root: root})
	}
	if ownRoot != "" {
		root, err := ParseRoot(ownRoot)
		if err != nil {
			return nil, err
		}
		list = append(list, catalog.Layer{Priority: catalog.OwnPriority, ID: wire.OwnLayer, Root: root})
	}
	return catalog.NewList(list...)
}

// OwnItems are the items of a node's own layer: its root is that of their trie. The errors are those of catalog.Own.
func OwnItems(own *v1alpha1.OwnLayer) ([]catalog.Item, error) {
	o := catalog.Own{Labels: own.Labels}
	for i := range own.Keys {
		o.Keys = append(o.Keys, catalog.OwnKey{ID: own.Keys[i].ID, Sealed: own.Keys[i].Sealed})
	}
	for i := range own.Holds {
		h := &own.Holds[i]
		o.Holds = append(o.Holds, catalog.Hold{Config: h.Config, Claim: h.Resource, Reason: h.Reason, Owner: h.Owner, Until: h.Until.Unix()})
	}
	for _, p := range own.Peers {
		o.Peers = append(o.Peers, catalog.Peer{Name: p.Name, UID: string(p.UID), Address: p.Address})
	}
	for i := range own.Instances {
		in := &own.Instances[i]
		o.Instances = append(o.Instances, catalog.Instance{UID: string(in.UID), Namespace: in.Namespace, Name: in.Name, Workload: in.Workload, Revision: in.Revision,
			Slot: int(in.Slot), Job: in.Job, Stop: in.Stop, Lease: int(in.LeaseSeconds)})
	}
	return o.Items()
}

// ParseRoot reads a root as the fields of an Assignment have it: 64 hexadecimal digits, which is what its String writes. The error is
// InvalidValue.
func ParseRoot(text string) (catalog.Digest, error) {
	var root catalog.Digest
	b, err := hex.DecodeString(text)
	if err == nil && len(b) != len(root) {
		err = fmt.Errorf("it has %d bytes, want %d", len(b), len(root))
	}
	if err != nil {
		return root, &reason.Error{Code: reason.InvalidValue, Doing: fmt.Sprintf("read root %.80q", text), Cause: err}
	}
	return catalog.Digest(b), nil
}

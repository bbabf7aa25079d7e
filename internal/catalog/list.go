package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// LayersMax is how many layers a catalog may have beside the node's own.
const LayersMax = 256

// listBytesMax is above what a list takes that is at every bound.
const listBytesMax = (LayersMax + 1) * (declare.ClaimBytesMax + 64)

// Layer is one layer of a catalog.
type Layer struct {
	_        struct{} `cbor:",toarray"`
	Priority int      // 0 to 1999; OwnPriority for the node's own
	ID       string   // who declares it, as ConfigName says, or the node's own
	Root     Digest
}

// priorityMax is the highest that a ClusterNodeConfig may have.
const priorityMax = 1999

// OwnPriority is the priority of the node's own layer. Nothing in it is claimed by another layer.
const OwnPriority = -1

// List is the layers of a catalog: the highest priority first, equal ones by their IDs, the node's own last.
type List []Layer

// NewList puts layers in order. The errors are InvalidValue, for what Decode would refuse.
func NewList(layers ...Layer) (List, error) {
	l := slices.Clone(List(layers))
	slices.SortFunc(l, compareLayers)
	if err := l.validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "make a catalog", Cause: err}
	}
	return l, nil
}

func compareLayers(a, b Layer) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID))
}

func (l List) validate() error {
	seen, own := map[string]bool{}, 0
	for i, layer := range l {
		switch {
		case layer.ID == "" || len(layer.ID) > declare.ClaimBytesMax:
			return fmt.Errorf("layer %d has an ID of %d bytes", i, len(layer.ID))
		case seen[layer.ID]:
			return fmt.Errorf("layer %s is in it twice", layer.ID)
		case layer.Priority < OwnPriority || layer.Priority > priorityMax:
			return fmt.Errorf("layer %s has the priority %d", layer.ID, layer.Priority)
		case i > 0 && compareLayers(l[i-1], layer) >= 0:
			return errors.New("its layers are not in order")
		}
		seen[layer.ID] = true
		if layer.Priority == OwnPriority {
			own++
		}
	}
	if own > 1 || len(l)-own > LayersMax {
		return fmt.Errorf("it has %d layers, and %d of the node's own; at most %d and 1 are allowed", len(l)-own, own, LayersMax)
	}
	return nil
}

// Encode is the list in canonical CBOR.
func (l List) Encode() ([]byte, error) {
	b, err := encoding.Marshal(l)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode a catalog", Cause: err}
	}
	return b, nil
}

// DecodeList reads what Encode wrote, and nothing else. The error is StateCorrupt.
func DecodeList(data []byte) (List, error) {
	var l List
	err := errors.New("it is too large")
	if len(data) <= listBytesMax {
		err = l.decode(data)
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a catalog", Cause: err}
	}
	return l, nil
}

func (l *List) decode(data []byte) error {
	if err := decoding.Unmarshal(data, l); err != nil {
		return err
	}
	if err := l.validate(); err != nil {
		return err
	}
	if again, err := encoding.Marshal(*l); err != nil || !bytes.Equal(again, data) {
		return errors.New("it is not in canonical form")
	}
	return nil
}

// ListRoot is the root that a head signs, of an encoded list.
func ListRoot(encoded []byte) Digest {
	h := sha256.New()
	h.Write([]byte("catalog-v1"))
	h.Write(encoded)
	return Digest(h.Sum(nil))
}

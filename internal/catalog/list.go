package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

const (
	// LayersMax is how many layers of configs a catalog may have.
	LayersMax = 256
	// TemplatesMax is how many of workloads' revisions: neither takes the room of the other.
	TemplatesMax = 256
	// templateIDMax is above the ID of the layer of a workload's revision: a namespace and a name have 63 bytes each.
	templateIDMax = 256
	// listBytesMax is above what a list takes that is at every bound.
	listBytesMax = (LayersMax+1)*(declare.ClaimBytesMax+64) + TemplatesMax*(templateIDMax+64)
)

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

// Config tells whether the layer is a config's, and takes part in the resolution of what the host enforces.
func (l *Layer) Config() bool { return l.Priority != OwnPriority && !l.template() }

// template tells whether the ID is that of the layer of a workload's revision.
func (l *Layer) template() bool { return strings.HasPrefix(l.ID, templatePrefix) }

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
	seen, own, templates := map[string]bool{}, 0, 0
	for i, layer := range l {
		switch {
		case layer.ID == "" || len(layer.ID) > declare.ClaimBytesMax || layer.template() && len(layer.ID) > templateIDMax:
			return fmt.Errorf("layer %d has an ID of %d bytes", i, len(layer.ID))
		case seen[layer.ID]:
			return fmt.Errorf("layer %s is in it twice", layer.ID)
		case layer.Priority < OwnPriority || layer.Priority > priorityMax:
			return fmt.Errorf("layer %s has the priority %d", layer.ID, layer.Priority)
		case i > 0 && compareLayers(l[i-1], layer) >= 0:
			return errors.New("its layers are not in order")
		}
		seen[layer.ID] = true
		switch {
		case layer.Priority == OwnPriority:
			own++
		case layer.template():
			templates++
		}
	}
	if configs := len(l) - own - templates; own > 1 || configs > LayersMax || templates > TemplatesMax {
		return fmt.Errorf("it has %d layers of configs, %d of workloads, and %d of the node's own; at most %d, %d and 1 are allowed", configs, templates, own, LayersMax, TemplatesMax)
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

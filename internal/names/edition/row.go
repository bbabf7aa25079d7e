package edition

import (
	"errors"
	"net/netip"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// The kinds of rows, as their keys begin. What begins otherwise is of a later version: it is kept, and not served.
const (
	kindNamespace = "z"
	kindWorkload  = "w"
	kindInstance  = "i"
	kindNode      = "n"
)

// Row is one thing that has a name: a namespace, a workload that is declared, an instance that is ready, or a node. Use NamespaceRow and the others.
type Row struct {
	Key       string   `cbor:"1,keyasint"`           // KIND/NAMESPACE/NAME, z/NAMESPACE or n/NODE
	Workload  string   `cbor:"2,keyasint,omitempty"` // of an instance, and so are the next three
	Index     int32    `cbor:"3,keyasint,omitempty"`
	Node      string   `cbor:"4,keyasint,omitempty"`
	Revision  string   `cbor:"5,keyasint,omitempty"`
	Addresses [][]byte `cbor:"6,keyasint,omitempty"` // 4 or 16 bytes each
	Ports     []port   `cbor:"7,keyasint,omitempty"`
}

type port struct {
	Name   string            `cbor:"1,keyasint"`
	UDP    bool              `cbor:"2,keyasint,omitempty"`
	Number uint16            `cbor:"3,keyasint,omitempty"` // of an instance
	Text   map[string]string `cbor:"4,keyasint,omitempty"`
}

func (p *port) named() names.Port {
	if p.UDP {
		return names.Port{Name: p.Name, Protocol: workload.UDP}
	}
	return names.Port{Name: p.Name, Protocol: workload.TCP}
}

// NamespaceRow says that a namespace is there.
func NamespaceRow(name string) Row { return Row{Key: kindNamespace + "/" + name} }

// WorkloadRow says that a workload is declared.
func WorkloadRow(w names.Workload) Row {
	r := Row{Key: kindWorkload + "/" + w.Namespace + "/" + w.Name}
	for _, p := range w.Ports {
		r.Ports = append(r.Ports, port{Name: p.Name, UDP: p.Protocol == workload.UDP})
	}
	return r
}

// InstanceKey is the key of the row of an instance.
func InstanceKey(namespace, name string) string { return kindInstance + "/" + namespace + "/" + name }

// InstanceRow says that an instance is ready.
func InstanceRow(i *names.Instance) Row {
	r := Row{Key: InstanceKey(i.Namespace, i.Name), Workload: i.Workload, Index: i.Index, Node: i.Node, Revision: i.Revision, Addresses: bytesOf(i.Addresses)}
	for _, e := range i.Endpoints {
		r.Ports = append(r.Ports, port{Name: e.Name, UDP: e.Protocol == workload.UDP, Number: e.Number, Text: e.Text})
	}
	return r
}

// NodeRow says where a node is.
func NodeRow(n names.Node) Row {
	return Row{Key: kindNode + "/" + n.Name, Addresses: bytesOf(n.Addresses)}
}

func bytesOf(addresses []netip.Addr) (all [][]byte) {
	for _, a := range addresses {
		all = append(all, a.Unmap().AsSlice())
	}
	return all
}

func (r *Row) addresses() (all []netip.Addr) {
	for _, b := range r.Addresses {
		if a, ok := netip.AddrFromSlice(b); ok {
			all = append(all, a)
		}
	}
	return all
}

// split takes a key apart. A part that a kind does not have is empty.
func split(key string) (kind, namespace, name string) {
	kind, rest, _ := strings.Cut(key, "/")
	if kind == kindNode {
		return kind, "", rest
	}
	namespace, name, _ = strings.Cut(rest, "/")
	return kind, namespace, name
}

// Instance is the ready instance that the row is about; nil where it is about something else. The caller may change it, but for the texts of ports.
func (r *Row) Instance() *names.Instance {
	kind, namespace, name := split(r.Key)
	if kind != kindInstance {
		return nil
	}
	i := &names.Instance{Namespace: namespace, Workload: r.Workload, Name: name, Node: r.Node, Index: r.Index, Revision: r.Revision, Addresses: r.addresses()}
	for k := range r.Ports {
		p := &r.Ports[k]
		i.Endpoints = append(i.Endpoints, names.Endpoint{Port: p.named(), Number: p.Number, Text: p.Text})
	}
	return i
}

// put has an index say what the row says.
func (r *Row) put(e *names.Edit) error {
	kind, namespace, name := split(r.Key)
	switch kind {
	case kindNamespace:
		return e.PutNamespace(namespace)
	case kindWorkload:
		w := names.Workload{Namespace: namespace, Name: name}
		for k := range r.Ports {
			w.Ports = append(w.Ports, r.Ports[k].named())
		}
		return e.PutWorkload(w)
	case kindInstance:
		return e.PutInstance(r.Instance())
	case kindNode:
		return e.PutNode(names.Node{Name: name, Addresses: r.addresses()})
	}
	return nil
}

// Drop has an index say nothing of what the row of a key said.
func Drop(e *names.Edit, key string) {
	switch kind, namespace, name := split(key); kind {
	case kindNamespace:
		e.DropNamespace(namespace)
	case kindWorkload:
		e.DropWorkload(namespace, name)
	case kindInstance:
		e.DropInstance(namespace, name)
	case kindNode:
		e.DropNode(name)
	}
}

// decodeRow reads a row. The error is StateCorrupt.
func decodeRow(body []byte) (r Row, err error) {
	if err := wire.Decode(body, &r); err != nil {
		return r, err
	}
	if r.Key == "" || len(r.Key) > wire.NamesKeyMax || len(body) > wire.NamesRowMax {
		return r, &reason.Error{Code: reason.StateCorrupt, Doing: "read a row of the names", Cause: errors.New("it has no key, or is too long")}
	}
	return r, nil
}

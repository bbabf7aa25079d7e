package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Limits of names and records.
const (
	labelBytesMax  = 63   // RFC 1035, section 2.3.4
	nameBytesMax   = 253  // the same, as text without the last dot
	domainBytesMax = 61   // leaves room for INSTANCE.WORKLOAD.NAMESPACE of 63 bytes each
	textBytesMax   = 255  // one string of a TXT record: RFC 1035, section 3.3
	textsBytesMax  = 1300 // all of one: RFC 6763, section 6.2; what of it does not fit a packet is asked for by TCP
	indexSignsMax  = 10   // of an int32
)

// NodeLabel is the label below the domain that names of nodes stand under. So it is no namespace.
const NodeLabel = "node"

// Port is what a workload has by name.
type Port struct {
	Name     string
	Protocol workload.Protocol // empty is TCP
}

// Endpoint is a port of an instance, with the number that it has there.
type Endpoint struct {
	Port
	Number uint16
	Text   map[string]string // for those who browse; not changed by anybody any more
}

// Workload is one that is declared, whether an instance of it is ready or not.
type Workload struct {
	Namespace string
	Name      string
	Ports     []Port
}

// Instance is a ready one. Its slices are not changed by anybody any more, and instances may share them.
type Instance struct {
	Namespace string
	Workload  string
	Name      string // unique in the namespace
	Node      string
	Index     int32
	Revision  string
	Addresses []netip.Addr // where it is reached: with the network of the host, where its node is
	Endpoints []Endpoint
}

// Node is a host.
type Node struct {
	Name      string
	Addresses []netip.Addr
}

// service is a port as questions name it.
type service struct {
	port string // without the underscore
	udp  bool
}

func (p Port) service() service { return service{port: p.Name, udp: p.Protocol == workload.UDP} }

func (s service) proto() string {
	if s.udp {
		return "_udp"
	}
	return "_tcp"
}

// String is the service type of RFC 6763, section 7: _http._tcp.
func (s service) String() string { return "_" + s.port + "." + s.proto() }

func compareServices(a, b service) int {
	if c := strings.Compare(a.port, b.port); c != 0 {
		return c
	}
	return cmp.Compare(a.proto(), b.proto())
}

// isLabel reports whether s is a label that a host can be called by: RFC 1123, section 2.1, in lower case.
func isLabel(s string) bool {
	if s == "" || len(s) > labelBytesMax || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isSubdomain reports whether s is labels joined by dots.
func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isIndex reports whether a label stands for the index of an instance.
func isIndex(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func unservable(what, name, hint string) error {
	return &reason.Error{Code: reason.NameUnservable, Doing: fmt.Sprintf("serve the name of %s %q", what, clip(name)), Hint: hint}
}

// clip bounds what is repeated of a name that is wrong.
func clip(s string) string {
	if len(s) <= nameBytesMax {
		return s
	}
	return strings.ToValidUTF8(s[:nameBytesMax], "") + "…"
}

const labelHint = "a name of the DNS has 1 to 63 of a-z, 0-9 and -, with a letter or digit first and last"

func checkNamespace(name string) error {
	switch {
	case !isLabel(name):
		return unservable("namespace", name, labelHint)
	case name == NodeLabel:
		return unservable("namespace", name, "names of nodes stand under it")
	}
	return nil
}

func checkPorts(of string, ports []Port) error {
	for _, p := range ports {
		switch {
		case len(p.Name) > 15 || !isLabel(p.Name):
			return unservable("port", p.Name, "RFC 6335: up to 15 of a-z, 0-9 and -; it is one of "+of)
		case p.service() == (service{port: "dns-sd", udp: true}):
			return unservable("port", p.Name, "what there is to browse for stands under _dns-sd._udp; it is one of "+of)
		}
	}
	return nil
}

func (w Workload) check() error {
	if err := checkNamespace(w.Namespace); err != nil {
		return err
	}
	if !isLabel(w.Name) {
		return unservable("workload", w.Name, labelHint)
	}
	return checkPorts("workload "+w.Namespace+"/"+w.Name, w.Ports)
}

func (i *Instance) check() error {
	if err := (Workload{Namespace: i.Namespace, Name: i.Workload}).check(); err != nil {
		return err
	}
	switch {
	case !isLabel(i.Name):
		return unservable("instance", i.Name, labelHint)
	case isIndex(i.Name):
		return unservable("instance", i.Name, "digits alone stand for an index")
	case i.Index < 0:
		return unservable("instance", i.Name, fmt.Sprintf("its index is %d", i.Index))
	case !isSubdomain(i.Node) || len(i.Node) > textBytesMax-len("node="):
		return unservable("node", i.Node, labelHint+"; instance "+i.Name+" is there")
	case len(i.Revision) > textBytesMax-len("revision="):
		return unservable("instance", i.Name, "its revision's name is too long for a record")
	}
	if at := slices.IndexFunc(i.Addresses, func(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" }); at >= 0 {
		return unservable("instance", i.Name, fmt.Sprintf("%q is no address that others can reach", i.Addresses[at]))
	}
	of := "instance " + i.Namespace + "/" + i.Name
	for _, e := range i.Endpoints {
		if err := checkPorts(of, []Port{e.Port}); err != nil {
			return err
		}
		if hint := textMistake(e.Text); hint != "" {
			return unservable("port", e.Name, hint+"; it is one of "+of)
		}
	}
	return nil
}

// textMistake says what of a port's texts no TXT record can hold (RFC 6763, section 6), or nothing.
func textMistake(text map[string]string) string {
	sum := len(textVersion) + 1
	for key, value := range text {
		sum += len(key) + len(value) + len("=") + 1
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' || r == '=' }) {
			return fmt.Sprintf("the key %q of a text is not printable, or has = in it", clip(key))
		}
		if len(key)+len("=")+len(value) > textBytesMax {
			return fmt.Sprintf("the text of %q is longer than %d bytes", clip(key), textBytesMax)
		}
	}
	if sum > textsBytesMax {
		return fmt.Sprintf("its texts have %d bytes together, at most %d fit a record", sum, textsBytesMax)
	}
	return ""
}

func (n Node) check(domain string) error {
	if !isSubdomain(n.Name) || len(n.Name)+len(".")+len(NodeLabel)+len(".")+len(domain) > nameBytesMax {
		return unservable("node", n.Name, labelHint+", and 253 signs with the domain")
	}
	if at := slices.IndexFunc(n.Addresses, func(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" }); at >= 0 {
		return unservable("node", n.Name, fmt.Sprintf("%q is no address that others can reach", n.Addresses[at]))
	}
	return nil
}

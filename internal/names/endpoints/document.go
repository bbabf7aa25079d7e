package endpoints

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/names"
)

// Bounds of the files: some 4 MB with names of usual length, and what the ports have of texts.
const (
	servicesMax  = 10_000
	endpointsMax = 10_000 // of all services together
	perService   = 1_000  // of one, where all together leave as much
)

// Document is what the file of endpoints says.
type Document struct {
	Format   int       `json:"format"` // 1; a reader refuses what it does not know
	Domain   string    `json:"domain"`
	Services []Service `json:"services"`       // by namespace, workload and port
	Left     int       `json:"left,omitempty"` // how many services are not listed
}

// Service is a port of a workload.
type Service struct {
	Namespace string            `json:"namespace"`
	Workload  string            `json:"workload"`
	Port      string            `json:"port"`
	Protocol  workload.Protocol `json:"protocol"`
	Name      string            `json:"name"`      // of DNS
	Ready     int               `json:"ready"`     // how many instances are; more than are listed where there are very many
	Endpoints []Endpoint        `json:"endpoints"` // by instance
}

// Endpoint is where a ready instance has the port.
type Endpoint struct {
	Instance  string            `json:"instance"`
	Index     int32             `json:"index"`
	Node      string            `json:"node"`
	Revision  string            `json:"revision"`
	Addresses []netip.Addr      `json:"addresses"`
	Number    uint16            `json:"number"`
	Text      map[string]string `json:"text,omitempty"`
}

// DocumentOf is what there is in an index, as far as the bounds allow.
func DocumentOf(x *names.Index) Document {
	d := Document{Format: 1, Domain: x.Domain(), Services: []Service{}}
	limit := share(x)
	for s := range x.Services() {
		if len(d.Services) == servicesMax {
			d.Left++
			continue
		}
		one := Service{Namespace: s.Namespace, Workload: s.Workload, Port: s.Port.Name, Protocol: s.Port.Protocol, Name: s.Name, Ready: len(s.Instances), Endpoints: []Endpoint{}}
		for _, i := range s.Instances[:min(limit, len(s.Instances))] {
			at := i.Endpoint(s.Port)
			one.Endpoints = append(one.Endpoints, Endpoint{Instance: i.Name, Index: i.Index, Node: i.Node, Revision: i.Revision, Addresses: i.Addresses, Number: at.Number, Text: at.Text})
		}
		d.Services = append(d.Services, one)
	}
	return d
}

// share is how many instances each service may list so that all together list no more than there may be: many services with few instances do
// not lose theirs to one that has many.
func share(x *names.Index) int {
	for limit := perService; ; limit /= 2 {
		services, sum := 0, 0
		for s := range x.Services() {
			if services++; services > servicesMax {
				break
			}
			sum += min(limit, len(s.Instances))
		}
		if sum <= endpointsMax || limit == 1 {
			return limit
		}
	}
}

// JSON is the document as it stands in the file.
func (d Document) JSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ") // one value a line, for people and for diff
	err := e.Encode(d)
	return b.Bytes(), err
}

// Table is the document in lines of words, one for each address of each endpoint, for programs that have no reader of JSON. Texts are not in
// it. No word is empty or has a blank in it.
func (d Document) Table() []byte {
	var b bytes.Buffer
	b.WriteString("# NAMESPACE WORKLOAD PORT PROTOCOL ADDRESS NUMBER INSTANCE INDEX NODE\n")
	for _, s := range d.Services {
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				fmt.Fprintf(&b, "%s %s %s %s %s %d %s %d %s\n", s.Namespace, s.Workload, s.Port, s.Protocol, a, e.Number, e.Instance, e.Index, e.Node)
			}
		}
	}
	return b.Bytes()
}

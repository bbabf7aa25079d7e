package declare

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Endpoint is a service of somebody else that this host needs: it is as declared while it answers. Nothing is changed for that; what
// requires it waits.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Endpoint struct {
	// Host is the name or address at which it answers. Exactly one of host and service is given.
	Host string `json:"host,omitempty"`
	// Port is its TCP port, 1 to 65535. With host only, and required there.
	Port int `json:"port,omitempty"`
	// Service is the name of an SRV record that says where it is, "_postgresql._tcp.db.example.com": one of those that it names must
	// answer.
	Service string `json:"service,omitempty"`
	// TLS asks for a certificate of that name which an authority of this host, or ca, has signed.
	TLS bool `json:"tls,omitempty"`
	// ServerName is the name that the certificate must have. Default host, or what the SRV record names.
	ServerName string `json:"serverName,omitempty"`
	// CA are the certificates of the authorities that are believed, PEM. Default those of the host.
	CA string `json:"ca,omitempty"`
	// HTTP asks for a page, too. Left out, it is enough that a connection comes about.
	HTTP *EndpointHTTP `json:"http,omitempty"`
	// Timeout bounds one attempt: "5s", 1 second to a minute. Default 5s.
	Timeout string `json:"timeout,omitempty"`
	// Every is how often it is asked while it answers: "30s", 1 second to an hour. Default 30s. While it does not, it is asked every five
	// seconds, or as often where that is more often.
	Every string `json:"every,omitempty"`
}

// EndpointHTTP is a page that must be there.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type EndpointHTTP struct {
	// Path is that of the request, with its query. Default /.
	Path string `json:"path,omitempty"`
	// Status are the codes that are good. Default 200 to 299. Where a redirection leads is not looked at.
	// +listType=atomic
	Status []int `json:"status,omitempty"`
	// Contains is a text that must be within the first 64 KiB of the page.
	Contains string `json:"contains,omitempty"`
}

// Bounds of an endpoint.
const (
	EndpointTimeoutDefault = 5 * time.Second
	EndpointEveryDefault   = 30 * time.Second
	// EndpointRetry is how often one that does not answer is asked: soon enough for what waits for it, and rare enough for a thousand
	// hosts that do.
	EndpointRetry = 5 * time.Second

	endpointTimeoutMax  = time.Minute
	endpointEveryMax    = time.Hour
	endpointUnitMin     = time.Second
	endpointPathMax     = 2048 // what servers take at least, RFC 9110
	endpointContainsMax = 1024 // a word or a line
	endpointCAMax       = 64 << 10
	endpointStatusMax   = 32
	portMax             = 65535
	statusMin           = 100
	statusMax           = 599
)

func (e *Endpoint) claim(name string) Claim { return Claim{ClaimEndpoint, name} }

func (e *Endpoint) claimField() string { return "name" }

func (e *Endpoint) texts() []expandableText {
	texts := []expandableText{{"endpoint.host", &e.Host}, {"endpoint.service", &e.Service}, {"endpoint.serverName", &e.ServerName}}
	if e.HTTP != nil {
		texts = append(texts, expandableText{"endpoint.http.path", &e.HTTP.Path}, expandableText{"endpoint.http.contains", &e.HTTP.Contains})
	}
	return texts
}

// autoEdges has a name looked up after this host's own entry for it.
func (e *Endpoint) autoEdges(Claim) []AutoEdge {
	return []AutoEdge{{Other: Claim{ClaimPath, "/etc/resolv.conf"}, Why: "resolver of an endpoint"}}
}

func (e *Endpoint) permanent() (message, hint string) {
	return "what others serve cannot be deleted", "leave onRemove out"
}

// TimeoutOrDefault returns the bound of one attempt.
func (e *Endpoint) TimeoutOrDefault() time.Duration {
	return cmp.Or(durationOr(e.Timeout, 0), EndpointTimeoutDefault)
}

// EveryOrDefault returns how often it is asked while it answers.
func (e *Endpoint) EveryOrDefault() time.Duration {
	return cmp.Or(durationOr(e.Every, 0), EndpointEveryDefault)
}

// Good reports whether a status of a page is.
func (h *EndpointHTTP) Good(status int) bool {
	if len(h.Status) == 0 {
		return status >= 200 && status < 300
	}
	return slices.Contains(h.Status, status)
}

// Mistake returns what is wrong with the place or the page, or "". It is for what was filled in on the host, too.
func (e *Endpoint) Mistake() (field, message, hint string) {
	const name = "a name of letters, digits and - between dots, or an address"
	switch {
	case e.Host == "" && e.Service == "":
		return "endpoint", "there is neither host nor service", "write where it answers: host: db.example.com and port: 5432"
	case e.Host != "" && e.Service != "":
		return "endpoint.service", "there is a host already", "keep one of host and service"
	case e.Host != "" && !isEndpointHost(e.Host):
		return "endpoint.host", fmt.Sprintf("%q is no host", clipText(e.Host)), name
	case e.Service != "" && !isServiceRecord(e.Service):
		return "endpoint.service", fmt.Sprintf("%q is no name of an SRV record", clipText(e.Service)), "write for example _postgresql._tcp.db.example.com"
	case e.ServerName != "" && !isEndpointHost(e.ServerName):
		return "endpoint.serverName", fmt.Sprintf("%q is no name of a server", clipText(e.ServerName)), name
	case e.HTTP == nil:
		return "", "", ""
	case e.HTTP.Path != "" && (e.HTTP.Path[0] != '/' || len(e.HTTP.Path) > endpointPathMax || strings.ContainsFunc(e.HTTP.Path, func(r rune) bool { return r <= ' ' || r >= 0x7f })):
		return "endpoint.http.path", fmt.Sprintf("%q is no path of a page", clipText(e.HTTP.Path)), "begin it with /, and write what is not ASCII as %XX"
	case len(e.HTTP.Contains) > endpointContainsMax:
		return "endpoint.http.contains", fmt.Sprintf("the text has %d bytes, at most %d are allowed", len(e.HTTP.Contains), endpointContainsMax), "a word that no other page has is enough"
	}
	return "", "", ""
}

func isEndpointHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return isHostsName(strings.TrimSuffix(s, "."))
}

// isServiceRecord is RFC 2782: two labels that begin with an underscore, and a name.
func isServiceRecord(s string) bool {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 3 {
		return false
	}
	for _, label := range parts[:2] {
		if l, ok := strings.CutPrefix(label, "_"); !ok || !isDomainLabel(strings.ToLower(l)) {
			return false
		}
	}
	return isHostsName(strings.TrimSuffix(parts[2], "."))
}

func (e *Endpoint) validate(v *validator) {
	if !v.resource.Expand {
		if field, message, hint := e.Mistake(); message != "" {
			v.invalid(v.path(field), message, hint)
		}
	}
	v.endpointPort(e)
	v.span("endpoint.timeout", e.Timeout, endpointTimeoutMax)
	v.span("endpoint.every", e.Every, endpointEveryMax)
	v.endpointTLS(e)
	if e.HTTP != nil && v.atMost(v.path("endpoint.http.status"), len(e.HTTP.Status), endpointStatusMax, "codes", "") {
		for i, code := range e.HTTP.Status {
			if code < statusMin || code > statusMax {
				v.invalid(v.path(indexPath("endpoint.http.status", i)), fmt.Sprintf("%d is no status of HTTP", code), fmt.Sprintf("%d to %d", statusMin, statusMax))
			}
		}
	}
	if v.resource.OnRemove == OnRemoveRestore {
		v.fault(v.path("onRemove"), reason.FieldNotAllowed, "what others serve cannot be put back", "leave onRemove out")
	}
}

func (v *validator) endpointPort(e *Endpoint) {
	at := v.path("endpoint.port")
	switch {
	case e.Service != "" && e.Port != 0:
		v.fault(at, reason.FieldNotAllowed, "an SRV record says the port itself", "leave it out")
	case e.Host != "" && e.Port == 0:
		v.fault(at, reason.MissingField, v.path("endpoint")+` has no "port"`, "")
	case e.Port < 0 || e.Port > portMax:
		v.invalid(at, strconv.Itoa(e.Port)+" is no port", "1 to 65535")
	}
}

func (v *validator) endpointTLS(e *Endpoint) {
	for _, f := range []struct{ field, text string }{{"endpoint.serverName", e.ServerName}, {"endpoint.ca", e.CA}} {
		if f.text != "" && !e.TLS {
			v.fault(v.path(f.field), reason.FieldNotAllowed, "it is for a certificate, and none is asked for", "write tls: true")
		}
	}
	if e.CA == "" {
		return
	}
	if _, err := ParseCertificates(e.CA); err != nil {
		v.invalid(v.path("endpoint.ca"), err.Error(), "write the authority's certificate as PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
	}
}

// span checks a time of whole seconds.
func (v *validator) span(field, text string, most time.Duration) {
	if text == "" {
		return
	}
	const hint = `write for example "5s" or "2m"`
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		v.invalid(v.path(field), fmt.Sprintf("%q is not a time", clipText(text)), hint)
	case d < endpointUnitMin || d > most || d%endpointUnitMin != 0:
		v.invalid(v.path(field), fmt.Sprintf("%q is not a number of whole seconds from 1 to %d", clipText(text), most/time.Second), hint)
	}
}

// ParseCertificates reads PEM that has certificates and nothing else. The error quotes nothing of it: somebody may have taken the wrong
// file.
func ParseCertificates(text string) ([]*x509.Certificate, error) {
	if len(text) > endpointCAMax {
		return nil, fmt.Errorf("there are %d bytes, at most %d are allowed", len(text), endpointCAMax)
	}
	var all []*x509.Certificate
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, errors.New("something else than a certificate is in it")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read", len(all)+1)
		}
		all = append(all, c)
	}
	if len(all) == 0 || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("it is not PEM with certificates")
	}
	return all, nil
}

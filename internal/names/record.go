package names

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// textVersion begins the texts of every instance whose port does not say another one (RFC 6763, section 6.7).
const textVersion = "txtvers=1"

func (a *answering) header(name string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

func (a *answering) add(rr dns.RR) { a.reply.Answer = append(a.reply.Answer, rr) }

// soa is of a zone. Its serial number is the version's last 32 bits: RFC 1982 has them go round.
func (a *answering) soa(zone string, ttl uint32) dns.RR {
	return &dns.SOA{Hdr: a.header(zone, dns.TypeSOA, ttl), Ns: a.domain + ".", Mbox: "hostmaster." + a.domain + ".",
		Serial: uint32(a.version), Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: readyTTL}
}

// addresses answers where something is, up to as many addresses as an answer has. Seen are those that it has already: no record is there
// twice (RFC 2181, section 5).
func (a *answering) addresses(addresses []netip.Addr, seen map[netip.Addr]bool) {
	for _, address := range addresses {
		// What is not asked for costs nothing: most clients ask for both families, and of very many instances none may have one of them.
		if address = address.Unmap(); familyOf(address) != a.q.Qtype || seen[address] || len(a.reply.Answer) == InstancesMax {
			continue
		}
		seen[address] = true
		a.add(a.host(a.q.Name, address, readyTTL))
	}
}

func familyOf(address netip.Addr) uint16 {
	if address.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

func (a *answering) host(name string, address netip.Addr, ttl uint32) dns.RR {
	if address.Is4() {
		return &dns.A{Hdr: a.header(name, dns.TypeA, ttl), A: address.AsSlice()}
	}
	return &dns.AAAA{Hdr: a.header(name, dns.TypeAAAA, ttl), AAAA: address.AsSlice()}
}

func (a *answering) hosts(to []dns.RR, name string, addresses []netip.Addr, ttl uint32) []dns.RR {
	for at, address := range addresses {
		if !slices.ContainsFunc(addresses[:at], func(before netip.Addr) bool { return before.Unmap() == address.Unmap() }) {
			to = append(to, a.host(name, address.Unmap(), ttl))
		}
	}
	return to
}

// host is the name of an instance that has its addresses.
func (i *Instance) host(a *answering) string { return a.name(i.Name, i.Workload) }

// target adds where an instance is, unless the answer lists so many that it would not fit.
func (a *answering) target(i *Instance, listed int) {
	if listed <= additionalMax {
		a.reply.Additional = a.hosts(a.reply.Additional, i.host(a), i.Addresses, readyTTL)
	}
}

func (a *answering) ptr(to string, ttl uint32) dns.RR {
	return &dns.PTR{Hdr: a.header(a.q.Name, dns.TypePTR, ttl), Ptr: to}
}

// Endpoint is a port as the instance has it, or nil.
func (i *Instance) Endpoint(p Port) *Endpoint { return i.endpoint(p.service()) }

func (i *Instance) endpoint(s service) *Endpoint {
	if at := slices.IndexFunc(i.Endpoints, func(e Endpoint) bool { return e.service() == s }); at >= 0 {
		return &i.Endpoints[at]
	}
	return nil
}

// srv says where a port of an instance is. All weigh 1: some clients take the first of those that weigh nothing, always.
func (a *answering) srv(name string, i *Instance, s service) dns.RR {
	return &dns.SRV{Hdr: a.header(name, dns.TypeSRV, readyTTL), Weight: 1, Port: i.endpoint(s).Number, Target: i.host(a)}
}

// texts are what is declared of a port, in the order of their keys, and which version of them that is before all (RFC 6763, section 6).
func (a *answering) texts(name string, i *Instance, s service) dns.RR {
	text := i.endpoint(s).Text
	first, rest := textVersion, make([]string, 0, len(text)+1)
	for _, key := range slices.Sorted(maps.Keys(text)) {
		if one := escape(key + "=" + text[key]); strings.EqualFold(key, "txtvers") {
			first = one
		} else {
			rest = append(rest, one)
		}
	}
	return &dns.TXT{Hdr: a.header(name, dns.TypeTXT, readyTTL), Txt: slices.Insert(rest, 0, first)}
}

// facts are what is known of an instance.
func (a *answering) facts(i *Instance) dns.RR {
	return &dns.TXT{Hdr: a.header(a.q.Name, dns.TypeTXT, readyTTL), Txt: []string{textVersion,
		"index=" + strconv.Itoa(int(i.Index)), escape("node=" + i.Node), escape("revision=" + i.Revision)}}
}

// escape writes a text as package dns has texts: a backslash begins an escape there.
func escape(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }

// parseService reads the label of a service: _http.
func parseService(label string, udp bool) (service, bool) {
	port, ok := strings.CutPrefix(label, "_")
	return service{port: port, udp: udp}, ok && port != ""
}

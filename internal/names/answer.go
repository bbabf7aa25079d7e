package names

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Bounds of an answer.
const (
	// InstancesMax is how many instances an answer lists: with the longest names, 200 records fit the 64 KiB of a message. Most clients take the
	// first one anyway. Which ones they are follows from the number that rotates the answer, so that all get their share.
	InstancesMax = 200
	// factsMax is how many texts of instances with one index an answer lists: of the longest ones, 118 fit a message.
	factsMax = 100
	// typesMax is how many types of service the answer lists what there is to browse for: of the longest names, 2,000 fit a message.
	typesMax = 1000
	// additionalMax is up to how many instances the addresses and texts of what is listed are added: more do not fit a packet anyway.
	additionalMax = 16
)

// Times to live, in seconds.
const (
	// readyTTL is of everything that follows readiness, and of the answer that there is nothing: the shortest that caches keep. So they spare
	// those who ask often, and are wrong for a second at most. Zero would have every program ask for every connection, and some resolvers
	// keep it for ever.
	readyTTL = 1
	// apexTTL is of what names a zone: it changes with the installation only.
	apexTTL = 60
)

// Times of a zone's SOA that only secondary servers heed, of which there are none: RFC 1912, section 2.2, at the short end.
const (
	soaRefresh = 1200
	soaRetry   = 180
	soaExpire  = 1209600
)

// Reply is what is answered to a question.
type Reply struct {
	Rcode      int // dns.RcodeSuccess, RcodeNameError or RcodeRefused
	Answer     []dns.RR
	Authority  []dns.RR
	Additional []dns.RR
	Ready      int // of how many instances the answer tells
	Left       int // how many of them it does not list
}

// Answer answers a question in the form of package dns: a name that ends with a dot, escaped. Rotate says with which instance a list begins,
// and which part of a long one is listed. What is not below the domain is refused, and nobody else is asked.
func (x *Index) Answer(q dns.Question, rotate uint64) Reply {
	below, ok := x.below(q.Name)
	if !ok || q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY || !answerable(q.Qtype) {
		return Reply{Rcode: dns.RcodeRefused}
	}
	a := answering{Index: x, q: q, rotate: rotate}
	switch there := a.find(below); {
	case !there:
		return Reply{Rcode: dns.RcodeNameError, Authority: []dns.RR{a.soa(a.apex(), readyTTL)}}
	case q.Qtype == dns.TypeANY:
		// RFC 8482, section 4.2: one record says that not all are told.
		a.reply.Answer = []dns.RR{&dns.HINFO{Hdr: a.header(q.Name, dns.TypeHINFO, readyTTL), Cpu: "RFC8482"}}
	case len(a.reply.Answer) == 0:
		a.reply.Authority = []dns.RR{a.soa(a.apex(), readyTTL)}
	}
	return a.reply
}

// answerable tells questions about data from those that mean something else: transfers of zones, and what only stands in messages.
func answerable(qtype uint16) bool {
	return qtype == dns.TypeANY || qtype != dns.TypeNone && qtype != dns.TypeOPT && (qtype < 128 || qtype > 255)
}

// below is the labels of a name before the domain, in lower case, or not ok when it does not end with that. Labels with signs that none of
// ours has stay escaped, and so are equal to none.
func (x *Index) below(name string) (labels []string, ok bool) {
	name = strings.ToLower(name)
	rest, ok := strings.CutSuffix(name, x.domain+".")
	if !ok || rest == "" {
		return nil, ok
	}
	labels = dns.SplitDomainName(rest)
	// What looks like the domain may be part of an escaped label: "x\.tako.internal." has two labels.
	ok = dns.CountLabel(name) == len(labels)+dns.CountLabel(x.domain+".") && strings.HasSuffix(rest, ".")
	return labels, ok
}

// answering is one answer on its way.
type answering struct {
	*Index
	q      dns.Question
	rotate uint64
	zone   string // the namespace, or empty for the domain itself
	reply  Reply
}

// apex is the name of the zone that speaks.
func (a *answering) apex() string {
	if a.zone == "" {
		return a.domain + "."
	}
	return a.zone + "." + a.domain + "."
}

// name is a name of the zone that speaks.
func (a *answering) name(labels ...string) string { return strings.Join(labels, ".") + "." + a.apex() }

// find adds what is asked for of a name to the answer, and tells whether the name is there.
func (a *answering) find(labels []string) bool {
	if len(labels) == 0 {
		a.origin()
		a.addresses(a.servers, map[netip.Addr]bool{})
		return true
	}
	last, rest := labels[len(labels)-1], labels[:len(labels)-1]
	if last == NodeLabel {
		return a.node(strings.Join(rest, "."))
	}
	z := a.zones[last]
	if z == nil {
		return false
	}
	a.zone = last
	if len(rest) == 0 {
		a.namespace()
		return true
	}
	last, rest = rest[len(rest)-1], rest[:len(rest)-1]
	if last == "_tcp" || last == "_udp" {
		return a.browse(z, rest, last == "_udp")
	}
	if m := z.workloads[last]; m != nil {
		return a.workload(m, rest)
	}
	return false
}

// namespace answers of a zone's own name. Of it the zone above, too, has something to say: that it is not signed (RFC 4035, section 3.1.4.1).
func (a *answering) namespace() {
	if a.q.Qtype == dns.TypeDS {
		a.zone = ""
		return
	}
	a.origin()
}

// origin answers what stands at the top of every zone.
func (a *answering) origin() {
	switch a.q.Qtype {
	case dns.TypeSOA:
		a.add(a.soa(a.q.Name, apexTTL))
	case dns.TypeNS:
		a.add(&dns.NS{Hdr: a.header(a.q.Name, dns.TypeNS, apexTTL), Ns: a.domain + "."})
		a.reply.Additional = a.hosts(nil, a.domain+".", a.servers, apexTTL)
	}
}

func (a *answering) node(name string) bool {
	if name == "" {
		return len(a.nodes) > 0
	}
	addresses, there := a.nodes[name]
	a.addresses(addresses, map[netip.Addr]bool{})
	return there || a.above[name] > 0
}

// workload answers of WORKLOAD.NAMESPACE, and of what stands below it.
func (a *answering) workload(m *member, labels []string) bool {
	switch {
	case len(labels) == 0:
		a.any(m.instances)
		return true
	case labels[len(labels)-1] == "_tcp" || labels[len(labels)-1] == "_udp":
		return a.ports(m, labels)
	case len(labels) > 1:
		return false
	case isIndex(labels[0]):
		return a.index(m, labels[0])
	}
	at, there := find(m.instances, labels[0])
	if there {
		a.instance(m.instances[at])
	}
	return there
}

// index answers of the instances with an index: one, or more while one takes another one's place.
func (a *answering) index(m *member, label string) bool {
	if len(label) > indexSignsMax || len(label) > 1 && label[0] == '0' {
		return false
	}
	n := int64(0)
	for _, sign := range label {
		n = n*10 + int64(sign-'0')
	}
	var with []*Instance
	for _, i := range m.instances {
		if int64(i.Index) == n {
			with = append(with, i)
		}
	}
	if a.q.Qtype == dns.TypeTXT {
		a.allFacts(with)
	} else {
		a.any(with)
	}
	return len(with) > 0
}

// allFacts answers what is known of instances with one index.
func (a *answering) allFacts(with []*Instance) {
	n, from, looked := len(with), start(a.rotate, len(with)), 0
	for ; looked < min(n, InstancesMax) && len(a.reply.Answer) < factsMax; looked++ {
		// Copies on one node, of one revision, say the same.
		facts := a.facts(with[(from+looked)%n])
		if !slices.ContainsFunc(a.reply.Answer, func(rr dns.RR) bool { return dns.IsDuplicate(rr, facts) }) {
			a.add(facts)
		}
	}
	a.reply.Ready, a.reply.Left = n, n-looked
}

// instance answers of one, by whichever name.
func (a *answering) instance(i *Instance) {
	a.addresses(i.Addresses, map[netip.Addr]bool{})
	if a.q.Qtype == dns.TypeTXT {
		a.add(a.facts(i))
	}
}

// ports answers of _PORT._tcp.WORKLOAD.
func (a *answering) ports(m *member, labels []string) bool {
	udp := labels[len(labels)-1] == "_udp"
	switch len(labels) {
	case 1:
		for s := range m.services {
			if s.udp == udp {
				return true
			}
		}
	case 2:
		s, ok := parseService(labels[0], udp)
		with, there := m.services[s]
		if !ok || !there {
			return false
		}
		if a.q.Qtype == dns.TypeSRV {
			for i := range a.some(with) {
				a.add(a.srv(a.q.Name, i, s))
				a.target(i, len(with))
			}
		}
		return true
	}
	return false
}

// browse answers what DNS-SD asks of a zone: labels are what stands before _tcp or _udp.
func (a *answering) browse(z *zone, labels []string, udp bool) bool {
	n := len(labels)
	if n == 0 {
		// What there is to browse for stands below _udp in every zone.
		for s := range z.services {
			if s.udp == udp {
				return true
			}
		}
		return udp
	}
	if udp && labels[n-1] == "_dns-sd" {
		return a.meta(z, labels[:n-1])
	}
	s, ok := parseService(labels[n-1], udp)
	members, there := z.services[s]
	if !ok || !there {
		return false
	}
	switch labels = labels[:n-1]; {
	case len(labels) == 0:
		a.pointers(s, members)
		return true
	case labels[len(labels)-1] == "_sub":
		return a.subtype(s, members, labels[:len(labels)-1])
	case len(labels) == 1:
		return a.named(z.instances.get(labels[0]), s)
	}
	return false
}

// subtype answers of WORKLOAD._sub._PORT._tcp, and of what is between.
func (a *answering) subtype(s service, members []*member, labels []string) bool {
	if len(labels) != 1 {
		return len(labels) == 0
	}
	at, there := slices.BinarySearchFunc(members, labels[0], func(m *member, name string) int { return strings.Compare(m.name, name) })
	if there {
		a.pointers(s, members[at:at+1])
	}
	return there
}

// meta answers what there is to browse for, and where (RFC 6763, sections 9 and 11).
func (a *answering) meta(z *zone, labels []string) bool {
	switch {
	case len(labels) == 0:
		return true
	case len(labels) > 1:
		return false
	case labels[0] == "b" || labels[0] == "db" || labels[0] == "lb":
		if a.q.Qtype == dns.TypePTR {
			a.add(a.ptr(a.apex(), apexTTL))
		}
		return true
	case labels[0] != "_services":
		return false
	}
	if a.q.Qtype == dns.TypePTR {
		a.types(z)
	}
	return true
}

// types answers of which types of service an instance is ready.
func (a *answering) types(z *zone) {
	var ready []service
	for s, members := range z.services {
		if slices.ContainsFunc(members, func(m *member) bool { return len(m.services[s]) > 0 }) {
			ready = append(ready, s)
		}
	}
	slices.SortFunc(ready, compareServices)
	n, from := len(ready), start(a.rotate, len(ready))
	for k := range min(n, typesMax) {
		a.add(a.ptr(a.name(ready[(from+k)%n].String()), readyTTL))
	}
}

// pointers answers which instances have a port.
func (a *answering) pointers(s service, members []*member) {
	if a.q.Qtype != dns.TypePTR {
		return
	}
	n := 0
	for _, m := range members {
		n += len(m.services[s])
	}
	listed, at := 0, 0
	from := start(a.rotate, n)
	for round := 0; round < 2 && listed < min(n, InstancesMax); round++ {
		for _, m := range members {
			with := m.services[s]
			for k := max(0, from-at); k < len(with) && listed < min(n, InstancesMax); k++ {
				instance := a.name(with[k].Name, s.String())
				a.add(a.ptr(instance, readyTTL))
				if n <= additionalMax {
					a.reply.Additional = append(a.reply.Additional, a.srv(instance, with[k], s), a.texts(instance, with[k], s))
				}
				a.target(with[k], n)
				listed++
			}
			at += len(with)
		}
		from, at = 0, 0
	}
	a.reply.Ready, a.reply.Left = n, n-listed
}

// named answers of INSTANCE._PORT._tcp.
func (a *answering) named(i *Instance, s service) bool {
	if i == nil || i.endpoint(s) == nil {
		return false
	}
	switch a.q.Qtype {
	case dns.TypeSRV:
		a.add(a.srv(a.q.Name, i, s))
		a.target(i, 1)
	case dns.TypeTXT:
		a.add(a.texts(a.q.Name, i, s))
	}
	return true
}

// any answers where instances are, each address once.
func (a *answering) any(instances []*Instance) {
	if a.q.Qtype != dns.TypeA && a.q.Qtype != dns.TypeAAAA {
		return
	}
	n, from := len(instances), start(a.rotate, len(instances))
	seen := map[netip.Addr]bool{}
	looked := 0
	for ; looked < n && len(a.reply.Answer) < InstancesMax; looked++ {
		a.addresses(instances[(from+looked)%n].Addresses, seen)
	}
	a.reply.Ready, a.reply.Left = n, n-looked
}

// some calls yield for the instances that an answer lists.
func (a *answering) some(instances []*Instance) iter.Seq[*Instance] {
	n, from := len(instances), start(a.rotate, len(instances))
	listed := min(n, InstancesMax)
	a.reply.Ready, a.reply.Left = n, n-listed
	return func(yield func(*Instance) bool) {
		for k := range listed {
			if !yield(instances[(from+k)%n]) {
				return
			}
		}
	}
}

// start is with which of n a list begins.
func start(rotate uint64, n int) int {
	if n == 0 {
		return 0
	}
	return int(rotate % uint64(n))
}

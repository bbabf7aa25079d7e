package server

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"
)

// packetBytesMax is the longest answer by UDP: what fits the smallest packets of IPv6 (DNS flag day 2020), so that none is fragmented, and
// whoever asks in somebody else's name makes little of it.
const packetBytesMax = 1232

// respond answers a message, or returns nil when that deserves no answer. What it returns may be in scratch.
func (s *Server) respond(query, scratch []byte, stream bool) []byte {
	question := new(dns.Msg)
	err := question.Unpack(query)
	// An answer is not answered, or two servers could keep each other busy for ever.
	if len(query) < headerBytes || question.Response {
		s.counter.dropped.Add(1)
		return nil
	}
	reply := new(dns.Msg)
	reply.Id, reply.Opcode, reply.Response, reply.RecursionDesired = question.Id, question.Opcode, true, question.RecursionDesired
	reply.Rcode = s.decide(question, reply, err)
	fit(reply, question.IsEdns0(), stream)
	packed, err := reply.PackBuffer(scratch)
	if err != nil {
		s.counter.dropped.Add(1)
		return nil
	}
	s.counter.rcodes[reply.Rcode].Add(1)
	if reply.Truncated {
		s.counter.truncated.Add(1)
	}
	return packed
}

// headerBytes is what every message begins with: RFC 1035, section 4.1.1. What is behind may be damaged; without this nobody can be told.
const headerBytes = 12

// decide fills in the answer and returns its code.
func (s *Server) decide(question, reply *dns.Msg, damaged error) int {
	edns := question.IsEdns0()
	if edns != nil {
		// Whatever is said of it: an answer without one would mean that EDNS is not known here (RFC 6891, sections 6.1.1 and 7).
		reply.SetEdns0(packetBytesMax, edns.Do())
	}
	switch {
	case question.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented
	case damaged != nil || len(question.Question) != 1 || len(question.Answer)+len(question.Ns) > 0 || optCount(question) > 1:
		return dns.RcodeFormatError
	}
	reply.Question = question.Question
	if edns != nil && edns.Version() != 0 {
		return dns.RcodeBadVers
	}
	view := s.view.Load()
	if view == nil {
		explain(reply, dns.ExtendedErrorCodeNotReady, "what there is is not known yet")
		return dns.RcodeServerFailure
	}
	told := view.Answer(question.Question[0], spread(s.rotate.Add(1)))
	switch {
	case told.Rcode == dns.RcodeRefused && dns.IsSubDomain(view.Domain()+".", question.Question[0].Name):
		explain(reply, dns.ExtendedErrorCodeNotSupported, "no such type or class is answered")
		return told.Rcode
	case told.Rcode == dns.RcodeRefused:
		explain(reply, dns.ExtendedErrorCodeNotAuthoritative, "only names below "+view.Domain()+" are answered")
		return told.Rcode
	}
	reply.Authoritative = true
	reply.Answer, reply.Ns, reply.Extra = told.Answer, told.Authority, slices.Concat(told.Additional, reply.Extra)
	if told.Left > 0 {
		explain(reply, dns.ExtendedErrorCodeOther, fmt.Sprintf("%d of %d ready instances are listed, others the next time", told.Ready-told.Left, told.Ready))
	}
	return told.Rcode
}

// spread makes of numbers that follow each other some that have nothing in common (the end of SplitMix64). Clients ask in turns, for A and AAAA
// or for one name and another: if each question took the next instance, those of a kind would take every second one only.
func spread(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func optCount(m *dns.Msg) int {
	n := 0
	for _, rr := range m.Extra {
		if rr.Header().Rrtype == dns.TypeOPT {
			n++
		}
	}
	return n
}

// explain says why, to those who understand (RFC 8914).
func explain(m *dns.Msg, code uint16, text string) {
	if opt := m.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: text})
	}
}

// fit makes an answer as short as the client takes it. What is only added goes first, and nobody is told (RFC 2181, section 9); when not
// even the answer fits, the client is told to ask by TCP.
func fit(reply *dns.Msg, edns *dns.OPT, stream bool) {
	size := dns.MaxMsgSize
	if !stream {
		size = dns.MinMsgSize
		if edns != nil {
			size = min(max(size, int(edns.UDPSize())), packetBytesMax)
		}
	}
	reply.Compress = true
	if reply.Len() > size {
		reply.Extra = slices.DeleteFunc(reply.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeOPT })
	}
	if reply.Len() > size {
		reply.Truncate(size)
	}
}

// counter counts what has become of questions.
type counter struct {
	rcodes                      [dns.RcodeBadVers + 1]atomic.Uint64
	truncated, limited, dropped atomic.Uint64
}

// Counts is what has become of the questions so far.
type Counts struct {
	Answered  map[string]uint64 // by code: NOERROR, NXDOMAIN, REFUSED, ...; those that there were
	Truncated uint64            // of them, those that had to be asked again by TCP
	Limited   uint64            // left without an answer because their client asked too much
	Dropped   uint64            // left without an answer because they were no questions, or the answer could not be sent
}

// Counts is what has become of the questions so far.
func (s *Server) Counts() Counts {
	c := Counts{Answered: map[string]uint64{}, Truncated: s.counter.truncated.Load(), Limited: s.counter.limited.Load(), Dropped: s.counter.dropped.Load()}
	for code := range s.counter.rcodes {
		name := dns.RcodeToString[code]
		if code == dns.RcodeBadVers {
			name = "BADVERS" // the same number is BADSIG in another record
		}
		c.Answered[name] = s.counter.rcodes[code].Load()
	}
	maps.DeleteFunc(c.Answered, func(_ string, n uint64) bool { return n == 0 })
	return c
}

package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
	"tako.dev/tako/internal/transfer/h2"
	"tako.dev/tako/internal/transfer/wire"
)

// call is one of the calls that hosts and relays make.
type call struct {
	method string
	shows  shows
	by     caller
	errand errand
	serve  func(*request) error
}

// shows is what a caller has to show.
type shows uint8

const (
	nothing     shows = iota // its address is enough
	certificate              // a valid one, which is read anew
	valid                    // the same, by a call that is made often: what it says was read with an earlier one of its connection, as a rule
	expired                  // one that may have expired
)

// caller is whose certificate that has to be. A relay is no host, and a host no relay; another server may do what a relay may, and more.
type caller uint8

const (
	ofHost caller = iota
	ofRelay
	ofServer
	ofEither
)

// fits says whether a call is for somebody.
func (c caller) fits(who Identity) bool {
	switch c {
	case ofHost:
		return !who.Relay
	case ofRelay:
		return who.Relay
	case ofServer:
		return who.isServer()
	}
	return true
}

func (s *Server) routes() map[string]call {
	return map[string]call{
		wire.PathJoin:   {http.MethodPost, nothing, ofEither, speaking, s.join},
		wire.PathTrust:  {http.MethodGet, nothing, ofEither, speaking, s.trust},
		wire.PathRenew:  {http.MethodPost, expired, ofEither, speaking, s.renew},
		wire.PathWatch:  {http.MethodPost, certificate, ofHost, speaking, s.watch},
		wire.PathSync:   {http.MethodPost, valid, ofEither, fetching, s.sync},
		wire.PathNodes:  {http.MethodPost, valid, ofEither, fetching, s.nodes},
		wire.PathStatus: {http.MethodPost, valid, ofHost, speaking, s.status},
		wire.PathAnswer: {http.MethodPost, valid, ofEither, speaking, s.answer},
		wire.PathObject: {http.MethodGet, valid, ofEither, fetching, s.object},
		wire.PathBundle: {http.MethodGet, valid, ofServer, fetching, s.bundle},
		wire.PathNames:  {http.MethodPost, valid, ofEither, speaking, s.tellNames},
		wire.PathRelay:  {http.MethodPost, certificate, ofRelay, speaking, s.relay},
	}
}

// request is one call with who makes it.
type request struct {
	*http.Request
	w    http.ResponseWriter
	conn *conn
	who  Identity // zero where the call needs nobody
	// audited says that whoever refuses writes the audit log itself.
	audited bool
}

// ServeHTTP serves one call. What is wrong with it is told as a wire.Problem.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, known := r.Context().Value(connKey{}).(*conn)
	if !known {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	path := r.URL.Path
	for _, content := range []string{wire.PathObject, wire.PathBundle} {
		if strings.HasPrefix(path, content) {
			path = content // what follows is which one
		}
	}
	to, found := s.calls[path]
	q := &request{Request: r, w: w, conn: c}
	name := path
	if !found {
		name = "other" // whoever makes paths up makes no metrics
	}
	s.metrics.calls.WithLabelValues(name).Inc()
	q.w = h2.Counted(w, s.metrics.sent.WithLabelValues(name).Add)
	err := s.admit(q, to, found)
	if err == nil {
		err = to.serve(q)
	}
	if err != nil {
		s.refuse(q, name, err)
	}
}

// admit says whether a call may be served, and fills in who makes it.
func (s *Server) admit(q *request, to call, found bool) error {
	switch {
	case !found:
		return malformed("answer a host", fmt.Errorf("there is no call %s", clip(q.URL.Path)))
	case q.Method != to.method:
		return malformed("answer a host", fmt.Errorf("%s is called with %s", q.URL.Path, to.method))
	}
	now := time.Now()
	if to.shows != nothing {
		who, err := s.identify(q, to.shows, now)
		q.who = who
		if err == nil && !to.by.fits(who) {
			err = &reason.Error{Code: reason.CertificateRefused, Doing: "answer " + who.words(), Cause: fmt.Errorf("%s is not for it: a relay is no host, a host no relay, and neither is a server", clip(q.URL.Path))}
		}
		if err != nil {
			return err
		}
	}
	return s.allow(q, to.errand, now)
}

// lostMax is how long a connection may be open whose host is lost, see keepaliveIdle: by then a node has room again for another one.
const lostMax = 15 * time.Second

// identify says whose certificate a call was made with.
func (s *Server) identify(q *request, want shows, now time.Time) (Identity, error) {
	seen, err := s.certificateOf(q)
	if err != nil {
		return Identity{}, err
	}
	if seen.err != nil {
		return Identity{}, seen.err
	}
	who, err := s.named(seen, want)
	if err != nil {
		return who, err // whose certificate it is, or was
	}
	if err := timely(who, seen, want, now); err != nil {
		return who, err
	}
	if !q.conn.known(seen, who) {
		return who, &reason.Error{Code: reason.TransferBusy, Doing: "serve " + who.words(), Cause: errors.New("it has too many connections"), After: lostMax}
	}
	return who, nil
}

// named says whose certificate a connection has shown, and whether that is still true.
func (s *Server) named(seen *shown, want shows) (Identity, error) {
	if known := seen.name.Load(); known != nil && want == valid {
		return *known, s.opts.Members.Remains(*known)
	}
	return s.opts.Members.Identify(seen.leaf)
}

// timely refuses a certificate that is not valid now.
func timely(who Identity, seen *shown, want shows, now time.Time) error {
	if early := now.Before(seen.leaf.NotBefore); early || want != expired && now.After(seen.leaf.NotAfter) {
		return &reason.Error{
			Code: reason.CertificateTime, Doing: "recognize " + who.words(),
			Cause: fmt.Errorf("it is valid from %s to %s, and here it is %s", clock(seen.leaf.NotBefore), clock(seen.leaf.NotAfter), clock(now)),
			Hint:  "an agent renews it by itself; look whether the clocks agree",
		}
	}
	return nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certificateOf is what the connection of a call has shown. Signatures are verified once for a connection.
func (s *Server) certificateOf(q *request) (*shown, error) {
	if seen := q.conn.shown.Load(); seen != nil {
		return seen, nil
	}
	if q.TLS == nil || len(q.TLS.PeerCertificates) == 0 {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: recognizing, Cause: errors.New("it shows none"), Hint: "a host gets one by `tako-agent join`"}
	}
	seen := s.verified(q.TLS.PeerCertificates)
	// Two calls at once come to the same.
	if !q.conn.shown.CompareAndSwap(nil, seen) {
		seen = q.conn.shown.Load()
	}
	return seen, nil
}

const recognizing = "recognize a host"

// verified is a certificate with those that came along, and whether an authority of the cluster has issued it. Whether it is valid now is
// asked at each call; here it is as if it were the last moment of it.
func (s *Server) verified(certificates []*x509.Certificate) *shown {
	seen := &shown{leaf: certificates[0]}
	rest := x509.NewCertPool()
	for _, c := range certificates[1:] {
		rest.AddCert(c)
	}
	_, err := seen.leaf.Verify(x509.VerifyOptions{
		Roots: s.opts.Authorities(), Intermediates: rest, CurrentTime: seen.leaf.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		seen.err = &reason.Error{Code: reason.CertificateRefused, Doing: recognizing, Cause: err, Hint: "it is of another cluster, or of an authority that is not trusted any more: let the host join again"}
	}
	return seen
}

// relayed identifies the host that a relay speaks for, by the certificate that the host has shown to it. That is all that a relay can prove
// of a host; what it says of one counts for that host only, and changes nothing of what is signed for it.
func (s *Server) relayed(through Identity, certificate []byte, want shows, now time.Time) (Identity, *shown, error) {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return Identity{}, nil, malformed(recognizing, err)
	}
	seen := s.verified([]*x509.Certificate{leaf})
	if seen.err != nil {
		return Identity{}, nil, seen.err
	}
	who, err := s.opts.Members.Identify(leaf)
	if err == nil && who.Relay {
		err = &reason.Error{Code: reason.CertificateRefused, Doing: recognizing, Cause: errors.New("a relay speaks for hosts, and for no other relay")}
	}
	if err == nil {
		err = timely(who, seen, want, now)
	}
	who.Through = through.Name
	return who, seen, err
}

func malformed(doing string, cause error) error {
	return &reason.Error{Code: reason.CallMalformed, Doing: doing, Cause: cause}
}

// clip bounds what is quoted of a call.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}

// messageTime is how long a caller may take to send its message, where the call gives it no other time: the longest, half a MiB, over a line
// of 20 kB/s.
const messageTime = 30 * time.Second

// read reads the message of a call.
func (q *request) read(max int64, message any) error {
	if err := wire.ReadAll(q.Body, max, message); err != nil {
		return malformed("read "+q.URL.Path, err)
	}
	return nil
}

const contentType = "application/cbor"

// reply writes the answer of a call that has one message.
func (s *Server) reply(q *request, message any) error {
	data, err := wire.Encode(message)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	s.finish(q, data)
	return nil
}

// finish writes all that there is to an answer. What is short goes with the end of the call, in one piece and not in three; it has the same
// time to be read. An error is of a connection that is gone: there is nobody to tell.
func (s *Server) finish(q *request, data []byte) {
	if len(data) > shortMax {
		_ = s.send(q, data)
		return
	}
	if http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(s.opts.Times.Write)) == nil {
		_, _ = q.w.Write(data)
	}
}

// shortMax is how long an answer may be that is written when its call has ended: as much as net/http keeps until then.
const shortMax = 4 << 10

// pieceMax is how much is written at once, within Times.Write: so a slow line gets on, and a reader that has stopped is found.
const pieceMax = 32 << 10

// errSlow is why a call ended whose caller does not read.
var errSlow = errors.New("the host does not read")

// send writes all of it to the caller, piece by piece. When the caller does not read, its connection is closed.
func (s *Server) send(q *request, data []byte) error {
	control := http.NewResponseController(q.w)
	for len(data) > 0 {
		n := min(len(data), pieceMax)
		begun := time.Now()
		if err := control.SetWriteDeadline(begun.Add(s.opts.Times.Write)); err != nil {
			return err
		}
		_, err := q.w.Write(data[:n])
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			if time.Since(begun) >= s.opts.Times.Write {
				s.metrics.slow.Inc()
				_ = q.conn.Close()
				return errSlow
			}
			return err
		}
		data = data[n:]
	}
	// Without this the stream would end by itself at the deadline.
	return control.SetWriteDeadline(time.Time{})
}

// refuse tells the caller why, and the audit log.
func (s *Server) refuse(q *request, name string, err error) {
	if q.Context().Err() != nil && errors.Is(err, q.Context().Err()) {
		return // there is nobody to tell
	}
	e := reason.Of(err)
	row := e.Entry()
	status := row.HTTP
	if status < 400 {
		status = http.StatusInternalServerError
	}
	s.metrics.refused.WithLabelValues(name, e.Code.String()).Inc()
	if e.Code == reason.InternalFault {
		s.opts.Log.Error("answer a host", "call", name, "node", q.who.Name, "err", err)
	}
	if forAudit(e.Code, status) && !q.audited && s.mayAudit(q.conn.from, time.Now()) {
		s.opts.Audit.Refused(Refusal{Call: name, From: q.conn.from, Who: s.whose(q), Code: e.Code, Status: status, Reason: wire.Text(e.Error())})
	}
	p := problem(e)
	data, encodeErr := wire.Encode(p)
	if encodeErr != nil {
		data = nil
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if p.RetryAfter > 0 {
		q.w.Header().Set("Retry-After", strconv.Itoa(int((e.After+time.Second-1)/time.Second)))
	}
	if q.conn.stranger() {
		// The next attempt costs another connection, of which an address has so many each second: otherwise one could go on for as long as
		// strangers may stay, at the pace of the line.
		q.w.Header().Set("Connection", "close")
	}
	q.w.WriteHeader(status)
	s.finish(q, data)
}

// problem is what a caller is told.
func problem(e *reason.Error) *wire.Problem {
	return &wire.Problem{Code: e.Code.String(), Message: wire.Text(e.Error()), Hint: wire.Text(e.Hint), RetryAfter: uint32(e.After / time.Millisecond)}
}

// whose is who a call was made by, or whose certificate it was made with, also where that was not asked for; zero when nobody knows.
func (s *Server) whose(q *request) Identity {
	if q.who.Name != "" || q.TLS == nil || len(q.TLS.PeerCertificates) == 0 {
		return q.who
	}
	seen, err := s.certificateOf(q)
	if err != nil || seen.err != nil {
		return q.who
	}
	who, _ := s.opts.Members.Identify(seen.leaf) // why it is refused is told already
	return who
}

// auditRate is how many refusals of one address are written into the audit log: what a person has to look at, and not what one host
// can make the log forget by filling it. All are counted in the metrics.
func auditRate() bucket.Rate { return bucket.Rate{Burst: 100, Second: 1} }

// mayAudit says whether there is room for one more refusal of an address in the audit log.
func (s *Server) mayAudit(from netip.Addr, now time.Time) bool {
	s.auditing.Lock()
	defer s.auditing.Unlock()
	return s.audited.Take(from, now)
}

// forAudit is false for what is refused because it cannot be done now, and not because of who asks for it.
func forAudit(code reason.Code, status int) bool {
	return code != reason.ServerBehind && status < http.StatusInternalServerError && status != http.StatusGone && status != http.StatusTooManyRequests
}

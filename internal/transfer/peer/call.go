package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	contentType = "application/cbor"
	// messageTime is how long a caller may take to send its message: half a MiB over a line of 20 kB/s.
	messageTime = 30 * time.Second
	// pieceMax is how much is written at once, within Limits.Write.
	pieceMax = 32 << 10
	// busyMin and busyMax are the bounds of when a caller is told to come again for whom there is no place.
	busyMin, busyMax = 2 * time.Second, 10 * time.Second
)

// request is one call with who makes it.
type request struct {
	*http.Request
	w   http.ResponseWriter
	who trust.NodeIdentity
	now time.Time
}

// ServeHTTP serves one call. What is wrong with it is told as a wire.Problem.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{Request: r, w: w, now: time.Now()}
	err := s.serve(q)
	if err == nil {
		s.answered.Add(1)
		return
	}
	s.refused.Add(1)
	s.refuse(q, err)
}

func (s *Server) serve(q *request) error {
	calls := map[string]func(*request) error{wire.PathNews: s.news, wire.PathSync: s.sync, wire.PathNodes: s.nodes}
	call, found := calls[q.URL.Path]
	if !found || q.Method != http.MethodPost {
		return malformed(errors.New("a host answers no such call"))
	}
	if q.TLS == nil {
		return malformed(errors.New("it does not come over TLS"))
	}
	// Once more: a connection may be older than what its certificate is good for.
	var err error
	if q.who, err = trust.VerifyNode(q.TLS.PeerCertificates, s.opts.Identity.Trust(), s.opts.Identity.Node().Cluster, q.now); err != nil {
		return err
	}
	if wait := s.callers.take(q.who.UID, q.now); wait > 0 {
		return busy("node "+q.who.Name+" calls too often", max(wait, busyMin))
	}
	places := s.places[q.URL.Path]
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return busy(fmt.Sprintf("%d such calls are being answered", cap(places)), busyMin+rand.N(busyMax-busyMin))
	}
	return call(q)
}

func malformed(cause error) error {
	return &reason.Error{Code: reason.CallMalformed, Doing: "answer another host", Cause: cause}
}

func busy(why string, after time.Duration) error {
	return &reason.Error{Code: reason.TransferBusy, Doing: "answer another host", Cause: errors.New(why), After: after}
}

// read reads the message of a call.
func (q *request) read(max int64, message any) error {
	if err := http.NewResponseController(q.w).SetReadDeadline(q.now.Add(messageTime)); err != nil {
		return err
	}
	if err := wire.ReadAll(q.Body, max, message); err != nil {
		return malformed(err)
	}
	return nil
}

// reply writes the answer of a call that has one message.
func (s *Server) reply(q *request, message any) error {
	data, err := wire.Encode(message)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_ = s.send(q, data) // an error is of a connection that is gone: there is nobody to tell
	return nil
}

// send writes all of it to the caller, piece by piece, at the pace that all callers share.
func (s *Server) send(q *request, data []byte) error {
	control := http.NewResponseController(q.w)
	for len(data) > 0 {
		n := min(len(data), pieceMax)
		if err := s.wait(q.Context(), n); err != nil {
			return err
		}
		if err := control.SetWriteDeadline(time.Now().Add(s.opts.Limits.Write)); err != nil {
			return err
		}
		if _, err := q.w.Write(data[:n]); err != nil {
			return err
		}
		if err := control.Flush(); err != nil {
			return err
		}
		data = data[n:]
	}
	return control.SetWriteDeadline(time.Time{}) // otherwise the stream ends by itself then
}

// wait waits until so many bytes more may be sent.
func (s *Server) wait(ctx context.Context, n int) error {
	for {
		s.sending.Lock()
		wait := s.sent.take(float64(n), float64(s.opts.Limits.Bytes), time.Now())
		s.sending.Unlock()
		if wait <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// toldPause is the shortest between two lines of the log about what was refused: anybody with a certificate could fill it.
const toldPause = time.Minute

// mayTell says whether there may be another line.
func (s *Server) mayTell(now time.Time) bool {
	last := s.told.Load()
	return now.UnixNano()-last >= int64(toldPause) && s.told.CompareAndSwap(last, now.UnixNano())
}

// refuse tells the caller why.
func (s *Server) refuse(q *request, err error) {
	if q.Context().Err() != nil {
		return // there is nobody to tell
	}
	e := reason.Of(err)
	status := e.Entry().HTTP
	if status < http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	if status < http.StatusInternalServerError && status != http.StatusGone && s.mayTell(q.now) {
		s.opts.Log.Warn("refuse another host", "node", q.who.Name, "from", q.RemoteAddr, "call", q.URL.Path, "code", e.Code.String(), "err", err, "refused", s.refused.Load(),
			"hint", "once is nothing: it may be of another version. If it goes on, look at that host, and who has its certificate")
	}
	data, encodeErr := wire.Encode(wire.Problem{Code: e.Code.String(), Message: wire.Text(e.Error()), Hint: wire.Text(e.Hint), RetryAfter: uint32(e.After / time.Millisecond)})
	if encodeErr != nil {
		data = nil
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if e.After > 0 {
		q.w.Header().Set("Retry-After", strconv.Itoa(int((e.After+time.Second-1)/time.Second)))
	}
	q.w.WriteHeader(status)
	_ = s.send(q, data) // there is nobody else to tell
}

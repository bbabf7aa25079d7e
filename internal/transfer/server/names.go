package server

import (
	"bytes"
	"errors"
	"net/http"

	"tako.dev/tako/internal/transfer/h2"
	"tako.dev/tako/internal/transfer/wire"
)

// tellNames tells the caller of names for as long as both are there.
func (s *Server) tellNames(q *request) error {
	var r wire.NamesRequest
	if err := errors.Join(q.read(wire.JoinMax, &r), speaks(q, r.Protocol)); err != nil {
		return err
	}
	if s.opts.Names == nil {
		return malformed("tell of names", errors.New("they are not told here"))
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	if http.NewResponseController(q.w).Flush() != nil {
		return nil
	}
	q = q.lasting()
	h2.Continue(q.w, func() {
		s.opts.Names(q.Context(), r.Have, s.stopping, func(m wire.Names) (err error) {
			h2.Aside(func() {
				var b bytes.Buffer
				err = errors.Join(wire.WriteFrame(&b, m), s.send(q, b.Bytes()))
			})
			return err
		})
	})
	return nil
}

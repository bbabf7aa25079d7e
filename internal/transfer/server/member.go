package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

// speaks refuses calls of a version that is not known here.
func speaks(q *request, protocol uint) error {
	if protocol != wire.Protocol {
		return malformed("read "+q.URL.Path, fmt.Errorf("it is of version %d, and this server knows %d", protocol, wire.Protocol))
	}
	return nil
}

func (s *Server) join(q *request) error {
	var r wire.JoinRequest
	if err := q.read(wire.JoinMax, &r); err != nil {
		return err
	}
	if err := speaks(q, r.Protocol); err != nil {
		return err
	}
	q.audited = true
	c, err := s.opts.Members.Join(q.Context(), q.conn.from, r)
	if err != nil {
		return err
	}
	q.conn.joined()
	return s.reply(q, c)
}

func (s *Server) renew(q *request) error {
	var r wire.RenewRequest
	if err := q.read(wire.JoinMax, &r); err != nil {
		return err
	}
	if err := speaks(q, r.Protocol); err != nil {
		return err
	}
	who := q.who
	if len(r.Certificate) > 0 {
		if !who.Relay || len(r.Certificate) > wire.CertificateMax {
			return malformed("read "+q.URL.Path, errors.New("a host renews its own certificate, and a relay passes on what a host has shown"))
		}
		var err error
		if who, _, err = s.relayed(q.who, r.Certificate, expired, time.Now()); err != nil {
			return err
		}
	}
	c, err := s.opts.Members.Renew(q.Context(), who, r)
	if err != nil {
		return err
	}
	return s.reply(q, c)
}

// trust sends the trust documents as they are: they are public, and whoever reads them verifies them.
func (s *Server) trust(q *request) error {
	var after uint64
	if text := q.URL.Query().Get(wire.ParamAfter); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return malformed("read "+q.URL.Path, fmt.Errorf("?%s=%s is no number", wire.ParamAfter, clip(text)))
		}
		after = n
	}
	documents, _, err := s.opts.Members.Trust(after)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.Header().Set("Content-Length", strconv.Itoa(len(documents)))
	q.w.WriteHeader(http.StatusOK)
	s.finish(q, documents)
	return nil
}

// status hears a report. Over a connection without any watch, of a node that has none open, it is as if a watch had come and gone.
func (s *Server) status(q *request) error {
	var r wire.Report
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return malformed("read "+q.URL.Path, err)
	}
	conn := q.conn.watch.Load()
	if conn == 0 {
		conn = s.desk.newest(q.who)
	}
	if conn == 0 {
		conn = s.numbers.Add(1)
		s.opts.Presence.Opened(q.who, conn)
		defer s.opts.Presence.Closed(q.who, conn, false)
	}
	return s.reply(q, s.opts.Presence.Heard(q.who, conn, &r))
}

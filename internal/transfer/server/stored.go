package server

import (
	"errors"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Stored is what this server has itself of what people have put on servers, for another server that was asked for it and has it not. That one has
// found out who may have it, and verifies what comes. Nothing is fetched from a third one for it: two that miss the same would ask each other
// for ever. It may be used from several goroutines.
type Stored interface {
	// Object opens an object. The caller closes it. The error is ObjectMissing when it is not here.
	Object(content.Digest) (Object, error)
	// Bundle opens a bundle, as a difference from none, which is read from its beginning to its end. The caller closes it. The error is BundleMissing
	// when it is not here.
	Bundle(content.Digest) (Object, error)
}

// objectStored sends an object, or the rest of one, to another server.
func (s *Server) objectStored(q *request) error { return s.stored(q, wire.PathObject, Stored.Object) }

// bundle sends a bundle, or the rest of one, to another server.
func (s *Server) bundle(q *request) error { return s.stored(q, wire.PathBundle, Stored.Bundle) }

// stored sends what is here when there is a place for that; it is cut off as what is sent to hosts is.
func (s *Server) stored(q *request, path string, open func(Stored, content.Digest) (Object, error)) error {
	digest, from, err := q.content(path)
	if err != nil {
		return err
	}
	if s.opts.Stored == nil {
		return &reason.Error{Code: reason.ObjectMissing, Doing: "answer " + q.who.words(), Cause: errors.New("nothing is put here")}
	}
	found, err := open(s.opts.Stored, digest)
	if err != nil {
		return err
	}
	leave, err := s.enter(q, s.budgets.objects)
	if err == nil {
		err = s.sendObject(q, found, from)
		leave()
	}
	return errors.Join(err, found.Close())
}

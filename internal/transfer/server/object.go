package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Objects are the large contents that people have put on this server. It may be used from several goroutines.
type Objects interface {
	// Open opens an object for reading, without looking at what is in it: who gets it verifies it. The caller closes it. An object that is not here is
	// ObjectMissing.
	Open(content.Digest) (*os.File, error)
}

// object sends an object, or the rest of one, to a host whose state names it. After Times.Send it is cut off, and goes on where it was when
// the host asks again: so a slow host takes a place from others for no longer.
func (s *Server) object(q *request) error {
	if q.who.isServer() {
		return s.objectStored(q)
	}
	digest, from, err := q.content(wire.PathObject)
	if err != nil {
		return err
	}
	head, err := wire.DecodeHead(q.Header.Get(wire.HeaderHead))
	if err != nil {
		return malformed("read "+wire.HeaderHead, err)
	}
	key, err := wire.DecodeKey(q.Header.Get(wire.HeaderKey))
	if err != nil {
		return malformed("read "+wire.HeaderKey, err)
	}
	l, err := s.show(q, head)
	if err != nil {
		return err
	}
	if err := s.names(q, &l, key, digest); err != nil {
		return err
	}
	leave, err := s.enter(q, s.budgets.objects)
	if err != nil {
		return err
	}
	defer leave()
	object, err := s.opts.Content.Object(q.Context(), l.Showing, key, digest)
	if err != nil {
		return err
	}
	err = s.sendObject(q, object, from)
	return errors.Join(err, object.Close())
}

// content reads which content a call is about, and from which byte on.
func (q *request) content(path string) (digest content.Digest, from int64, err error) {
	if digest, err = content.ParseDigest(strings.TrimPrefix(q.URL.Path, path)); err != nil {
		return digest, 0, malformed("read "+clip(q.URL.Path), err)
	}
	if from, err = wire.DecodeRange(q.Header.Get("Range")); err != nil {
		return digest, 0, malformed("read Range", err)
	}
	return digest, from, nil
}

// names refuses an object that the entry at a key does not name, in any layer of what was shown.
func (s *Server) names(q *request, l *listed, key catalog.Digest, digest content.Digest) error {
	for _, at := range l.list {
		if at.ID == wire.OwnLayer {
			continue
		}
		body, err := s.opts.Content.Body(q.Context(), l.Showing, at, key)
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		if slices.ContainsFunc(objectsOf(at.ID, key, body), func(o *declare.ObjectReference) bool { return o.Digest == digest.String() }) {
			return nil
		}
	}
	return &reason.Error{Code: reason.ObjectRefused, Doing: "serve node " + l.Who.Name, Cause: errors.New("nothing that is assigned to it names " + digest.String() + " there")}
}

// objectsOf are what a body of a layer names: that of a template the images of its tasks, any other what its resource is made of. One that this
// version cannot read names nothing.
func objectsOf(layer string, key catalog.Digest, body []byte) []*declare.ObjectReference {
	if t, is := catalog.TemplateOf(layer); is {
		if key != t.Key() {
			return nil
		}
		if t, err := catalog.DecodeTemplate(layer, body); err == nil {
			return t.Spec.Objects()
		}
		return nil
	}
	if entry, err := catalog.DecodeBody(key, body); err == nil {
		return entry.Resource.Objects()
	}
	return nil
}

func (s *Server) sendObject(q *request, f Object, from int64) error {
	if from > f.Size() {
		return malformed("read Range", fmt.Errorf("it begins at %d, and there are %d bytes", from, f.Size()))
	}
	header := q.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(f.Size()-from, 10))
	status := http.StatusOK
	if from > 0 {
		status = http.StatusPartialContent
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, f.Size()-1, f.Size()))
	}
	q.w.WriteHeader(status)
	ends := time.Now().Add(s.opts.Times.Send)
	buffer := make([]byte, pieceMax)
	for at := from; at < f.Size() && time.Now().Before(ends) && q.Context().Err() == nil; {
		n, err := f.ReadAt(buffer[:min(pieceMax, f.Size()-at)], at)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return nil // the host finds out that something is missing, and asks again
		}
		if s.send(q, buffer[:n]) != nil {
			return nil // there is nobody to tell
		}
		at += int64(n)
	}
	return nil
}

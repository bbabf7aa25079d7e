package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// ObjectRequest asks for an object.
type ObjectRequest struct {
	Digest content.Digest
	Size   int64 // of all of it
	From   int64 // how much of it is here
	// Key is that of the entry that names it, in the state that Head, as it was signed, is for.
	Key  catalog.Digest
	Head []byte
}

// FetchObject asks the server at an address for what is missing of an object, and writes that in order. What comes is bounded by the size, and
// is to be verified by whoever has all of it. It ends when nothing comes for 30 s. Errors: what the server says, ServerUnreachable,
// TransferWrong for more than there can be, and those of w.
func FetchObject(ctx context.Context, dial Dial, identity Identity, address string, r ObjectRequest, w io.Writer) error {
	if dial == nil {
		dial = TCP
	}
	s := newServer(dial, address, known(identity))
	defer s.http.CloseIdleConnections()
	path := wire.PathObject + r.Digest.String()
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := newWatchdog(silenceMax)
	var guard sync.WaitGroup
	guard.Go(func() { watchdog.run(ctx, cancel) })
	defer guard.Wait()
	defer cancel(nil)
	answer, err := s.object(ctx, r)
	if err != nil {
		return err
	}
	defer closeBody(answer)
	watchdog.beat()
	return s.copy(ctx, path, w, &beating{r: answer.Body, watchdog: watchdog}, r.Size-r.From)
}

// object makes the call for an object, from r.From on.
func (s *server) object(ctx context.Context, r ObjectRequest) (*http.Response, error) {
	shown := http.Header{}
	shown.Set(wire.HeaderHead, wire.EncodeHead(r.Head))
	shown.Set(wire.HeaderKey, r.Key.String())
	return s.content(ctx, wire.PathObject+r.Digest.String(), r.From, shown)
}

// content makes a call for a content, from a byte on.
func (s *server) content(ctx context.Context, path string, from int64, shown http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(path, ""), nil)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: s.doing(path), Cause: err}
	}
	request.Header = shown
	want := http.StatusOK
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		want = http.StatusPartialContent
	}
	answer, err := s.http.RoundTrip(request)
	if err != nil {
		return nil, explain(s.doing(path), causeOf(ctx, err))
	}
	if answer.StatusCode != want {
		defer closeBody(answer)
		return nil, s.problem(path, answer)
	}
	return answer, nil
}

// copy writes just so many bytes.
func (s *server) copy(ctx context.Context, path string, w io.Writer, body io.Reader, left int64) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if int64(n) > left {
			return &reason.Error{Code: reason.TransferWrong, Doing: s.doing(path), Cause: errors.New("more comes than there is")}
		}
		left -= int64(n)
		if _, wrote := w.Write(buffer[:n]); wrote != nil {
			return wrote
		}
		if errors.Is(err, io.EOF) && left > 0 {
			err = io.ErrUnexpectedEOF
		}
		switch {
		case left == 0:
			return nil
		case err != nil:
			return explain("read the answer of https://"+s.address+path, causeOf(ctx, err))
		}
	}
}

// causeOf is why a context ended, where that is the cause of an error.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Credential is what a connection to a server is made with: who one is, and whom one believes. Its methods are called from several
// goroutines.
type Credential interface {
	// Certificate is the newest certificate with its key. It may have expired.
	Certificate() (*tls.Certificate, error)
	// Trust is the chain that is believed.
	Trust() *trust.Chain
}

// Upstream is a server as a relay calls it: once for many hosts. Its methods may be called from several goroutines; their errors are what
// the server says, and ServerUnreachable. Use NewUpstream.
type Upstream struct {
	dial   Dial
	server *server
}

// NewUpstream makes a way to the server at an address, HOST:PORT; nothing is dialed yet. Connections are made with the certificate of that
// moment: after another one has come, make another Upstream.
func NewUpstream(dial Dial, address string, who Credential) *Upstream {
	return &Upstream{dial, newServer(dial, address, known(who))}
}

// Address is where the server is.
func (u *Upstream) Address() string { return u.server.address }

// Close lets connections go that nobody uses. Calls that are open go on.
func (u *Upstream) Close() { u.server.http.CloseIdleConnections() }

// Relay opens the stream of a relay: up is what goes up, and take is told what comes down, until something ends it: the error of take,
// io.EOF at the end, or why it broke. opened is called when the server has answered. It is given up after so much silence.
func (u *Upstream) Relay(ctx context.Context, up io.Reader, silence time.Duration, opened func(), take func(*wire.RelayDown) error) error {
	return frames(ctx, u.server, wire.PathRelay, up, silence, opened, take)
}

// Sync asks for the way to the target of a layer, and hands its parts to take, until that returns an error, which is returned; io.EOF is at the
// end, whether there was a last part or not.
func (u *Upstream) Sync(ctx context.Context, r wire.SyncRequest, take func(*wire.SyncPart) error) error {
	return stream(ctx, u.server, wire.PathSync, r, silenceMax, func() {}, take)
}

// Nodes asks for what has certain hashes. What comes is not verified.
func (u *Upstream) Nodes(ctx context.Context, r wire.NodesRequest) ([][]byte, error) {
	var reply wire.NodesReply
	if err := u.server.exchange(ctx, wire.PathNodes, r, wire.ReplyMax, &reply); err != nil {
		return nil, err
	}
	if len(reply.Items) != len(r.Hashes) {
		return nil, &reason.Error{Code: reason.TransferWrong, Doing: u.server.doing(wire.PathNodes), Cause: fmt.Errorf("%d things came for %d hashes", len(reply.Items), len(r.Hashes))}
	}
	return reply.Items, nil
}

// Object asks for an object from r.From on, and returns the size of all of it and what comes, which the caller closes. Of r.Size nothing is
// taken, and what comes is not verified. It breaks when nothing comes for 30 s.
func (u *Upstream) Object(ctx context.Context, r ObjectRequest) (size int64, body io.ReadCloser, err error) {
	return u.content(ctx, wire.PathObject+r.Digest.String(), r.From, func(ctx context.Context) (*http.Response, error) { return u.server.object(ctx, r) })
}

// Stored asks, as a server, for what another server has itself: path is one of an object or of a bundle. Everything else is as of Object.
func (u *Upstream) Stored(ctx context.Context, path string, from int64) (size int64, body io.ReadCloser, err error) {
	return u.content(ctx, path, from, func(ctx context.Context) (*http.Response, error) {
		return u.server.content(ctx, path, from, http.Header{})
	})
}

func (u *Upstream) content(ctx context.Context, path string, from int64, call func(context.Context) (*http.Response, error)) (size int64, body io.ReadCloser, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := newWatchdog(silenceMax)
	var guard sync.WaitGroup
	guard.Go(func() { watchdog.run(ctx, cancel) })
	end := func() {
		cancel(nil)
		guard.Wait()
	}
	answer, err := call(ctx)
	if err != nil {
		end()
		return 0, nil, err
	}
	watchdog.beat()
	if answer.ContentLength < 0 {
		closeBody(answer)
		end()
		return 0, nil, &reason.Error{Code: reason.TransferWrong, Doing: u.server.doing(path), Cause: errors.New("it does not say how long it is")}
	}
	return from + answer.ContentLength, &objectBody{beating{answer.Body, watchdog}, answer, end}, nil
}

// objectBody is what comes of an object.
type objectBody struct {
	beating
	answer *http.Response
	end    func()
}

// Close ends the call.
func (b *objectBody) Close() error {
	closeBody(b.answer)
	b.end()
	return nil
}

// Join passes on what a host has shown that wants to join.
func (u *Upstream) Join(ctx context.Context, r wire.JoinRequest) (c wire.Credentials, err error) {
	err = u.server.exchange(ctx, wire.PathJoin, r, credentialsMax, &c)
	return c, err
}

// Renew asks for a new certificate: of the relay itself, or of the host whose certificate the request has.
func (u *Upstream) Renew(ctx context.Context, r wire.RenewRequest) (c wire.Credentials, err error) {
	err = u.server.exchange(ctx, wire.PathRenew, r, credentialsMax, &c)
	return c, err
}

// Trust asks for the trust documents after a number, which speak for themselves; there may be none. It asks whoever answers: the authority
// of the server may be one that only they name.
func (u *Upstream) Trust(ctx context.Context, after uint64) ([]trust.Signed, error) {
	anybody := newServer(u.dial, u.server.address, strange())
	defer anybody.http.CloseIdleConnections()
	return fetchTrust(ctx, anybody, after)
}

// Answer brings the answer of a node to a question, as it comes; with refused, why there is none.
func (u *Upstream) Answer(ctx context.Context, question uint64, node string, refused *wire.Problem, body io.Reader) error {
	query := wire.ParamID + "=" + strconv.FormatUint(question, 10) + "&" + wire.ParamNode + "=" + node
	if refused != nil {
		data, err := wire.Encode(refused)
		if err != nil {
			return err
		}
		body, query = bytes.NewReader(data), query+"&"+wire.ParamRefused+"=1"
	}
	answer, err := u.server.post(ctx, wire.PathAnswer, query, body)
	if err != nil {
		return err
	}
	closeBody(answer)
	return nil
}

package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/declare"
)

const (
	pageMax    = 64 << 10 // what is read of a page
	headersMax = 64 << 10 // what is read of an answer's headers
	targetsMax = 16       // of an SRV record: what stands behind them is one service
	interimMax = 8        // of answers of the class 1xx: servers send one or two

	// headStartMax is how long a target is asked alone, before the next one is asked, too: longer than one that is well takes to answer.
	headStartMax = time.Second
)

// refusal is an answer that is not the one that is needed.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

func refused(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// ask finds an endpoint, and has it answer. Of several targets one must.
func (t *Type) ask(ctx context.Context, r *resource) error {
	if r.Service == "" {
		return t.askAt(ctx, r, r.Host, r.Port)
	}
	_, targets, err := t.opts.Resolver.LookupSRV(ctx, "", "", r.Service)
	switch {
	case err != nil:
		return plain(err)
	case len(targets) == 0 || len(targets) == 1 && targets[0].Target == ".":
		return errors.New("the SRV record says that the service is nowhere")
	}
	return t.askAny(ctx, r, targets[:min(len(targets), targetsMax)])
}

// askAny asks targets in their order until one answers. One that is silent holds up the next for no longer than its head start, which is
// such that half the time is left when the last one is asked; and it may still answer while later ones are asked.
func (t *Type) askAny(ctx context.Context, r *resource, targets []*net.SRV) error {
	headStart := headStartMax
	if deadline, ok := ctx.Deadline(); ok {
		headStart = min(headStart, time.Until(deadline)/time.Duration(2*len(targets)))
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel() // once one has answered, the others are asked no more

	errs := make([]error, len(targets))
	heard := make(chan error, len(targets))
	ask := func(i int) {
		name, port := strings.TrimSuffix(targets[i].Target, "."), int(targets[i].Port)
		err := t.askAt(ctx, r, name, port)
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", net.JoinHostPort(name, strconv.Itoa(port)), err)
		}
		heard <- err
	}
	for begun, ended := 0, 0; ended < len(targets); {
		var over <-chan time.Time
		if i := begun; i < len(targets) {
			asking.Go(func() { ask(i) })
			begun, over = begun+1, time.After(headStart)
		}
		select {
		case err := <-heard:
			if err == nil {
				return nil
			}
			ended++
		case <-over:
		}
	}
	return errors.Join(errs...)
}

// askAt has a server answer at a place.
func (t *Type) askAt(ctx context.Context, r *resource, name string, port int) error {
	address := net.JoinHostPort(name, strconv.Itoa(port))
	// Names are looked up by the dialer, which tries all addresses of both kinds.
	dialer := net.Dialer{Resolver: t.opts.Resolver, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return plain(err)
	}
	defer conn.Close()
	// Whoever has connected and says nothing is cut off in time.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if r.TLS {
		secure := tls.Client(conn, t.tls(r, name))
		if err := secure.HandshakeContext(ctx); err != nil {
			return certified(err)
		}
		conn = secure
	}
	if r.HTTP == nil {
		return nil
	}
	return page(ctx, conn, address, r.HTTP, r.TLS)
}

func (t *Type) tls(r *resource, name string) *tls.Config {
	c := &tls.Config{ServerName: name, RootCAs: t.opts.Roots, MinVersion: tls.VersionTLS12}
	if r.ServerName != "" {
		c.ServerName = r.ServerName
	}
	if r.roots != nil {
		c.RootCAs = r.roots
	}
	return c
}

// certified tells a certificate that is not believed from a connection that broke.
func certified(err error) error {
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return refused("%v", bad.Err)
	}
	var alert tls.AlertError
	var record tls.RecordHeaderError
	if errors.As(err, &alert) || errors.As(err, &record) {
		return refused("%v", err)
	}
	return err
}

// page asks for a page on a connection, which is used once.
func page(ctx context.Context, conn net.Conn, address string, want *declare.EndpointHTTP, secure bool) error {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	path := want.Path
	if path == "" {
		path = "/"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+path, nil)
	if err != nil {
		return refused("%v", err)
	}
	request.Header.Set("User-Agent", "tako-agent")
	request.Close = true
	if err := request.Write(conn); err != nil {
		return plain(err)
	}
	heard := &io.LimitedReader{R: conn, N: headersMax + pageMax}
	answer, err := answerTo(request, bufio.NewReader(heard))
	switch {
	case err == nil:
	case ctx.Err() == nil && heard.N < headersMax+pageMax:
		return refused("what answers speaks no HTTP: %v", err)
	default:
		return plain(err)
	}
	defer answer.Body.Close()
	if !want.Good(answer.StatusCode) {
		return refused("GET %s was answered with status %d", path, answer.StatusCode)
	}
	if want.Contains == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, pageMax))
	if err != nil {
		return plain(err)
	}
	if !bytes.Contains(body, []byte(want.Contains)) {
		return refused("the page %s does not contain %q", path, want.Contains)
	}
	return nil
}

// answerTo reads the answer to a request, after those that only say that there will be one.
func answerTo(request *http.Request, from *bufio.Reader) (*http.Response, error) {
	for range interimMax {
		answer, err := http.ReadResponse(from, request)
		if err != nil || answer.StatusCode >= http.StatusOK {
			return answer, err
		}
		answer.Body.Close()
	}
	return nil, errors.New("it only says that there will be an answer")
}

// plain takes away what a message of the network says twice: which operation on which address.
func plain(err error) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		if name.IsNotFound {
			return fmt.Errorf("there is no %s in the DNS or in /etc/hosts", name.Name)
		}
		return fmt.Errorf("look up %s: %s", name.Name, name.Err)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

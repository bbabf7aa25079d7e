package forge

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Options say how a Client asks.
type Options struct {
	// Transport carries the requests; default http.DefaultTransport. It is where proxies and authorities are set.
	Transport http.RoundTripper
	// Timeout is how long one Post may take; default 10 s, since nothing waits for it and the next try is cheap.
	Timeout time.Duration
}

// Client posts statuses. It may be used by several goroutines at once.
type Client struct {
	http http.Client
}

// New returns a Client. It starts nothing.
func New(o Options) *Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return &Client{http: http.Client{Transport: o.Transport, Timeout: o.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // another place would get the token
	}}}
}

// answerBytesMax bounds what is read of an answer: an error message, of which a line is shown.
const answerBytesMax = 16 << 10

// Post posts a status once. An error has code InvalidValue for what cannot be asked, ForgeUnreachable where trying again may
// help, with the pause that the forge asks for, and else ForgeRefused with the words of the forge.
func (c *Client) Post(ctx context.Context, t Target, s Status) error {
	request, err := NewRequest(ctx, t, s)
	if err != nil {
		return err
	}
	doing := fmt.Sprintf("post status %s of commit %.12s to %s", s.State, t.Commit, request.URL.Host)
	client, done, err := c.trusting(t.Authorities)
	if err != nil {
		return err
	}
	defer done()
	answer, err := client.Do(request)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err // the address has been said
		}
		failure := &reason.Error{Code: reason.ForgeUnreachable, Doing: doing, Cause: err}
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			failure.Hint = "put the authority that has signed the certificate of the forge into the Secret, as ca.crt"
		}
		return failure
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax)) // words only: an answer that breaks off has said its status
	if answer.StatusCode == http.StatusCreated || answer.StatusCode == http.StatusOK {
		return nil
	}
	if t.Kind == GitLab && isAlready(answer.StatusCode, body, s.State.in(t.Kind)) {
		return nil
	}
	failure := &reason.Error{Code: reason.ForgeRefused, Doing: doing, Cause: errors.New(answer.Status), Hint: hint(answer.StatusCode),
		Evidence: strings.ReplaceAll(words(body), string(t.Token), "…")}
	if later, after := again(answer); later {
		failure.Code, failure.After, failure.Hint = reason.ForgeUnreachable, after, ""
	}
	return failure
}

// trusting is the client with authorities beside those of the machine. Posts are rare: such a client is made for one of them, and done
// closes its connections.
func (c *Client) trusting(authorities []byte) (client *http.Client, done func(), err error) {
	if len(authorities) == 0 {
		return &c.http, func() {}, nil
	}
	base, ok := cmp.Or(c.http.Transport, http.DefaultTransport).(*http.Transport)
	if !ok {
		return &c.http, func() {}, nil // whoever brings another way to the forge has said whom it trusts
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, nil, &reason.Error{Code: reason.InvalidValue, Doing: "post a commit status", Cause: errors.New("ca.crt holds no certificate in PEM")}
	}
	transport := base.Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{}
	}
	transport.TLSClientConfig.RootCAs = pool
	own := c.http
	own.Transport = transport
	return &own, transport.CloseIdleConnections, nil
}

// isAlready reports whether GitLab refuses a state because the commit has it: Cannot transition status via :enqueue from :pending.
func isAlready(status int, body []byte, state State) bool {
	said := words(body)
	return status == http.StatusBadRequest && strings.HasPrefix(said, "Cannot transition status via ") && strings.Contains(said+" ", " from :"+string(state)+" ")
}

func hint(status int) string {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "give the Secret a token that may write commit statuses of this repository"
	case status == http.StatusNotFound:
		return "check owner, name and API; a forge also says this to a token that may not see the repository"
	case status >= 300 && status < 400:
		return "the API is elsewhere: name the address that it redirects to"
	}
	return ""
}

// words is the message of an answer, which every kind of forge gives as JSON.
func words(body []byte) string {
	var said struct{ Message string }
	if json.Unmarshal(body, &said) == nil && said.Message != "" {
		return reason.Clip([]byte(said.Message))
	}
	return reason.Clip(body)
}

// pauseMax bounds the pause that a forge may ask for: GitHub counts by the hour.
const pauseMax = time.Hour

// again tells whether and after what pause the same request may be answered otherwise: after faults of the forge, and when it
// counts requests.
func again(answer *http.Response) (later bool, after time.Duration) {
	limited := answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusForbidden &&
		(answer.Header.Get("Retry-After") != "" || answer.Header.Get("X-Ratelimit-Remaining") == "0")
	if !limited && answer.StatusCode < 500 && answer.StatusCode != http.StatusRequestTimeout {
		return false, 0
	}
	if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(answer.Header.Get("Retry-After")); err == nil {
		after = time.Until(at)
	} else if unix, err := strconv.ParseInt(answer.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil && limited {
		after = time.Until(time.Unix(unix, 0))
	}
	return true, min(max(after, 0), pauseMax)
}

package follower

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

const (
	// forwarded says that a request was passed on already, so that two servers of which each takes the other one for the leader do not pass
	// it on for ever.
	forwarded = "Tako-Forwarded"
	// leaderMax is how long a request waits until somebody leads, so that who asks while servers start is not refused.
	leaderMax = 2 * time.Second
	// againAfter is when to ask again after a refusal, which clients of Kubernetes do by themselves for some ten times.
	againAfter = time.Second
	// connectMax bounds a connection to the leader, and answerMax what comes before its answer: as long as the API takes for one at most.
	connectMax, answerMax = 5 * time.Second, 60 * time.Second
	// idleMax is how long a connection stays open without a request.
	idleMax = 2 * time.Minute
)

// ProxyOptions are what a Proxy works with; all are required.
type ProxyOptions struct {
	// Leader says whether this server leads, or else where the leader serves people, HOST:PORT, empty where there is none; a channel that is closed
	// when that is another one; and one that is closed when there is something new.
	Leader func() (leads bool, api string, ended, changed <-chan struct{})
	// Certificate is one with which this server may speak for whoever has asked it.
	Certificate func() (*tls.Certificate, error)
	// Authorities have issued the certificates of servers, which are all known by one name, too.
	Authorities *x509.CertPool
	ServerName  string
	Log         *slog.Logger
}

// Proxy has requests be answered by the leader that are about what it alone knows. Use NewProxy.
type Proxy struct {
	options   ProxyOptions
	transport *http.Transport
}

// NewProxy makes no connection yet.
func NewProxy(o ProxyOptions) *Proxy {
	return &Proxy{options: o, transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: connectMax}).DialContext, IdleConnTimeout: idleMax,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectMax, ResponseHeaderTimeout: answerMax, DisableCompression: true,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: o.Authorities, ServerName: o.ServerName,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Certificate() },
		},
	}}
}

// Handler takes what the leader alone knows out of what goes to next. Who asks has been let in, and may do so.
func (p *Proxy) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		if !known || info.APIGroup != v1alpha1.GroupName || !leaders(r.Method, info.Resource) {
			next.ServeHTTP(w, r)
			return
		}
		p.serve(w, r, next, func(out *http.Request) {
			if who, known := request.UserFrom(r.Context()); known {
				actAs(out.Header, who)
			}
		})
	})
}

// leaders reports whether the leader alone can answer: what is heard of hosts and instances is read, and where instances would go is asked.
func leaders(method, resource string) bool {
	switch resource {
	case v1alpha1.ResourceNodes, v1alpha1.ResourceInstances:
		return method == http.MethodGet
	case v1alpha1.ResourcePlans:
		return method == http.MethodPost
	}
	return false
}

// Forward has a request that proves by itself who makes it be answered by the leader, or by next while that is this server.
func (p *Proxy) Forward(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p.serve(w, r, next, func(*http.Request) {})
}

// serve has a request be answered by whoever leads, for as long as he does: a watch that went on would tell nothing more.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler, change func(*http.Request)) {
	leads, api, ended := p.leader(r.Context())
	ctx, stop := until(r.Context(), ended)
	defer stop()
	r = r.WithContext(ctx)
	switch {
	case leads:
		next.ServeHTTP(w, r)
	case api == "" || r.Header.Get(forwarded) != "":
		refuseRequest(w, r, nil)
	default:
		(&httputil.ReverseProxy{
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.SetURL(&url.URL{Scheme: "https", Host: api})
				pr.Out.Header.Set(forwarded, "1")
				change(pr.Out)
			},
			Transport: p.transport, FlushInterval: -1, // events of a watch do not wait
			ErrorLog: slog.NewLogLogger(p.options.Log.Handler(), slog.LevelDebug),
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				if r.Context().Err() == nil {
					p.options.Log.Warn("have the leader answer", "server", api, "err", err)
				}
				refuseRequest(w, r, err)
			},
		}).ServeHTTP(w, r)
	}
}

// until is a context that ends with a channel, too. stop lets it go.
func until(ctx context.Context, ended <-chan struct{}) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		all.Wait()
	}
}

// leader is who leads, after a short wait where nobody does.
func (p *Proxy) leader(ctx context.Context) (leads bool, api string, ended <-chan struct{}) {
	timer := time.NewTimer(leaderMax)
	defer timer.Stop()
	for {
		leads, api, ended, changed := p.options.Leader()
		if leads || api != "" {
			return leads, api, ended
		}
		select {
		case <-changed:
		case <-timer.C:
			return false, "", ended
		case <-ctx.Done():
			return false, "", ended
		}
	}
}

// actAs has a request be that of the one who has asked this server. What he has shown to it stays here.
func actAs(h http.Header, who user.Info) {
	for _, name := range []string{"Authorization", "Cookie"} {
		h.Del(name)
	}
	for name := range h {
		if len(name) > len("Impersonate-") && name[:len("Impersonate-")] == "Impersonate-" {
			h.Del(name)
		}
	}
	h.Set("Impersonate-User", who.GetName())
	if uid := who.GetUID(); uid != "" {
		h.Set("Impersonate-Uid", uid)
	}
	for _, group := range who.GetGroups() {
		h.Add("Impersonate-Group", group)
	}
	for key, values := range who.GetExtra() {
		for _, value := range values {
			h.Add("Impersonate-Extra-"+url.PathEscape(key), value)
		}
	}
}

// refuseRequest says that nobody leads, as the API does.
func refuseRequest(w http.ResponseWriter, r *http.Request, cause error) {
	if errors.Is(cause, context.Canceled) {
		cause = nil // another server leads by now, or whoever asked has gone
	}
	e := &reason.Error{Code: reason.NoLeader, Doing: r.Method + " " + r.URL.Path, Cause: cause, After: againAfter}
	status := e.Entry().HTTP
	s := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(status), Reason: metav1.StatusReasonServiceUnavailable,
		Message: e.Code.String() + ": " + e.Error(), Details: &metav1.StatusDetails{RetryAfterSeconds: int32(againAfter / time.Second), Causes: []metav1.StatusCause{{Type: metav1.CauseType(e.Code.String()), Message: e.Error()}}}}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(againAfter/time.Second)))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(s) // there is nobody else to tell
}

// objectMax bounds what another server says of itself.
const objectMax = 64 << 10

// Get asks another server for an object, in this server's own name, for a short while. The error is ServerUnreachable.
func (p *Proxy) Get(ctx context.Context, api, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	resp, err := p.get(ctx, api, path)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = errors.New("it says " + resp.Status)
		} else {
			err = json.NewDecoder(io.LimitReader(resp.Body, objectMax)).Decode(into)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", readyMax)
	}
	return &reason.Error{Code: reason.ServerUnreachable, Doing: "call https://" + api, Cause: err}
}

func (p *Proxy) get(ctx context.Context, api, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+api+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return p.transport.RoundTrip(r)
}

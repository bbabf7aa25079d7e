package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// The names under which fields are owned that this command line has written.
const (
	// FieldManager owns what is applied as a set, whoever applies it: the set declares it.
	FieldManager = "tako"
	// PersonalManager and a user's name own what that user applies by hand.
	PersonalManager = "tako:"
	// EditManager owns what was changed in an editor.
	EditManager = "tako-edit"
)

// Options say how to speak to a server.
type Options struct {
	// RequestTimeout is how long one answer is waited for. Default 30 s: the API server gives up a request after 60 s, and
	// a person before that.
	RequestTimeout time.Duration
	// Warn gets each warning of the server, once, one at a time. Default none.
	Warn func(text string)
	// UserAgent is how requests are marked in the server's audit log. Default "tako".
	UserAgent string
}

func (o Options) withDefaults() Options {
	const requestTimeout = 30 * time.Second
	if o.RequestTimeout == 0 {
		o.RequestTimeout = requestTimeout
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.UserAgent == "" {
		o.UserAgent = "tako"
	}
	return o
}

// Server is one API server. A Server is for one command: it keeps what kinds there are until Forget.
type Server struct {
	client    *rest.RESTClient
	discovery *discovery.DiscoveryClient
	options   Options
	kinds     []Kind // as discovered; nil before that
}

// New returns a Server. It connects to nothing yet; the configuration is not changed.
func New(config *rest.Config, options Options) (*Server, error) {
	options = options.withDefaults()
	config = rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = options.UserAgent
	config.QPS = -1 // a person's commands are paced by the person; the server defends itself
	config.WarningHandlerWithContext = &warner{warn: options.Warn, seen: map[string]bool{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return wordedRefusals{next} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("set up the connection: %w", err)
	}
	return &Server{client: client, discovery: discovery.NewDiscoveryClient(client), options: options}, nil
}

// unwarned is the key of how warnings begin that are not handed on.
type unwarned struct{}

// WithoutWarning is for requests of which it is known why the server warns so, and that it is not so for long.
func WithoutWarning(ctx context.Context, start string) context.Context {
	return context.WithValue(ctx, unwarned{}, start)
}

// warner hands the text of each warning on, once. Requests run at once.
type warner struct {
	warn func(text string)

	mutex sync.Mutex // guards seen
	seen  map[string]bool
}

// HandleWarningHeaderWithContext is called for each Warning header of an answer. 299 is the only code of the API.
func (w *warner) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != 299 || text == "" {
		return
	}
	if start, ok := ctx.Value(unwarned{}).(string); ok && strings.HasPrefix(text, start) {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.seen[text] {
		w.seen[text] = true
		w.warn(text)
	}
}

// wordedRefusals makes the words with which a server of ours refuses credentials the error of the request. They come in a
// Warning header, because the client library does not read the body of a refusal when it asks which kinds there are.
type wordedRefusals struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (w wordedRefusals) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	warnings, _ := utilnet.ParseWarningHeaders(answer.Header["Warning"]) // one that cannot be read says nothing
	if len(warnings) == 0 || warnings[0].Text == "" {
		return answer, nil
	}
	_ = answer.Body.Close() // nothing of it is read
	return nil, apierrors.NewUnauthorized(warnings[0].Text)
}

// within runs one request under the deadline of requests.
func within[T any](ctx context.Context, s *Server, f func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	return f(ctx)
}

// Version asks for the server's version.
func (s *Server) Version(ctx context.Context) (*version.Info, error) {
	text, err := s.Raw(ctx, "/version")
	if err != nil {
		return nil, err
	}
	var info version.Info
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("read the server's version: %w", err)
	}
	return &info, nil
}

// Raw gets a path as it is.
func (s *Server) Raw(ctx context.Context, path string) ([]byte, error) {
	return within(ctx, s, func(ctx context.Context) ([]byte, error) {
		return send(ctx, s.client.Get().RequestURI(path).SetHeader("Accept", "application/json"))
	})
}

// Description returns the server's OpenAPI version 3 description of the kinds of a group and version.
func (s *Server) Description(ctx context.Context, gv schema.GroupVersion) ([]byte, error) {
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	return s.Raw(ctx, path)
}

// send sends a request and returns the body of the answer. The error is the status that the server answers with: Raw alone
// knows the number of it only.
func send(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

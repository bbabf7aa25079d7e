package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// askMax is how long a host may take for an answer: it reads its own disk, or asks its journal.
	askMax = 30 * time.Second
	// linesMax is more than an answer has room for.
	linesMax = 100_000
)

// Asker asks a host something, and returns its answer as it comes. Whoever reads it closes it; it ends with the context. The error
// is a reason.Error: HostNotConnected, or what the host has against the question. uid is that of the Node: the host of an earlier one by
// its name is not asked.
type Asker interface {
	Ask(ctx context.Context, node, uid string, q wire.Question) (io.ReadCloser, error)
}

// questions are the subresources of a node that are questions to its host, and the forms of the answers.
func questions() map[string]string {
	return map[string]string{
		v1alpha1.NodeHistory:  "application/x-ndjson",
		v1alpha1.NodeLogs:     "text/plain; charset=utf-8",
		v1alpha1.NodeEvidence: "application/json",
		v1alpha1.NodeUsage:    "application/json",
		v1alpha1.NodeGraph:    "application/json",
	}
}

// answers is one of those subresources.
type answers struct {
	nodes *Store
	what  string
	live  *live
}

var _ rest.Connecter = (*answers)(nil)

// New is what the subresource belongs to.
func (*answers) New() runtime.Object { return &v1alpha1.Node{} }

// Destroy does nothing: there is no storage.
func (*answers) Destroy() {}

// ConnectMethods are those of reading.
func (*answers) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions are none: the parameters are read from the request.
func (*answers) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect checks that there is such a node, and returns what asks its host.
func (a *answers) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, err := a.nodes.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	node := o.(*v1alpha1.Node)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := readQuestion(a.what, r.URL.Query(), time.Now())
		if err != nil {
			responder.Error(apierrors.NewBadRequest(err.Error()))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), askMax)
		defer cancel()
		if err := a.ask(ctx, node, q, w); err != nil {
			responder.Error(err)
		}
	}), nil
}

// readQuestion reads the parameters of a question: subject, lines, previous, since, until.
func readQuestion(what string, query url.Values, now time.Time) (wire.Question, error) {
	q := wire.Question{What: what, Subject: query.Get("subject"), Seconds: uint32(askMax / time.Second)}
	if len(q.Subject) > declare.ClaimBytesMax {
		return q, fmt.Errorf("subject has %d bytes, at most %d are allowed", len(q.Subject), declare.ClaimBytesMax)
	}
	if q.Subject == "" && what == v1alpha1.NodeEvidence {
		return q, errors.New("subject is missing: write which resource is meant, such as file/motd")
	}
	if text := query.Get("lines"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n < 1 || n > linesMax {
			return q, fmt.Errorf("lines is %q, must be a number from 1 to %d", text, linesMax)
		}
		q.Lines = uint32(n)
	}
	switch text := query.Get("previous"); {
	case text == "true" && what == v1alpha1.NodeLogs:
		q.Previous = true
	case text != "" && text != "false":
		return q, fmt.Errorf("previous is %q, must be true or false, and is about logs alone", text)
	}
	var err error
	if q.Since, err = readMoment("since", query, now); err == nil {
		q.Until, err = readMoment("until", query, now)
	}
	return q, err
}

// readMoment reads a parameter that is a time, in seconds since 1970; 0 where it is not given.
func readMoment(name string, query url.Values, now time.Time) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Unix() > 0 {
		return at.Unix(), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 && d < now.Sub(time.Unix(0, 0)) {
		return now.Add(-d).Unix(), nil
	}
	return 0, fmt.Errorf("%s is %q, must be how long ago, such as 10m, or a time, such as 2026-01-31T12:00:00Z", name, text)
}

// ask sends the answer of a host as it comes. The error is one of the API; after the first byte there is no other way left to tell of
// one than to end the connection.
func (a *answers) ask(ctx context.Context, node *v1alpha1.Node, q wire.Question, w http.ResponseWriter) error {
	if a.live.asker == nil {
		return apierrors.NewServiceUnavailable("this server asks no hosts")
	}
	answer, err := a.live.asker.Ask(ctx, node.Name, string(node.UID), q)
	if err != nil {
		return refused(err)
	}
	defer func() { _ = answer.Close() }() // nothing more is wanted of it
	buffer, sent, began := make([]byte, 32<<10), 0, false
	for {
		n, err := answer.Read(buffer)
		if n == 0 && !began && err != nil && !errors.Is(err, io.EOF) {
			return refused(cmp.Or(ctx.Err(), err))
		}
		if !began {
			began = true
			w.Header().Set("Content-Type", questions()[a.what])
			w.Header().Set("X-Content-Type-Options", "nosniff") // it is what a host says
			w.WriteHeader(http.StatusOK)
		}
		if sent += n; sent > wire.AnswerMax {
			panic(http.ErrAbortHandler)
		}
		if _, err := w.Write(buffer[:n]); err != nil {
			return nil // nobody reads any more
		}
		_ = http.NewResponseController(w).Flush() // where that is not possible, it comes at the end
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			panic(http.ErrAbortHandler) // the reader must not take a part for the whole
		}
	}
}

// refused is an error of the closed set as one of the API.
func refused(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("the host has not answered within %s", askMax), 0)
	}
	of := reason.Of(err)
	code, text := of.Entry().HTTP, of.Code.String()+": "+of.Error()
	if of.Hint != "" {
		text += "; " + of.Hint
	}
	reasons := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: cmp.Or(reasons[code], metav1.StatusReasonInternalError), Message: text,
	}}
}

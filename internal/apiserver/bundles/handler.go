package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// Path is what the paths of bundles begin with.
	Path = "/content/bundles/"
	// PieceMax is how much one call may bring: over a line of 50 kB/s within the 60 s that a call may take.
	PieceMax = 2 << 20
	// HashesMax is how many nodes may be asked for at once.
	HashesMax = 256
	// hashesBytesMax is above what a question for so many has.
	hashesBytesMax = 64 << 10
	// acceptWait is how long a call waits until an upload was looked through: less than a call may take.
	acceptWait = 20 * time.Second
)

// State is how far a bundle has come.
type State struct {
	Here bool `json:"here"`
	// Checking says that all of it has come, and is looked through.
	Checking bool `json:"checking,omitempty"`
	// Base is the digest of a bundle that is here, and that a difference may build upon; empty where there is none.
	Base string `json:"base,omitempty"`
	// BaseEntries is how many entries that has.
	BaseEntries int   `json:"baseEntries,omitempty"`
	Offset      int64 `json:"offset"` // where the next piece begins, while it is not here
}

// Hashes asks for nodes.
type Hashes struct {
	Hashes []string `json:"hashes"` // hexadecimal, at most HashesMax
}

// Nodes are the answer, in the same order: empty where there is none of that hash.
type Nodes struct {
	Nodes [][]byte `json:"nodes"`
}

// Handler takes the calls for bundles out of what goes to next. Who makes them has been let in; may says what he may do.
func (s *Store) Handler(may authorizer.Authorizer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, is := strings.CutPrefix(r.URL.Path, Path)
		if !is {
			next.ServeHTTP(w, r)
			return
		}
		answer, err := s.serve(r, may, name)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // there is nobody else to tell
	})
}

func (s *Store) serve(r *http.Request, may authorizer.Authorizer, name string) (any, error) {
	name, nodes := strings.CutSuffix(name, "/nodes")
	u, offset, err := read(r, name)
	if err != nil {
		return nil, err
	}
	if err := allowed(r.Context(), may, u.namespace); err != nil {
		return nil, err
	}
	switch {
	case r.Method == http.MethodGet && !nodes:
		return s.state(r.Context(), u)
	case r.Method == http.MethodPost && nodes:
		return s.nodes(u.root, r.Body)
	case r.Method == http.MethodPatch && !nodes:
		return s.take(r.Context(), u, offset, r.Body)
	}
	return nil, usage("call "+Path, fmt.Errorf("there is no %s here", r.Method))
}

// read reads which upload a call is about.
func read(r *http.Request, name string) (u upload, offset int64, err error) {
	const doing = "read which bundle it is"
	if u.root, err = bundle.ParseDigest(name); err != nil {
		return u, 0, err
	}
	q := r.URL.Query()
	if u.namespace = q.Get("namespace"); u.namespace != "" && len(validation.IsDNS1123Label(u.namespace)) > 0 {
		return u, 0, usage(doing, fmt.Errorf("namespace=%.80q is none", u.namespace))
	}
	if base := q.Get("base"); base != "" {
		if u.base, err = bundle.ParseDigest(base); err != nil {
			return u, 0, err
		}
	}
	if !q.Has("size") {
		u.size = -1
		return u, 0, nil
	}
	if u.size, err = strconv.ParseInt(q.Get("size"), 10, 64); err != nil || u.size < 0 || u.size > bundle.DifferenceBytesMax {
		return u, 0, usage(doing, fmt.Errorf("size=%.80q is not a number from 0 to %d", q.Get("size"), int64(bundle.DifferenceBytesMax)))
	}
	if q.Has("offset") {
		if offset, err = strconv.ParseInt(q.Get("offset"), 10, 64); err != nil || offset < 0 || offset > u.size {
			return u, 0, usage(doing, fmt.Errorf("offset=%.80q is not a number from 0 to the size", q.Get("offset")))
		}
	}
	return u, offset, nil
}

// allowed refuses who may not update the configs that the bundle could be for.
func allowed(ctx context.Context, may authorizer.Authorizer, namespace string) error {
	who, known := request.UserFrom(ctx)
	if !known {
		return &reason.Error{Code: reason.NotAuthenticated, Doing: "push a bundle"}
	}
	ask := authorizer.AttributesRecord{User: who, Verb: "update", APIGroup: v1alpha1.GroupName, APIVersion: "*", Resource: v1alpha1.ResourceClusterNodeConfigs, ResourceRequest: true}
	if namespace != "" {
		ask.Namespace, ask.Resource = namespace, v1alpha1.ResourceNodeConfigs
	}
	decision, _, err := may.Authorize(ctx, ask)
	switch {
	case err != nil:
		return &reason.Error{Code: reason.StoreUnreachable, Doing: "ask who may push a bundle", Cause: err}
	case decision == authorizer.DecisionAllow:
		return nil
	}
	where := ask.Resource
	if namespace != "" {
		where += " in namespace " + namespace
	}
	return &reason.Error{Code: reason.NotAllowed, Doing: "push a bundle", Cause: fmt.Errorf("%s may not update %s", who.GetName(), where),
		Hint: "it takes who may update the configs that it is for: the role edit has that right"}
}

// state says how far an upload has come; without a size, what it may build upon.
func (s *Store) state(ctx context.Context, u upload) (State, error) {
	if s.Has(u.root) {
		return State{Here: true}, nil
	}
	if u.size < 0 {
		root, ok := s.newest(u.namespace)
		if !ok {
			return State{}, nil
		}
		of, err := s.nodesOf(root)
		if reason.Is(err, reason.StateCorrupt) || reason.Is(err, reason.BundleMissing) {
			return State{}, nil // all of it comes, then
		}
		if err != nil {
			return State{}, err
		}
		return State{Base: bundle.Digest(root), BaseEntries: of.count}, nil
	}
	if j := s.job(u); j != nil {
		return s.await(ctx, j, 0)
	}
	st, err := os.Stat(s.partPath(u))
	if err != nil {
		return State{}, nil // nothing has come yet
	}
	return State{Offset: min(st.Size(), u.size)}, nil
}

// nodes are those of a bundle that is here.
func (s *Store) nodes(root catalog.Digest, body io.Reader) (Nodes, error) {
	var ask Hashes
	const doing = "read which nodes are wanted"
	data, err := io.ReadAll(io.LimitReader(body, hashesBytesMax+1))
	if err == nil && len(data) > hashesBytesMax {
		err = fmt.Errorf("the question has more than %d bytes", hashesBytesMax)
	}
	if err == nil {
		err = json.Unmarshal(data, &ask)
	}
	if err == nil && len(ask.Hashes) > HashesMax {
		err = fmt.Errorf("there are %d hashes, at most %d are allowed", len(ask.Hashes), HashesMax)
	}
	if err != nil {
		return Nodes{}, usage(doing, err)
	}
	of, err := s.nodesOf(root)
	if err != nil {
		return Nodes{}, err
	}
	answer := Nodes{Nodes: make([][]byte, len(ask.Hashes))}
	for i, text := range ask.Hashes {
		hash, ok := catalog.ParseDigest(text)
		if !ok {
			return Nodes{}, usage(doing, fmt.Errorf("%.80q is no hash", text))
		}
		if answer.Nodes[i], _, err = of.nodes.Encoded(hash); err != nil {
			return Nodes{}, err
		}
	}
	return answer, nil
}

// take appends a piece. Two who push the same at once would write over each other: the second one is told to wait.
func (s *Store) take(ctx context.Context, u upload, offset int64, body io.Reader) (State, error) {
	doing := "store bundle " + bundle.Digest(u.root)
	if u.size < 0 {
		return State{}, usage(doing, errors.New("it is not said how many bytes there are"))
	}
	if s.Has(u.root) {
		return State{Here: true}, nil
	}
	if j := s.job(u); j != nil {
		return s.await(ctx, j, acceptWait)
	}
	if !s.begin(u) {
		return State{}, busy(doing)
	}
	at, err := s.append(u, offset, body)
	s.end(u)
	if err != nil || at < u.size {
		return State{Offset: at}, err
	}
	j, err := s.enqueue(u)
	if err != nil {
		return State{}, err
	}
	return s.await(ctx, j, acceptWait)
}

// append writes a piece durably where it belongs; at is how much there is then.
func (s *Store) append(u upload, offset int64, body io.Reader) (at int64, err error) {
	doing := "store bundle " + bundle.Digest(u.root)
	if offset == 0 {
		if u.base != (catalog.Digest{}) && !s.Has(u.base) {
			return 0, Missing(u.base)
		}
		if err := s.room(u); err != nil {
			return 0, err
		}
	}
	f, err := os.OpenFile(s.partPath(u), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		defer f.Close() // what matters of it is synced
		at, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return 0, unstored(doing, err)
	}
	if at != offset || at >= u.size {
		return min(at, u.size), nil // it goes on there
	}
	n, err := io.Copy(f, io.LimitReader(body, min(PieceMax, u.size-at)))
	if err != nil {
		return 0, unstored(doing, err)
	}
	if more, _ := io.CopyN(io.Discard, body, 1); more > 0 {
		return 0, usage(doing, fmt.Errorf("a piece has more than %d bytes, or goes beyond the size", PieceMax))
	}
	if err := disk.Sync(f); err != nil {
		return 0, unstored(doing, err)
	}
	return at + n, nil
}

func busy(doing string) error {
	return &reason.Error{Code: reason.TransferBusy, Doing: doing, Cause: errors.New("somebody else is putting it there"), After: time.Second}
}

func (s *Store) begin(u upload) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[u.name()] {
		return false
	}
	s.busy[u.name()] = true
	return true
}

func (s *Store) end(u upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, u.name())
}

// job is that of an upload; nil where there is none.
func (s *Store) job(u upload) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[u.name()]
}

// told forgets a job of which somebody was told what became of it: what was refused may be pushed once more.
func (s *Store) told(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.name()] == j {
		delete(s.jobs, j.name())
	}
}

// enqueue has an upload looked through that is complete.
func (s *Store) enqueue(u upload) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[u.name()]; j != nil {
		return j, nil
	}
	j := &job{upload: u, done: make(chan struct{})}
	select {
	case s.queue <- j:
		s.jobs[u.name()] = j
		return j, nil
	default:
		return nil, &reason.Error{Code: reason.TransferBusy, Doing: "accept bundle " + bundle.Digest(u.root), Cause: errors.New("others are looked through first"), After: time.Second}
	}
}

// await waits for a while until an upload was looked through.
func (s *Store) await(ctx context.Context, j *job, atMost time.Duration) (State, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-j.done:
		s.told(j)
		return State{Here: j.err == nil}, j.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return State{Checking: true, Offset: j.size}, nil
}

func isRefusal(err error) bool { return reason.Is(err, reason.BundleRefused) }

func usage(doing string, cause error) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: cause}
}

// refuse says why, as the API does.
func refuse(w http.ResponseWriter, err error) {
	e := reason.Of(err)
	status := e.Entry().HTTP
	if status < http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	s := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(status), Reason: metav1.StatusReasonInvalid, Message: e.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseType(e.Code.String()), Message: e.Error()}}}}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(s) // there is nobody else to tell
}

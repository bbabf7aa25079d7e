package gitea

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The names at the forge.
const (
	owner      = "ops"
	repository = "fleet"
)

// front is where a forge is reached, over https and with a certificate that nobody knows without being told. It keeps what is said of
// commits.
type front struct {
	host   string // HOST:PORT
	real   bool   // behind it is a Gitea
	server *httptest.Server

	mu     sync.Mutex // guards all below
	behind http.Handler
	said   []exchange
}

// exchange is a status that was posted, and the answer.
type exchange struct{ request, answer message }

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{behind: http.NotFoundHandler()}
	f.server = httptest.NewTLSServer(f)
	t.Cleanup(f.server.Close)
	f.host = f.server.Listener.Addr().String()
	return f
}

// authority is the certificate that clients are to trust.
func authority(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func (f *front) url() string { return "https://" + f.host + "/" + owner + "/" + repository + ".git" }

func (f *front) api() string { return "https://" + f.host + "/api/v1" }

func (f *front) serve(behind http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = behind
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	behind := f.behind
	f.mu.Unlock()
	if r.Method != http.MethodPost || !strings.Contains(r.URL.Path, "/statuses/") {
		behind.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	request := newMessage(r.Method+" "+r.URL.RequestURI(), r.Header, body)
	answer := httptest.NewRecorder()
	behind.ServeHTTP(answer, r)
	f.mu.Lock()
	f.said = append(f.said, exchange{request, newMessage(strconv.Itoa(answer.Code), http.Header{"Content-Type": answer.Header()["Content-Type"]}, answer.Body.Bytes())})
	f.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // who has asked may be gone
}

// heard returns what was said of commits since the last call.
func (f *front) heard() []exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.said
	f.said = nil
	return all
}

// status is one of a commit.
type status struct{ State, Description, Context string }

// statusOf reads what was posted, and about which commit.
func statusOf(request message) (commit string, s status, err error) {
	commit = request.start[strings.LastIndexByte(request.start, '/')+1:]
	return commit, s, json.Unmarshal([]byte(request.body), &s)
}

// names are the values of a status that was posted: all that may differ from one to the next.
func (f *front) names(request message) (values, error) {
	commit, s, err := statusOf(request)
	words, _ := json.Marshal(s.Description) // a text always can
	token := strings.TrimPrefix(request.header["Authorization"], "token ")
	return values{"forge": f.host, "commit": commit, "token": token, "state": s.State, "words": string(words[1 : len(words)-1]), "context": s.Context}, err
}

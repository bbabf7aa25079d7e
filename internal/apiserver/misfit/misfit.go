package misfit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"tako.dev/tako/internal/reason"
)

// begins is how the library begins its error about an applied object that is not of the form of its kind: namespace and name,
// group and version, and kind. It has no type that says more than its text.
var begins = regexp.MustCompile(`^failed to create typed patch object \((?:[^/();]*/([^();]*); ([^(),]*), Kind=([^(),]*))?[^()]*\): `)

// The mistakes that it tells of, each on a line of its own.
var (
	twice = regexp.MustCompile(`^duplicate entries for key \[(.*)\]$`)
	given = regexp.MustCompile(`got &value\.\w+\{Value:(.*)\}$`)
)

// Of turns the library's error about such an object into an answer that says which fields are wrong. Any other error it returns as it
// is.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if of, is := answer(err.Error()); is {
		return of
	}
	return err
}

// MistakesMax is how many mistakes of an object are told in one answer: far more than anybody reads, and little enough for clients
// that keep it.
const MistakesMax = 100

// More says how many mistakes there are beside those that are told.
func More(n int) string { return fmt.Sprintf("and %d more mistakes", n) }

func answer(said string) (of *apierrors.StatusError, is bool) {
	m := begins.FindStringSubmatch(said)
	if m == nil {
		return nil, false
	}
	var words []string
	var causes []metav1.StatusCause
	mistakes := strings.Split(strings.TrimPrefix(said[len(m[0]):], "errors:\n  "), "\n  ")
	for i, mistake := range mistakes {
		if i == MistakesMax {
			words = append(words, More(len(mistakes)-i))
			break
		}
		path, what, found := strings.Cut(mistake, ": ")
		if !found {
			words = append(words, mistake)
			continue
		}
		code, what := worded(what)
		words = append(words, path+": "+what)
		cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: strings.TrimPrefix(path, "."), Message: what}
		if code != 0 {
			cause.Message = code.String() + ": " + what
		}
		causes = append(causes, cause)
	}
	of = apierrors.NewBadRequest("the object does not have the form of its kind: " + strings.Join(words, "; "))
	group, _, grouped := strings.Cut(m[2], "/")
	if !grouped {
		group = "" // the core group has a version only
	}
	of.ErrStatus.Details = &metav1.StatusDetails{Name: m[1], Group: group, Kind: m[3], Causes: causes}
	return of, true
}

// worded is the code of a mistake, 0 where there is none, and what there is to say about it.
func worded(said string) (reason.Code, string) {
	if m := twice.FindStringSubmatch(said); m != nil {
		return reason.DuplicateName, fmt.Sprintf("two entries have %s: remove one of them", strings.ReplaceAll(m[1], ",", " and "))
	}
	switch {
	case said == "field not declared in schema":
		return reason.UnknownField, said
	case strings.HasPrefix(said, "expected "):
		return reason.WrongType, given.ReplaceAllString(said, "got $1")
	}
	return 0, said
}

// Handler tells of misfits what the library answers as a fault of the server: an apply that is only tried, of a kind that others
// define, comes by nothing else of ours.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || !r.URL.Query().Has("dryRun") {
			next.ServeHTTP(w, r)
			return
		}
		m := &writer{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(m), r)
		m.end()
	})
}

// writer holds back an answer that the server has failed, until its end.
type writer struct {
	http.ResponseWriter
	held   bytes.Buffer
	failed bool
}

var _ responsewriter.UserProvidedDecorator = (*writer)(nil)

// Unwrap returns the writer below.
func (m *writer) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// WriteHeader begins the answer.
func (m *writer) WriteHeader(code int) {
	if m.failed = code == http.StatusInternalServerError; !m.failed {
		m.ResponseWriter.WriteHeader(code)
	}
}

// Write writes the answer's body.
func (m *writer) Write(b []byte) (int, error) {
	if m.failed {
		return m.held.Write(b)
	}
	return m.ResponseWriter.Write(b)
}

// end sends what was held back, or the answer that says more.
func (m *writer) end() {
	if !m.failed {
		return
	}
	code, body := http.StatusInternalServerError, m.held.Bytes()
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil { // other forms are for kinds that are not of others
		if of, is := answer(status.Message); is {
			status = of.Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			if text, err := json.Marshal(status); err == nil {
				code, body = int(status.Code), text
				m.Header().Del("Content-Length")
			}
		}
	}
	m.ResponseWriter.WriteHeader(code)
	_, _ = m.ResponseWriter.Write(body) // if the client is gone, nobody reads it
}

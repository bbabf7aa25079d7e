package election

import (
	"net/http"
	"strconv"
)

// header is where a request to the server's own API has the term of the leader that makes it. Whoever else sets it is refused more, and
// never less.
const header = "Tako-Term"

// Carry has the term of a request's context go along with it. What would write without one is refused: it is of a controller that works
// although this server does not lead.
func Carry(next http.RoundTripper) http.RoundTripper { return carrier{next} }

type carrier struct{ next http.RoundTripper }

// RoundTrip makes a request.
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	term, leads := termOf(r.Context())
	switch {
	case !leads && r.Method == http.MethodGet:
		return c.next.RoundTrip(r)
	case !leads:
		return nil, Check(r.Context(), r.Method+" "+r.URL.Path)
	}
	r = r.Clone(r.Context())
	r.Header.Set(header, strconv.FormatInt(term, 10))
	return c.next.RoundTrip(r)
}

// Take has a request that says a term be served in that.
func Take(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.Header.Get(header); text != "" {
			term, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				term = 0 // which was never anybody's
			}
			r = r.WithContext(withTerm(r.Context(), term))
		}
		next.ServeHTTP(w, r)
	})
}

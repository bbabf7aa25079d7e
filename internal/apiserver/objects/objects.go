// Package objects keeps the large contents that people put on a server, for hosts to fetch by their digest (transfer: /v1/object):
//
//	PATCH /content/objects/DIGEST?size=S&offset=N   the next piece, at most 2 MiB; with the last one all of it is verified and becomes an object
//	GET   /content/objects/DIGEST?size=S            {"here": false, "offset": N}: where to go on
//
// Both take who may patch, or get, this path (a rule with nonResourceURLs). An upload that broke off goes on where it was. An object that no
// config has named for 30 days goes; where more than half of the quota is in use, for one day.
//
// An object is in the data directory of the server that it was put on, and of those that have taken it from there because a host asked them for it
// (Take). It is for nobody's eyes alone: who may write a config that names its digest can have it brought to a host.
//
// The package owns no goroutine but that of Collect, which is its caller's.
package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// Path is what the paths of objects begin with.
	Path = "/content/objects/"
	// PieceMax is how much one call may bring: over a line of 50 kB/s within the 60 s that a call may take.
	PieceMax = 2 << 20
	// quota is ours: room for a thousand programs.
	quota = 50 << 30
	// collectEvery is how often what nothing names is looked for.
	collectEvery = 24 * time.Hour
	// collectFirst is when that is done after a start: when the server has other things behind it.
	collectFirst = 10 * time.Minute
)

// State is how far an object has come.
type State struct {
	Here   bool  `json:"here"`
	Offset int64 `json:"offset"` // where the next piece begins, while it is not here
}

// Shelf is the objects of one server. Use New.
type Shelf struct {
	objects *content.Objects

	mu   sync.Mutex // guards busy
	busy map[content.Digest]bool
}

// New opens the objects in a directory, which it makes.
func New(dir string) (*Shelf, error) {
	o, err := content.OpenObjects(dir, content.Options{QuotaBytes: quota})
	if err != nil {
		return nil, err
	}
	return &Shelf{objects: o, busy: map[content.Digest]bool{}}, nil
}

// Open opens an object for who verifies it.
func (s *Shelf) Open(d content.Digest) (*os.File, error) { return s.objects.Look(d) }

// Handler takes the calls for objects out of what goes to next. Who makes them has been let in, and may do so.
func (s *Shelf) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, is := strings.CutPrefix(r.URL.Path, Path)
		if !is {
			next.ServeHTTP(w, r)
			return
		}
		state, err := s.serve(r, name)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(state) // there is nobody else to tell
	})
}

func (s *Shelf) serve(r *http.Request, name string) (State, error) {
	want, offset, err := read(r, name)
	if err != nil {
		return State{}, err
	}
	switch r.Method {
	case http.MethodGet:
		return s.state(want)
	case http.MethodPatch:
		return s.take(r.Context(), want, offset, r.Body)
	}
	return State{}, usage("call "+Path, fmt.Errorf("there is no %s here, only GET and PATCH", r.Method))
}

// read reads which object a call is about.
func read(r *http.Request, name string) (want content.Wanted, offset int64, err error) {
	const doing = "read which object it is"
	if want.Digest, err = content.ParseDigest(name); err != nil {
		return want, 0, err
	}
	q := r.URL.Query()
	want.Size, err = strconv.ParseInt(q.Get("size"), 10, 64)
	if err != nil || want.Size < 0 || want.Size > declare.ObjectBytesMax {
		return want, 0, usage(doing, fmt.Errorf("size=%q is not a number from 0 to %d", bounded(q.Get("size")), declare.ObjectBytesMax))
	}
	if r.Method != http.MethodPatch {
		return want, 0, nil
	}
	if offset, err = strconv.ParseInt(q.Get("offset"), 10, 64); err != nil || offset < 0 || offset > want.Size {
		return want, 0, usage(doing, fmt.Errorf("offset=%q is not a number from 0 to the size", bounded(q.Get("offset"))))
	}
	return want, offset, nil
}

func (s *Shelf) state(want content.Wanted) (State, error) {
	if s.objects.Has(want.Digest) {
		return State{Here: true}, nil
	}
	f, at, err := s.objects.Part(want.Digest)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	return State{Offset: at}, nil
}

// take appends a piece. Two who put the same object at once would write over each other: the second one is told to wait.
func (s *Shelf) take(ctx context.Context, want content.Wanted, offset int64, body io.Reader) (State, error) {
	if !s.begin(want.Digest) {
		return State{}, busy(want.Digest)
	}
	defer s.end(want.Digest)
	if s.objects.Has(want.Digest) {
		return State{Here: true}, nil
	}
	f, at, err := s.objects.Part(want.Digest)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	if at != offset {
		return State{Offset: at}, nil // it goes on there
	}
	if err := s.objects.Room(content.Wanted{Digest: want.Digest, Size: want.Size - at}); err != nil {
		return State{}, err
	}
	n, err := io.Copy(f, io.LimitReader(body, min(PieceMax, want.Size-at)))
	if err != nil {
		return State{}, &reason.Error{Code: reason.ObjectUnstored, Doing: "store object " + want.Digest.String(), Cause: err}
	}
	if more, _ := io.CopyN(io.Discard, body, 1); more > 0 {
		return State{}, usage("store object "+want.Digest.String(), fmt.Errorf("a piece has more than %d bytes, or goes beyond the size", PieceMax))
	}
	if err := disk.Sync(f); err != nil {
		return State{}, &reason.Error{Code: reason.ObjectUnstored, Doing: "store object " + want.Digest.String(), Cause: err}
	}
	if at += n; at < want.Size {
		return State{Offset: at}, nil
	}
	if err := s.objects.Add(ctx, want); err != nil {
		return State{}, err
	}
	return State{Here: true}, nil
}

func busy(d content.Digest) error {
	return &reason.Error{Code: reason.TransferBusy, Doing: "store object " + d.String(), Cause: errors.New("somebody else is putting it there"), After: time.Second}
}

func (s *Shelf) begin(d content.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[d] {
		return false
	}
	s.busy[d] = true
	return true
}

func (s *Shelf) end(d content.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, d)
}

// Named lists the digests that anything declared names, as text.
type Named func(ctx context.Context) (map[string]bool, error)

// Collect removes what nothing has named for long, once a day, until the context ends.
func (s *Shelf) Collect(ctx context.Context, named Named, log *slog.Logger) {
	timer := time.NewTimer(collectFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.collect(ctx, named, time.Now()); err != nil && ctx.Err() == nil {
			log.Warn("collect objects that nothing names", "err", err)
		}
		timer.Reset(collectEvery)
	}
}

// collect removes nothing where it is not known what is named.
func (s *Shelf) collect(ctx context.Context, named Named, now time.Time) error {
	texts, err := named(ctx)
	if err != nil {
		return err
	}
	used := make(map[content.Digest]bool, len(texts))
	for text := range texts {
		if d, err := content.ParseDigest(text); err == nil {
			used[d] = true
		}
	}
	if err := s.objects.Keep(used, now); err != nil {
		return err
	}
	return s.objects.Trim(now)
}

func usage(doing string, cause error) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: cause}
}

func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "") }

// refuse says why, as the API does.
func refuse(w http.ResponseWriter, err error) {
	e := reason.Of(err)
	row := e.Entry()
	status := row.HTTP
	if status < http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	s := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(status), Reason: metav1.StatusReasonInvalid, Message: e.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseType(e.Code.String()), Message: e.Error()}}}}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(s) // there is nobody else to tell
}

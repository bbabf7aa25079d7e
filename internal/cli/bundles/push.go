package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

const (
	// path, pieceMax and hashesMax are those of the server.
	path      = "/content/bundles/"
	pieceMax  = 2 << 20
	hashesMax = 256
	// pause is how long to wait before it is asked again: while the server is busy, or looks through what has come.
	pause = time.Second
	// busyMax is how often a server may say that it is busy, and checkMax for how long it may look through what has come: two million
	// entries take a minute on a slow machine.
	busyMax  = 60
	checkMax = 10 * time.Minute
)

// state is how far a bundle has come.
type state struct {
	Here        bool   `json:"here"`
	Checking    bool   `json:"checking"`
	Base        string `json:"base"`
	BaseEntries int    `json:"baseEntries"`
	Offset      int64  `json:"offset"`
}

// moved is what a push has sent.
type moved struct {
	Changes int   `json:"changes"` // entries that are new, another or gone
	Bytes   int64 `json:"bytes"`
}

// push is one list on its way to a server.
type push struct {
	server    *remote.Server
	namespace string // empty: for configs of the cluster
	list      *list
	trie      catalog.Trie
	told      func(done, all int64)
	sent      int64
}

// run sends what the server lacks; whole makes that all of it.
func (p *push) run(ctx context.Context, whole bool) (moved, error) {
	var s state
	if err := p.ask(ctx, http.MethodGet, "", nil, nil, &s); err != nil || s.Here {
		return moved{}, err
	}
	base := catalog.Trie{}
	if s.Base != "" && !whole {
		var err error
		if base, err = p.base(ctx, s.Base); err != nil {
			return moved{}, err
		}
	}
	from := ""
	if base.Len() > 0 {
		from = s.Base
	}
	m, err := p.upload(ctx, base, from)
	if from != "" && codeOf(err) == reason.BundleMissing {
		return p.upload(ctx, catalog.Trie{}, "") // it was collected meanwhile
	}
	return m, err
}

// ask makes one call about the bundle.
func (p *push) ask(ctx context.Context, method, below string, query url.Values, body []byte, into any) error {
	q := url.Values{}
	for key, values := range query {
		q[key] = values
	}
	if p.namespace != "" {
		q.Set("namespace", p.namespace)
	}
	return p.call(ctx, method, path+bundle.Digest(p.trie.Root())+below+"?"+q.Encode(), body, into)
}

// call makes one call, and waits while the server is busy.
func (p *push) call(ctx context.Context, method, uri string, body []byte, into any) error {
	for try := 1; ; try++ {
		data, err := p.server.Content(ctx, method, uri, body)
		if codeOf(err) == reason.TransferBusy && try < busyMax {
			if err := sleep(ctx); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return failure.Of(err, "push a bundle")
		}
		return nil
	}
}

func sleep(ctx context.Context) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func codeOf(err error) reason.Code {
	if e := failure.Of(err, ""); e != nil {
		return e.Code
	}
	return 0
}

// base is the trie of a bundle that the server has, as far as it differs from ours by that of which is asked; empty where most of it does.
func (p *push) base(ctx context.Context, digest string) (catalog.Trie, error) {
	root, err := bundle.ParseDigest(digest)
	if err != nil {
		return catalog.Trie{}, err
	}
	descent, came := catalog.NewDescent(root, p.trie, declare.BundleEntriesMax), int64(0)
	for {
		wanted := descent.Wanted(hashesMax)
		if len(wanted) == 0 {
			return descent.Built()
		}
		if came > p.list.bytes/2 {
			return catalog.Trie{}, nil // sending all costs less than finding out what is there
		}
		parts, err := p.nodes(ctx, digest, wanted)
		if codeOf(err) == reason.BundleMissing {
			return catalog.Trie{}, nil // it was collected meanwhile
		}
		if err != nil {
			return catalog.Trie{}, err
		}
		for _, part := range parts {
			if len(part) == 0 {
				return catalog.Trie{}, nil // all is sent, then
			}
			if err := descent.Take(part); err != nil {
				return catalog.Trie{}, err
			}
			came += int64(len(part))
		}
	}
}

func (p *push) nodes(ctx context.Context, digest string, hashes []catalog.Digest) ([][]byte, error) {
	var ask struct {
		Hashes []string `json:"hashes"`
	}
	for _, h := range hashes {
		ask.Hashes = append(ask.Hashes, h.String())
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	if p.namespace != "" {
		q.Set("namespace", p.namespace)
	}
	var answer struct {
		Nodes [][]byte `json:"nodes"`
	}
	if err := p.call(ctx, http.MethodPost, path+digest+"/nodes?"+q.Encode(), body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Nodes) != len(hashes) {
		return nil, fmt.Errorf("the server has answered %d of %d questions", len(answer.Nodes), len(hashes))
	}
	return answer.Nodes, nil
}

// upload sends the difference to a base, from where an earlier call may have ended.
func (p *push) upload(ctx context.Context, base catalog.Trie, digest string) (moved, error) {
	length := func(c catalog.Change) int { return int(p.list.find(c.Key).length) }
	m := moved{}
	for _, err := range catalog.Difference(base, p.trie, catalog.Digest{}) {
		if err != nil {
			return m, err
		}
		m.Changes++
	}
	size, err := bundle.Size(catalog.Difference(base, p.trie, catalog.Digest{}), length)
	if err != nil {
		return m, err
	}
	query := url.Values{"size": {strconv.FormatInt(size, 10)}}
	if digest != "" {
		query.Set("base", digest)
	}
	var s state
	if err := p.ask(ctx, http.MethodGet, "", query, nil, &s); err != nil {
		return m, err
	}
	// Each round brings the offset on, or says where it is: somebody else may be pushing the same.
	for rounds := 0; !s.Here && !s.Checking; rounds++ {
		if rounds > 2*int(size/pieceMax+2) {
			return m, fmt.Errorf("push a bundle: it does not come to an end at byte %d of %d", s.Offset, size)
		}
		w := &pieces{at: s.Offset, put: func(at int64, piece []byte) (s state, err error) {
			p.told(at, size)
			query.Set("offset", strconv.FormatInt(at, 10))
			if err := p.ask(ctx, http.MethodPatch, "", query, piece, &s); err != nil {
				return s, err
			}
			p.sent += int64(len(piece))
			return s, nil
		}}
		err := bundle.Write(w, s.Offset, catalog.Difference(base, p.trie, catalog.Digest{}), length, func(c catalog.Change) ([]byte, error) {
			item, err := p.list.item(p.list.find(c.Key))
			return item.Body, err
		})
		if err == nil {
			err = w.flush()
		}
		if err != nil && !errors.Is(err, errElsewhere) {
			return m, err
		}
		s = w.state
	}
	m.Bytes = p.sent
	return m, p.checked(ctx, query, s)
}

// checked waits until the server has looked through what has come.
func (p *push) checked(ctx context.Context, query url.Values, s state) error {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	for s.Checking {
		if err := sleep(ctx); err != nil {
			return failure.Deadline("push a bundle", "the server still looks through what has come", "push again: it goes on where it is")
		}
		s = state{}
		if err := p.ask(ctx, http.MethodGet, "", query, nil, &s); err != nil {
			return err
		}
	}
	if !s.Here {
		return failure.Stalled("push a bundle", "the server has lost what has come", "push again")
	}
	return nil
}

// errElsewhere says that the server goes on at another byte.
var errElsewhere = errors.New("it goes on elsewhere")

// pieces sends what is written to it piece by piece.
type pieces struct {
	put   func(at int64, piece []byte) (state, error)
	at    int64 // where the piece begins
	piece []byte
	state state // that the server has answered last
}

var _ io.Writer = (*pieces)(nil)

func (w *pieces) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		take := min(len(b), pieceMax-len(w.piece))
		w.piece, b = append(w.piece, b[:take]...), b[take:]
		if len(w.piece) == pieceMax {
			if err := w.send(); err != nil {
				return n - len(b), err
			}
		}
	}
	return n, nil
}

// flush sends what is left. An upload of which all has come already is still to be asked for.
func (w *pieces) flush() error {
	if len(w.piece) == 0 && (w.state.Here || w.state.Checking) {
		return nil
	}
	return w.send()
}

func (w *pieces) send() error {
	var err error
	if w.state, err = w.put(w.at, w.piece); err != nil {
		return err
	}
	w.at += int64(len(w.piece))
	w.piece = w.piece[:0]
	if w.state.Here || w.state.Checking {
		return nil
	}
	if w.state.Offset != w.at {
		return errElsewhere
	}
	return nil
}

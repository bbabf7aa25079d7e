package measures

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
)

const (
	// answerMax is how long one query may take: less than the 15 s after which it is asked again.
	answerMax = 10 * time.Second
	// answerBytes bounds an answer: one number takes two hundred bytes, and what has a few series says so within this.
	answerBytes = 64 << 10
	// queriesMax is how many queries one Prometheus is asked. Beyond it the last ones in their order are not.
	queriesMax = 1000
	// atOnce is how many queries one Prometheus is asked at a time: of its 20 by default it keeps most for people.
	atOnce = 4
	// wordsMax bounds what is told of what a Prometheus says, in bytes.
	wordsMax = 200
)

// Query is a question to a Prometheus.
type Query struct {
	Server string // the name that this server knows it by
	Text   string // PromQL; its result is one number
}

// Prometheus asks those that the server was started with. Use NewPrometheus. It is safe for concurrent use.
type Prometheus struct {
	servers map[string]*url.URL
	client  *http.Client
	nudge   chan struct{} // holds one: something else is wanted

	mu      sync.Mutex // guards what follows
	wanted  map[Query]bool
	answers map[Query]scale.Answer // of those that are wanted
}

// NewPrometheus makes one that asks the servers of these names, and asks nothing before Run. An address is http://HOST:PORT or https://HOST:PORT, with a
// path before /api/v1 where there is one, and no credentials. The error is Usage.
func NewPrometheus(servers map[string]string) (*Prometheus, error) {
	p := &Prometheus{
		servers: map[string]*url.URL{}, nudge: make(chan struct{}, 1), answers: map[Query]scale.Answer{},
		client: &http.Client{
			Transport:     &http.Transport{MaxConnsPerHost: atOnce, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}, // no proxy of the environment
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		u, err := url.Parse(servers[name])
		switch {
		case !declare.IsDomainLabel(name):
			return nil, refused(name, "the name is not up to 63 of a-z, 0-9 and -")
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
			return nil, refused(name, "the address is none of a Prometheus") // and may hold a password
		case u.User != nil:
			return nil, refused(name, "the address holds credentials, and everybody on this machine may read arguments")
		}
		p.servers[name] = u.JoinPath("api/v1/query")
	}
	return p, nil
}

func refused(name, why string) error {
	return &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("use --prometheus %s", declare.ClipText(name)), Cause: errors.New(why), Hint: "write --prometheus NAME=URL, as in main=https://prometheus.example:9090"}
}

// Want says which queries are to be asked from now on. Those that are new are asked at once.
func (p *Prometheus) Want(queries map[Query]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.Equal(p.wanted, queries) {
		return
	}
	p.wanted = queries
	maps.DeleteFunc(p.answers, func(q Query, _ scale.Answer) bool { return !queries[q] })
	select {
	case p.nudge <- struct{}{}:
	default: // one is on its way
	}
}

// Answer is the newest to a query.
func (p *Prometheus) Answer(q Query) scale.Answer {
	if p.servers[q.Server] == nil {
		return scale.Answer{Missing: fmt.Sprintf("the server has no Prometheus of the name %s: start it with --prometheus %s=URL", q.Server, q.Server)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers[q]
}

// Run asks until ctx is done. It returns nil then.
func (p *Prometheus) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer p.client.CloseIdleConnections()
	var news []chan struct{}
	for name := range p.servers {
		c := make(chan struct{}, 1)
		news = append(news, c)
		all.Go(func() { p.ask(ctx, name, c) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.nudge:
		}
		for _, c := range news {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

// ask asks one Prometheus each query as often as measures are looked at. While nothing is wanted it sleeps.
func (p *Prometheus) ask(ctx context.Context, name string, news <-chan struct{}) {
	asked := map[Query]time.Time{}
	for {
		due, next := p.due(name, asked, time.Now())
		p.round(ctx, due)
		var again <-chan time.Time
		if !next.IsZero() {
			again = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-news:
		}
	}
}

// due are the queries to one Prometheus that are to be asked now, in order, and when there are others; zero: when something else is wanted. asked is
// when each was asked last, and those that are due are in it.
func (p *Prometheus) due(name string, asked map[Query]time.Time, now time.Time) (due []Query, next time.Time) {
	p.mu.Lock()
	var wanted []Query
	for q := range p.wanted {
		if q.Server == name {
			wanted = append(wanted, q)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(wanted, func(a, b Query) int { return strings.Compare(a.Text, b.Text) })
	if len(wanted) > queriesMax {
		for _, q := range wanted[queriesMax:] {
			p.note(q, scale.Answer{Missing: fmt.Sprintf("%s is asked %d queries already, which is the most", name, queriesMax)})
		}
		wanted = wanted[:queriesMax]
	}
	for _, q := range wanted {
		at, before := asked[q]
		if at = at.Add(scale.Period); !before || !at.After(now) {
			due, at = append(due, q), now.Add(scale.Period)
			asked[q] = now
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	maps.DeleteFunc(asked, func(q Query, _ time.Time) bool { return !slices.Contains(wanted, q) })
	return due, next
}

// round asks queries, some at once.
func (p *Prometheus) round(ctx context.Context, queries []Query) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, q := range queries {
		group.Go(func() error {
			a, err := p.query(ctx, q)
			if err != nil {
				a = scale.Answer{Missing: words(err)}
			}
			if ctx.Err() == nil {
				p.note(q, a)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in the answers
}

// note keeps an answer, as long as somebody wants it.
func (p *Prometheus) note(q Query, a scale.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted[q] {
		p.answers[q] = a
	}
}

// query asks one.
func (p *Prometheus) query(ctx context.Context, q Query) (scale.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	at := time.Now()
	form := url.Values{"query": {q.Text}, "timeout": {answerMax.String()}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.servers[q.Server].String(), strings.NewReader(form.Encode()))
	if err != nil {
		return scale.Answer{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.client.Do(r)
	if err != nil {
		return scale.Answer{}, fmt.Errorf("%s does not answer: %w", q.Server, plain(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes+1))
	switch {
	case err != nil:
		return scale.Answer{}, fmt.Errorf("%s does not answer: %w", q.Server, plain(err))
	case len(body) > answerBytes:
		return scale.Answer{}, fmt.Errorf("%s answers more than %d bytes: its result must be one number, as that of sum(...)", q.Server, answerBytes)
	}
	value, err := decodeAnswer(body)
	if errors.Is(err, errForm) && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status) // whoever stands before it has other words
	}
	if err != nil {
		return scale.Answer{}, fmt.Errorf("%s says: %w", q.Server, err)
	}
	return scale.Answer{At: at, Value: value}, nil
}

// plain is an error without the address, which is nothing for those who may read the workload.
func plain(err error) error {
	var u *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing came within %s", answerMax)
	case errors.As(err, &u):
		return errors.New("it cannot be reached")
	}
	return err
}

func words(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), wordsMax)], "")
}

var errForm = errors.New("it is not the answer of a Prometheus")

// decodeAnswer reads what a Prometheus answers to an instant query: a scalar, or a vector of one.
func decodeAnswer(body []byte) (float64, error) {
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, errForm
	}
	switch {
	case a.Status == "error":
		return 0, errors.New(cmp.Or(a.Error, "an error without words"))
	case a.Status != "success":
		return 0, errForm
	case a.Data.Type == "scalar":
		return decodeValue(a.Data.Result)
	case a.Data.Type != "vector":
		return 0, fmt.Errorf("the result is a %s, and must be one number", declare.ClipText(a.Data.Type))
	}
	var series []struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(a.Data.Result, &series); err != nil {
		return 0, errForm
	}
	switch len(series) {
	case 0:
		return 0, errors.New("the query has no result")
	case 1:
		return decodeValue(series[0].Value)
	}
	return 0, fmt.Errorf("the result is %d series, and must be one number, as that of sum(...)", len(series))
}

// decodeValue reads [time, "number"].
func decodeValue(data json.RawMessage) (float64, error) {
	var pair []json.RawMessage
	var text string
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 || json.Unmarshal(pair[1], &text) != nil {
		return 0, errForm
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errForm
	}
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, fmt.Errorf("the result is %s, which is no amount", declare.ClipText(text))
	}
	return value, nil
}

// Measures is all that is measured. Use New. It is safe for concurrent use.
type Measures struct {
	Usage
	*Prometheus
}

// New makes one that asks the Prometheus servers of these names; see NewPrometheus.
func New(servers map[string]string) (*Measures, error) {
	p, err := NewPrometheus(servers)
	if err != nil {
		return nil, err
	}
	return &Measures{Prometheus: p}, nil
}

// Want says what is to be measured from now on: the instances on nodes, and queries. The maps are the callee's from then on.
func (m *Measures) Want(nodes map[types.UID]bool, queries map[Query]bool) {
	m.Usage.Want(nodes)
	m.Prometheus.Want(queries)
}

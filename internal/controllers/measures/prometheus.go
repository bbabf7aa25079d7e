package measures

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
	// lateMax is how far an answer may be behind the question: as long as one counts.
	lateMax = 90 * time.Second
	// wordsMax bounds what is told of what a Prometheus says, in bytes.
	wordsMax = 200
)

// Query is a question to a Prometheus.
type Query struct {
	Server string // the name that this server knows it by
	Text   string // PromQL; its result is one number
	// Access is what it is asked with: who may see what another one may not has another question.
	Access Access
}

// QueryOf is the question of an object in a namespace; empty: it is in none.
func QueryOf(namespace string, q *declare.PrometheusQuery) Query {
	return Query{Server: q.ServerOrDefault(), Text: q.Query, Access: accessOf(namespace, q)}
}

func compareQueries(a, b Query) int {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Text, b.Text), compareAccesses(&a.Access, &b.Access))
}

// Prometheus asks those that the server was started with. Use NewPrometheus. It is safe for concurrent use.
type Prometheus struct {
	servers map[string]*url.URL
	objects Objects
	clients clients
	within  time.Duration // answerMax
	nudge   chan struct{} // holds one: something else is wanted

	mu      sync.Mutex // guards what follows
	askers  []*Asker
	wanted  map[Query]bool         // by any of them
	answers map[Query]scale.Answer // of those that are wanted
}

// NewPrometheus makes one that asks the servers of these names, with credentials from objects, and asks nothing before Run. An address is
// http://HOST:PORT or https://HOST:PORT, with a path before /api/v1 where there is one, and no credentials. The error is Usage.
func NewPrometheus(servers map[string]string, objects Objects) (*Prometheus, error) {
	p := &Prometheus{servers: map[string]*url.URL{}, objects: objects, within: answerMax, nudge: make(chan struct{}, 1), answers: map[Query]scale.Answer{}}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		u, err := url.Parse(servers[name])
		switch {
		case !declare.IsDomainLabel(name):
			return nil, refused(name, "the name is not up to 63 of a-z, 0-9 and -")
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
			return nil, refused(name, "the address is none of a Prometheus") // and may hold a password
		case u.User != nil:
			return nil, refused(name, "the address holds credentials, and everybody on this machine may read arguments: workloads name theirs, in auth")
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && forbidden(ip) {
			return nil, refused(name, errForbidden.Error())
		}
		p.servers[name] = u.JoinPath("api/v1/query")
	}
	return p, nil
}

func refused(name, why string) error {
	return &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("use --prometheus %s", declare.ClipText(name)), Cause: errors.New(why), Hint: "write --prometheus NAME=URL, as in main=https://prometheus.example:9090"}
}

// Asker is one of those that have queries asked. Use Prometheus.Asker. It is safe for concurrent use.
type Asker struct {
	*Prometheus
	wants map[Query]bool // guarded by Prometheus.mu
}

// Asker makes one more. It lives as long as the Prometheus does.
func (p *Prometheus) Asker() *Asker {
	a := &Asker{Prometheus: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askers = append(p.askers, a)
	return a
}

// Want says which queries are to be asked for this one from now on, beside those of others. Those that are new are asked at once. The map is the
// callee's from then on.
func (a *Asker) Want(queries map[Query]bool) {
	p := a.Prometheus
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.Equal(a.wants, queries) {
		return
	}
	a.wants, p.wanted = queries, map[Query]bool{}
	for _, other := range p.askers {
		maps.Copy(p.wanted, other.wants)
	}
	maps.DeleteFunc(p.answers, func(q Query, _ scale.Answer) bool { return !p.wanted[q] })
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
	defer p.clients.close()
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
	slices.SortFunc(wanted, compareQueries)
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
			if a := p.query(ctx, q); ctx.Err() == nil {
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
func (p *Prometheus) query(ctx context.Context, q Query) scale.Answer {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	at := time.Now()
	with, err := p.prove(ctx, q)
	if err == nil {
		var value float64
		var of time.Time
		if value, of, err = p.answer(ctx, q, with, at); err == nil {
			return scale.Answer{At: of, Value: value}
		}
	}
	return scale.Answer{Missing: clip(with.hide(err.Error()))}
}

// answer is what one says to whom that proves who asks, and of when that is: a cache may be before it.
func (p *Prometheus) answer(ctx context.Context, q Query, with proof, at time.Time) (value float64, of time.Time, err error) {
	client, err := p.clients.of(with.ca)
	if err != nil {
		return 0, of, err
	}
	// It is to end before we do: then it says itself what takes so long.
	form := url.Values{"query": {q.Text}, "timeout": {(p.within * 9 / 10).String()}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.servers[q.Server].String(), strings.NewReader(form.Encode()))
	if err != nil {
		return 0, of, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if with.header != "" {
		r.Header.Set("Authorization", with.header)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, of, fmt.Errorf("%s does not answer: %w", q.Server, p.plain(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes+1))
	switch {
	case err != nil:
		return 0, of, fmt.Errorf("%s does not answer: %w", q.Server, p.plain(err))
	case len(body) > answerBytes:
		return 0, of, fmt.Errorf("%s answers more than %d bytes: its result must be one number, as that of sum(...)", q.Server, answerBytes)
	}
	value, of, err = decodeAnswer(body)
	if errors.Is(err, errForm) && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status) // whoever stands before it has other words
	}
	if err != nil {
		return 0, of, fmt.Errorf("%s says: %w", q.Server, err)
	}
	if late := at.Sub(of); late > lateMax {
		return 0, of, fmt.Errorf("%s answers as of %s, %s before it was asked: a cache is before it, or its clock is wrong", q.Server, of.UTC().Format(time.RFC3339), late.Round(time.Second))
	}
	if of.After(at) {
		of = at // its clock is ahead
	}
	return value, of, nil
}

// plain is an error without the address, which is nothing for those who may read the workload.
func (p *Prometheus) plain(err error) error {
	var (
		outside *url.Error
		unknown x509.UnknownAuthorityError
		other   x509.HostnameError
		invalid x509.CertificateInvalidError
		noTLS   tls.RecordHeaderError
		broken  *net.OpError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing came within %s", p.within)
	case errors.Is(err, errForbidden):
		return errForbidden
	case errors.As(err, &unknown):
		return errors.New("its certificate is of an authority that is not trusted: name that in ca")
	case errors.As(err, &other):
		return errors.New("its certificate is for another name than --prometheus has")
	case errors.As(err, &invalid):
		return errors.New("its certificate is not valid: it has expired, or is not for a server")
	case errors.As(err, &noTLS):
		return errors.New("it does not speak TLS, and --prometheus says https")
	case errors.As(err, &outside):
		return errors.New("it cannot be reached")
	case errors.As(err, &broken):
		return errors.New("the connection was lost")
	}
	return err
}

func clip(words string) string {
	words = strings.ToValidUTF8(words, "\uFFFD")
	return strings.ToValidUTF8(words[:min(len(words), wordsMax)], "")
}

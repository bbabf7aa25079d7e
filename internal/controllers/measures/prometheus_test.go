package measures

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
)

// vector is an answer with the values of so many series, as of now.
func vector(values ...string) string {
	var list []string
	for _, v := range values {
		list = append(list, fmt.Sprintf(`{"metric": {"job": "web"}, "value": [%d.123, %q]}`, time.Now().Unix(), v))
	}
	return `{"status": "success", "data": {"resultType": "vector", "result": [` + strings.Join(list, ",") + `]}}`
}

// TestDecodeAnswer: an answer is one number, and what is none says what it is.
func TestDecodeAnswer(t *testing.T) {
	for _, c := range []struct {
		body string
		want float64
		err  string // a part of it
	}{
		{vector("12.5"), 12.5, ""},
		{`{"status": "success", "data": {"resultType": "scalar", "result": [1, "3"]}, "warnings": ["some"]}`, 3, ""},
		{vector("0"), 0, ""},
		{vector(), 0, "no result"},
		{vector("1", "2"), 0, "2 series"},
		{vector("NaN"), 0, "NaN, which is no amount"},
		{vector("+Inf"), 0, "no amount"},
		{vector("-1"), 0, "no amount"},
		{vector("1e999"), 0, "no amount"},
		{vector("twelve"), 0, "not the answer of a Prometheus"},
		{`{"status": "success", "data": {"resultType": "matrix", "result": []}}`, 0, "a matrix"},
		{`{"status": "success", "data": {"resultType": "string", "result": [1, "a"]}}`, 0, "a string"},
		{`{"status": "error", "errorType": "bad_data", "error": "invalid parameter \"query\": 1:4: parse error"}`, 0, "parse error"},
		{`{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1]}]}}`, 0, "not the answer"},
		{`{"status": "success", "data": {"resultType": "scalar", "result": ["then", "3"]}}`, 0, "not the answer"},
		{`{"status": "success", "data": {"resultType": "scalar", "result": [-1e300, "3"]}}`, 0, "not the answer"},
		{`{"status": "success", "data": {"resultType": "vector", "result": 3}}`, 0, "not the answer"},
		{`<html>please log in</html>`, 0, "not the answer"},
		{``, 0, "not the answer"},
	} {
		got, _, err := decodeAnswer([]byte(c.body))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s is %v, %v; want %v, %q", c.body, got, err, c.want, c.err)
		}
	}
}

// FuzzDecodeAnswer: whatever a Prometheus sends, what is taken for an answer is an amount.
func FuzzDecodeAnswer(f *testing.F) {
	for _, body := range []string{vector("12.5"), vector(), vector("1", "2"), vector("NaN"), `{"status": "error", "error": "x"}`, `{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}`, `[`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if v, _, err := decodeAnswer(body); err == nil && (math.IsNaN(v) || math.IsInf(v, 0) || v < 0) {
			t.Errorf("%q is %v", body, v)
		}
	})
}

func ask(server, text string) Query { return Query{Server: server, Text: text} }

// source is what would be a Prometheus.
type source struct {
	mu    sync.Mutex // guards what follows
	asked map[string]int
	*httptest.Server
}

func newSource(t *testing.T, answer func(w http.ResponseWriter, query string)) *source {
	s := &source{asked: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/prom/api/v1/query" {
			t.Errorf("asked is %s %s", r.Method, r.URL.Path)
		}
		q := r.FormValue("query")
		s.mu.Lock()
		s.asked[q]++
		s.mu.Unlock()
		answer(w, q)
	}))
	t.Cleanup(s.Close)
	return s
}

// start has a Prometheus asked until the test ends.
func start(t *testing.T, servers map[string]string, objects Objects) *Asker {
	t.Helper()
	p, err := NewPrometheus(servers, objects)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p.Asker()
}

// answered waits for an answer.
func answered(t *testing.T, p *Asker, q Query) scale.Answer {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		if a := p.Answer(q); a != (scale.Answer{}) {
			return a
		}
		select {
		case <-deadline:
			t.Fatalf("%v has no answer", q)
		case <-tick.C:
		}
	}
}

// TestAnswers: what is wanted is asked at once, of the server of that name; what is wrong is said in words, without the address.
func TestAnswers(t *testing.T) {
	elsewhere := newSource(t, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, vector("666")) })
	s := newSource(t, func(w http.ResponseWriter, q string) {
		switch q {
		case "good":
			fmt.Fprint(w, vector("7"))
		case "wrong":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status": "error", "errorType": "bad_data", "error": "parse error"}`)
		case "down":
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>sorry</html>")
		case "long":
			fmt.Fprint(w, strings.Repeat(" ", answerBytes+1))
		case "away":
			w.Header().Set("Location", elsewhere.URL+"/prom/api/v1/query?query=x")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	p := start(t, map[string]string{"main": s.URL + "/prom", "off": "http://127.0.0.1:1"}, nil)
	wanted, words := map[Query]bool{}, map[Query]string{
		ask("main", "wrong"): "main says: parse error", ask("main", "down"): "502 Bad Gateway", ask("main", "long"): "more than 65536 bytes", ask("main", "away"): "307", ask("off", "good"): "cannot be reached",
		ask("none", "good"): "--prometheus none=URL",
	}
	for q := range words {
		wanted[q] = true
	}
	good := ask("main", "good")
	wanted[good] = true
	before := time.Now() // what it answers is as of a second that has begun
	p.Want(wanted)
	if a := answered(t, p, good); a.Value != 7 || a.Missing != "" || a.At.Before(before.Add(-time.Second)) || a.At.After(time.Now()) {
		t.Errorf("the answer is %+v", a)
	}
	for q, want := range words {
		a := answered(t, p, q)
		if !strings.Contains(a.Missing, want) || !a.At.IsZero() || len(a.Missing) > wordsMax || strings.Contains(a.Missing, "127.0.0.1") {
			t.Errorf("%v: %+v, want %q", q, a, want)
		}
	}
	if len(elsewhere.asked) > 0 {
		t.Error("a redirection was followed")
	}
	p.Want(map[Query]bool{})
	if a := p.Answer(good); a != (scale.Answer{}) {
		t.Errorf("nobody wants it, and it is %+v", a)
	}
}

// TestDue: a query is asked once in a period, however often something else is wanted; no more than a bound.
func TestDue(t *testing.T) {
	server, err := NewPrometheus(map[string]string{"main": "http://127.0.0.1:1", "other": "http://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := server.Asker()
	asked := map[Query]time.Time{}
	p.Want(map[Query]bool{ask("main", "a"): true, ask("other", "b"): true})
	if due, next := p.due("main", asked, begin); len(due) != 1 || due[0].Text != "a" || !next.Equal(begin.Add(scale.Period)) {
		t.Errorf("due are %v, then at %s", due, next)
	}
	p.Want(map[Query]bool{ask("main", "a"): true, ask("main", "b"): true})
	soon := begin.Add(5 * time.Second)
	if due, next := p.due("main", asked, soon); len(due) != 1 || due[0].Text != "b" || !next.Equal(begin.Add(scale.Period)) {
		t.Errorf("due are %v, then at %s", due, next)
	}
	if due, _ := p.due("main", asked, begin.Add(scale.Period)); len(due) != 1 || due[0].Text != "a" {
		t.Errorf("after a period due are %v", due)
	}
	many := map[Query]bool{}
	for i := range queriesMax + 1 {
		many[ask("main", fmt.Sprintf("%05d", i))] = true
	}
	p.Want(many)
	if due, _ := p.due("main", asked, soon); len(due) != queriesMax || len(asked) != queriesMax {
		t.Errorf("%d are due, and %d remembered", len(due), len(asked))
	}
	if a := p.Answer(ask("main", fmt.Sprintf("%05d", queriesMax))); !strings.Contains(a.Missing, "the most") {
		t.Errorf("the last one is answered %+v", a)
	}
	p.Want(map[Query]bool{})
	if due, next := p.due("main", asked, soon); len(due) > 0 || !next.IsZero() || len(asked) > 0 {
		t.Errorf("nothing is wanted, and due are %v, then at %s; remembered are %d", due, next, len(asked))
	}
}

// TestServers: what cannot be the name or the address of a Prometheus is refused, and never repeated: it may hold a password.
func TestServers(t *testing.T) {
	for _, c := range []struct{ name, address string }{
		{"", "http://h"}, {"A_b", "http://h"}, {"a", ""}, {"a", "h:9090"}, {"a", "file:///etc/passwd"}, {"a", "http://"}, {"a", "http://u:geheim@h"}, {"a", "http://h?x=geheim"}, {"a", "http://:9090"}, {"a", "http://169.254.169.254"}, {"a", "http://[fe80::1%25eth0]:80"}, {"a", "http://[::ffff:169.254.169.254]"}, {"a", "https://[fd00:ec2::254]"}, {"a", "http://h\x00geheim"},
	} {
		_, err := NewPrometheus(map[string]string{c.name: c.address}, nil)
		if !reason.Is(err, reason.Usage) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q at %q: %v", c.name, c.address, err)
		}
	}
}

// TestAskers: what one does not want any more is asked as long as another one does.
func TestAskers(t *testing.T) {
	server, err := NewPrometheus(map[string]string{"main": "http://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	workloads, configs := server.Asker(), server.Asker()
	asked := map[Query]time.Time{}
	due := func() (texts string) {
		clear(asked)
		all, _ := server.due("main", asked, begin)
		for _, q := range all {
			texts += q.Text
		}
		return texts
	}
	workloads.Want(map[Query]bool{ask("main", "a"): true, ask("main", "b"): true})
	configs.Want(map[Query]bool{ask("main", "b"): true, ask("main", "c"): true})
	if got := due(); got != "abc" {
		t.Errorf("due are %s", got)
	}
	server.note(ask("main", "b"), scale.Answer{Value: 7})
	workloads.Want(nil)
	if got := due(); got != "bc" || configs.Answer(ask("main", "b")).Value != 7 {
		t.Errorf("due are %s, and b is %+v", got, configs.Answer(ask("main", "b")))
	}
	configs.Want(nil)
	if got := due(); got != "" || server.Answer(ask("main", "b")) != (scale.Answer{}) {
		t.Errorf("nobody wants anything, and due are %q", got)
	}
}

package measures

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/controllers/measures/prometheustest"
	"tako.dev/tako/internal/fleet/scale"
)

// shards is a query that has two series, 3 and 4: a program that is scraped has them.
const shards = "takotest_queue"

// conform has what every Prometheus answers asked: one number is an answer, and everything else says what it is.
func conform(t *testing.T, server *Asker, name string, with Access) {
	t.Helper()
	cases := map[string]struct {
		value float64
		words string // a part of why there is no answer
	}{
		"vector(12.5)":                    {value: 12.5},
		"0":                               {},
		"scalar(vector(1e3))":             {value: 1000},
		"sum(" + shards + ")":             {value: 7},
		shards:                            {words: "2 series"},
		"count(takotest_nothing)":         {words: "no result"},
		"vector(0) / vector(0)":           {words: "the result is NaN, which is no amount"},
		"scalar(takotest_nothing)":        {words: "the result is NaN"},
		"vector(1) / 0":                   {words: "the result is +Inf"},
		"vector(0) - 1":                   {words: "the result is -1"},
		"vector(1)[1m:10s]":               {words: "the result is a matrix"},
		`"seven"`:                         {words: "the result is a string"},
		"sum(":                            {words: "parse error"},
		"nonsense(1)":                     {words: "unknown function"},
		shards + " / ignoring(shard) sum": {words: "says: "},
	}
	wanted := map[Query]bool{}
	for text := range cases {
		wanted[Query{name, text, with}] = true
	}
	server.Want(wanted)
	for text, want := range cases {
		a := answered(t, server, Query{name, text, with})
		if a.Value != want.value || (a.Missing == "") != (want.words == "") || !strings.Contains(a.Missing, want.words) || a.At.IsZero() != (want.words != "") {
			t.Errorf("%s is %+v, want %v, %q", text, a, want.value, want.words)
		}
	}
}

// fakeAnswers are those of a Prometheus 2.42, with NOW in the place of the time.
var fakeAnswers = map[string]string{
	"vector(12.5)":                    `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NOW,"12.5"]}]}}`,
	"0":                               `{"status":"success","data":{"resultType":"scalar","result":[NOW,"0"]}}`,
	"scalar(vector(1e3))":             `{"status":"success","data":{"resultType":"scalar","result":[NOW,"1000"]}}`,
	"sum(" + shards + ")":             `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NOW,"7"]}]}}`,
	shards:                            `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"shard":"a"},"value":[NOW,"3"]},{"metric":{"shard":"b"},"value":[NOW,"4"]}]}}`,
	"count(takotest_nothing)":         `{"status":"success","data":{"resultType":"vector","result":[]}}`,
	"vector(0) / vector(0)":           `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NOW,"NaN"]}]}}`,
	"scalar(takotest_nothing)":        `{"status":"success","data":{"resultType":"scalar","result":[NOW,"NaN"]}}`,
	"vector(1) / 0":                   `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NOW,"+Inf"]}]}}`,
	"vector(0) - 1":                   `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NOW,"-1"]}]}}`,
	"vector(1)[1m:10s]":               `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[NOW,"1"]]}]}}`,
	`"seven"`:                         `{"status":"success","data":{"resultType":"string","result":[NOW,"seven"]}}`,
	"sum(":                            `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"}`,
	"nonsense(1)":                     `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:1: parse error: unknown function with name \"nonsense\""}`,
	shards + " / ignoring(shard) sum": `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:37: parse error: unexpected end of input in aggregation"}`,
}

// fake answers as a Prometheus does.
func fake(w http.ResponseWriter, query string) {
	text, known := fakeAnswers[query]
	if !known || strings.Contains(text, `"status":"error"`) {
		w.WriteHeader(http.StatusBadRequest)
	}
	fmt.Fprint(w, strings.ReplaceAll(text, "NOW", fmt.Sprintf("%.3f", float64(time.Now().UnixMilli())/1000)))
}

// program is one with a queue, as a Prometheus scrapes it.
func program(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s{shard=\"a\"} 3\n%[1]s{shard=\"b\"} 4\n", shards)
	}))
	t.Cleanup(s.Close)
	return s
}

// hears waits until a query is answered as wanted, each time asked anew.
func hears(t *testing.T, p *Asker, q Query, what string, is func(scale.Answer) bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var a scale.Answer
	for late := time.After(time.Minute); ; {
		if a = p.query(t.Context(), q); is(a) {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s: %s is %+v", what, q.Text, a)
		case <-tick.C:
		}
	}
}

func sevenOf(a scale.Answer) bool { return a.Value == 7 }

// TestFakeConforms: what stands for a Prometheus in tests answers as one does.
func TestFakeConforms(t *testing.T) {
	s := newSource(t, fake)
	conform(t, start(t, map[string]string{"main": s.URL + "/prom"}, nil), "main", Access{})
}

// TestRealConforms: a real Prometheus, that scrapes a real program, over plain http on this machine. When the program is gone its samples count no more.
func TestRealConforms(t *testing.T) {
	t.Parallel() // it looks for what it scrapes five seconds after its start
	queue := program(t)
	server := prometheustest.Start(t, prometheustest.Options{Targets: []string{queue.Listener.Addr().String()}})
	p := start(t, map[string]string{"main": server.URL}, nil)
	sum := ask("main", "sum("+shards+")")
	hears(t, p, sum, "it is scraped", sevenOf)
	conform(t, p, "main", Access{})
	queue.Close()
	hears(t, p, sum, "its program is gone", func(a scale.Answer) bool { return strings.Contains(a.Missing, "no result") })

	// What takes too long is ended by it, or by us where it does not look at its clock.
	hasty, err := NewPrometheus(map[string]string{"main": server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.clients.close()
	hasty.within = 100 * time.Millisecond
	hears(t, hasty.Asker(), ask("main", "max_over_time(quantile_over_time(0.5, vector(1)[1h:1s])[1h:1s])"), "it takes long", func(a scale.Answer) bool {
		return strings.Contains(a.Missing, "timed out") || strings.Contains(a.Missing, "nothing came within 100ms")
	})
}

// TestRealLocked: a real Prometheus with TLS and passwords, and behind a proxy that wants a token, as it is where it takes none itself.
func TestRealLocked(t *testing.T) {
	t.Parallel()
	queue := program(t)
	server := prometheustest.Start(t, prometheustest.Options{Targets: []string{queue.Listener.Addr().String()}, Locked: true})
	behind, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var token atomic.Value
	token.Store("t0ken-of-the-test")
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(behind)
			if r.In.Header.Get("Authorization") == "Bearer "+token.Load().(string) {
				r.Out.SetBasicAuth(prometheustest.Username, prometheustest.Password)
			}
		},
		Transport: mustOf(t, server.CA).Transport,
	})
	t.Cleanup(proxy.Close)
	objects := &shelf{}
	objects.put("Secret", "prod/login", map[string]string{"username": prometheustest.Username, "password": prometheustest.Password + "\n", "wrong": "geheim"})
	objects.put("Secret", "prod/token", map[string]string{"token": "t0ken-of-the-test", "ca.crt": certificateOf(proxy)})
	objects.put("ConfigMap", "prod/authorities", map[string]string{"ca.crt": server.CA})
	p := start(t, map[string]string{"main": server.URL, "proxy": proxy.URL}, objects)

	of := func(name, key string) declare.KeySelector {
		return declare.KeySelector{Namespace: "prod", Name: name, Key: key}
	}
	login := Access{Username: of("login", "username"), Password: of("login", "password"), CAConfigMap: of("authorities", "ca.crt")}
	bearer := Access{Token: of("token", "token"), CASecret: of("token", "ca.crt")}
	sum := "sum(" + shards + ")"
	hears(t, p, Query{"main", sum, login}, "it is scraped", sevenOf)
	conform(t, p, "main", login)
	hears(t, p, Query{"proxy", sum, bearer}, "through the proxy", sevenOf)

	wrong, stranger, nobody := login, login, login
	wrong.Password = of("login", "wrong")
	stranger.CAConfigMap = declare.KeySelector{}
	nobody.Username, nobody.Password = declare.KeySelector{}, declare.KeySelector{}
	token.Store("another")
	for q, want := range map[Query]string{
		{"main", sum, wrong}:    "main says: 401 Unauthorized",
		{"main", sum, nobody}:   "main says: 401 Unauthorized",
		{"main", sum, stranger}: "an authority that is not trusted",
		{"main", sum, Access{}}: "an authority that is not trusted",
		{"proxy", sum, bearer}:  "proxy says: 401 Unauthorized",
	} {
		if a := p.query(t.Context(), q); !strings.Contains(a.Missing, want) || strings.Contains(a.Missing, "geheim") || strings.Contains(a.Missing, "t0ken") {
			t.Errorf("%+v: %+v, want %q", q.Access, a, want)
		}
	}
	objects.put("Secret", "prod/token", map[string]string{"token": "another", "ca.crt": certificateOf(proxy)})
	hears(t, p, Query{"proxy", sum, bearer}, "with another token", sevenOf)
}

// mustOf is a client that trusts authorities.
func mustOf(t *testing.T, ca string) *http.Client {
	t.Helper()
	var c clients
	t.Cleanup(c.close)
	client, err := c.of(ca)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

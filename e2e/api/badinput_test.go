//go:build e2e

package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"tako.dev/tako/e2e/host"
)

const (
	// silentConns say nothing, slowConns dawdle over a header, and deafWatches never read what they asked for.
	silentConns, slowConns, deafWatches = 1000, 100, 100
	// silenceMax bounds the wait until the server has given up on those that say nothing: the library does after 32 s.
	silenceMax = time.Minute
	// rssMax bounds the server's memory after all of this. It had three times less before, and a leak of what one attack sends
	// would go beyond.
	rssMax = 400 << 20
	// answerTime bounds the wait for an answer: of thousands of resources, on a machine that is busy with other tests, it takes a while.
	answerTime = time.Minute
	// answerMax is how much of an answer is read.
	answerMax = 1 << 20
)

const (
	configMapsPath  = "/api/v1/namespaces/default/configmaps"
	nodeConfigsPath = "/apis/tako.dev/v1alpha1/namespaces/default/nodeconfigs"
	notesPath       = "/apis/example.net/v1/namespaces/default/notes"
	applyPatch      = "application/apply-patch+yaml"
)

// attack is a request that must be refused in words.
type attack struct {
	name    string
	method  string // default POST
	path    string
	kind    string // of the body; default application/json
	body    func() io.Reader
	status  []int  // any of these
	message string // regular expression for the answer
}

// tooLarge is what the writer of an object is told that etcd does not take.
const tooLarge = `the object has \d{7} bytes as it is stored, .*the limit is 1556480: split it`

func text(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

func attacks() []attack {
	const mib = 1 << 20
	configMap := func(name, value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"%s"}}`, name, value)
	}
	nodeConfig := func(spec string) string {
		return `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"bad"},"spec":` + spec + `}`
	}
	note := func(spec string) string {
		return `{"apiVersion":"example.net/v1","kind":"Note","metadata":{"name":"bad"},"spec":` + spec + `}`
	}
	return []attack{
		{name: "body too large", path: configMapsPath, body: text(configMap("large", strings.Repeat("x", 4*mib))), status: []int{413}, message: "limit is"},
		{name: "endless body", path: configMapsPath, body: func() io.Reader { return io.LimitReader(endless{}, 64*mib) }, status: []int{413, 400}, message: "limit is"},
		{name: "too much data", path: configMapsPath, body: text(configMap("large", strings.Repeat("x", mib+1))), status: []int{422}, message: "Too long: may not be more than 1048576 bytes"},
		{name: "too much for the store", path: nodeConfigsPath, body: text(nodeConfig(manyResources(12_000))), status: []int{413}, message: tooLarge},
		{name: "too much for the store, put", method: "PUT", path: nodeConfigsPath + "/bad", body: text(nodeConfig(manyResources(12_000))), status: []int{413}, message: tooLarge},
		{name: "too much for the store, applied", method: "PATCH", path: nodeConfigsPath + "/bad?fieldManager=me", kind: applyPatch, body: text(nodeConfig(manyResources(12_000))), status: []int{413}, message: tooLarge},
		{name: "too much for the store, patched", method: "PATCH", path: nodeConfigsPath + "/target", kind: "application/merge-patch+json", body: text(`{"spec":` + manyResources(12_000) + `}`), status: []int{413}, message: tooLarge},
		{name: "too much for the store, of a kind of others", path: notesPath, body: text(note(`{"text":"` + strings.Repeat("x", 2*mib) + `"}`)), status: []int{413}, message: tooLarge},
		{name: "too much for the store, of a kind of others, applied", method: "PATCH", path: notesPath + "/bad?fieldManager=me", kind: applyPatch, body: text(note(`{"text":"` + strings.Repeat("x", 2*mib) + `"}`)), status: []int{413}, message: tooLarge},
		{name: "a name too long", path: configMapsPath, body: text(configMap(strings.Repeat("n", 300), "")), status: []int{422}, message: "no more than 253"},
		{name: "too many annotations", path: configMapsPath, body: text(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"a":"` + strings.Repeat("x", 300<<10) + `"}}}`), status: []int{422}, message: "Too long"},
		{name: "deep lists", path: configMapsPath, body: text(`{"apiVersion":"v1","kind":"ConfigMap","metadata":` + strings.Repeat("[", 100_000)), status: []int{400}, message: "max depth|invalid|unexpected"},
		{name: "deep objects", path: nodeConfigsPath, body: text(nodeConfig(strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000))), status: []int{400}, message: "max depth|unknown field"},
		{name: "deep YAML", path: configMapsPath, kind: "application/yaml", body: text("apiVersion: v1\nkind: ConfigMap\nmetadata: " + strings.Repeat("[", 20_000)), status: []int{400}, message: "depth|yaml|invalid"},
		{name: "YAML that multiplies", path: configMapsPath, kind: "application/yaml", body: text(laughs()), status: []int{400}, message: "alias|yaml|cannot unmarshal|invalid"},
		{name: "many labels to select by", path: nodeConfigsPath, body: text(nodeConfig(`{"resources":[],"selector":{"matchLabels":{` + manyLabels(100_000) + `}}}`)), status: []int{422}, message: "TK0414: there are 100000 labels, at most 256 are allowed"},
		{name: "no UTF-8", path: configMapsPath, body: text("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\xff\xfe\"}}"), status: []int{400}, message: "not UTF-8: byte 58"},
		{name: "no UTF-8 in what is kept", path: configMapsPath, body: text("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"latin\"},\"data\":{\"a\":\"\xff\"}}"), status: []int{400}, message: "not UTF-8: byte 79, counted from 0, is 0xff"},
		{name: "no UTF-8 in a patch", method: "PATCH", path: configMapsPath + "/target", kind: "application/merge-patch+json", body: text("{\"data\":{\"a\":\"\xe2\x82\"}}"), status: []int{400}, message: "not UTF-8: byte 14, counted from 0, is 0xe2"},
		{name: "no UTF-8 in YAML", path: configMapsPath, kind: "application/yaml", body: text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: \xc3}\n"), status: []int{400}, message: "not UTF-8: byte 61, counted from 0, is 0xc3"},
		{name: "no UTF-8 of a kind of others", path: notesPath, body: text(note("{\"text\":\"\xff\"}")), status: []int{400}, message: "not UTF-8"},
		{name: "an apply with an unknown field", method: "PATCH", path: nodeConfigsPath + "/bad?fieldManager=me", kind: applyPatch, body: text(nodeConfig(`{"resources":[{"name":"a","file":{"path":"/a","cnotent":"x"}}]}`)), status: []int{400}, message: `the form of its kind: .spec.resources\[name=\\"a\\"\].file.cnotent: field not declared in schema`},
		{name: "an apply of another type, as a dry run", method: "PATCH", path: nodeConfigsPath + "/bad?fieldManager=me&dryRun=All", kind: applyPatch, body: text(nodeConfig(`{"resources":{"a":1}}`)), status: []int{400}, message: "the form of its kind: .spec.resources: expected list"},
		{name: "an apply of one name twice", method: "PATCH", path: nodeConfigsPath + "/bad?fieldManager=me", kind: applyPatch, body: text(nodeConfig(`{"resources":[{"name":"a"},{"name":"a"}]}`)), status: []int{400}, message: `the form of its kind: .spec.resources: two entries have name=.*TK0420`},
		{name: "an apply of a kind of others with an unknown field", method: "PATCH", path: notesPath + "/bad?fieldManager=me", kind: applyPatch, body: text(note(`{"txet":"x"}`)), status: []int{400}, message: "the form of its kind: .spec.txet: field not declared in schema"},
		{name: "one name twice", path: nodeConfigsPath, body: text(nodeConfig(`{"resources":[{"name":"a","package":{"package":"aa"}},{"name":"a","package":{"package":"bb"}}]}`)), status: []int{422}, message: "TK0420"},
		{name: "nothing for an item", path: nodeConfigsPath, body: text(nodeConfig(`{"resources":[null]}`)), status: []int{422}, message: "TK0416"},
		{name: "unknown field, without asking for strictness", path: nodeConfigsPath, body: text(nodeConfig(`{"resources":[{"name":"a","file":{"path":"/a","cnotent":"x"}}]}`)), status: []int{400}, message: "unknown field"},
		{name: "no UTF-8 in a path", method: "GET", path: configMapsPath + "/%ff%fe", status: []int{400, 404}, message: "not found|invalid"},
		{name: "half a document", path: configMapsPath, body: text(`{"apiVersion":"v1","kind":"Conf`), status: []int{400}, message: "unexpected|invalid"},
		{name: "no document", path: configMapsPath, body: text(""), status: []int{400}, message: "."},
		{name: "another kind", path: nodeConfigsPath, body: text(configMap("other", "")), status: []int{400}, message: "ConfigMap"},
		{name: "unknown media type", path: configMapsPath, kind: "text/html", body: text("<p>"), status: []int{415}, message: "supported"},
		{name: "unknown method", method: "BREW", path: configMapsPath, status: []int{405}, message: "."},
		{name: "too many patches", method: "PATCH", path: configMapsPath + "/target", kind: "application/json-patch+json", body: text("[" + strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10_000) + `{"op":"test","path":"/kind","value":"ConfigMap"}]`), status: []int{413}, message: "10000"},
		{name: "a patch that copies and copies", method: "PATCH", path: configMapsPath + "/target", kind: "application/json-patch+json", body: text(copies(40)), status: []int{413, 422}, message: "."},
		{name: "a merge patch that is deep", method: "PATCH", path: configMapsPath + "/target", kind: "application/merge-patch+json", body: text(strings.Repeat(`{"data":`, 20_000) + "1" + strings.Repeat("}", 20_000)), status: []int{400, 422}, message: "."},
		{name: "a strategic patch of nonsense", method: "PATCH", path: configMapsPath + "/target", kind: "application/strategic-merge-patch+json", body: text(`{"$patch":"explode"}`), status: []int{400}, message: "the patch cannot be applied: unknown patch type: explode"},
		{name: "an apply of nonsense", method: "PATCH", path: configMapsPath + "/target?fieldManager=me", kind: "application/apply-patch+yaml", body: text(laughs()), status: []int{400}, message: "yaml|alias|error"},
		{name: "an apply without a manager", method: "PATCH", path: configMapsPath + "/target", kind: "application/apply-patch+yaml", body: text(configMap("target", "")), status: []int{400, 422}, message: "fieldManager"},
		{name: "a selector of nonsense", method: "GET", path: configMapsPath + "?labelSelector=" + strings.Repeat("a%3Db,", 10) + "%21%21", status: []int{400}, message: "parse"},
		{name: "a continuation of nonsense", method: "GET", path: configMapsPath + "?limit=1&continue=bm9uc2Vuc2U", status: []int{400}, message: "continue"},
		{name: "a version of nonsense", method: "GET", path: configMapsPath + "?resourceVersion=x", status: []int{400}, message: "resource version"},
	}
}

// endless is a body that does not end by itself.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte(" "), len(b))), nil }

func manyResources(n int) string {
	var b strings.Builder
	b.WriteString(`{"resources":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"r%d","file":{"path":"/srv/a/long/path/to/make/it/large/%d","content":"%040d"}}`, i, i, i)
	}
	return b.String() + "]}"
}

func manyLabels(n int) string {
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"l%d":"v"`, i)
	}
	return strings.Join(labels, ",")
}

// laughs is ten levels of YAML aliases, ten of the last in each.
func laughs() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: target}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		alias := fmt.Sprintf("*a%d,", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(alias, 10), ","))
	}
	return b.String()
}

// copies is a JSON patch that doubles a list again and again.
func copies(n int) string {
	ops := []string{`{"op":"add","path":"/data","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`}
	for i := range n {
		ops = append(ops, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/c%d"}`, i))
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// noteDefinition defines a kind of others.
const noteDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"notes.example.net"},"spec":{
	"group":"example.net","scope":"Namespaced","names":{"plural":"notes","singular":"note","kind":"Note"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"text":{"type":"string"}}}}}}}]}}`

// makeTargets makes what is attacked.
func makeTargets(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	target := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "target"}, Data: map[string]string{"a": "1"}}
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), target, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	raw := c.CoreV1().RESTClient()
	for path, body := range map[string]string{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": noteDefinition,
		nodeConfigsPath: `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"target"},"spec":{"resources":[]}}`,
	} {
		if answer, err := raw.Post().AbsPath(path).Body([]byte(body)).Do(t.Context()).Raw(); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
	}
	host.Eventually(t, settleTime, "the kind of others is served", func() (string, bool) {
		answer, err := raw.Get().AbsPath(notesPath).Do(t.Context()).Raw()
		return string(answer), err == nil
	})
}

// complaints are lines in which a server complains; what a client does wrong is no reason.
var complaints = regexp.MustCompile(`(?m)^.*level=(WARN|ERROR).*$`)

// TestBadInput attacks a server in many ways. It refuses in words; meanwhile others are served, and its memory stays bounded.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	config := s.config(t)
	c := s.client(t)
	makeTargets(t, c)
	others := startOthers(t, c)
	before := s.rss(t)
	silent := dialMany(t, s.listen, silentConns)
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) { a.try(t, h, s.url) })
	}
	quiet := func(when string) {
		if said := complaints.FindAllString(s.run.log.tail(), -1); len(said) > 0 {
			t.Errorf("after %s the server complains:\n%s", when, strings.Join(said, "\n"))
		}
	}
	quiet("attacks")
	t.Run("a long selector", func(t *testing.T) { longSelector(t, h, s.url) })
	t.Run("who is that", func(t *testing.T) { strangers(t, s) })
	t.Run("slow", func(t *testing.T) { slow(t, s) })
	t.Run("deaf", func(t *testing.T) { deaf(t, config, c) })
	t.Run("silent", func(t *testing.T) { wantClosed(t, silent) })
	others.end(t)
	quiet("all")
	after := s.rss(t)
	t.Logf("resident before: %d MiB, after: %d MiB", before>>20, after>>20)
	if after > rssMax {
		t.Errorf("the server has %d MiB, at most %d are allowed", after>>20, rssMax>>20)
	}
}

func (a attack) try(t *testing.T, h *http.Client, url string) {
	t.Helper()
	var body io.Reader
	if a.body != nil {
		body = a.body()
	}
	method := a.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+a.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.kind != "" {
		req.Header.Set("Content-Type", a.kind)
	}
	status, answer, err := do(h, req)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if !slices.Contains(a.status, status) || !regexp.MustCompile(a.message).MatchString(answer) {
		t.Errorf("status %d, want %v; %q in %s", status, a.status, a.message, clip(answer))
	}
}

func do(h *http.Client, req *http.Request) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(req.Context(), answerTime)
	defer cancel()
	resp, err := h.Do(req.WithContext(ctx))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	return resp.StatusCode, string(b), err
}

func clip(s string) string {
	if len(s) > 600 {
		return s[:600] + " ..."
	}
	return s
}

// longSelector selects by 100,000 values, which makes a long address: it is answered or refused, in either case soon.
func longSelector(t *testing.T, h *http.Client, url string) {
	values := make([]string, 100_000)
	for i := range values {
		values[i] = itoa(i)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+configMapsPath+"?labelSelector=a+in+("+strings.Join(values, ",")+")", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	status, answer, err := do(h, req)
	t.Logf("status %d, %v, %s", status, err, clip(answer))
	if err == nil && status != 200 && status != 400 && status != 414 && status != 431 {
		t.Errorf("status %d: %s", status, clip(answer))
	}
}

// others are honest users of the server at the same time.
type others struct {
	stop   chan struct{}
	all    sync.WaitGroup
	done   atomic.Int64
	mu     sync.Mutex // guards faults
	faults []error
}

func startOthers(t *testing.T, c kubernetes.Interface) *others {
	t.Helper()
	o := &others{stop: make(chan struct{})}
	o.all.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond) // honest users are no load
		defer tick.Stop()
		for {
			if err := visit(t.Context(), c, int(o.done.Add(1))); err != nil {
				o.mu.Lock()
				o.faults = append(o.faults, err)
				o.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-o.stop:
				return
			}
		}
	})
	return o
}

// visit writes an object and reads it.
func visit(ctx context.Context, c kubernetes.Interface, n int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	name := "other-" + itoa(n%10)
	_, err := c.CoreV1().ConfigMaps("default").Update(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{valueKey: itoa(n)}}, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	got, err := c.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if err == nil && got.Data[valueKey] != itoa(n) {
		err = fmt.Errorf("%s is %s, want %d", name, got.Data[valueKey], n)
	}
	return err
}

func (o *others) end(t *testing.T) {
	t.Helper()
	close(o.stop)
	o.all.Wait()
	t.Logf("others did %d visits, %d failed", o.done.Load(), len(o.faults))
	for _, err := range o.faults {
		t.Errorf("others: %v", err)
	}
}

// dialMany opens connections that say nothing.
func dialMany(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", address); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns
}

// wantClosed waits until the server has given up on all connections.
func wantClosed(t *testing.T, conns []net.Conn) {
	t.Helper()
	deadline := time.Now().Add(silenceMax)
	for i, c := range conns {
		if err := c.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d that said nothing is still open after %v", i, len(conns), silenceMax)
		}
	}
}

// slow begins requests and goes on with a byte at a time.
func slow(t *testing.T, s *server) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.config(t).CAData)
	var conns []*tls.Conn
	for range slowConns {
		c, err := tls.Dial("tcp", s.listen, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for _, b := range []byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ") {
		for _, c := range conns {
			if _, err := c.Write([]byte{b}); err != nil {
				return // it has given up, as it may
			}
		}
	}
}

// deaf watches what it never reads, while much happens.
func deaf(t *testing.T, config *rest.Config, c kubernetes.Interface) {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range deafWatches {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+configMapsPath+"?watch=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	big := strings.Repeat("x", 100<<10)
	for i := range 200 {
		o := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "loud"}, Data: map[string]string{"n": itoa(i), "x": big}}
		if _, err := c.CoreV1().ConfigMaps("default").Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

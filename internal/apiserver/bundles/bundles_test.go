package bundles

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// items are entries by key.
type items map[catalog.Digest]catalog.Item

// some are n entries, each with a value of its own.
func some(t testing.TB, n int, value string) items {
	t.Helper()
	all := items{}
	for i := range n {
		all.put(t, fmt.Sprint("key/", i), fmt.Sprint(value, i))
	}
	return all
}

func (m items) put(t testing.TB, key, value string) {
	t.Helper()
	item, err := catalog.DataItem(&declare.Data{Key: key, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	m[item.Row().Key] = item
}

func (m items) trie() catalog.Trie {
	var rows []catalog.Row
	for _, item := range m {
		rows = append(rows, item.Row())
	}
	return catalog.Build(rows)
}

func (m items) digest() string { return bundle.Digest(m.trie().Root()) }

// to is the difference that leads to another list.
func (m items) to(t testing.TB, target items) []byte {
	t.Helper()
	var b bytes.Buffer
	err := bundle.Write(&b, 0, catalog.Difference(m.trie(), target.trie(), catalog.Digest{}), func(c catalog.Change) int { return len(target[c.Key].Body) },
		func(c catalog.Change) ([]byte, error) { return target[c.Key].Body, nil })
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rig is a store with somebody who calls it.
type rig struct {
	*testing.T
	dir     string
	store   *Store
	server  *httptest.Server
	refused string // namespace that the caller may do nothing in
	stop    func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, dir: filepath.Join(t.TempDir(), "bundles"), refused: "secret"}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start opens the store, as a server does that begins.
func (r *rig) start() {
	r.Helper()
	s, err := New(r.dir)
	if err != nil {
		r.Fatal(err)
	}
	may := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() != "update" || a.GetAPIGroup() != "tako.dev" || (a.GetResource() == "clusternodeconfigs") != (a.GetNamespace() == "") {
			r.Errorf("it is asked whether somebody may %s %s in %q", a.GetVerb(), a.GetResource(), a.GetNamespace())
		}
		if a.GetNamespace() == r.refused {
			return authorizer.DecisionNoOpinion, "nobody may", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
	handler := s.Handler(may, http.NotFoundHandler())
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		handler.ServeHTTP(w, q.WithContext(request.WithUser(q.Context(), &user.DefaultInfo{Name: "ann"})))
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func(context.Context) (map[string]bool, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	}()
	r.store, r.server = s, listening
	r.stop = func() {
		listening.Close()
		cancel()
		<-ended
	}
}

// call makes one call, and returns the code of a refusal.
func (r *rig) call(method, path string, query url.Values, body []byte, into any) reason.Code {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), method, r.server.URL+Path+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, into); err != nil {
			r.Fatal(err)
		}
		return 0
	}
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil || status.Details == nil || int(status.Code) != resp.StatusCode {
		r.Fatalf("%d: %s", resp.StatusCode, data)
	}
	code, err := reason.ParseCode(string(status.Details.Causes[0].Type))
	if err != nil {
		r.Fatalf("%s", data)
	}
	return code
}

// about is the query of an upload.
func about(namespace, base string, size int) url.Values {
	q := url.Values{"size": {strconv.Itoa(size)}}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	if base != "" {
		q.Set("base", base)
	}
	return q
}

// upload sends a difference in pieces of so many bytes, from where the server is.
func (r *rig) upload(namespace, digest, base string, data []byte, piece int) (State, reason.Code) {
	r.Helper()
	var s State
	q := about(namespace, base, len(data))
	if code := r.call(http.MethodGet, digest, q, nil, &s); code != 0 {
		return s, code
	}
	for !s.Here {
		end := min(int(s.Offset)+piece, len(data))
		q.Set("offset", strconv.FormatInt(s.Offset, 10))
		at := s.Offset
		s = State{}
		if code := r.call(http.MethodPatch, digest, q, data[at:end], &s); code != 0 {
			return s, code
		}
		if s.Checking {
			r.Fatal("a small bundle takes so long")
		}
	}
	return s, 0
}

// has fails unless the bundle is here, with just these entries.
func (r *rig) has(want items) {
	r.Helper()
	b, trie, err := r.store.Open(want.trie().Root())
	if err != nil {
		r.Fatal(err)
	}
	defer b.close()
	sum := int64(0)
	for _, item := range want {
		body, ok := b.Body(item.Row().Digest)
		if !ok || !bytes.Equal(body, item.Body) {
			r.Fatalf("%s has the body %q, %t", item.Claim, body, ok)
		}
		sum += int64(len(body))
	}
	if trie.Len() != len(want) || b.Bytes != sum {
		r.Errorf("it has %d entries and %d bytes, want %d and %d", trie.Len(), b.Bytes, len(want), sum)
	}
	if _, ok := b.Body(catalog.Digest{1}); ok {
		r.Error("it has what nobody has put there")
	}
}

func TestPush(t *testing.T) {
	r := newRig(t)
	arrived := make(chan catalog.Digest, 10)
	r.store.Tell(func(d catalog.Digest) { arrived <- d })
	for _, n := range []int{0, 1, 64, 65, 3000} {
		want := some(t, n, "v")
		if s, code := r.upload("default", want.digest(), "", items{}.to(t, want), 700); code != 0 || !s.Here {
			t.Fatalf("%d entries: %+v, %s", n, s, code)
		}
		r.has(want)
		if got := <-arrived; got != want.trie().Root() {
			t.Errorf("%s has come, it is said", got)
		}
	}
	// What is here is not asked for again.
	var s State
	if code := r.call(http.MethodGet, some(t, 64, "v").digest(), url.Values{}, nil, &s); code != 0 || !s.Here {
		t.Errorf("%+v, %s", s, code)
	}
	if parts, err := os.ReadDir(filepath.Join(r.dir, partDir)); err != nil || len(parts) != 0 {
		t.Errorf("parts are left: %v, %v", parts, err)
	}
}

// TestPushDifference: the second push of a namespace builds upon its first one, and moves what differs.
func TestPushDifference(t *testing.T) {
	r := newRig(t)
	first := some(t, 5000, "v")
	if _, code := r.upload("prod", first.digest(), "", items{}.to(t, first), PieceMax); code != 0 {
		t.Fatal(code)
	}
	second := some(t, 5000, "v")
	second.put(t, "key/7", "other")
	second.put(t, "new", "value")
	delete(second, catalog.KeyOf(catalog.DataClaim("key/9")))

	var s State
	if code := r.call(http.MethodGet, second.digest(), url.Values{"namespace": {"qa"}}, nil, &s); code != 0 || s.Base != "" {
		t.Errorf("another namespace builds upon %+v, %s", s, code)
	}
	if code := r.call(http.MethodGet, second.digest(), url.Values{"namespace": {"prod"}}, nil, &s); code != 0 || s.Base != first.digest() || s.BaseEntries != 5000 {
		t.Fatalf("it is to build upon %+v, %s", s, code)
	}
	base := r.descend(s.Base, second.trie())
	if base.Root() != first.trie().Root() {
		t.Fatal("the nodes lead elsewhere")
	}
	data := first.to(t, second)
	if len(data) > 400 {
		t.Errorf("three changes of 5,000 entries take %d bytes", len(data))
	}
	if _, code := r.upload("prod", second.digest(), first.digest(), data, PieceMax); code != 0 {
		t.Fatal(code)
	}
	r.has(second)
	r.has(first)
}

// descend asks for the trie of a bundle by its nodes, and knows another one.
func (r *rig) descend(digest string, known catalog.Trie) catalog.Trie {
	r.Helper()
	root, err := bundle.ParseDigest(digest)
	if err != nil {
		r.Fatal(err)
	}
	d, calls := catalog.NewDescent(root, known, declare.BundleEntriesMax), 0
	for wanted := d.Wanted(HashesMax); len(wanted) > 0; wanted = d.Wanted(HashesMax) {
		if calls++; calls > 10 {
			r.Fatal("it does not come to an end")
		}
		var ask Hashes
		for _, h := range wanted {
			ask.Hashes = append(ask.Hashes, h.String())
		}
		body, _ := json.Marshal(ask)
		var answer Nodes
		if code := r.call(http.MethodPost, digest+"/nodes", url.Values{}, body, &answer); code != 0 {
			r.Fatal(code)
		}
		for _, part := range answer.Nodes {
			if err := d.Take(part); err != nil {
				r.Fatal(err)
			}
		}
	}
	t, err := d.Built()
	if err != nil {
		r.Fatal(err)
	}
	return t
}

// TestKilledInTheMiddle: a server that died in the middle of an upload, or of looking it through, goes on where it was.
func TestKilledInTheMiddle(t *testing.T) {
	r := newRig(t)
	want := some(t, 2000, "v")
	data := items{}.to(t, want)
	q := about("default", "", len(data))
	q.Set("offset", "0")
	var s State
	if code := r.call(http.MethodPatch, want.digest(), q, data[:1000], &s); code != 0 || s.Offset != 1000 {
		t.Fatalf("%+v, %s", s, code)
	}
	// What died has left what it was making, too.
	if err := os.MkdirAll(filepath.Join(r.dir, tmpDir, "made-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, tmpDir, "made-1", rowsName), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.start()
	if left, err := os.ReadDir(filepath.Join(r.dir, tmpDir)); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	if code := r.call(http.MethodGet, want.digest(), about("default", "", len(data)), nil, &s); code != 0 || s.Offset != 1000 {
		t.Fatalf("it goes on at %+v, %s", s, code)
	}
	// It dies once more, when all has come and before it was looked through.
	name := filepath.Join(r.dir, partDir, (&upload{root: want.trie().Root(), size: int64(len(data))}).name())
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.start()
	if s, code := r.upload("default", want.digest(), "", data, PieceMax); code != 0 || !s.Here {
		t.Fatalf("%+v, %s", s, code)
	}
	r.has(want)
}

// TestTwoPushTheSame: pieces that come twice, or in another order, are not taken twice.
func TestTwoPushTheSame(t *testing.T) {
	r := newRig(t)
	want := some(t, 300, "v")
	data := items{}.to(t, want)
	q := about("", "", len(data))
	send := func(from, to int) (s State) {
		q.Set("offset", strconv.Itoa(from))
		if code := r.call(http.MethodPatch, want.digest(), q, data[from:to], &s); code != 0 {
			t.Fatal(code)
		}
		return s
	}
	if s := send(0, 500); s.Offset != 500 {
		t.Errorf("%+v", s)
	}
	if s := send(0, 500); s.Offset != 500 {
		t.Errorf("the same again: %+v", s)
	}
	if s := send(900, 1000); s.Offset != 500 {
		t.Errorf("a later one: %+v", s)
	}
	if s := send(500, len(data)); !s.Here {
		t.Errorf("%+v", s)
	}
	r.has(want)
}

// TestLies: whatever is sent that is not the bundle that it says, nothing of it stays; and the truth is taken afterwards.
func TestLies(t *testing.T) {
	r := newRig(t)
	want, other := some(t, 100, "v"), some(t, 100, "w")
	good := items{}.to(t, want)
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 1
	file, err := catalog.Compile([]declare.Resource{{Name: "f", File: &declare.File{Path: "/etc/shadow", Content: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	acts := append(items{}.to(t, items{}), append([]byte{0, 0, 0, byte(len(file[0].Body))}, file[0].Body...)...)
	for what, data := range map[string][]byte{
		"another list": items{}.to(t, other), "a flipped bit": flipped, "half of it": good[:len(good)/2], "more of it": slices.Concat(good, []byte("more")),
		"no difference": []byte("hello"), "nothing": {}, "something that acts": acts,
	} {
		if s, code := r.upload("default", want.digest(), "", data, PieceMax); code != reason.BundleRefused {
			t.Errorf("%s: %+v, %s", what, s, code)
		}
		if r.store.Has(want.trie().Root()) {
			t.Fatalf("%s: it is taken", what)
		}
	}
	for _, dir := range []string{partDir, tmpDir} {
		if left, err := os.ReadDir(filepath.Join(r.dir, dir)); err != nil || len(left) != 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
	if _, code := r.upload("default", want.digest(), "", good, 1000); code != 0 {
		t.Errorf("the truth: %s", code)
	}
	r.has(want)
	// A base that is not here, and a difference that is to another one.
	if _, code := r.upload("default", other.digest(), some(t, 3, "x").digest(), want.to(t, other), PieceMax); code != reason.BundleMissing {
		t.Errorf("upon nothing: %s", code)
	}
	if _, code := r.upload("default", other.digest(), want.digest(), some(t, 10, "v").to(t, other)[:30], PieceMax); code != reason.BundleRefused {
		t.Errorf("upon another: %s", code)
	}
}

func TestCallsRefused(t *testing.T) {
	r := newRig(t)
	digest := some(t, 1, "v").digest()
	long := bytes.Repeat([]byte("x"), PieceMax+1)
	many, _ := json.Marshal(Hashes{Hashes: make([]string, HashesMax+1)})
	for what, c := range map[string]struct {
		method, path string
		query        url.Values
		body         []byte
		want         reason.Code
	}{
		"no digest":                 {http.MethodGet, "x", nil, nil, reason.InvalidValue},
		"a path":                    {http.MethodGet, "../objects/" + digest, nil, nil, reason.InvalidValue},
		"a namespace that is none":  {http.MethodGet, digest, url.Values{"namespace": {"../x"}}, nil, reason.InvalidValue},
		"a namespace of others":     {http.MethodGet, digest, url.Values{"namespace": {"secret"}}, nil, reason.NotAllowed},
		"a put":                     {http.MethodPut, digest, nil, nil, reason.InvalidValue},
		"a size that is none":       {http.MethodPatch, digest, url.Values{"size": {"-1"}}, nil, reason.InvalidValue},
		"a size above all":          {http.MethodPatch, digest, url.Values{"size": {"9000000000"}}, nil, reason.InvalidValue},
		"no size":                   {http.MethodPatch, digest, nil, nil, reason.InvalidValue},
		"an offset behind the end":  {http.MethodPatch, digest, url.Values{"size": {"3"}, "offset": {"4"}}, nil, reason.InvalidValue},
		"a base that is none":       {http.MethodPatch, digest, url.Values{"size": {"3"}, "base": {"x"}}, nil, reason.InvalidValue},
		"a piece that is too large": {http.MethodPatch, digest, url.Values{"size": {strconv.Itoa(3 * PieceMax)}, "offset": {"0"}}, long, reason.InvalidValue},
		"nodes of what is not here": {http.MethodPost, digest + "/nodes", nil, []byte(`{"hashes": []}`), reason.BundleMissing},
		"too many nodes":            {http.MethodPost, digest + "/nodes", nil, many, reason.InvalidValue},
		"no question":               {http.MethodPost, digest + "/nodes", nil, []byte("x"), reason.InvalidValue},
		"a giant question":          {http.MethodPost, digest + "/nodes", nil, bytes.Repeat([]byte(" "), hashesBytesMax+1), reason.InvalidValue},
	} {
		if code := r.call(c.method, c.path, c.query, c.body, &struct{}{}); code != c.want {
			t.Errorf("%s: %s, want %s", what, code, c.want)
		}
	}
	resp, err := http.Get(r.server.URL + "/other")
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("another path is answered %v, %v", resp.StatusCode, err)
	}
	resp.Body.Close()
}

// TestDamage: a bundle whose files have changed on the disk is not taken for what it was.
func TestDamage(t *testing.T) {
	r := newRig(t)
	want := some(t, 200, "v")
	if _, code := r.upload("default", want.digest(), "", items{}.to(t, want), PieceMax); code != 0 {
		t.Fatal(code)
	}
	root := want.trie().Root()
	b, _, err := r.store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.close() })
	flip := func(name string, at int64) {
		path := filepath.Join(r.dir, root.String(), name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[at] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip(bodiesName, 3)
	bad := 0
	for _, item := range want {
		if _, ok := b.Body(item.Row().Digest); !ok {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("%d bodies are told to be damaged", bad)
	}
	// A difference to it is not made of what is damaged; all of it is taken.
	next := some(t, 201, "v")
	if _, code := r.upload("default", next.digest(), want.digest(), want.to(t, next), PieceMax); code != reason.ObjectUnstored {
		t.Errorf("upon what is damaged: %s", code)
	}
	if _, code := r.upload("default", next.digest(), "", items{}.to(t, next), PieceMax); code != 0 {
		t.Errorf("all of it: %s", code)
	}
	for _, at := range []int64{2, int64(len(rowsMagic)) + 5, int64(len(rowsMagic)) + rowBytes + 40, int64(len(rowsMagic)) + 2*rowBytes + 66} {
		flip(rowsName, at)
		if _, _, err := r.store.Open(root); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("byte %d of the rows: %v", at, err)
		}
		flip(rowsName, at)
	}
	if err := os.Truncate(filepath.Join(r.dir, root.String(), rowsName), 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.store.Open(root); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("torn rows: %v", err)
	}
	var s State
	if code := r.call(http.MethodGet, some(t, 9, "x").digest(), url.Values{"namespace": {"default"}}, nil, &s); code != 0 || s.Base != next.digest() {
		t.Errorf("%+v, %s", s, code)
	}
}

// TestCollect: what nothing names goes after its time, and nothing goes where that is not known.
func TestCollect(t *testing.T) {
	r := newRig(t)
	named, old, young := some(t, 1, "named"), some(t, 1, "old"), some(t, 1, "young")
	for _, list := range []items{named, old, young} {
		if _, code := r.upload("default", list.digest(), "", items{}.to(t, list), PieceMax); code != 0 {
			t.Fatal(code)
		}
	}
	now := time.Now()
	long := now.Add(-ageMax - time.Hour)
	for _, list := range []items{named, old} {
		if err := os.Chtimes(r.store.path(list.trie().Root()), long, long); err != nil {
			t.Fatal(err)
		}
	}
	part := filepath.Join(r.dir, partDir, "x")
	if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(part, now.Add(-partAge-time.Hour), now.Add(-partAge-time.Hour)); err != nil {
		t.Fatal(err)
	}
	unknown := fmt.Errorf("the API does not answer")
	if err := r.store.collect(t.Context(), func(context.Context) (map[string]bool, error) { return nil, unknown }, now); err == nil || !r.store.Has(old.trie().Root()) {
		t.Errorf("%v", err)
	}
	names := func(context.Context) (map[string]bool, error) {
		return map[string]bool{named.digest(): true, some(t, 2, "gone").digest(): true}, nil
	}
	open, _, err := r.store.Open(old.trie().Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.close() })
	if err := r.store.collect(t.Context(), names, now); err != nil {
		t.Fatal(err)
	}
	if !r.store.Has(named.trie().Root()) || r.store.Has(old.trie().Root()) || !r.store.Has(young.trie().Root()) {
		t.Error("another one went")
	}
	for _, item := range old {
		if _, ok := open.Body(item.Row().Digest); !ok {
			t.Error("who has it open cannot read it any more")
		}
	}
	if _, err := os.Stat(part); err == nil {
		t.Error("the old part is still there")
	}
	// What is named has just been named.
	if st, err := os.Stat(r.store.path(named.trie().Root())); err != nil || now.Sub(st.ModTime()) > time.Hour {
		t.Errorf("%v, %v", st.ModTime(), err)
	}
	if _, _, err := r.store.Open(old.trie().Root()); !reason.Is(err, reason.BundleMissing) || !strings.Contains(err.Error(), old.digest()) {
		t.Errorf("%v", err)
	}
}

// TestUploadsAreBounded: who begins and never ends does not fill the disk.
func TestUploadsAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range partsMax {
		if err := os.WriteFile(filepath.Join(r.dir, partDir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := some(t, 1, "v")
	if _, code := r.upload("default", want.digest(), "", items{}.to(t, want), PieceMax); code != reason.ObjectUnstored {
		t.Errorf("%s", code)
	}
}

// TestForget: what is in memory for a push goes when nobody pushes.
func TestForget(t *testing.T) {
	r := newRig(t)
	want := some(t, 1, "v")
	if _, code := r.upload("default", want.digest(), "", items{}.to(t, want), PieceMax); code != 0 {
		t.Fatal(code)
	}
	if _, err := r.store.nodesOf(want.trie().Root()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r.store.forget(now)
	if r.store.recent == nil {
		t.Error("it went at once")
	}
	r.store.forget(now.Add(recentFor + time.Second))
	if r.store.recent != nil {
		t.Error("it is still there")
	}
}

// BenchmarkAccept is what a server does with a push of many entries.
func BenchmarkAccept(b *testing.B) {
	list := some(b, 100_000, strings.Repeat("v", 90))
	data, root := items{}.to(b, list), list.trie().Root()
	for b.Loop() {
		dir := b.TempDir()
		if err := fill(b.Context(), dir, nil, bundle.Read(bytes.NewReader(data)), root); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(list)), "ns/entry")
}

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// testLive: what is known of a node and not stored is in each answer about it, and stays out of what is stored, of what others have
// in hand, and of what the server's own controllers get.
func testLive(t *testing.T, objects *Registry) {
	plain := objects.Store(v1alpha1.Resource(v1alpha1.ResourceNodes))
	l := &live{decorate: func(n *v1alpha1.Node) {
		n.Status.Held = 7
		n.Status.Facts = map[string]string{"os.id": "debian"}
	}}
	s := nodeStore{Store: plain, live: l}
	ctx := request.WithNamespace(t.Context(), "")
	shown := func(what string, o runtime.Object, want bool) {
		t.Helper()
		n, ok := o.(*v1alpha1.Node)
		if !ok || (n.Status.Held == 7) != want || (n.Status.Facts["os.id"] == "debian") != want {
			t.Errorf("%s: %T %+v, want it shown: %v", what, o, o, want)
		}
	}
	stored := func(o runtime.Object, err error) runtime.Object {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	node := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "live-1"}}
	o := stored(s.Create(ctx, node, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
	shown("the answer to a create", o, true)
	w, err := s.Watch(ctx, &metainternal.ListOptions{ResourceVersion: metadata(o).GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	bare, err := plain.Watch(ctx, &metainternal.ListOptions{ResourceVersion: metadata(o).GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Stop()
	changed := o.DeepCopyObject().(*v1alpha1.Node)
	changed.Labels = map[string]string{"a": "b"}
	o, _, err = s.Update(ctx, changed.Name, rest.DefaultUpdatedObjectInfo(changed), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	shown("the answer to an update", stored(o, err), true)
	e := next(t, w)
	for e.Type == watch.Bookmark {
		e = next(t, w)
	}
	shown("an event", e.Object, true)
	other := next(t, bare).Object
	if wrapped, ok := other.(runtime.CacheableObject); ok {
		other = wrapped.GetObject()
	}
	shown("the same event of another watcher", other, false)
	for _, version := range []string{"", "0"} {
		shown("get at "+version, stored(s.Get(ctx, "live-1", &metav1.GetOptions{ResourceVersion: version})), true)
		list := stored(s.List(ctx, &metainternal.ListOptions{ResourceVersion: version})).(*v1alpha1.NodeList)
		for i := range list.Items {
			shown("list at "+version, &list.Items[i], true)
		}
		if len(list.Items) == 0 {
			t.Errorf("nothing is listed at %q", version)
		}
		shown("what is stored, at "+version, stored(plain.Get(ctx, "live-1", &metav1.GetOptions{ResourceVersion: version})), false)
	}
	of := &v1alpha1.Node{}
	if err := NewLocal(objects, gate{}).Get(ctx, types.NamespacedName{Name: "live-1"}, of); err != nil {
		t.Fatal(err)
	}
	shown("what a controller reads", of, false)
	l.decorate = nil
	shown("where nothing is known", stored(s.Get(ctx, "live-1", &metav1.GetOptions{})), false)
}

// testDerived: everybody but the server is refused, whatever is written, and before anything else is said of it.
func testDerived(t *testing.T, objects *Registry) {
	s := derivedStore{objects.Store(v1alpha1.Resource(v1alpha1.ResourceAssignments)), errAssignment}
	assignment := func() *v1alpha1.Assignment {
		return &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: "derived"}, Spec: v1alpha1.AssignmentSpec{NodeUID: "u"}}
	}
	try := func(ctx context.Context, want func(error) bool, what string) {
		t.Helper()
		ctx = request.WithNamespace(ctx, "")
		_, err := s.Create(ctx, assignment(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if !want(err) {
			t.Errorf("%s creates: %v", what, err)
		}
		_, _, err = s.Update(ctx, "derived", rest.DefaultUpdatedObjectInfo(assignment()), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
		if !want(err) {
			t.Errorf("%s updates: %v", what, err)
		}
		_, err = s.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, &metainternal.ListOptions{})
		if !want(err) {
			t.Errorf("%s deletes all: %v", what, err)
		}
		if _, _, err = s.Delete(ctx, "derived", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); !want(err) {
			t.Errorf("%s deletes: %v", what, err)
		}
	}
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "delete the Node")
	}
	master := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	try(request.WithUser(t.Context(), master), refused, "an administrator")
	try(t.Context(), refused, "nobody")
	try(request.WithUser(t.Context(), itself), func(err error) bool { return err == nil }, "the server")
}

// testLocalWrites: the server's own way to change and to delete what it derives.
func testLocalWrites(t *testing.T, objects *Registry) {
	l := NewLocal(objects, gate{})
	a := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: v1alpha1.AssignmentSpec{NodeUID: "u"}}
	if err := l.Update(t.Context(), a); !apierrors.IsBadRequest(err) {
		t.Errorf("update what nobody has read: %v", err)
	}
	if err := l.Create(t.Context(), a); err != nil || a.ResourceVersion == "" || a.UID == "" {
		t.Fatalf("%v: %+v", err, a)
	}
	old := a.DeepCopy()
	a.Spec.Environment = "qa"
	if err := l.Update(t.Context(), a); err != nil || a.ResourceVersion == old.ResourceVersion || a.Generation != 2 {
		t.Fatalf("update: %v, %+v", err, a)
	}
	if err := l.Update(t.Context(), old.DeepCopy()); !apierrors.IsConflict(err) {
		t.Errorf("update an old version: %v", err)
	}
	invalid := a.DeepCopy()
	invalid.Spec.NodeUID = ""
	if err := l.Update(t.Context(), invalid); !apierrors.IsInvalid(err) {
		t.Errorf("update to what is invalid: %v", err)
	}
	if err := l.Delete(t.Context(), a, &metav1.Preconditions{ResourceVersion: &old.ResourceVersion}); !apierrors.IsConflict(err) {
		t.Errorf("delete an old version: %v", err)
	}
	if err := l.Delete(t.Context(), a, &metav1.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion}); err != nil {
		t.Error(err)
	}
	if err := l.Delete(t.Context(), a, nil); !apierrors.IsNotFound(err) {
		t.Errorf("delete what is gone: %v", err)
	}
	if err := l.Update(t.Context(), a); !apierrors.IsNotFound(err) {
		t.Errorf("update what is gone: %v", err)
	}
}

// TestLayersOfAnAssignment: an assignment has room for as many layers as a catalog.
func TestLayersOfAnAssignment(t *testing.T) {
	if v1alpha1.AssignedLayersMax != catalog.LayersMax || v1alpha1.AssignedTemplatesMax != catalog.TemplatesMax || v1alpha1.AssignedInstancesMax != catalog.InstancesMax {
		t.Errorf("%d, %d and %d", v1alpha1.AssignedLayersMax, v1alpha1.AssignedTemplatesMax, v1alpha1.AssignedInstancesMax)
	}
}

// host answers every question in one way, and keeps the last one.
type host struct {
	answer io.Reader
	err    error
	asked  wire.Question
	uid    string
}

func (h *host) Ask(_ context.Context, node, uid string, q wire.Question) (io.ReadCloser, error) {
	if h.asked, h.uid = q, uid; node != "asked-1" {
		return nil, fmt.Errorf("asked %s", node)
	}
	return io.NopCloser(h.answer), h.err
}

// answered keeps an error that is answered.
type answered struct{ err error }

func (a *answered) Object(int, runtime.Object) {}
func (a *answered) Error(err error)            { a.err = err }

// testAnswers asks a host through the API.
func testAnswers(t *testing.T, objects *Registry) {
	nodes := objects.Store(v1alpha1.Resource(v1alpha1.ResourceNodes))
	ctx := request.WithNamespace(t.Context(), "")
	node := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "asked-1"}}
	made, err := nodes.Create(ctx, node, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(h Asker, what, name, query string) (*httptest.ResponseRecorder, error) {
		a := &answers{nodes: nodes, what: what, live: &live{asker: h}}
		var said answered
		handler, err := a.Connect(ctx, name, nil, &said)
		if err != nil {
			return nil, err
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?"+query, nil))
		return w, said.err
	}
	h := &host{answer: strings.NewReader("one\ntwo\n")}
	w, err := get(h, v1alpha1.NodeLogs, "asked-1", "subject=nginx.service&lines=9&since=1970-01-01T00:01:00Z")
	want := wire.Question{What: wire.AskLogs, Subject: "nginx.service", Lines: 9, Since: 60, Seconds: 30}
	if err != nil || w.Code != http.StatusOK || w.Body.String() != "one\ntwo\n" || h.asked != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v: %+v, asked %+v", err, w, h.asked)
	}
	if uid := string(made.(*v1alpha1.Node).UID); uid == "" || h.uid != uid {
		t.Errorf("asked is the host of node %q, and it is %q", h.uid, uid)
	}
	if w, err := get(&host{answer: strings.NewReader("")}, v1alpha1.NodeHistory, "asked-1", ""); err != nil || w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("an empty answer: %v, %+v", err, w)
	}
	if _, err := get(h, v1alpha1.NodeLogs, "nobody", ""); !apierrors.IsNotFound(err) {
		t.Errorf("a node that is not there: %v", err)
	}
	if _, err := get(h, v1alpha1.NodeLogs, "asked-1", "lines=0"); !apierrors.IsBadRequest(err) {
		t.Errorf("no lines: %v", err)
	}
	away := &reason.Error{Code: reason.HostNotConnected, Doing: "ask node asked-1", Hint: "wait"}
	if _, err := get(&host{err: away}, v1alpha1.NodeLogs, "asked-1", ""); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), away.Code.String()) || !strings.Contains(err.Error(), "wait") {
		t.Errorf("a host that is away: %v", err)
	}
	if _, err := get(&host{answer: iotest.ErrReader(context.DeadlineExceeded)}, v1alpha1.NodeLogs, "asked-1", ""); !apierrors.IsTimeout(err) {
		t.Errorf("a host that says nothing: %v", err)
	}
	if _, err := get(nil, v1alpha1.NodeLogs, "asked-1", ""); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a server that asks nobody: %v", err)
	}
	for what, answer := range map[string]io.Reader{
		"half": io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("broken"))),
		"long": strings.NewReader(strings.Repeat("x", wire.AnswerMax+1)),
	} {
		if !aborted(func() { _, _ = get(&host{answer: answer}, v1alpha1.NodeLogs, "asked-1", "") }) {
			t.Errorf("an answer of which only a part comes ends like a whole one: %s", what)
		}
	}
}

// aborted says whether a handler breaks off the connection.
func aborted(f func()) (is bool) {
	defer func() { is = recover() == http.ErrAbortHandler }()
	f()
	return false
}

func TestReadQuestion(t *testing.T) {
	now := time.Unix(10_000, 0)
	for query, want := range map[string]wire.Question{
		"":                   {What: "history", Seconds: 30},
		"since=10m":          {What: "history", Since: 9_400, Seconds: 30},
		"since=10m&until=5m": {What: "history", Since: 9_400, Until: 9_700, Seconds: 30},
		"since=1970-01-01T01:00:00%2B00:00&lines=100000": {What: "history", Since: 3600, Lines: 100_000, Seconds: 30},
		"subject=file/motd&pretty=true":                  {What: "history", Subject: "file/motd", Seconds: 30},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readQuestion("history", values, now); err != nil || got != want {
			t.Errorf("%s: %+v, %v", query, got, err)
		}
	}
	for _, query := range []string{"lines=-1", "lines=x", "lines=100001", "since=yesterday", "since=-1m", "since=0s", "since=3h", "until=x", "until=0s", "since=1969-01-01T00:00:00Z", "subject=" + strings.Repeat("x", 4097)} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readQuestion("history", values, now); err == nil {
			t.Errorf("%.40s is %+v", query, got)
		}
	}
	for what, ok := range map[string]bool{"logs": true, "history": false} {
		if got, err := readQuestion(what, url.Values{"previous": {"true"}}, now); (err == nil) != ok || got.Previous != ok {
			t.Errorf("the attempt before, of %s: %+v, %v", what, got, err)
		}
	}
	if _, err := readQuestion("logs", url.Values{"previous": {"x"}}, now); err == nil {
		t.Error("previous may be anything")
	}
	if _, err := readQuestion("evidence", nil, now); err == nil {
		t.Error("evidence of nothing is asked for")
	}
}

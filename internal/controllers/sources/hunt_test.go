package sources_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/api/v1alpha1"
)

// TestSecretsUnsaid: whatever is wrong with a Secret in a commit, its values are in no status, event or log line: more people may read those.
func TestSecretsUnsaid(t *testing.T) {
	const canary = "hunter2-canary"
	document := func(body string) *string {
		return text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" + body + "\n")
	}
	r := newRig(t)
	r.allow("fleet")
	r.commit(r.work, map[string]*string{"a.yaml": document("stringData: {password: fine}")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	r.eventually(func() string {
		var src v1alpha1.Source
		r.must(objects{r}.Get(t.Context(), r.key("fleet"), &src))
		return unless(meta.IsStatusConditionTrue(src.Status.Conditions, v1alpha1.ConditionReady), "not ready")
	})
	for name, body := range map[string]string{
		"no base64":          "data: {password: " + canary + "}",
		"a list":             "data: {password: [" + canary + "]}",
		"a map":              "stringData: {password: {a: " + canary + "}}",
		"a number":           "stringData: {password: 4242424242}",
		"a name of a key":    "stringData: {\"pass word\": " + canary + "}",
		"of another type":    "type: {a: " + canary + "}",
		"an unknown field":   "stringdata: {password: " + canary + "}",
		"all of it a text":   "stringData: " + canary,
		"a text, not base64": "data: " + canary,
		"broken YAML":        "stringData: {password: \"" + canary + "}",
		"twice":              "stringData: {password: " + canary + ", password: x}",
		"an anchor":          "stringData: {password: *" + canary + "}",
		"a tab":              "stringData:\n\tpassword: " + canary,
	} {
		t.Run(name, func(t *testing.T) {
			r.events.mu.Lock()
			r.events.told = nil
			r.events.mu.Unlock()
			commit := r.commit(r.work, map[string]*string{"a.yaml": document(body)})
			kept.Call(r.key("fleet"))
			src := r.status("fleet", func(s *v1alpha1.Source) bool {
				ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
				return s.Status.Seen.ID == commit && (ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "a.yaml") || s.Status.Applied.ID == commit)
			})
			said := fmt.Sprintf("%+v %v", src.Status, src.Annotations)
			r.events.mu.Lock()
			said += strings.Join(r.events.told, "\n")
			r.events.mu.Unlock()
			if strings.Contains(said, canary) || strings.Contains(said, "4242424242") {
				t.Errorf("it is said: %s", said)
			}
		})
	}
}

// TestSuspendedMeanwhile: a suspension stops an apply that is on its way, and what is told is what there is.
func TestSuspendedMeanwhile(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: r.namespace}, Data: map[string][]byte{"token": []byte("shared")}}))
	src := r.source("fleet")
	src.Spec.Webhook = &v1alpha1.SourceWebhook{Type: v1alpha1.SourceForgeGitLab, Secret: "hook"}
	r.must(r.Create(t.Context(), src))
	var holding atomic.Bool
	held, release := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held) })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	r.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if isWrite(req) && holding.Load() {
				once()
				<-release
			}
			return next.RoundTrip(req)
		})
	}
	kept, _ := r.keep()
	r.applied("fleet", first)
	files := map[string]*string{}
	for i := range 300 {
		files[fmt.Sprintf("n%d.yaml", i)] = configMap(fmt.Sprintf("n%d", i), "1")
	}
	second := r.commit(r.work, files)
	holding.Store(true)
	kept.Call(r.key("fleet"))
	<-held
	r.change("fleet", func(s *v1alpha1.Source) {
		s.Spec.Suspend = &v1alpha1.SourceSuspension{Reason: "stop", Owner: "kate", Until: metav1.NewTime(time.Now().Add(time.Hour))}
	})
	r.eventually(func() string { // what a forge is told says what the loop knows
		said, err := kept.Hook(t.Context(), r.key("fleet"), http.Header{"X-Gitlab-Event": {"Push Hook"}, "X-Gitlab-Token": {"shared"}}, strings.NewReader(`{"object_kind":"push","ref":"refs/heads/main","before":"0","after":"1"}`))
		return unless(err == nil && strings.Contains(said, "suspended"), fmt.Sprint(said, err))
	})
	free()
	src = r.status("fleet", func(s *v1alpha1.Source) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionSuspended)
	})
	var there core.ConfigMapList
	r.must(r.List(t.Context(), &there, inNamespace(r.namespace)))
	ready := meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionReady)
	if len(there.Items) > 200 || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "suspended") || src.Status.Applied.ID != first {
		t.Errorf("%d objects are there, %+v", len(there.Items), ready)
	}
	r.change("fleet", func(s *v1alpha1.Source) { s.Spec.Suspend = nil })
	r.applied("fleet", second)
}

// TestAnew: a source that is made again under the same name while the first one applies is not disturbed by it.
func TestAnew(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	other := r.repository("two")
	second := r.commit(other, map[string]*string{"a.yaml": configMap("a", "2")})
	var holding atomic.Bool
	holding.Store(true)
	held, release := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held) })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	r.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if isWrite(req) && holding.CompareAndSwap(true, false) {
				once()
				<-release // a request that does not end with its context, as one that is sent already
			}
			return next.RoundTrip(req)
		})
	}
	src := r.source("fleet")
	r.must(r.Create(t.Context(), src))
	r.keep()
	<-held
	r.must(r.Delete(t.Context(), src))
	src = r.source("fleet")
	src.Spec.URL = "file://" + filepath.Join(r.dir, "two.git")
	src.Spec.AllowEmpty = true
	r.must(r.Create(t.Context(), src))
	free()
	r.applied("fleet", second)
	r.says("a", "2")
}

// TestNewKind: objects of a kind that comes in the same commit are guarded as all others.
func TestNewKind(t *testing.T) {
	r := newRig(t)
	user := "system:source:" + r.namespace + ":fleet"
	r.giveAll(user)
	group := strings.ReplaceAll(r.namespace, "-", "") + ".example.com"
	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: wdg, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`, group)
	widget := fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1}\n", group)
	commit := r.commit(r.work, map[string]*string{"crd.yaml": &crd, "w.yaml": &widget, "a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	r.applied("fleet", commit)
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	r.must(r.Get(t.Context(), r.key("w"), there))
	was := there.GetUID()
	r.must(r.Delete(t.Context(), there))
	r.eventually(func() string {
		err := r.Get(t.Context(), r.key("w"), there)
		return unless(err == nil && there.GetUID() != was, fmt.Sprint("it is not made again: ", err))
	})
	last := r.commit(r.work, map[string]*string{"crd.yaml": nil, "w.yaml": nil})
	kept.Call(r.key("fleet"))
	r.applied("fleet", last)
}

// TestBegunWhileAway: what is applied is guarded also by a process that begins while the repository is away.
func TestBegunWhileAway(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	var away atomic.Bool
	backend := &cgi.Handler{Path: filepath.Join(r.run(r.dir, "git", "--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + r.dir, "GIT_HTTP_EXPORT_ALL=1"}}
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		backend.ServeHTTP(w, req)
	}))
	t.Cleanup(forge.Close)
	declared := r.source("fleet")
	declared.Spec.URL = forge.URL + "/one.git"
	r.must(r.Create(t.Context(), declared))
	_, stop := r.keep()
	r.applied("fleet", first)
	stop()
	away.Store(true)
	r.handEdit("a", "while nobody looks")
	kept, _ := r.keep()
	r.says("a", "1")
	r.notReady("fleet", v1alpha1.SourceNotReached)
	r.handEdit("a", "by hand")
	r.says("a", "1")
	if words, src := r.notReady("fleet", v1alpha1.SourceNotReached); src.Status.Applied.ID != first || !strings.Contains(words, "stays applied") {
		t.Errorf("%q", words)
	}
	away.Store(false)
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	kept.Call(r.key("fleet"))
	r.applied("fleet", second)
}

package sources_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/webhook"
)

// TestLife: a first apply, a new commit, a broken one and its fix, a revert, a force push, a file that goes and one that is moved.
func TestLife(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	call := func() { kept.Call(types.NamespacedName{Namespace: r.namespace, Name: "fleet"}) }
	if src := r.applied("fleet", first); src.Status.Objects != 2 || src.Status.Applied.Author != "Ann <ann@example.com>" || src.Status.Applied.Ref != "main" {
		t.Errorf("first: %+v", src.Status)
	}

	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	call()
	r.applied("fleet", second)
	r.says("a", "2")
	if o := r.origin("b"); o.Commit != first {
		t.Errorf("b is said to be of %+v, and %s has brought it", o, first)
	}
	if o := r.origin("a"); o.Commit != second || o.File != "a.yaml" || o.Line != 1 {
		t.Errorf("a is said to be of %+v", o)
	}

	broken := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "3"), "c.yaml": text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndatta: {}\n")})
	call()
	words, src := r.notReady("fleet", "CommitRefused")
	if src.Status.Seen.ID != broken || src.Status.Applied.ID != second || !strings.Contains(words, "c.yaml:4") || len(src.Status.Faults) != 1 || r.data("a") != "2" {
		t.Errorf("broken: %q, %+v", words, src.Status)
	}
	fixed := r.commit(r.work, map[string]*string{"c.yaml": configMap("c", "1")})
	call()
	if src := r.applied("fleet", fixed); len(src.Status.Faults) > 0 || src.Status.Objects != 3 {
		t.Errorf("fixed: %+v", src.Status)
	}

	r.run(r.work, "git", "revert", "--no-edit", "HEAD")
	r.run(r.work, "git", "revert", "--no-edit", "HEAD~2")
	reverted := r.commit(r.work, map[string]*string{"c.yaml": configMap("c", "1")})
	call()
	r.applied("fleet", reverted)
	r.says("a", "2")

	was := r.uid("b")
	moved := r.commit(r.work, map[string]*string{"b.yaml": nil, "deep/b.yaml": configMap("b", "1"), "c.yaml": nil})
	call()
	r.applied("fleet", moved)
	r.says("c", "-")
	if r.uid("b") != was {
		t.Error("a file that was moved is another object")
	}
	if o := r.origin("b"); o.File != "deep/b.yaml" || o.Commit != moved {
		t.Errorf("b is said to be of %+v", o)
	}

	r.run(r.work, "git", "reset", "-q", "--hard", first)
	forced := r.commit(r.work, map[string]*string{"d.yaml": configMap("d", "1")})
	call()
	r.applied("fleet", forced)
	r.says("d", "1")
}

func (r *rig) object(name string) *core.ConfigMap {
	r.Helper()
	var c core.ConfigMap
	r.must(r.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &c))
	return &c
}

func (r *rig) uid(name string) types.UID { r.Helper(); return r.object(name).UID }
func (r *rig) origin(name string) origin.Origin {
	r.Helper()
	return origin.Of(r.object(name).Annotations)
}
func (r *rig) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// TestNothingNew: a look that finds nothing new writes nothing, neither an object nor the status.
func TestNothingNew(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	r.applied("fleet", commit)
	writes, statuses := r.writes.Load(), r.statuses.Load()
	looks := r.looks("nothing")
	kept.Call(r.key("fleet"))
	r.eventually(func() string { return unless(r.looks("nothing") > looks, "it has not looked") })
	if w, s := r.writes.Load()-writes, r.statuses.Load()-statuses; w+s != 0 {
		t.Errorf("%d writes and %d of the status", w, s)
	}
}

func unless(ok bool, words string) string {
	if ok {
		return ""
	}
	return words
}

// looks is how many looks had a result.
func (r *rig) looks(result string) float64 {
	r.Helper()
	families, err := r.metrics.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() != "tako_source_looks_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestAway: a repository that is away changes nothing, drift is put back meanwhile, and it goes on when it is back.
func TestAway(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	r.applied("fleet", first)
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	bare := filepath.Join(r.dir, "one.git")
	r.must(os.Rename(bare, bare+".away"))
	kept.Call(r.key("fleet"))
	if words, src := r.notReady("fleet", "NotReached"); src.Status.Applied.ID != first || !strings.Contains(words, "stays applied") {
		t.Errorf("away: %q", words)
	}
	r.handEdit("a", "by hand")
	r.says("a", "1")
	r.must(os.Rename(bare+".away", bare))
	kept.Call(r.key("fleet"))
	r.applied("fleet", second)
}

// handEdit is what a person does.
func (r *rig) handEdit(name, value string) {
	r.Helper()
	r.must(r.Patch(r.Context(), r.object(name), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"key":%q}}`, value)), client.FieldOwner("a person")))
}

// TestDrift: what others change is put back, also what they change while nobody looks; in other fields it stays.
func TestDrift(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	_, stop := r.keep()
	r.applied("fleet", commit)
	r.handEdit("a", "by hand")
	r.says("a", "1")
	r.must(r.Delete(t.Context(), r.object("b")))
	r.says("b", "1")
	r.eventually(func() string { return unless(r.events.count("DriftReverted") == 2, "drift is not told") })
	r.must(r.Patch(t.Context(), r.object("a"), client.RawPatch(types.MergePatchType, []byte(`{"data":{"other":"x"}}`)), client.FieldOwner("a person")))
	stop()
	r.handEdit("a", "while nobody looks")
	r.must(r.Delete(t.Context(), r.object("b")))
	r.keep()
	r.says("a", "1")
	r.says("b", "1")
	if r.object("a").Data["other"] != "x" {
		t.Error("a field that is not declared is gone")
	}
}

// TestDriftReported: with Report it is told and stays, over a restart too, until the next commit changes the object.
func TestDriftReported(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	src := r.source("fleet")
	src.Spec.Drift = v1alpha1.SourceDriftReport
	r.must(r.Create(t.Context(), src))
	_, stop := r.keep()
	r.applied("fleet", first)
	told := func() {
		t.Helper()
		r.status("fleet", func(s *v1alpha1.Source) bool { return len(s.Status.Drifted) == 1 && s.Status.Drifted[0].Name == "a" })
		if got := r.data("a"); got != "by hand" {
			t.Errorf("a says %q", got)
		}
	}
	r.handEdit("a", "by hand")
	told()
	stop()
	kept, _ := r.keep()
	second := r.commit(r.work, map[string]*string{"b.yaml": configMap("b", "2")})
	kept.Call(r.key("fleet"))
	r.applied("fleet", second)
	told()
	third := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "3")})
	kept.Call(r.key("fleet"))
	if s := r.applied("fleet", third); len(s.Status.Drifted) > 0 || r.data("a") != "3" {
		t.Errorf("%+v, a says %q", s.Status.Drifted, r.data("a"))
	}
}

// TestTwoSources: an object that two sources declare is of the one that had it first; the other one says so and writes nothing.
func TestTwoSources(t *testing.T) {
	r := newRig(t)
	r.allow("one")
	r.allow("two")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "one"), "c.yaml": configMap("c", "one")})
	other := r.repository("two")
	second := r.commit(other, map[string]*string{"a.yaml": configMap("a", "two"), "b.yaml": configMap("b", "two")})
	r.must(r.Create(t.Context(), r.source("one")))
	kept, _ := r.keep()
	r.applied("one", first)
	two := r.source("two")
	two.Spec.URL = "file://" + filepath.Join(r.dir, "two.git")
	r.must(r.Create(t.Context(), two))
	words, src := r.notReady("two", "CommitRefused")
	if !strings.Contains(words, "a.yaml:") || !strings.Contains(words, "source "+r.namespace+"/one") || strings.Contains(words, "--") || len(src.Status.Faults) != 1 {
		t.Errorf("%q, %+v", words, src.Status.Faults)
	}
	if r.data("a") != "one" || r.data("b") != "-" {
		t.Errorf("a says %q, b %q", r.data("a"), r.data("b"))
	}
	writes := r.writes.Load()
	kept.Call(r.key("two"))
	r.eventually(func() string { return unless(r.looks("refused") >= 2, "it has not looked again") })
	if n := r.writes.Load() - writes; n > 0 {
		t.Errorf("%d writes of what cannot be", n)
	}
	kept.Call(r.key("one"))
	third := r.commit(r.work, map[string]*string{"a.yaml": nil})
	kept.Call(r.key("one"))
	r.applied("one", third)
	kept.Call(r.key("two"))
	r.applied("two", second)
	r.says("a", "two")
}

// TestMadeByHand: what a person has made is not taken.
func TestMadeByHand(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: r.namespace}, Data: map[string]string{"key": "mine"}}, client.FieldOwner("kate")))
	r.must(r.Create(t.Context(), r.source("fleet")))
	r.keep()
	words, _ := r.notReady("fleet", "CommitRefused")
	if !strings.Contains(words, "made by kate") || strings.Contains(words, "--") || r.data("a") != "mine" {
		t.Errorf("%q", words)
	}
}

// TestFight: somebody who changes the same field again and again is not answered ever faster.
func TestFight(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	r.keep()
	r.applied("fleet", commit)
	writes, began := r.writes.Load(), time.Now()
	took, n := time.Duration(0), int64(0)
	for took < 3*time.Second || n < 2 && took < within { // a machine that is busy answers later
		if r.data("a") == "1" {
			r.handEdit("a", "no")
		}
		n, took = r.writes.Load()-writes, time.Since(began)
	}
	// 100 ms, and twice as long each time: five in three seconds, and some for a clock that is not exact.
	if most := int64(bits.Len64(uint64(took/(100*time.Millisecond)))) + 3; n < 2 || n > most {
		t.Errorf("%d writes in %s against somebody who fights, want 2 to %d", n, took, most)
	}
}

// TestSuspend: a suspension holds over a restart, what was applied stays and Ready with it, and it ends by itself.
func TestSuspend(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	_, stop := r.keep()
	r.applied("fleet", first)
	suspend := func(d time.Duration) (until time.Time) {
		until = time.Now().Add(d)
		r.change("fleet", func(s *v1alpha1.Source) {
			s.Spec.Suspend = &v1alpha1.SourceSuspension{Reason: "a drill", Owner: "kate", Until: metav1.NewTime(until)}
		})
		return until
	}
	suspend(time.Hour)
	suspended := func(s *v1alpha1.Source) bool { return meta.IsStatusConditionTrue(s.Status.Conditions, "Suspended") }
	if s := r.status("fleet", suspended); !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("what was applied is not there any more?")
	}
	stop()
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	kept, _ := r.keep()
	kept.Call(r.key("fleet"))
	until := suspend(6 * time.Second)
	s := r.applied("fleet", second)
	if time.Now().Before(until.Truncate(time.Second)) {
		t.Error("applied while it was suspended")
	}
	if suspended(s) {
		t.Error("it is said to be suspended still")
	}
}

// TestDependsOn: one waits for another, and those that wait for one another are told.
func TestDependsOn(t *testing.T) {
	r := newRig(t)
	r.allow("site")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	site := r.source("site")
	site.Spec.DependsOn = []v1alpha1.SourceReference{{Name: "base"}}
	r.must(r.Create(t.Context(), site))
	r.keep()
	r.notReady("site", "DependencyNotReady")
	base := r.source("base")
	base.Spec.DependsOn = []v1alpha1.SourceReference{{Name: "site"}}
	base.Spec.URL = "file://" + filepath.Join(r.dir, "base.git")
	work := r.repository("base")
	r.commit(work, map[string]*string{"b.yaml": configMap("b", "1")})
	r.must(r.Create(t.Context(), base))
	if words, _ := r.notReady("base", "DependencyCycle"); !strings.Contains(words, "/base depends on "+r.namespace+"/site") {
		t.Errorf("%q", words)
	}
	r.notReady("site", "DependencyCycle")
	r.allow("base")
	r.change("base", func(s *v1alpha1.Source) { s.Spec.DependsOn = nil })
	r.applied("site", commit)
}

// TestRights: without rights nothing is applied, and what is missing is said.
func TestRights(t *testing.T) {
	r := newRig(t)
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	kept, _ := r.keep()
	if words, _ := r.notReady("fleet", "NotAllowed"); !strings.Contains(words, "kubectl create rolebinding fleet --clusterrole=admin --user=system:source:"+r.namespace+":fleet -n "+r.namespace) {
		t.Errorf("%q", words)
	}
	right := r.allow("fleet")
	kept.Call(r.key("fleet"))
	r.eventually(func() string { kept.Call(r.key("fleet")); return unless(r.data("a") == "1", "a is not there") })
	r.applied("fleet", first)
	r.must(r.Delete(t.Context(), right))
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	kept.Call(r.key("fleet"))
	if _, s := r.notReady("fleet", "NotAllowed"); s.Status.Applied.ID != first {
		t.Errorf("%+v", s.Status)
	}
	r.allow("fleet")
	r.eventually(func() string { kept.Call(r.key("fleet")); return unless(r.data("a") == "2", "a is not changed") })
	r.applied("fleet", second)
}

// TestKilled: a process that ends in the middle of an apply leaves the next one what it needs, wherever it was.
func TestKilled(t *testing.T) {
	for _, after := range []int64{1, 3, 7} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			r := newRig(t)
			r.allow("fleet")
			files := map[string]*string{}
			for i := range 5 {
				files[fmt.Sprintf("old%d.yaml", i)] = configMap(fmt.Sprintf("old%d", i), "1")
			}
			first := r.commit(r.work, files)
			r.must(r.Create(t.Context(), r.source("fleet")))
			_, stop := r.keep()
			r.applied("fleet", first)
			stop()
			for i := range 5 {
				files[fmt.Sprintf("old%d.yaml", i)] = nil
				files[fmt.Sprintf("new%d.yaml", i)] = configMap(fmt.Sprintf("new%d", i), "1")
			}
			files["new5.yaml"] = configMap("old4", "2")
			second := r.commit(r.work, files)
			ctx, cancel := context.WithCancel(context.Background())
			var writes atomic.Int64
			r.wrap = func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					if isWrite(req) && writes.Add(1) > after {
						cancel()
						return nil, context.Canceled
					}
					return next.RoundTrip(req)
				})
			}
			_, stop = r.keepIn(ctx, cancel)
			<-ctx.Done()
			stop()
			r.wrap = nil
			r.keep()
			r.applied("fleet", second)
			var left core.ConfigMapList
			r.must(r.List(t.Context(), &left, client.InNamespace(r.namespace)))
			if len(left.Items) != 6 {
				t.Errorf("%d objects are there, want 6", len(left.Items))
			}
			if r.data("old0") != "-" || r.data("old4") != "2" || r.data("new4") != "1" {
				t.Errorf("old0 %q, old4 %q, new4 %q", r.data("old0"), r.data("old4"), r.data("new4"))
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPartOfACommit: what the first half of a commit that failed has made goes with a later commit without it.
func TestPartOfACommit(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	var failing atomic.Bool
	wrote := make(chan struct{})
	wroteB := sync.OnceFunc(func() { close(wrote) })
	r.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if isWrite(req) && failing.Load() && strings.HasSuffix(req.URL.Path, "/z") {
				<-wrote // both are on their way at once
				return nil, fmt.Errorf("the line is cut")
			}
			if isWrite(req) && strings.HasSuffix(req.URL.Path, "/b") {
				defer wroteB()
			}
			return next.RoundTrip(req)
		})
	}
	kept, _ := r.keep()
	r.applied("fleet", first)
	failing.Store(true)
	r.commit(r.work, map[string]*string{"b.yaml": configMap("b", "1"), "z.yaml": configMap("z", "1")})
	kept.Call(r.key("fleet"))
	if words, _ := r.notReady("fleet", "NotApplied"); !strings.Contains(words, "of the new commit already") || r.data("b") != "1" {
		t.Errorf("%q", words)
	}
	failing.Store(false)
	r.run(r.work, "git", "reset", "-q", "--hard", first)
	r.run(r.work, "git", "push", "-q", "-f", "origin", "main")
	kept.Call(r.key("fleet"))
	r.applied("fleet", first)
	r.says("b", "-")
}

// TestRequest: a request is acted upon, and what nobody could watch is looked at for it.
func TestRequest(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	r.keep()
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	r.request("fleet", "now")
	if s := r.applied("fleet", second); s.Status.HandledRequest != "now" {
		r.status("fleet", func(s *v1alpha1.Source) bool { return s.Status.HandledRequest == "now" })
	}
}

// TestIncomplete: a Secret that is not there, a signature that is missing, a submodule, plain http.
func TestIncomplete(t *testing.T) {
	r := newRig(t)
	r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: r.namespace}, Data: map[string]string{
		"kate": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl kate"}}))
	secret, signed, http := r.source("secret"), r.source("signed"), r.source("http")
	secret.Spec.Credentials = "none"
	signed.Spec.Verify = &v1alpha1.SourceVerify{Keys: "keys"}
	http.Spec.URL = "http://git.example.com/x.git"
	sub := r.source("sub")
	sub.Spec.URL = "file://" + filepath.Join(r.dir, "two.git")
	work := r.repository("two")
	r.run(work, "git", "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",vendor/thing")
	r.must(os.WriteFile(filepath.Join(work, "a.yaml"), []byte(*configMap("a", "1")), 0o644))
	r.run(work, "git", "add", "a.yaml")
	r.run(work, "git", "commit", "-q", "-m", "with a submodule")
	r.run(work, "git", "push", "-q", "origin", "main")
	for _, s := range []*v1alpha1.Source{secret, signed, http, sub} {
		r.must(r.Create(t.Context(), s))
	}
	r.keep()
	for name, want := range map[string][2]string{
		"secret": {"NotReached", "spec.credentials"}, "signed": {"CommitRefused", "sign"}, "http": {"NotReached", "http"}, "sub": {"CommitRefused", "submodule"},
	} {
		if words, _ := r.notReady(name, want[0]); !strings.Contains(words, want[1]) {
			t.Errorf("%s: %q", name, words)
		}
	}
	r.change("sub", func(s *v1alpha1.Source) { s.Spec.Ignore = []string{"vendor/"} })
	r.notReady("sub", "NotAllowed") // it has come further
}

// TestWait: a source that waits is ready when what it has applied is.
func TestWait(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	config := func(motd, selector string) *string {
		return text("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: motd}\nspec:\n  selector: " + selector + "\n  resources:\n  - {name: motd, file: {path: /etc/motd, content: " + motd + "}}\n")
	}
	first := r.commit(r.work, map[string]*string{"a.yaml": config("one", "{matchLabels: {x: none}}")})
	src := r.source("fleet")
	src.Spec.Wait = &v1alpha1.SourceWait{Timeout: &metav1.Duration{Duration: 2 * time.Second}}
	r.must(r.Create(t.Context(), src))
	kept, _ := r.keep()
	if s := r.applied("fleet", first); s.Status.Hosts == nil {
		t.Errorf("%+v", s.Status)
	}
	// A Source that cannot become ready is one of its objects.
	second := r.commit(r.work, map[string]*string{"b.yaml": text("apiVersion: tako.dev/v1alpha1\nkind: Source\nmetadata: {name: child}\nspec: {url: \"file:///nowhere/x.git\"}\n")})
	kept.Call(r.key("fleet"))
	words, s := r.notReady("fleet", "NotWell")
	if !strings.Contains(words, "child") || !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled) || s.Status.Applied.ID != second {
		t.Errorf("%q, %+v", words, s.Status)
	}
	third := r.commit(r.work, map[string]*string{"b.yaml": nil})
	kept.Call(r.key("fleet"))
	r.applied("fleet", third)
}

// TestHook: a good call has a source looked at; doubled ones do no harm; a forged one, and one for nobody, are alike.
func TestHook(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: r.namespace}, Data: map[string][]byte{"token": []byte("shared\n")}}))
	src := r.source("fleet")
	src.Spec.Ref.Branch = "main"
	src.Spec.Webhook = &v1alpha1.SourceWebhook{Type: v1alpha1.SourceForgeGeneric, Secret: "hook"}
	r.must(r.Create(t.Context(), src))
	kept, _ := r.keep()
	r.applied("fleet", first)
	said := ""
	call := func(name, secret, body string) (err error) {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		h := http.Header{webhook.SignatureHeader: {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
		said, err = kept.Hook(t.Context(), r.key(name), h, strings.NewReader(body))
		return err
	}
	second := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "2")})
	for what, err := range map[string]error{"forged": call("fleet", "guessed", `{"ref":"refs/heads/main"}`), "nobody": call("none", "shared", "")} {
		if !reason.Is(err, reason.WebhookRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := call("fleet", "shared", `{"ref":"refs/heads/other"}`); err != nil || r.data("a") != "1" || !strings.Contains(said, `about "refs/heads/other"`) {
		t.Errorf("another branch: %v, %q", err, said)
	}
	if err := call("fleet", "shared", `{"ref":"refs/heads/main","repository":{"clone_url":"https://elsewhere.example/a.git"}}`); err != nil {
		t.Error(err)
	}
	for range 3 {
		r.must(call("fleet", "shared", `{"ref":"refs/heads/main"}`))
	}
	r.applied("fleet", second)
	if !strings.Contains(said, "looks at its repository now") {
		t.Errorf("%q", said)
	}
	var hook core.Secret // a new secret counts at once, and the one before as long as it is there
	r.must(r.Get(t.Context(), r.key("hook"), &hook))
	hook.Data = map[string][]byte{"token": []byte("fresh"), "token.previous": []byte("shared")}
	r.must(r.Update(t.Context(), &hook))
	r.eventually(func() string { return unless(call("fleet", "fresh", `{}`) == nil, "the new one is refused") })
	r.must(call("fleet", "shared", `{}`))
}

// TestGone: what was applied stays when its source is deleted, and the copy of the repository goes.
func TestGone(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	_, stop := r.keep()
	src := r.applied("fleet", commit)
	copies := func() int {
		found, err := filepath.Glob(filepath.Join(r.copies, "*", "HEAD"))
		deeper, _ := filepath.Glob(filepath.Join(r.copies, "*", "*", "HEAD"))
		r.must(err)
		return len(found) + len(deeper)
	}
	if copies() != 1 {
		t.Fatalf("%d copies", copies())
	}
	r.must(r.Delete(t.Context(), src))
	r.eventually(func() string { return unless(copies() == 0, "the copy stays") })
	r.must(r.Create(t.Context(), r.source("fleet")))
	src = r.applied("fleet", commit)
	stop()
	r.must(r.Delete(t.Context(), src))
	r.keep()
	r.eventually(func() string { return unless(copies() == 0, "the copy stays") })
	if r.data("a") != "1" {
		t.Error("what was applied is gone")
	}
}

// TestReport: a forge is told what becomes of each commit, in the end, and nothing twice; that it is away holds up nothing.
func TestReport(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	var mu sync.Mutex
	var told []string
	away := true
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var status struct{ State, Context string }
		_ = json.NewDecoder(req.Body).Decode(&status)
		if req.Header.Get("Authorization") != "token s3cret" || status.Context != "tako/"+r.namespace+"/fleet" {
			t.Errorf("%v, %+v", req.Header, status)
		}
		told = append(told, filepath.Base(req.URL.Path)+" "+status.State)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(api.Close)
	r.must(r.Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "forge", Namespace: r.namespace}, Data: map[string][]byte{"token": []byte("s3cret")}}))
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(os.Mkdir(filepath.Join(r.dir, "ops"), 0o755))
	r.must(os.Symlink(filepath.Join(r.dir, "one.git"), filepath.Join(r.dir, "ops", "fleet.git")))
	backend := &cgi.Handler{Path: filepath.Join(r.run(r.dir, "git", "--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + r.dir, "GIT_HTTP_EXPORT_ALL=1"}}
	forge := httptest.NewServer(backend)
	t.Cleanup(forge.Close)
	src := r.source("fleet")
	src.Spec.URL = forge.URL + "/ops/fleet.git" // plain http, on this machine
	src.Spec.Report = &v1alpha1.SourceReport{Type: v1alpha1.SourceForgeGitea, API: api.URL + "/api/v1", Secret: "forge"}
	r.must(r.Create(t.Context(), src))
	kept, _ := r.keep()
	r.applied("fleet", first)
	last := func(want string) {
		t.Helper()
		r.eventually(func() string {
			mu.Lock()
			defer mu.Unlock()
			return unless(len(told) > 0 && told[len(told)-1] == want, fmt.Sprint(told))
		})
	}
	mu.Lock()
	away = false
	mu.Unlock()
	last(first + " success")
	kept.Call(r.key("fleet"))
	r.eventually(func() string { return unless(r.looks("nothing") > 0, "it has not looked") })
	broken := r.commit(r.work, map[string]*string{"a.yaml": text("a: [")})
	kept.Call(r.key("fleet"))
	last(broken + " failure")
	mu.Lock()
	defer mu.Unlock()
	seen := map[string]bool{}
	for _, what := range told {
		if seen[what] {
			t.Errorf("told twice: %s", what)
		}
		seen[what] = true
	}
}

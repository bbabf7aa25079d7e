package sources_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/source/origin"
)

// elsewhere makes a second namespace, in which a source is an administrator.
func (r *rig) elsewhere(source string) (namespace string, right *rbac.RoleBinding) {
	r.Helper()
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
	r.must(r.Create(r.Context(), ns))
	return ns.Name, r.allowIn(ns.Name, source)
}

func (r *rig) allowIn(namespace, source string) *rbac.RoleBinding {
	r.Helper()
	user, _ := origin.User(r.namespace, source)
	right := &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: source, Namespace: namespace}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: user}}}
	r.must(r.Create(r.Context(), right))
	return right
}

// configMapIn is a document of another namespace.
func configMapIn(namespace, name string) *string {
	return text(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {key: \"1\"}\n", name, namespace))
}

// goes waits until a ConfigMap of a namespace is gone.
func (r *rig) goes(namespace, name string) {
	r.Helper()
	r.eventually(func() string { return unless(!r.isThere(namespace, name), name+" is there") })
}

func (r *rig) isThere(namespace, name string) bool {
	r.Helper()
	err := r.Get(r.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &core.ConfigMap{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	return err == nil
}

// removed waits until a source is gone.
func (r *rig) removed(name string) {
	r.Helper()
	r.eventually(func() string {
		var src v1alpha1.Source
		err := r.Get(r.Context(), r.key(name), &src)
		return unless(apierrors.IsNotFound(err), fmt.Sprintf("it is there: %v, %v", err, src.Annotations))
	})
}

// TestElsewhere: what a source has applied in another namespace goes when it is declared no more, also when its last process is gone and it may
// not list all namespaces. Without the right it stays and is told, the commit is applied nevertheless, and it goes when the right is there again.
func TestElsewhere(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	other, right := r.elsewhere("fleet")
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMapIn(other, "b"), "c.yaml": configMapIn(other, "c")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	_, stop := r.keep()
	r.applied("fleet", first)
	stop()
	second := r.commit(r.work, map[string]*string{"b.yaml": nil})
	_, stop = r.keep()
	r.applied("fleet", second)
	r.goes(other, "b")
	stop()
	r.must(r.Delete(t.Context(), right))
	third := r.commit(r.work, map[string]*string{"c.yaml": nil})
	r.keep()
	src := r.applied("fleet", third)
	if len(src.Status.Left) != 1 || src.Status.Left[0].Namespace != other || src.Status.Left[0].Kind != "ConfigMap" || !strings.Contains(src.Status.Left[0].Message, "not allowed") || !r.isThere(other, "c") {
		t.Errorf("left: %+v", src.Status.Left)
	}
	r.eventually(func() string { return unless(r.events.count("Left") == 1, "it is not told") })
	r.allowIn(other, "fleet")
	r.goes(other, "c")
	r.status("fleet", func(s *v1alpha1.Source) bool { return len(s.Status.Left) == 0 })
}

// TestStrangerLeft: somebody who marks an object of his own with the name of a source does not stop that one, which may see it and not delete it.
func TestStrangerLeft(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	other, right := r.elsewhere("fleet")
	r.must(r.Delete(t.Context(), right))
	right = right.DeepCopy()
	right.ResourceVersion, right.UID, right.RoleRef.Name = "", "", "view"
	r.must(r.Create(t.Context(), right))
	bait := &core.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "bait", Namespace: other, Labels: map[string]string{"tako.dev/set": r.namespace + ".fleet"}}}
	r.applyAs(bait, origin.Manager)
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	r.must(r.Create(t.Context(), r.source("fleet")))
	r.keep()
	if src := r.applied("fleet", first); len(src.Status.Left) != 1 || src.Status.Left[0].Name != "bait" {
		t.Errorf("left: %+v", src.Status.Left)
	}
}

// TestHelped: rights and Secrets that come are noticed, however long the pause is by then.
func TestHelped(t *testing.T) {
	r := newRig(t)
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1")})
	src := r.source("fleet")
	src.Spec.Verify = &v1alpha1.SourceVerify{Keys: "later"}
	r.must(r.Create(t.Context(), src))
	kept, _ := r.keep()
	r.notReady("fleet", v1alpha1.SourceNotReached)
	// The fifth failure is followed by a pause of 80 s, which is longer than this test waits.
	fail := func(n float64) {
		t.Helper()
		n += r.looks("failed") + r.looks("refused")
		r.eventually(func() string {
			kept.Call(r.key("fleet"))
			return unless(r.looks("failed")+r.looks("refused") >= n, "it has not failed often enough")
		})
	}
	fail(5)
	r.must(r.Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: r.namespace}, Data: map[string]string{
		"kate": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl kate"}}))
	r.notReady("fleet", v1alpha1.SourceCommitRefused) // it is not signed
	r.change("fleet", func(s *v1alpha1.Source) { s.Spec.Verify = nil })
	r.notReady("fleet", v1alpha1.SourceNotAllowed)
	fail(5)
	r.allow("fleet")
	r.applied("fleet", commit)
}

// TestOnRemove: with Delete, what a source has applied goes with it, wherever it is; what others made stays.
func TestOnRemove(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	other, _ := r.elsewhere("fleet")
	commit := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMapIn(other, "b")})
	src := r.source("fleet")
	src.Spec.OnRemove = v1alpha1.SourceRemovalDelete
	r.must(r.Create(t.Context(), src))
	r.must(r.Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: r.namespace, Labels: map[string]string{"tako.dev/set": r.namespace + ".fleet"}}}))
	r.keep()
	src = r.applied("fleet", commit)
	if len(src.Finalizers) != 1 {
		t.Fatalf("finalizers %v", src.Finalizers)
	}
	r.must(r.Delete(t.Context(), src))
	r.removed("fleet")
	if r.isThere(r.namespace, "a") || r.isThere(other, "b") || !r.isThere(r.namespace, "mine") {
		t.Error("not all of it is gone, or more than that")
	}
	// Another one of that name begins anew.
	r.must(r.Create(t.Context(), r.source("fleet")))
	if src := r.applied("fleet", commit); len(src.Finalizers) != 0 {
		t.Errorf("finalizers %v", src.Finalizers)
	}
}

// TestOnRemoveLater: what keeps objects from going with their source is said, and each way out of it works: a right that is given, the end of
// a suspension, and Keep. It goes on in the next process.
func TestOnRemoveLater(t *testing.T) {
	r := newRig(t)
	var writes atomic.Int64
	prepare := func(name string) string {
		r.allow(name)
		work := r.repository(name)
		commit := r.commit(work, map[string]*string{"a.yaml": configMap(name+"-a", "1"), "b.yaml": configMap(name+"-b", "1")})
		src := r.source(name)
		src.Spec.URL = "file://" + filepath.Join(r.dir, name+".git")
		src.Spec.OnRemove = v1alpha1.SourceRemovalDelete
		r.must(r.Create(t.Context(), src))
		return commit
	}
	rights, keep, suspended, killed := prepare("rights"), prepare("keep"), prepare("suspended"), prepare("killed")
	_, stop := r.keep()
	for name, commit := range map[string]string{"rights": rights, "keep": keep, "suspended": suspended, "killed": killed} {
		r.applied(name, commit)
	}
	take := func(name string) {
		r.must(r.Delete(t.Context(), &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace}}))
	}
	remove := func(name string) { r.must(r.Delete(t.Context(), r.source(name))) }
	take("rights")
	take("keep")
	r.change("suspended", func(s *v1alpha1.Source) {
		s.Spec.Suspend = &v1alpha1.SourceSuspension{Reason: "a drill", Owner: "kate", Until: metav1.NewTime(time.Now().Add(time.Hour))}
	})
	r.status("suspended", func(s *v1alpha1.Source) bool { return meta.IsStatusConditionTrue(s.Status.Conditions, "Suspended") })
	remove("rights")
	remove("keep")
	remove("suspended")
	for name, want := range map[string][2]string{"rights": {v1alpha1.SourceNotAllowed, "create rolebinding rights"}, "keep": {v1alpha1.SourceNotAllowed, "spec.onRemove: Keep"}, "suspended": {v1alpha1.SourceRemoving, "its suspension ends"}} {
		if words, _ := r.notReady(name, want[0]); !strings.Contains(words, want[1]) {
			t.Errorf("%s: %q", name, words)
		}
	}
	if r.data("rights-a") != "1" || r.data("keep-a") != "1" || r.data("suspended-a") != "1" {
		t.Error("something is gone")
	}
	r.allow("rights")
	r.removed("rights")
	r.goes(r.namespace, "rights-a")
	r.change("keep", func(s *v1alpha1.Source) { s.Spec.OnRemove = v1alpha1.SourceRemovalKeep })
	r.removed("keep")
	r.change("suspended", func(s *v1alpha1.Source) { s.Spec.Suspend = nil })
	r.removed("suspended")
	r.goes(r.namespace, "suspended-b")
	if r.data("keep-a") != "1" {
		t.Error("what was to be kept is gone")
	}
	stop()
	cut := make(chan struct{})
	once := sync.OnceFunc(func() { close(cut) })
	r.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodDelete && req.URL.Query().Get("dryRun") == "" && writes.Add(1) > 1 {
				once()
				return nil, fmt.Errorf("the line is cut")
			}
			return next.RoundTrip(req)
		})
	}
	remove("killed")
	_, stop = r.keep()
	<-cut
	stop()
	r.wrap = nil
	r.keep()
	r.removed("killed")
	r.goes(r.namespace, "killed-a")
	r.goes(r.namespace, "killed-b")
}

// TestItself: a source that is declared in its own repository, with its rights, does not delete itself when its file goes, and is told so.
func TestItself(t *testing.T) {
	r := newRig(t)
	r.allow("fleet")
	own := text(fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: Source\nmetadata: {name: fleet}\nspec: {url: %q, interval: 1h}\n", "file://"+filepath.Join(r.dir, "one.git")))
	user, _ := origin.User(r.namespace, "fleet")
	right := text(fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: own}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\n"+
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]\n", user))
	first := r.commit(r.work, map[string]*string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1"), "own.yaml": own, "right.yaml": right})
	src := r.source("fleet")
	src.TypeMeta = metav1.TypeMeta{APIVersion: "tako.dev/v1alpha1", Kind: "Source"}
	r.applyAs(src, origin.Manager) // as its own repository declares it
	kept, _ := r.keep()
	r.applied("fleet", first)
	r.must(r.Delete(t.Context(), &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: r.namespace}})) // it has its own
	second := r.commit(r.work, map[string]*string{"b.yaml": nil, "own.yaml": nil, "right.yaml": nil})
	kept.Call(r.key("fleet"))
	s := r.applied("fleet", second)
	r.goes(r.namespace, "b")
	if len(s.Status.Left) != 1 || s.Status.Left[0].Kind != "Source" || !strings.Contains(s.Status.Left[0].Message, "does not delete itself") {
		t.Errorf("left: %+v", s.Status.Left)
	}
	r.eventually(func() string {
		err := r.Get(t.Context(), r.key("own"), &rbac.RoleBinding{})
		return unless(apierrors.IsNotFound(err), "its right is there")
	})
}

package auth

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
)

// watched is a server whose requests do nothing but last.
type watched struct {
	p        *people
	bindings *shelf
	roles    *RBAC
	watches  *Watches
	ahead    atomic.Int64 // of the machine's clock, nanoseconds
	handler  http.Handler
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	now := time.Now()
	s := &watched{p: newPeople(t, now, map[string]v1alpha1.TokenSpec{
		"ann": person("ann"), "bob": until(person("bob"), now.Add(time.Hour)), "eve": person("eve"), "root": person("root", user.SystemPrivilegedGroup),
	}, nil)}
	clock := func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	s.p.tokens.now = clock
	bind := func(role string, to ...rbac.Subject) *rbac.ClusterRoleBinding {
		return &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: toCluster(role), Subjects: to}
	}
	s.bindings = newShelf[rbac.ClusterRoleBinding, rbac.ClusterRoleBindingList](
		bind("watcher", ofUser("ann"), ofUser("bob"), ofUser("carl")), bind("other", ofUser("ann")), bind("actor", ofUser("eve")))
	s.roles = NewRBAC(Sources{
		Roles: newShelf[rbac.Role, rbac.RoleList](), RoleBindings: newShelf[rbac.RoleBinding, rbac.RoleBindingList](), ClusterRoleBindings: s.bindings,
		ClusterRoles: newShelf[rbac.ClusterRole, rbac.ClusterRoleList](
			&rbac.ClusterRole{ObjectMeta: in("", "watcher"), Rules: []rbac.PolicyRule{on(list("watch"), list("tako.dev"), list("nodeconfigs"))}},
			&rbac.ClusterRole{ObjectMeta: in("", "other"), Rules: []rbac.PolicyRule{on(list("watch"), list(""), list("secrets"))}},
			&rbac.ClusterRole{ObjectMeta: in("", "actor"), Rules: []rbac.PolicyRule{on(list("impersonate"), list(""), list("users"), "carl")}}),
	})
	run(t, s.roles.Run)
	eventually(t, "roles are known", s.roles.Ready)
	may, err := Authorizers(s.roles)
	if err != nil {
		t.Fatal(err)
	}
	s.watches = NewWatches(may, s.roles.Changes)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	h := s.watches.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	h = impersonation.WithImpersonation(filters.WithAuthorization(h, may, codecs), may, codecs)
	h = filters.WithAuthentication(h, Authenticators(s.p.keys.CA(), s.p.tokens, clock), filters.Unauthorized(codecs), nil, nil)
	s.handler = WithWords(filters.WithRequestInfo(h, &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}))
	return s
}

// begin begins a watch; the channel is closed when it has ended.
func (s *watched) begin(t *testing.T, token string, certificate *tls.ConnectionState, as string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/tako.dev/v1alpha1/nodeconfigs?watch=true", nil)
	r.TLS = certificate
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if as != "" {
		r.Header.Set("Impersonate-User", as)
	}
	ended := make(chan struct{})
	before := s.count()
	var all sync.WaitGroup
	all.Go(func() {
		defer close(ended)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("a watch of %s %s: %d", token, as, w.Code)
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	eventually(t, "the watch is open", func() bool { return s.count() > before })
	return ended
}

func (s *watched) count() int {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return len(s.watches.open)
}

// TestWatchesEnd: with what a client was admitted by his watch ends, and no other does.
func TestWatchesEnd(t *testing.T) {
	s := newWatched(t)
	eventually(t, "somebody watches", func() bool { return s.p.shelf.isWatched() && s.bindings.isWatched() })
	revoked := s.begin(t, s.p.shown["ann"], nil, "")
	expires := s.begin(t, s.p.shown["bob"], nil, "")
	certified := s.begin(t, "", certificate(t, s.p.keys.CA(), time.Now()), "") // of ann, for a day
	acting := s.begin(t, s.p.shown["eve"], nil, "carl")
	administers := s.begin(t, s.p.shown["root"], nil, "")
	all := map[string]<-chan struct{}{"revoked": revoked, "expires": expires, "certified": certified, "acting": acting, "administers": administers}
	for _, step := range []struct {
		name string
		do   func()
		ends string // "" is none
	}{
		{"nothing happens", func() {}, ""},
		{"a right is taken that nobody uses", func() { s.takeAway(t, "other") }, ""},
		{"the token of ann is revoked", func() {
			s.p.shelf.remove(s.p.stored["ann"])
			eventually(t, "it is gone", func() bool { return len(s.p.tokens.all.GetStore().ListKeys()) == 3 })
		}, "revoked"},
		{"the token of bob expires", func() { s.ahead.Store(int64(time.Hour)) }, "expires"},
		{"who acts as carl may not any more", func() { s.takeAway(t, "actor") }, "acting"},
		{"the certificate expires", func() { s.ahead.Store(int64(25 * time.Hour)) }, "certified"},
		{"nobody may watch, but for administrators", func() { s.takeAway(t, "watcher") }, ""},
	} {
		step.do()
		s.watches.check(t.Context())
		if step.ends != "" {
			eventually(t, step.name+": "+step.ends, func() bool { return isClosed(all[step.ends]) })
			delete(all, step.ends)
		}
		eventually(t, step.name+": what has ended is forgotten", func() bool { return s.count() == len(all) })
		for name, ended := range all {
			if isClosed(ended) {
				t.Fatalf("%s: the watch %q has ended", step.name, name)
			}
		}
	}
}

// TestWatchesEndByRoles: a right that is taken away ends the watch that it allowed.
func TestWatchesEndByRoles(t *testing.T) {
	s := newWatched(t)
	eventually(t, "somebody watches", s.bindings.isWatched)
	ended := s.begin(t, s.p.shown["ann"], nil, "")
	s.watches.check(t.Context())
	s.takeAway(t, "watcher")
	s.watches.check(t.Context())
	eventually(t, "the watch ends", func() bool { return isClosed(ended) })
}

// takeAway deletes a binding, and waits until that is known.
func (s *watched) takeAway(t *testing.T, name string) {
	t.Helper()
	before := s.roles.Changes()
	for _, o := range s.bindings.objects {
		if b := o.(*rbac.ClusterRoleBinding); b.Name == name {
			s.bindings.remove(b)
		}
	}
	eventually(t, "binding "+name+" is gone", func() bool { return s.roles.Changes() > before })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestTooEarly: before tokens and roles have been read, who shows a good token is asked to come again, and not sent away.
func TestTooEarly(t *testing.T) {
	p := newPeople(t, time.Now(), map[string]v1alpha1.TokenSpec{"ann": person("ann")}, nil)
	read := p.tokens
	unread := NewTokens(p.shelf, p.keys.Pepper(), time.Now)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	may, err := Authorizers(newRoles()) // which nobody reads
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		tokens *Tokens
		token  string
		want   int
	}{
		{"good token, tokens unread", unread, p.shown["ann"], http.StatusServiceUnavailable},
		{"good token, roles unread", read, p.shown["ann"], http.StatusServiceUnavailable},
		{"nobody", unread, "", http.StatusUnauthorized},
		{"nonsense", unread, "nonsense", http.StatusUnauthorized},
	} {
		h := filters.WithAuthorization(http.NotFoundHandler(), may, codecs)
		h = filters.WithAuthentication(h, Authenticators(p.keys.CA(), c.tokens, time.Now), filters.Unauthorized(codecs), nil, nil)
		h = WithWords(filters.WithRequestInfo(h, &request.RequestInfoFactory{}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || (w.Code == http.StatusServiceUnavailable) != (w.Header().Get("Retry-After") == "1") {
			t.Errorf("%s: %d, %v: %s", c.name, w.Code, w.Header(), w.Body)
		}
	}
}

// BenchmarkWatches: a thousand watches of a thousand people are gone through, each with a binding of his own: while nothing has
// changed, and after a role has.
func BenchmarkWatches(b *testing.B) {
	for _, changed := range []bool{false, true} {
		b.Run(map[bool]string{false: "quiet", true: "changed"}[changed], func(b *testing.B) {
			const people = 1000
			r := NewRBAC(Sources{
				Roles: newShelf[rbac.Role, rbac.RoleList](), RoleBindings: newShelf[rbac.RoleBinding, rbac.RoleBindingList](),
				ClusterRoles: newShelf[rbac.ClusterRole, rbac.ClusterRoleList](), ClusterRoleBindings: newShelf[rbac.ClusterRoleBinding, rbac.ClusterRoleBindingList](),
			})
			role := &rbac.ClusterRole{ObjectMeta: in("", "watcher"), Rules: []rbac.PolicyRule{on(list("watch"), list("tako.dev"), list("nodeconfigs"))}}
			if err := r.clusterRoles.GetStore().Add(role); err != nil {
				b.Fatal(err)
			}
			var count uint64
			w := NewWatches(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				for rule := range r.rulesOf(a.GetUser(), a.GetNamespace()) {
					if allows(rule, asRule(a), a) {
						return authorizer.DecisionAllow, "", nil
					}
				}
				return authorizer.DecisionNoOpinion, "", nil
			}), func() uint64 { return count })
			for i := range people {
				name := "user-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
				binding := &rbac.ClusterRoleBinding{ObjectMeta: in("", name), RoleRef: toCluster("watcher"), Subjects: []rbac.Subject{ofUser(name)}}
				if err := r.clusterRoleBindings.GetStore().Add(binding); err != nil {
					b.Fatal(err)
				}
				asked := authorizer.AttributesRecord{User: who(name), Verb: "watch", APIGroup: "tako.dev", Resource: "nodeconfigs", ResourceRequest: true}
				w.open[&openWatch{note: &note{holds: func() bool { return true }, allowed: []authorizer.Attributes{asked}}, end: func() { b.Error("ended") }}] = struct{}{}
			}
			for b.Loop() {
				if changed {
					count++
				}
				w.check(b.Context())
			}
		})
	}
}

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// site is the one server of this process.
type site struct {
	dir   string
	admin *rest.Config
}

var theSite site

// startMax is far more than a start takes.
const startMax = time.Minute

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run runs the tests while the server runs. The library's package variables allow one in a process.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	theSite.dir = filepath.Join(dir, "data")
	ready, stopped := make(chan string, 1), make(chan error, 1)
	s, err := New(Options{
		DataDir: theSite.dir, Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		OnReady: func(_, kubeconfig string) { ready <- kubeconfig },
	})
	if err != nil {
		panic(err)
	}
	s.compare = time.Second
	s.hear = func(w clientv3.Watcher) clientv3.Watcher {
		theDeaf.Watcher = w
		return &theDeaf
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { stopped <- s.Run(ctx) }()
	select {
	case kubeconfig := <-ready:
		if theSite.admin, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			panic(err)
		}
		theSite.admin.QPS = -1
	case err := <-stopped:
		panic(err)
	case <-time.After(startMax):
		panic("not ready after " + startMax.String())
	}
	code := m.Run()
	cancel()
	if err := <-stopped; err != nil {
		panic(err)
	}
	return code
}

// client makes a client of one group and version, or fails the test.
func client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(theSite.admin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as is a configuration with a token instead of the administrator's certificate.
func as(token string) *rest.Config {
	c := rest.AnonymousClientConfig(theSite.admin)
	c.BearerToken = token
	return c
}

// call makes a request of JSON and returns what came back.
func call(t *testing.T, config *rest.Config, method, path, contentType string, body any) (int, []byte) {
	t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, out
}

const (
	plainJSON = "application/json"
	configs   = "/apis/tako.dev/v1alpha1/namespaces/default/nodeconfigs"
)

func config(name, content string) *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNodeConfig},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       declare.NodeConfigSpec{Resources: []declare.Resource{{Name: "motd", File: &declare.File{Path: "/etc/motd", Content: content}}}},
	}
}

func decode[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// TestSpecAndStatus: a writer of the one never changes the other, and only a new spec is a new generation.
func TestSpecAndStatus(t *testing.T) {
	c := config("spec-and-status", "one\n")
	c.Status.Revision = "made up"
	code, b := call(t, theSite.admin, http.MethodPost, configs, plainJSON, c)
	made := decode[v1alpha1.NodeConfig](t, b)
	if code != http.StatusCreated || made.Status.Revision != "" || made.Generation != 1 {
		t.Fatalf("created: %d, %s", code, b)
	}
	// The server writes into the status too, until the revision is made and its rollout has been looked at.
	deadline := time.Now().Add(time.Minute)
	for (made.Status.Revision == "" || made.Status.Rollout == nil) && time.Now().Before(deadline) {
		_, b = call(t, theSite.admin, http.MethodGet, configs+"/"+c.Name, plainJSON, nil)
		made = decode[v1alpha1.NodeConfig](t, b)
	}
	revision := made.Status.Revision
	tested := metav1.Condition{Type: "Tested", Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}
	made.Status.Conditions, made.Spec.Resources[0].File.Content = append(made.Status.Conditions, tested), "two\n"
	made.ResourceVersion = "" // whatever else it writes meanwhile
	_, b = call(t, theSite.admin, http.MethodPut, configs+"/"+c.Name+"/status", plainJSON, made)
	written := func(got v1alpha1.NodeConfig) bool {
		return meta.IsStatusConditionTrue(got.Status.Conditions, tested.Type) && got.Status.Revision == revision
	}
	if got := decode[v1alpha1.NodeConfig](t, b); !written(got) || got.Spec.Resources[0].File.Content != "one\n" || got.Generation != 1 {
		t.Errorf("status written: %s", b)
	}
	const patch = `{"metadata":{"labels":{"a":"b"}},"status":{"revision":"r2","conditions":[]}}`
	_, b = call(t, theSite.admin, http.MethodPatch, configs+"/"+c.Name, string(types.MergePatchType), patch)
	if got := decode[v1alpha1.NodeConfig](t, b); !written(got) || got.Generation != 1 || got.Labels["a"] != "b" {
		t.Errorf("labelled: %s", b)
	}
	_, b = call(t, theSite.admin, http.MethodPatch, configs+"/"+c.Name, string(types.MergePatchType), `{"spec":{"priority":7}}`)
	if got := decode[v1alpha1.NodeConfig](t, b); got.Generation != 2 || *got.Spec.Priority != 7 {
		t.Errorf("spec changed: %s", b)
	}
}

// TestApplyMergesResourcesByName: two managers own one resource each, and a conflict names the field.
func TestApplyMergesResourcesByName(t *testing.T) {
	apply := func(manager, resources string, force string) (int, []byte) {
		body := `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"merged","namespace":"default"},"spec":{"resources":[` + resources + `]}}`
		return call(t, theSite.admin, http.MethodPatch, configs+"/merged?fieldManager="+manager+"&force="+force, string(types.ApplyYAMLPatchType), body)
	}
	file := func(name, content string) string {
		return `{"name":"` + name + `","file":{"path":"/etc/` + name + `","content":"` + content + `"}}`
	}
	apply("alice", file("a", "1"), "false")
	code, b := apply("bob", file("b", "2"), "false")
	if got := decode[v1alpha1.NodeConfig](t, b); code != http.StatusOK || len(got.Spec.Resources) != 2 {
		t.Fatalf("merged: %d, %s", code, b)
	}
	code, b = apply("bob", file("a", "3")+","+file("b", "2"), "false")
	if code != http.StatusConflict || !strings.Contains(string(b), `.spec.resources[name=\"a\"].file.content`) {
		t.Errorf("conflict: %d, %s", code, b)
	}
	if code, b = apply("bob", file("a", "3")+","+file("b", "2"), "true"); code != http.StatusOK {
		t.Errorf("forced: %d, %s", code, b)
	}
	_, b = apply("alice", "", "false")
	if got := decode[v1alpha1.NodeConfig](t, b); len(got.Spec.Resources) != 2 {
		t.Errorf("given up what another has taken over: %s", b)
	}
}

// TestMistakesAreThoseOfTheAgent: what the server says of a mistake is what declare says, with the path.
func TestMistakesAreThoseOfTheAgent(t *testing.T) {
	c := config("Wrong_Name", "x")
	c.Spec.Resources[0].File.Mode = "9"
	c.Spec.Resources[0].Require = []string{"nothing"}
	code, b := call(t, theSite.admin, http.MethodPost, configs, plainJSON, c)
	status := decode[metav1.Status](t, b)
	if code != http.StatusUnprocessableEntity || status.Details == nil {
		t.Fatalf("%d, %s", code, b)
	}
	said := map[string]string{}
	for _, cause := range status.Details.Causes {
		said[cause.Field] += cause.Message
	}
	for _, f := range declare.Validate(c.Declaration()) {
		if !strings.Contains(said[f.Path], f.Code.String()+": "+f.Message) || !strings.Contains(said[f.Path], f.Hint) {
			t.Errorf("%s: said %q, want %v", f.Path, said[f.Path], f)
		}
	}
	c = config("circle", "x")
	c.Spec.Resources[0].Require = []string{"motd2"}
	c.Spec.Resources = append(c.Spec.Resources, declare.Resource{Name: "motd2", File: &declare.File{Path: "/etc/motd2"}, Require: []string{"motd"}})
	if code, b = call(t, theSite.admin, http.MethodPost, configs, plainJSON, c); code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "motd2") {
		t.Errorf("a circle: %d, %s", code, b)
	}
	code, b = call(t, theSite.admin, http.MethodPost, configs+"?fieldValidation=Strict", plainJSON, `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"x"},"spec":{"resources":[],"imgae":1}}`)
	if code != http.StatusBadRequest || !strings.Contains(string(b), `unknown field \"spec.imgae\"`) {
		t.Errorf("unknown field: %d, %s", code, b)
	}
}

// TestSecretsAtRest reads past the API: what is secret is not in etcd in clear.
func TestSecretsAtRest(t *testing.T) {
	secrets := client(t).CoreV1().Secrets("default")
	s := &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, StringData: map[string]string{"password": "hunter2-one"}}
	if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	raw, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: []string{"unix://" + filepath.Join(theSite.dir, "etcd", "client.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	got, err := raw.KV.Get(t.Context(), "/tako/core/secrets/default/one")
	if err != nil || len(got.Kvs) != 1 || bytes.Contains(got.Kvs[0].Value, []byte("hunter2")) {
		t.Fatalf("in etcd: %v, %v", got, err)
	}
	if s, err := secrets.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || string(s.Data["password"]) != "hunter2-one" {
		t.Errorf("read back: %v, %v", s, err)
	}
}

// TestSecretsAreBoundToTheirPlace: somebody who can write to etcd cannot make one secret of another.
func TestSecretsAreBoundToTheirPlace(t *testing.T) {
	sealer := atRest{trust.NewRing()}
	sealed, err := sealer.TransformToStorage(t.Context(), []byte("secret"), value.DefaultContext("/one"))
	if err != nil {
		t.Fatal(err)
	}
	if b, stale, err := sealer.TransformFromStorage(t.Context(), sealed, value.DefaultContext("/one")); err != nil || stale || string(b) != "secret" {
		t.Errorf("in its place: %q, %v, %v", b, stale, err)
	}
	if b, _, err := sealer.TransformFromStorage(t.Context(), sealed, value.DefaultContext("/two")); err == nil {
		t.Errorf("in another's place: %q", b)
	}
}

// TestWhoMayDoWhat: nobody is anonymous, a token is its user, and nobody gives what he has not.
func TestWhoMayDoWhat(t *testing.T) {
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/api": 401, configs: 401, "/metrics": 401, "/openapi/v2": 401, "/readyz/etcd": 401} {
		if code, b := call(t, as(""), http.MethodGet, path, plainJSON, nil); code != want {
			t.Errorf("anonymous %s: %d, want %d: %.100s", path, code, want, b)
		}
	}
	const tokens = "/apis/tako.dev/v1alpha1/tokens"
	make := func(config *rest.Config, name string, groups ...string) (int, v1alpha1.Token, []byte) {
		code, b := call(t, config, http.MethodPost, tokens, plainJSON, &v1alpha1.Token{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindToken},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: name, Groups: groups}},
		})
		var token v1alpha1.Token
		if code == http.StatusCreated {
			token = decode[v1alpha1.Token](t, b)
		}
		return code, token, b
	}
	_, vera, _ := make(theSite.admin, "vera", "makers")
	if !strings.HasPrefix(vera.Status.Token, "tako_user_") {
		t.Fatalf("no token: %+v", vera)
	}
	_, b := call(t, theSite.admin, http.MethodGet, tokens+"/vera", plainJSON, nil)
	if strings.Contains(string(b), vera.Status.Token) {
		t.Error("the token can be read again")
	}
	c := client(t)
	rules := []rbac.PolicyRule{
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles", "clusterrolebindings"}, Verbs: []string{"create"}},
		{APIGroups: []string{"tako.dev"}, Resources: []string{"tokens", "nodeconfigs"}, Verbs: []string{"create", "list"}},
	}
	if _, err := c.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "makers"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "makers"}, RoleRef: rbac.RoleRef{Kind: "ClusterRole", Name: "makers"}, Subjects: []rbac.Subject{{Kind: "Group", Name: "makers"}}}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	her := as(vera.Status.Token)
	eventually(t, "vera may list configs", func() bool {
		code, _ := call(t, her, http.MethodGet, configs, plainJSON, nil)
		return code == http.StatusOK
	})
	role := func(name, verb string) int {
		code, _ := call(t, her, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", plainJSON, &rbac.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbac.PolicyRule{{APIGroups: []string{"tako.dev"}, Resources: []string{"nodeconfigs"}, Verbs: []string{verb}}},
		})
		return code
	}
	if code := role("hers", "list"); code != http.StatusCreated {
		t.Errorf("a right that she has: %d", code)
	}
	if code := role("not-hers", "delete"); code != http.StatusForbidden {
		t.Errorf("a right that she has not: %d", code)
	}
	if code, _, b := make(her, "herself-again"); code != http.StatusForbidden {
		t.Errorf("a token of another user: %d, %s", code, b)
	}
	if code, _, b := make(her, "vera-2", "system:masters"); code != http.StatusForbidden {
		t.Errorf("a token of a group that is not hers: %d, %s", code, b)
	}
	if code, _ := call(t, as(vera.Status.Token[:len(vera.Status.Token)-1]+"0"), http.MethodGet, configs, plainJSON, nil); code != http.StatusUnauthorized {
		t.Errorf("a forged token: %d", code)
	}
	if code, b := call(t, theSite.admin, http.MethodDelete, tokens+"/vera", plainJSON, nil); code != http.StatusOK {
		t.Fatalf("revoke: %d, %s", code, b)
	}
	eventually(t, "her token is revoked", func() bool {
		code, _ := call(t, her, http.MethodGet, configs, plainJSON, nil)
		return code == http.StatusUnauthorized
	})
	audit, err := os.ReadFile(filepath.Join(theSite.dir, "audit.log"))
	if err != nil || !bytes.Contains(audit, []byte(`"username":"vera"`)) || bytes.Contains(audit, []byte("tako_user_")) || bytes.Contains(audit, []byte("hunter2")) {
		t.Errorf("the audit log lacks her, or says too much: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	code, b := call(t, theSite.admin, http.MethodPost, strings.Replace(configs, "default", "nowhere", 1), plainJSON, func() *v1alpha1.NodeConfig {
		c := config("x", "x")
		c.Namespace = "nowhere"
		return c
	}())
	if code != http.StatusNotFound || !strings.Contains(string(b), `namespaces \"nowhere\" not found`) {
		t.Errorf("no such namespace: %d, %s", code, b)
	}
	if err := client(t).CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete default: %v", err)
	}
}

func TestSecondServer(t *testing.T) {
	s, err := New(Options{DataDir: theSite.dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var why *reason.Error
	if err := s.Run(t.Context()); !errors.As(err, &why) || why.Code != reason.AnotherServer {
		t.Errorf("a second server: %v", err)
	}
}

// eventually waits for something that follows by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startMax)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", startMax, what)
		}
	}
}

package sources_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver"
	"tako.dev/tako/internal/controllers/sources"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/render"
)

// within is how long the tests wait for what should be there in a moment: long, for a machine that is busy with other things.
const within = time.Minute

// kubeconfig is where the one server of this process is found; the library behind it allows one only.
var kubeconfig string

func TestMain(m *testing.M) { os.Exit(withServer(m)) }

// withServer runs the tests beside a server that applies no sources itself: it finds no git when it begins.
func withServer(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tako-sources-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	paths := os.Getenv("PATH")
	_ = os.Setenv("PATH", filepath.Join(dir, "none"))
	without := &awaited{want: "sources are not applied", seen: make(chan struct{})}
	ready := make(chan string, 1)
	server, err := apiserver.New(apiserver.Options{DataDir: dir + "/data", Listen: "127.0.0.1:0", OnReady: func(_, path string) { ready <- path }, Log: slog.New(without)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	deadline := time.After(within)
	for range 2 {
		select {
		case kubeconfig = <-ready:
		case <-without.seen:
			without.seen = nil
		case err := <-ended:
			cancel()
			fmt.Fprintln(os.Stderr, "the server has ended:", err)
			return 1
		case <-deadline:
			cancel()
			fmt.Fprintln(os.Stderr, "the server is not ready")
			return 1
		}
	}
	_ = os.Setenv("PATH", paths)
	code := m.Run()
	cancel()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, "stop the server:", err)
		return 1
	}
	return code
}

// awaited is a log of which one line is waited for.
type awaited struct {
	want string
	once sync.Once
	seen chan struct{}
}

func (*awaited) Enabled(context.Context, slog.Level) bool { return true }
func (a *awaited) Handle(_ context.Context, r slog.Record) error {
	if r.Message == a.want {
		a.once.Do(func() { close(a.seen) })
	}
	return nil
}
func (a *awaited) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a *awaited) WithGroup(string) slog.Handler      { return a }

// rig is a namespace, a repository, and what keeps the sources of the namespace.
type rig struct {
	*testing.T
	client.WithWatch
	namespace string
	dir       string // of repositories
	copies    string // of git's caches
	work      string // the work tree of the first repository
	wrap      func(http.RoundTripper) http.RoundTripper
	writes    atomic.Int64 // of the sources, dry runs not counted
	statuses  atomic.Int64 // of sources
	events    *events
	metrics   *prometheus.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(core.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), rbac.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := adminConfig(t)
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, WithWatch: api, dir: t.TempDir(), copies: t.TempDir(), events: &events{}, metrics: prometheus.NewRegistry()}
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "src-"}}
	r.must(r.Create(r.Context(), ns))
	r.namespace = ns.Name
	r.work = r.repository("one")
	return r
}

func adminConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// repository makes a bare repository and a work tree of it.
func (r *rig) repository(name string) (work string) {
	r.Helper()
	work = filepath.Join(r.dir, name+".work")
	r.run(r.dir, "git", "init", "-q", "--bare", "-b", "main", name+".git")
	r.run(r.dir, "git", "init", "-q", "-b", "main", work)
	r.run(work, "git", "remote", "add", "origin", filepath.Join(r.dir, name+".git"))
	return work
}

func (r *rig) run(dir, program string, args ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files (nil removes one), commits and pushes them, and returns the commit.
func (r *rig) commit(work string, files map[string]*string) string {
	r.Helper()
	for name, content := range files {
		path := filepath.Join(work, name)
		if content == nil {
			r.must(os.Remove(path))
			continue
		}
		r.must(os.MkdirAll(filepath.Dir(path), 0o755))
		r.must(os.WriteFile(path, []byte(*content), 0o644))
	}
	r.run(work, "git", "add", "-A")
	r.run(work, "git", "commit", "-q", "--allow-empty", "-m", "change")
	r.run(work, "git", "push", "-q", "-f", "origin", "main")
	return r.run(work, "git", "rev-parse", "HEAD")
}

func text(s string) *string { return &s }

// configMap is a document.
func configMap(name, value string) *string {
	return text(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value))
}

// source is a Source of the first repository.
func (r *rig) source(name string) *v1alpha1.Source {
	return &v1alpha1.Source{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace},
		Spec:       v1alpha1.SourceSpec{URL: "file://" + filepath.Join(r.dir, "one.git"), Interval: &metav1.Duration{Duration: time.Hour}},
	}
}

// allow gives a source the rights of an administrator of the namespace.
func (r *rig) allow(name string) *rbac.RoleBinding {
	r.Helper()
	user, _ := origin.User(r.namespace, name)
	b := &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: user}}}
	r.must(r.Create(r.Context(), b))
	return b
}

// keep runs the loops until the test ends or stop is called.
func (r *rig) keep() (kept *sources.Sources, stop func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	return r.keepIn(ctx, cancel)
}

func (r *rig) keepIn(ctx context.Context, cancel func()) (kept *sources.Sources, stop func()) {
	r.Helper()
	log := slog.New(slog.NewTextHandler(r.Output(), nil))
	g, err := git.New(git.Options{Dir: r.copies, LocalDirs: []string{r.dir}, Log: log})
	r.must(err)
	config := adminConfig(r.T)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{r, next} })
	if r.wrap != nil {
		config.Wrap(r.wrap)
	}
	kept, err = sources.New(sources.Options{Objects: objects{r}, Git: g, Renderer: render.New(render.Options{}), Recorder: r.events, Config: config, Metrics: r.metrics, Log: log})
	r.must(err)
	ended := make(chan error, 1)
	go func() { ended <- kept.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.Errorf("the sources ended with %v", err)
			}
		case <-time.After(within):
			r.Error("the sources do not end")
		}
	})
	r.Cleanup(stop)
	return kept, stop
}

// counting counts the writes of the loops.
type counting struct {
	r    *rig
	next http.RoundTripper
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWrite(req) {
		c.r.writes.Add(1)
	}
	return c.next.RoundTrip(req)
}

func isWrite(req *http.Request) bool {
	return req.Method != http.MethodGet && req.URL.Query().Get("dryRun") == "" && !strings.Contains(req.URL.Path, "selfsubject")
}

// objects is the API as the loops have it, but of the sources only those of the test.
type objects struct{ r *rig }

func (o objects) Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error {
	err := o.r.WithWatch.Get(ctx, key, into.(client.Object))
	overlay(into)
	return err
}

func (o objects) Update(ctx context.Context, obj runtime.Object) error {
	err := o.r.WithWatch.Update(ctx, obj.(client.Object))
	overlay(obj)
	return err
}

// statusKey is the annotation that holds the status of a Source: the server takes none from outside.
const statusKey = "test/status"

// overlay puts it where it belongs.
func overlay(o runtime.Object) {
	if src, ok := o.(*v1alpha1.Source); ok {
		_ = json.Unmarshal([]byte(src.Annotations[statusKey]), &src.Status) // none is the zero status
	}
}

func (o objects) UpdateStatus(ctx context.Context, obj runtime.Object) error {
	o.r.statuses.Add(1)
	src := obj.(*v1alpha1.Source)
	b, err := json.Marshal(src.Status)
	if err != nil {
		return err
	}
	stored := src.DeepCopy()
	if stored.Annotations == nil {
		stored.Annotations = map[string]string{}
	}
	stored.Annotations[statusKey] = string(b)
	if err := o.r.Update(ctx, stored); err != nil {
		return err
	}
	overlay(stored)
	*src = *stored
	return nil
}

func (o objects) ListerWatcher(kind schema.GroupVersionKind, _ bool) cache.ListerWatcher {
	var make func() client.ObjectList
	var in []client.ListOption
	switch kind.Kind {
	case v1alpha1.KindSource:
		make, in = func() client.ObjectList { return &v1alpha1.SourceList{} }, []client.ListOption{client.InNamespace(o.r.namespace)}
	case v1alpha1.KindAssignment:
		make = func() client.ObjectList { return &v1alpha1.AssignmentList{} }
	case v1alpha1.KindNode:
		make = func() client.ObjectList { return &v1alpha1.NodeList{} }
	default: // of the others only the metadata are asked for
		make = func() client.ObjectList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			return list
		}
	}
	raw := func(options metav1.ListOptions) []client.ListOption {
		return append(in[:len(in):len(in)], &client.ListOptions{Raw: &options})
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := make()
			err := o.r.List(ctx, list, raw(options)...)
			if sources, ok := list.(*v1alpha1.SourceList); ok {
				for i := range sources.Items {
					overlay(&sources.Items[i])
				}
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := o.r.Watch(ctx, make(), raw(options)...)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				overlay(e.Object)
				return e, true
			}), nil
		},
	}
}

// events is what was told.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) Tell(_ core.ObjectReference, _, why, words string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, why+": "+words)
}

func (e *events) count(why string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.told {
		if strings.HasPrefix(t, why+":") {
			n++
		}
	}
	return n
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// eventually waits until check has nothing to say.
func (r *rig) eventually(check func() string) {
	r.Helper()
	r.eventuallyIn(within, check)
}

func (r *rig) eventuallyIn(d time.Duration, check func() string) {
	r.Helper()
	deadline := time.After(d)
	for {
		what := check()
		if what == "" {
			return
		}
		select {
		case <-deadline:
			r.Fatalf("not after %s: %s", d, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// status waits until the status of a source is as it should be, and returns the source.
func (r *rig) status(name string, is func(*v1alpha1.Source) bool) *v1alpha1.Source {
	r.Helper()
	return r.statusIn(name, within, is)
}

func (r *rig) statusIn(name string, d time.Duration, is func(*v1alpha1.Source) bool) *v1alpha1.Source {
	r.Helper()
	var src v1alpha1.Source
	r.eventuallyIn(d, func() string {
		r.must(objects{r}.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &src))
		if is(&src) {
			return ""
		}
		b, _ := json.Marshal(src.Status)
		return string(b)
	})
	return &src
}

// applied waits until a commit is applied and all is well.
func (r *rig) applied(name, commit string) *v1alpha1.Source {
	r.Helper()
	return r.appliedIn(name, commit, within)
}

func (r *rig) appliedIn(name, commit string, d time.Duration) *v1alpha1.Source {
	r.Helper()
	return r.statusIn(name, d, func(s *v1alpha1.Source) bool {
		return s.Status.Applied != nil && s.Status.Applied.ID == commit && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) && s.Status.ObservedGeneration == s.Generation
	})
}

// notReady waits until a source is not ready for a reason, and returns the words.
func (r *rig) notReady(name, why string) (string, *v1alpha1.Source) {
	r.Helper()
	src := r.status(name, func(s *v1alpha1.Source) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == why
	})
	return meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionReady).Message, src
}

// data is what a ConfigMap says; "-" for none.
func (r *rig) data(name string) string {
	r.Helper()
	var c core.ConfigMap
	err := r.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &c)
	if apierrors.IsNotFound(err) {
		return "-"
	}
	r.must(err)
	return c.Data["key"]
}

// says waits until a ConfigMap says something.
func (r *rig) says(name, want string) {
	r.Helper()
	r.eventually(func() string {
		if got := r.data(name); got != want {
			return fmt.Sprintf("%s says %q, want %q", name, got, want)
		}
		return ""
	})
}

// change changes a source.
func (r *rig) change(name string, change func(*v1alpha1.Source)) {
	r.Helper()
	for {
		var src v1alpha1.Source
		r.must(r.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &src))
		change(&src)
		err := r.Update(r.Context(), &src)
		if !apierrors.IsConflict(err) {
			r.must(err)
			return
		}
	}
}

// request asks for a look, by a value that has not been there.
func (r *rig) request(name, value string) {
	r.Helper()
	r.change(name, func(s *v1alpha1.Source) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[v1alpha1.AnnotationReconcile] = value
	})
}

// applyAs applies an object as a manager does.
func (r *rig) applyAs(o client.Object, manager string) {
	r.Helper()
	text, err := json.Marshal(o)
	r.must(err)
	r.must(r.Patch(r.Context(), o, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(manager), client.ForceOwnership))
}

// giveAll makes a user an administrator of all, until the test ends.
func (r *rig) giveAll(user string) {
	r.Helper()
	b := &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: user}}}
	r.must(r.Create(r.Context(), b))
	r.Cleanup(func() { r.must(r.Delete(context.Background(), b)) })
}

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }

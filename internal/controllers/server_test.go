package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver"
	"tako.dev/tako/internal/controllers"
)

// within is how long the tests wait for what should be there in a moment: long, for a machine that is busy with other things.
const within = 60 * time.Second

// kubeconfig is where the one server of this process is found; the library behind it allows one only.
var kubeconfig string

func TestMain(m *testing.M) { os.Exit(withServer(m)) }

func withServer(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tako-controllers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ready := make(chan string, 1)
	server, err := apiserver.New(apiserver.Options{DataDir: dir + "/data", Listen: "127.0.0.1:0", OnReady: func(_, path string) { ready <- path }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case kubeconfig = <-ready:
	case err := <-ended:
		cancel()
		fmt.Fprintln(os.Stderr, "the server has ended:", err)
		return 1
	case <-time.After(within):
		cancel()
		fmt.Fprintln(os.Stderr, "the server is not ready")
		return 1
	}
	code := m.Run()
	cancel()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, "stop the server:", err)
		return 1
	}
	return code
}

func restConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // the tests are not held back
	return config
}

// rig is the API, of a server that runs the controllers.
type rig struct {
	*testing.T
	client.Client
	metrics   prometheus.Gatherer
	namespace string // of this test
}

func newRig(t *testing.T) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(core.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(restConfig(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, Client: api, metrics: legacyregistry.DefaultGatherer}
	r.namespace = r.newNamespace()
	return r
}

// alsoRun runs controllers with other options beside those of the server, until the test ends, and wants them to end then. Two
// at once is what a change of the leader may come to.
func (r *rig) alsoRun(options controllers.Options) {
	r.Helper()
	options.Config = restConfig(r.T)
	options.Log = slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	registry := prometheus.NewRegistry()
	options.Metrics, r.metrics = registry, registry
	c, err := controllers.New(options)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.start(c))
}

// start runs controllers until stop is called.
func (r *rig) start(c *controllers.Controllers) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.Errorf("the controllers ended with %v", err)
			}
		case <-time.After(within):
			r.Error("the controllers do not end")
		}
	}
}

// newNamespace makes a namespace of a new name.
func (r *rig) newNamespace() string {
	r.Helper()
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	r.must(r.Create(r.Context(), ns))
	return ns.Name
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// eventually waits until look returns "", and fails with what it returned last.
func (r *rig) eventually(what string, look func() string) {
	r.Helper()
	late, again := time.After(within), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		state := look()
		if state == "" {
			return
		}
		select {
		case <-late:
			r.Fatalf("%s: %s", what, state)
		case <-again.C:
		}
	}
}

// gone wants an object to go.
func (r *rig) gone(o client.Object) {
	r.Helper()
	r.eventually(o.GetName()+" goes", func() string {
		got := o.DeepCopyObject().(client.Object)
		switch err := r.Get(r.Context(), client.ObjectKeyFromObject(o), got); {
		case apierrors.IsNotFound(err):
			return ""
		case err != nil:
			return err.Error()
		}
		return fmt.Sprintf("is there, deletion %v, finalizers %v, owners %v", got.GetDeletionTimestamp(), got.GetFinalizers(), got.GetOwnerReferences())
	})
}

// stays wants an object to be there, and not to be on its way out.
func (r *rig) stays(o client.Object) {
	r.Helper()
	got := o.DeepCopyObject().(client.Object)
	r.must(r.Get(r.Context(), client.ObjectKeyFromObject(o), got))
	if got.GetDeletionTimestamp() != nil {
		r.Errorf("%s is being deleted", o.GetName())
	}
}

// total sums up a metric over its labels.
func (r *rig) total(name string) float64 {
	r.Helper()
	families, err := r.metrics.Gather()
	r.must(err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// counted wants a metric not to be 0. What has happened is counted after it can be seen.
func (r *rig) counted(name string) {
	r.Helper()
	r.eventually(name+" counts", func() string {
		if r.total(name) == 0 {
			return "it is 0"
		}
		return ""
	})
}

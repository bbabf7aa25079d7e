// Command controller turns a kind of its own into declarations: of each Greeting it makes a NodeConfig with one file, and keeps
// it so. The NodeConfig is owned by its Greeting, so it goes when the Greeting goes. The kind is defined in crd.yaml.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

func main() {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		slog.Error("ended", "err", err)
		os.Exit(1)
	}
}

// run runs the controller until ctx ends. KUBECONFIG, or the flag --kubeconfig, says on which server.
func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}}) // 0: served nowhere
	if err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(manager.GetScheme()); err != nil {
		return err
	}
	g := greeter{manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(newGreeting()).Owns(&v1alpha1.NodeConfig{}).Complete(g); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func newGreeting() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Greeting"})
	return u
}

// greeter keeps a NodeConfig for each Greeting.
type greeter struct{ client.Client }

// Reconcile makes the NodeConfig of one Greeting as it should be.
func (g greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	greeting := newGreeting()
	if err := g.Get(ctx, request.NamespacedName, greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if greeting.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil // what is being collected is not to be made again
	}
	text, _, err := unstructured.NestedString(greeting.Object, "spec", "text")
	if err != nil {
		return ctrl.Result{}, err
	}
	config := &v1alpha1.NodeConfig{}
	config.Namespace, config.Name = request.Namespace, "greeting-"+request.Name
	_, err = controllerutil.CreateOrUpdate(ctx, g.Client, config, func() error {
		file := &declare.File{Path: "/etc/greeting-" + request.Name, Content: text + "\n"}
		config.Spec.Resources = []declare.Resource{{Name: "greeting", File: file}}
		return controllerutil.SetControllerReference(greeting, config, g.Scheme())
	})
	return ctrl.Result{}, err
}

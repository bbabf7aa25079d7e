package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"

	"tako.dev/tako/internal/apiserver/registry"
)

// readyPause is how often the server asks itself whether it is ready, until it is.
const readyPause = 5 * time.Millisecond

// addHooks adds what happens when the server has begun to serve.
func addHooks(s *server.GenericAPIServer, objects *registry.Registry) error {
	return errors.Join(
		s.AddPostStartHook("tako-namespaces", func(ctx server.PostStartHookContext) error {
			return makeNamespaces(request.WithNamespace(ctx, ""), objects)
		}),
		s.AddPostStartHook("tako-roles", func(ctx server.PostStartHookContext) error { return makeRoles(ctx.LoopbackClientConfig) }),
	)
}

// makeNamespaces makes the namespaces that everybody expects.
func makeNamespaces(ctx context.Context, objects *registry.Registry) error {
	store := objects.Store(core.Resource("namespaces"))
	for _, name := range []string{metav1.NamespaceDefault} {
		// A store that takes no writes is no reason not to start: what is too much can be deleted only then.
		if _, err := store.Get(ctx, name, &metav1.GetOptions{}); err == nil {
			continue
		}
		ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := store.Create(ctx, ns, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// waitReady waits until the server answers that it is ready, whether or not there is room for more objects; false when the context
// ended before.
func waitReady(ctx context.Context, loopback *restclient.Config) bool {
	client, err := restclient.HTTPClientFor(loopback)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(readyPause)
	defer tick.Stop()
	for !ready(ctx, client, loopback.Host+"/readyz?exclude="+roomCheck) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

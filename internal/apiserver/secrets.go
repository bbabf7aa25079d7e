package apiserver

import (
	"context"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"tako.dev/tako/internal/trust"
)

// atRest encrypts objects on their way to etcd. The key that an object is stored under is bound to it, so that nobody can put
// the content of one secret into the place of another.
type atRest struct{ keys *trust.Ring }

var _ value.Transformer = atRest{}

// transformers are those of the kinds that hold secrets.
func transformers(keys *trust.Ring) map[schema.GroupResource]value.Transformer {
	return map[schema.GroupResource]value.Transformer{core.Resource("secrets"): atRest{keys}}
}

// TransformFromStorage decrypts. stale says that it was encrypted with an old key, so that the next write uses the new one.
func (t atRest) TransformFromStorage(_ context.Context, data []byte, at value.Context) (out []byte, stale bool, err error) {
	return t.keys.Open(trust.PurposeObject, string(at.AuthenticatedData()), data)
}

// TransformToStorage encrypts.
func (t atRest) TransformToStorage(_ context.Context, data []byte, at value.Context) ([]byte, error) {
	return t.keys.Seal(trust.PurposeObject, string(at.AuthenticatedData()), data), nil
}

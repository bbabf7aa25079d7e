package registry

import (
	"context"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Exporter knows what hosts are sent. The errors are reason.Errors.
type Exporter interface {
	// Export is what the host of a node is sent, but for its layers.
	Export(ctx context.Context, node, uid string) (wire.Export, error)
	// ExportLayer writes the rows of one of its layers.
	ExportLayer(ctx context.Context, node, uid string, root catalog.Digest, w io.Writer) error
}

// exports is the subresource of a node with what its host is sent: for those who bring it there by hand. With the parameter layer it is the
// rows of that one, otherwise all but the layers.
type exports struct {
	nodes *Store
	live  *live
}

var _ rest.Connecter = (*exports)(nil)

// New is what the subresource belongs to.
func (*exports) New() runtime.Object { return &v1alpha1.Node{} }

// Destroy does nothing: there is no storage.
func (*exports) Destroy() {}

// ConnectMethods are those of reading.
func (*exports) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions are none: the parameters are read from the request.
func (*exports) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect checks that there is such a node, and returns what writes the answer.
func (x *exports) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, err := x.nodes.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	node := o.(*v1alpha1.Node)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x.live.exporter == nil {
			responder.Error(apierrors.NewServiceUnavailable("this server serves no hosts"))
			return
		}
		if err := x.write(r.Context(), node, r.URL.Query().Get("layer"), w); err != nil {
			responder.Error(err)
		}
	}), nil
}

// write writes an answer. After its first byte there is no other way left to tell of an error than to end the connection.
func (x *exports) write(ctx context.Context, node *v1alpha1.Node, layer string, w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	if layer == "" {
		e, err := x.live.exporter.Export(ctx, node.Name, string(node.UID))
		if err != nil {
			return refused(err)
		}
		data, err := wire.Encode(e)
		if err != nil {
			return refused(err)
		}
		_, _ = w.Write(data) // who asked may have gone
		return nil
	}
	root, err := wire.DecodeKey(layer)
	if err != nil {
		return apierrors.NewBadRequest("layer is no root: 64 hexadecimal digits")
	}
	out := &begun{w: w}
	err = x.live.exporter.ExportLayer(ctx, node.Name, string(node.UID), root, out)
	switch coded := new(reason.Error); {
	case err == nil:
		return nil
	case !out.began && errors.As(err, &coded):
		return refused(err)
	}
	panic(http.ErrAbortHandler) // the reader must not take a part for the whole
}

// begun is a writer that knows whether anything was written.
type begun struct {
	w     io.Writer
	began bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.began = true
	return b.w.Write(p)
}

package registry

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// storedBytesMax bounds an object as it is stored. etcd takes 1.5 MiB in a request (--max-request-bytes), and beside the object
// there is its key, three times, with less than a KiB each, and what frames them.
const storedBytesMax = 1536<<10 - 16<<10

// puts tells a writer in words what etcd does not take. It is below all kinds and all ways to write one.
type puts struct{ kubernetes.Interface }

// OptimisticPut writes an object, unless it is too large.
func (p puts) OptimisticPut(ctx context.Context, key string, value []byte, revision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if len(value) > storedBytesMax {
		return kubernetes.PutResponse{}, tooLarge(len(value), fmt.Sprintf("the limit is %d", storedBytesMax))
	}
	resp, err := p.Interface.OptimisticPut(ctx, key, value, revision, opts)
	if rpctypes.Error(err) == rpctypes.ErrRequestTooLarge {
		err = tooLarge(len(value), "this etcd takes less in one request (see its --max-request-bytes)")
	}
	return resp, err
}

func tooLarge(size int, limit string) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"the object has %d bytes as it is stored, with the record of who has set which field, and %s: split it into several objects", size, limit))
}

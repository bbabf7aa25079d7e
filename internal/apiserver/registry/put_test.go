package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/internal/apiserver/etcd"
)

// refuser is an etcd that answers a write with an error.
type refuser struct {
	kubernetes.Interface
	err   error
	calls int
}

func (r *refuser) OptimisticPut(context.Context, string, []byte, int64, kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	r.calls++
	return kubernetes.PutResponse{}, r.err
}

func TestPutWords(t *testing.T) {
	other := errors.New("leader changed")
	for _, c := range []struct {
		what  string
		size  int
		err   error
		asked bool // etcd is
		words string
		code  int // 0: the error as it is
	}{
		{"small", 10, nil, true, "", 0},
		{"as large as may be", storedBytesMax, nil, true, "", 0},
		{"too large", storedBytesMax + 1, nil, false, fmt.Sprintf("the object has %d bytes as it is stored, with the record of who has set which field, and the limit is %d: split it", storedBytesMax+1, storedBytesMax), 413},
		{"too large for another etcd", 1000, rpctypes.ErrGRPCRequestTooLarge, true, "has 1000 bytes as it is stored, with the record of who has set which field, and this etcd takes less in one request (see its --max-request-bytes)", 413},
		{"something else", 10, other, true, "leader changed", 0},
	} {
		below := &refuser{err: c.err}
		_, err := puts{below}.OptimisticPut(t.Context(), "/a", make([]byte, c.size), 0, kubernetes.PutOptions{})
		if (below.calls == 1) != c.asked {
			t.Errorf("%s: etcd is asked %d times", c.what, below.calls)
		}
		if (err != nil) != (c.words != "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.what, err, c.words)
		}
		if c.code == 0 && err != c.err || c.code != 0 && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: %#v", c.what, err)
		}
	}
}

// TestLargestPut writes the largest object, under the longest key that there can be, to a real etcd.
func TestLargestPut(t *testing.T) {
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	client, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	key := Prefix + "/" + strings.Repeat("g", 253) + "/" + strings.Repeat("r", 253) + "/" + strings.Repeat("n", 63) + "/" + strings.Repeat("n", 253)
	for range 2 { // there, and over what is there
		resp, err := client.Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var revision int64
		if resp.KV != nil {
			revision = resp.KV.ModRevision
		}
		put, err := puts{client.Kubernetes}.OptimisticPut(t.Context(), key, make([]byte, storedBytesMax), revision, kubernetes.PutOptions{GetOnFailure: true})
		if err != nil || !put.Succeeded {
			t.Fatalf("%+v, %v", put, err)
		}
	}
}

// TestChange: what a patch cannot do is told to its sender, what goes wrong elsewhere is not his.
func TestChange(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	conflict := apierrors.NewConflict(kindOf(t, "configmaps").Resource(), "a", errors.New("later"))
	for _, c := range []struct {
		what string
		ctx  context.Context
		verb string
		err  error
		want string // "" is the error as it is
	}{
		{"done", t.Context(), "patch", nil, ""},
		{"not to be applied", t.Context(), "patch", errors.New("unknown patch type: x"), "the patch cannot be applied: unknown patch type: x"},
		{"not a patch", t.Context(), "update", errors.New("no"), ""},
		{"an answer already", t.Context(), "patch", conflict, ""},
		{"what is there", t.Context(), "patch", errors.New("failed to create typed live object (/a): x"), ""},
		{"too late", ended, "patch", context.Canceled, ""},
	} {
		ctx := request.WithRequestInfo(c.ctx, &request.RequestInfo{Verb: c.verb})
		info := rest.DefaultUpdatedObjectInfo(nil, func(context.Context, runtime.Object, runtime.Object) (runtime.Object, error) { return nil, c.err })
		_, err := change{info}.UpdatedObject(ctx, kindOf(t, "configmaps").New())
		if c.want == "" && err != c.err || c.want != "" && (!apierrors.IsBadRequest(err) || err.Error() != c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

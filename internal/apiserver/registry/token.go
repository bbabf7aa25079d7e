package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
)

// Minter makes the secret of a new token, and what is stored of it.
type Minter interface {
	// Mint makes them: the hash is stored, and the rest is what is shown once.
	Mint(t *v1alpha1.Token) (v1alpha1.TokenStatus, error)
}

// tokenStore shows the secret of a token once, to who creates it, and stores what it can be recognised by.
type tokenStore struct {
	*Store
	minter Minter
}

var _ rest.Creater = tokenStore{}

// Create makes the secret.
func (s tokenStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	made, err := s.minter.Mint(obj.(*v1alpha1.Token))
	if err != nil {
		return nil, err
	}
	store := *s.Store.Store
	store.CreateStrategy = minted{strategy: s.CreateStrategy.(strategy), hash: made.Hash}
	out, err := store.Create(ctx, obj, validate, options)
	if err != nil {
		return nil, err
	}
	t := out.DeepCopyObject().(*v1alpha1.Token)
	if options == nil || len(options.DryRun) == 0 {
		t.Status.Token, t.Status.JoinLine = made.Token, made.JoinLine
	}
	return t, nil
}

// Update changes what may be changed. It makes no token, also for server-side apply, whose answer nobody reads the secret from.
func (s tokenStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	out, made, err := s.Store.Update(ctx, name, info, create, update, false, options)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewBadRequest("token " + name + " is not there, and a token is made by create only, which shows its secret: `tako token create`")
	}
	return out, made, err
}

// minted is the strategy of a token whose secret has been made.
type minted struct {
	strategy
	hash string
}

// PrepareForCreate notes what the secret is recognised by.
func (m minted) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	m.strategy.PrepareForCreate(ctx, obj)
	obj.(*v1alpha1.Token).Status.Hash = m.hash
}

package auth

import (
	"context"
	"encoding/hex"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// hashIndex finds a Token by its status.hash.
const hashIndex = "hash"

// hashPrefix says how the hash was made.
const hashPrefix = "sha256:"

// Tokens knows the bearers of tokens.
type Tokens struct {
	pepper *trust.Pepper
	all    cache.SharedIndexInformer
	now    func() time.Time
}

var _ authenticator.Token = (*Tokens)(nil)

// NewTokens makes the authenticator; it knows nobody before Run.
func NewTokens(s Source, pepper *trust.Pepper, now func() time.Time) *Tokens {
	return &Tokens{pepper: pepper, now: now, all: follow(s, cache.Indexers{hashIndex: func(o any) ([]string, error) {
		return []string{o.(*v1alpha1.Token).Status.Hash}, nil
	}})}
}

// Run follows the tokens until the context ends.
func (t *Tokens) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.all.RunWithContext(ctx) })
	all.Wait()
}

// Ready reports whether all tokens have been read.
func (t *Tokens) Ready() bool { return t.all.HasSynced() }

// Mint makes the secret of a new token, and its hash.
func (t *Tokens) Mint(token *v1alpha1.Token) (secret, hash string, err error) {
	kind := trust.TokenJoin
	if token.Spec.Type == v1alpha1.TokenUser {
		kind = trust.TokenUser
	}
	fresh := trust.NewToken(kind)
	return fresh.Reveal(), t.hash(fresh), nil
}

func (t *Tokens) hash(token trust.Token) string {
	return hashPrefix + hex.EncodeToString(t.pepper.Hash(token))
}

// AuthenticateToken says who the bearer of a token is. What is not of our making is nobody's, so others may know it. Only whose secret is
// right learns that its time is over.
func (t *Tokens) AuthenticateToken(ctx context.Context, text string) (*authenticator.Response, bool, error) {
	shown, err := trust.ParseToken(text)
	if err != nil {
		return nil, false, err
	}
	if shown.Kind() != trust.TokenUser {
		return nil, false, &reason.Error{Code: reason.TokenMalformed, Doing: "log in with token " + string(shown.ID()), Hint: "a join token is for hosts: `tako token create user` makes one for people"}
	}
	if !t.Ready() {
		noteOf(ctx).later = true
		return nil, false, nil
	}
	hash := t.hash(shown)
	token, err := t.find(hash)
	if err != nil || token == nil {
		return nil, false, err
	}
	if err := inTime(token, shown.ID(), t.now()); err != nil {
		mayKnow(ctx, timeWords(reason.Of(err), end(token), t.now())+"; `tako token create user` makes a new one")
		return nil, false, err
	}
	if token.Spec.User == nil {
		return nil, false, nil
	}
	noteOf(ctx).holds = func() bool {
		token, err := t.find(hash)
		return err == nil && token != nil && inTime(token, shown.ID(), t.now()) == nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token.Spec.User.Name, Groups: token.Spec.User.Groups, UID: string(token.UID)}}, true, nil
}

// find is the token with a hash, nil if there is none. The index is by a keyed hash: how long a lookup takes tells nothing about the
// token.
func (t *Tokens) find(hash string) (*v1alpha1.Token, error) {
	found, err := t.all.GetIndexer().ByIndex(hashIndex, hash)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0].(*v1alpha1.Token), nil
}

// end is when a token ends; zero is never.
func end(t *v1alpha1.Token) time.Time {
	if t.Spec.Expires == nil {
		return time.Time{}
	}
	return t.Spec.Expires.Time
}

func inTime(t *v1alpha1.Token, id trust.TokenID, now time.Time) error {
	return trust.CheckTokenTime(id, t.CreationTimestamp.Time, end(t), now)
}

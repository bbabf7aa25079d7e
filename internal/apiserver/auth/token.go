package auth

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
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
	source Source
	all    cache.SharedIndexInformer
	now    func() time.Time
	line   func(trust.Token) string
}

var _ authenticator.Token = (*Tokens)(nil)

// NewTokens makes the authenticator; it knows nobody before Run.
func NewTokens(s Source, pepper *trust.Pepper, now func() time.Time) *Tokens {
	return &Tokens{pepper: pepper, source: s, now: now, line: func(trust.Token) string { return "" }, all: follow(s, cache.Indexers{hashIndex: func(o any) ([]string, error) {
		return []string{o.(*v1alpha1.Token).Status.Hash}, nil
	}})}
}

// TellLines has who makes a token for hosts told the line that a host joins with, which line makes of the token: empty as long as no
// host can join. It is to be called before the first token is made.
func (t *Tokens) TellLines(line func(trust.Token) string) { t.line = line }

// Run follows the tokens until the context ends.
func (t *Tokens) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.all.RunWithContext(ctx) })
	all.Wait()
}

// Ready reports whether all tokens have been read.
func (t *Tokens) Ready() bool { return t.all.HasSynced() }

// Mint makes the secret of a new token, and its hash.
func (t *Tokens) Mint(token *v1alpha1.Token) (v1alpha1.TokenStatus, error) {
	if token.Spec.Type == v1alpha1.TokenUser {
		fresh := trust.NewToken(trust.TokenUser)
		return v1alpha1.TokenStatus{Token: fresh.Reveal(), Hash: t.hash(fresh)}, nil
	}
	fresh := trust.NewToken(trust.TokenJoin)
	return v1alpha1.TokenStatus{Token: fresh.Reveal(), Hash: t.hash(fresh), JoinLine: t.line(fresh)}, nil
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

// OfHost is the Token that a host has shown to join; it is shared, nobody changes it, and how often it was used may be behind. One that
// was made a moment ago, by another server too, is known. The errors are TokenMalformed, TokenRefused when nobody has made it or
// somebody has revoked it, TokenTime, and StoreUnreachable.
func (t *Tokens) OfHost(ctx context.Context, text string) (*v1alpha1.Token, error) {
	shown, err := trust.ParseToken(text)
	if err != nil {
		return nil, err
	}
	doing, hint := "join with token "+string(shown.ID()), "`tako token list` shows which there are, and `tako token create join` makes one"
	if shown.Kind() != trust.TokenJoin {
		return nil, &reason.Error{Code: reason.TokenRefused, Doing: doing, Cause: errors.New("it is for a person"), Hint: hint}
	}
	token, err := t.find(t.hash(shown))
	if err == nil && token == nil {
		token, err = t.newest(ctx, t.hash(shown))
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err}
	}
	if token == nil || token.Spec.Join == nil {
		return nil, &reason.Error{Code: reason.TokenRefused, Doing: doing, Cause: errors.New("it was revoked, or is of another cluster"), Hint: hint}
	}
	return token, inTime(token, shown.ID(), t.now())
}

// newest looks for the token with a hash in the store.
func (t *Tokens) newest(ctx context.Context, hash string) (*v1alpha1.Token, error) {
	all, err := t.source.List(request.WithNamespace(ctx, ""), &metainternal.ListOptions{})
	if err != nil {
		return nil, err
	}
	list, is := all.(*v1alpha1.TokenList)
	if !is {
		return nil, fmt.Errorf("%T is no list of tokens", all)
	}
	for i := range list.Items {
		if subtle.ConstantTimeCompare([]byte(list.Items[i].Status.Hash), []byte(hash)) == 1 {
			return &list.Items[i], nil
		}
	}
	return nil, nil
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

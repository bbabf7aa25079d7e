package sources

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/verify"
)

// The keys of a Secret with credentials.
const (
	keyUsername   = "username"
	keyPassword   = "password"
	keyToken      = "token"
	keyPrevious   = "token.previous"
	keyIdentity   = "identity"
	keyKnownHosts = "known_hosts"
	keyCA         = "ca.crt"
)

// readMax bounds one read of an object.
const readMax = 30 * time.Second

// named reads an object that the Source names. Who named it may read it: admission has seen to that.
func (l *look) named(ctx context.Context, field, kind, name string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	err := l.of.options.Objects.Get(ctx, types.NamespacedName{Namespace: l.source.Namespace, Name: name}, into)
	doing := fmt.Sprintf("read %s %s/%s, which %s names", kind, l.source.Namespace, name, field)
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return &reason.Error{Code: reason.SourceIncomplete, Doing: doing, Cause: fmt.Errorf("there is none"), Hint: "make it, or name another one"}
	}
	return &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err}
}

// remote is where the repository is, with what opens it.
func (l *look) remote(ctx context.Context) (git.Remote, error) {
	r := git.Remote{URL: l.source.Spec.URL, Submodules: l.source.Spec.Submodules}
	r.PlainHTTP = l.source.Spec.Credentials == "" && (l.source.Spec.Verify != nil || isLoopback(r.URL))
	if l.source.Spec.Credentials == "" {
		return r, nil
	}
	var secret core.Secret
	if err := l.named(ctx, "spec.credentials", "Secret", l.source.Spec.Credentials, &secret); err != nil {
		return r, err
	}
	text := func(key string) string { return strings.TrimRight(string(secret.Data[key]), "\r\n") }
	r.Auth = git.Auth{Username: text(keyUsername), Password: text(keyPassword), BearerToken: text(keyToken), Identity: secret.Data[keyIdentity], KnownHosts: secret.Data[keyKnownHosts], CA: secret.Data[keyCA]}
	return r, nil
}

// isLoopback tells whether a repository is on this machine. Over plain http anybody on the way decides what is applied, so that it is for
// this machine, and for commits whose signature says more than where they came from.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// verify checks the signature that the commit needs, and says whose it is; empty where none is needed.
func (l *look) verify(ctx context.Context, c git.Commit) (string, error) {
	v := l.source.Spec.Verify
	if v == nil {
		return "", nil
	}
	var keys core.ConfigMap
	if err := l.named(ctx, "spec.verify.keys", "ConfigMap", v.Keys, &keys); err != nil {
		return "", err
	}
	var openPGP, ssh bytes.Buffer
	for _, value := range keys.Data {
		into := &ssh
		if strings.Contains(value, "BEGIN PGP PUBLIC KEY BLOCK") {
			into = &openPGP
		}
		into.WriteString(value)
		into.WriteByte('\n')
	}
	for _, value := range keys.BinaryData {
		openPGP.Write(value)
	}
	trusted, err := verify.ParseAuthorities(openPGP.Bytes(), ssh.Bytes())
	if err != nil {
		return "", err
	}
	var signer verify.Signer
	switch {
	case v.Mode != v1alpha1.SourceVerifyTag:
		signer, err = trusted.Commit(c.Raw, time.Now())
	case c.Tag == nil:
		err = &reason.Error{Code: reason.SignatureRefused, Doing: "verify the tag of commit " + string(c.ID), Cause: fmt.Errorf("it is no annotated tag, so nobody can have signed it"), Hint: "git tag -s"}
	default:
		signer, err = trusted.Tag(c.Tag.Raw, time.Now())
	}
	return cmp.Or(signer.Identity, signer.Fingerprint), err
}

package measures

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
)

const (
	// secretBytesMax bounds a token, a username and a password: servers take a header of 8 KiB.
	secretBytesMax = 2 << 10
	// caBytesMax bounds authorities: all that a Debian trusts take 220 KiB.
	caBytesMax = 256 << 10
	// hidden stands for a secret.
	hidden = "***"
)

// Objects reads what workloads and configs name. *registry.Local is one.
type Objects interface {
	// Get reads a Secret or a ConfigMap. The errors are those of the API.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
}

// Access is what a Prometheus is asked with, and known by: values of objects, which are read each time that a query is asked, so that a changed one
// counts at once. What is not declared is zero.
type Access struct {
	Token, Username, Password declare.KeySelector // of Secrets
	CASecret, CAConfigMap     declare.KeySelector
}

// accessOf is what a query of an object in a namespace is asked with; one of an object in none names it itself.
func accessOf(namespace string, q *declare.PrometheusQuery) (a Access) {
	set := func(to, from *declare.KeySelector) {
		if from != nil {
			*to = *from
			to.Namespace = cmp.Or(namespace, from.Namespace)
		}
	}
	if q.Auth != nil {
		set(&a.Token, q.Auth.Token)
		set(&a.Username, q.Auth.Username)
		set(&a.Password, q.Auth.Password)
	}
	if q.CA != nil {
		set(&a.CASecret, q.CA.Secret)
		set(&a.CAConfigMap, q.CA.ConfigMap)
	}
	return a
}

func compareAccesses(a, b *Access) int {
	key := func(a, b declare.KeySelector) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	}
	return cmp.Or(key(a.Token, b.Token), key(a.Username, b.Username), key(a.Password, b.Password), key(a.CASecret, b.CASecret), key(a.CAConfigMap, b.CAConfigMap))
}

// proof is what was read for an Access.
type proof struct {
	header string // Authorization; empty: none
	ca     string // PEM; empty: the authorities of this machine
	hidden *strings.Replacer
}

// hide takes out of words what is secret: who is asked may repeat it.
func (p *proof) hide(words string) string {
	if p.hidden == nil {
		return words
	}
	return p.hidden.Replace(words)
}

// prove reads what a query is asked with. Its errors hold nothing of that.
func (p *Prometheus) prove(ctx context.Context, q Query) (with proof, err error) {
	a, none := &q.Access, declare.KeySelector{}
	if *a == (Access{}) {
		return with, nil
	}
	read := func(kind string, s declare.KeySelector) string {
		if err != nil || s == none {
			return ""
		}
		var value string
		value, err = p.value(ctx, kind, s)
		return value
	}
	token, username, password := read(kindSecret, a.Token), read(kindSecret, a.Username), read(kindSecret, a.Password)
	with.ca = read(kindSecret, a.CASecret) + read(kindConfigMap, a.CAConfigMap)
	if err != nil {
		return with, err
	}
	if len(with.ca) > caBytesMax {
		return with, fmt.Errorf("what ca names has more than %d bytes", caBytesMax)
	}
	if with.header, with.hidden, err = header(a, trimmed(token), trimmed(username), trimmed(password)); err != nil {
		return with, err
	}
	switch at := p.servers[q.Server]; {
	case at.Scheme == "https":
	case with.ca != "":
		return with, fmt.Errorf("%s is asked over http, where it has no certificate: leave ca out, or start the server with an address by https", q.Server)
	case with.header != "" && !isLoopback(at):
		return with, fmt.Errorf("%s is asked over http, where anybody on the way reads credentials: start the server with an address by https", q.Server)
	}
	return with, nil
}

// The kinds of objects that values are in.
const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
)

// value reads one of an object.
func (p *Prometheus) value(ctx context.Context, kind string, s declare.KeySelector) (string, error) {
	var secret core.Secret
	var configMap core.ConfigMap
	var into runtime.Object = &secret
	if kind == kindConfigMap {
		into = &configMap
	}
	err := p.objects.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no %s %s in namespace %s", kind, s.Name, s.Namespace)
	case err != nil:
		return "", fmt.Errorf("%s %s cannot be read now", kind, s.Name)
	}
	value := secret.Data[s.Key]
	if text, ok := configMap.Data[s.Key]; ok {
		value = []byte(text)
	}
	if len(value) == 0 {
		return "", fmt.Errorf("%s %s has no value %s", kind, s.Name, s.Key)
	}
	return string(value), nil
}

// trimmed is a secret without the end of its line, which editors add.
func trimmed(s string) string { return strings.TrimRight(s, "\r\n") }

// header is what proves who asks, and what takes that out of words; empty where nothing is declared. It refuses what cannot be sent, so that a value of
// another kind is told before anybody sees it.
func header(a *Access, token, username, password string) (string, *strings.Replacer, error) {
	switch {
	case a.Token.Name != "":
		if err := sendable(a.Token, token); err != nil {
			return "", nil, err
		}
		return "Bearer " + token, strings.NewReplacer(token, hidden), nil
	case a.Username.Name != "":
		if err := errors.Join(sendable(a.Username, username), sendable(a.Password, password)); err != nil {
			return "", nil, err
		}
		if strings.Contains(username, ":") {
			return "", nil, fmt.Errorf("%s of Secret %s is no username: it holds a colon", a.Username.Key, a.Username.Name)
		}
		both := base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
		return "Basic " + both, strings.NewReplacer(both, hidden, password, hidden), nil
	}
	return "", nil, nil
}

func sendable(from declare.KeySelector, secret string) error {
	if secret == "" || len(secret) > secretBytesMax || strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return fmt.Errorf("%s of Secret %s cannot be sent: it is empty, has more than %d bytes, or is not one line of ASCII", from.Key, from.Name, secretBytesMax)
	}
	return nil
}

// isLoopback tells whether an address is this machine's own.
func isLoopback(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

var errForbidden = errors.New("its address is one of a link, or one at which clouds tell machines their credentials")

// metadata are addresses that are not of a link at which clouds tell machines what they are and may do: of AWS and of Google by IPv6, Alibaba and
// Azure, as their manuals have them.
var metadata = [...]netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16")}

// forbidden tells whether an address is none that a Prometheus has. A name may come to lead there without anybody having said so at the start.
func forbidden(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, m := range metadata {
		if ip == m {
			return true
		}
	}
	return ip.IsLinkLocalUnicast() || ip.IsMulticast()
}

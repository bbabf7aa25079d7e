package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/audit"
	"tako.dev/tako/internal/apiserver/auth"
	"tako.dev/tako/internal/apiserver/body"
	"tako.dev/tako/internal/apiserver/misfit"
	"tako.dev/tako/internal/apiserver/openapi"
	"tako.dev/tako/internal/apiserver/registry"
)

const (
	// Requests in flight. The library's own 400 and 200 are for servers behind which pods wait; ten thousand hosts do not come
	// this way.
	readsMax, writesMax = 1_000, 500
	// bodyMax bounds a request: what etcd takes, twice, because it may come in a longer form.
	bodyMax = 3 << 20
	// requestMax is when a request is given up, and how long a stop waits for those in flight.
	requestMax = 60 * time.Second
	// watchMin is the least that a watch lasts, in seconds; each gets up to twice that, so that not all come back at once.
	watchMin = 1800
	// watchStopMax is how long watches may go on when the server stops: clients come back to where they were.
	watchStopMax = time.Second
	// etcdAnswerMax is how long etcd may take to answer before the server says that it is not ready.
	etcdAnswerMax = 2 * time.Second
	// roomCheck is the name of the check whether the store takes writes.
	roomCheck = "room"
)

// config is the library's configuration.
func (s *Server) config(p parts, scheme *registry.Scheme, backend *registry.Backend, tokens *auth.Tokens, roles *auth.RBAC) (*server.Config, error) {
	c := server.NewConfig(scheme.Codecs)
	c.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	c.RESTOptionsGetter = backend
	c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = readsMax, writesMax
	c.MaxRequestBodyBytes, c.JSONPatchMaxCopyBytes = bodyMax, bodyMax
	c.RequestTimeout, c.MinRequestTimeout = requestMax, watchMin
	c.ShutdownWatchTerminationGracePeriod = watchStopMax
	c.EnableProfiling = false
	c.AddReadyzChecks(healthz.NamedCheck("etcd", func(r *http.Request) error { return answers(r.Context(), p.client.Client) }),
		healthz.NamedCheck("rights", func(*http.Request) error {
			if !tokens.Ready() || !roles.Ready() {
				return errors.New("roles and tokens have not been read yet")
			}
			return nil
		}),
		healthz.NamedCheck(roomCheck, func(r *http.Request) error { return p.takesWrites(r.Context()) }))
	c.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())

	clients, err := dynamiccertificates.NewStaticCAContent("clients", p.keys.CA().CertificatePEM())
	if err != nil {
		return nil, err
	}
	c.SecureServing = &server.SecureServingInfo{Listener: p.listener, Cert: p.certificate, ClientCA: clients, MinTLSVersion: tls.VersionTLS13}
	c.LoopbackClientConfig, err = c.SecureServing.NewLoopbackClientConfig(loopbackToken(), p.keys.CA().CertificatePEM())
	if err != nil {
		return nil, err
	}
	c.ExternalAddress = externalAddress(p.listener.Addr(), s.opts.Listen)

	c.Authentication.Authenticator = auth.Authenticators(p.keys.CA(), tokens, time.Now)
	if c.Authorization.Authorizer, err = auth.Authorizers(roles); err != nil {
		return nil, err
	}
	c.RuleResolver = roles
	c.AuditBackend, c.AuditPolicyRuleEvaluator = p.audit.Backend(), audit.Policy()

	namer := openapinamer.NewDefinitionNamer(scheme.Once)
	c.OpenAPIConfig = server.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIConfig.Info.Title, c.OpenAPIV3Config.Info.Title = "tako", "tako"
	return c, nil
}

// handlers are what a request goes through.
func (s *Server) handlers(api http.Handler, c *server.Config, watches *auth.Watches, p parts) http.Handler {
	// By now the library has added an authenticator of its own, for the server itself, which only says a name.
	with := *c
	itself := auth.Own(c.Authentication.Authenticator, c.LoopbackClientConfig.BearerToken, registry.Itself())
	with.Authentication.Authenticator = auth.Logged(itself, s.opts.Log)
	inner := watches.Handler(p.several.within(strict(body.UTF8(body.Base64(misfit.Handler(api))))))
	inner = p.shelf.Handler(p.bundles.Handler(c.Authorization.Authorizer, inner))
	return s.hooks.handler(p.several.forges(s.hooks.take), p.several.around(auth.WithWords(server.DefaultBuildHandlerChain(inner, &with))))
}

// strict refuses fields that our kinds do not have, unless the client has asked for something else: the library would take the
// object without them, and warn.
func strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const parameter = "fieldValidation"
		writes := r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
		if q := r.URL.Query(); writes && !q.Has(parameter) && strings.HasPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupName+"/") {
			q.Set(parameter, metav1.FieldValidationStrict)
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		next.ServeHTTP(w, r)
	})
}

// answers asks etcd for something that is not there, which needs a majority of its members.
func answers(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, etcdAnswerMax)
	defer cancel()
	_, err := client.Get(ctx, "/tako-health", clientv3.WithCountOnly())
	return err
}

// takesWrites says why the store takes no writes; nil if it does.
func (p parts) takesWrites(ctx context.Context) error {
	if p.member != nil {
		return p.member.Writable()
	}
	ctx, cancel := context.WithTimeout(ctx, etcdAnswerMax)
	defer cancel()
	for _, endpoint := range p.client.Endpoints() {
		// A member tells of its alarms also when it is asked how it is. To ask for the alarms themselves would be a write to its log.
		status, err := p.client.Status(ctx, endpoint)
		if err != nil {
			continue // the check of etcd says more
		}
		for _, fault := range status.Errors {
			if strings.Contains(fault, pb.AlarmType_NOSPACE.String()) {
				return errors.New("etcd has reached its quota")
			}
		}
		return nil
	}
	return nil
}

// loopbackToken is the secret that the server uses towards itself; it lives as long as the process.
func loopbackToken() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails, says crypto/rand
	return hex.EncodeToString(b)
}

// externalAddress is what clients of this machine, or of others, reach the server by.
func externalAddress(addr net.Addr, listen string) string {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	if err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(host, port)
}

// effectiveVersion is the version of the library, under tako's name.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

// Info is what /version says: clients decide by it what the API can do.
func (v effectiveVersion) Info() *version.Info {
	info := *v.EffectiveVersion.Info()
	info.GitVersion = fmt.Sprintf("v%d.%d.%d+tako", v.BinaryVersion().Major(), v.BinaryVersion().Minor(), v.BinaryVersion().Patch())
	info.Major, info.Minor = strconv.FormatUint(uint64(v.BinaryVersion().Major()), 10), strconv.FormatUint(uint64(v.BinaryVersion().Minor()), 10)
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	return &info
}

package auth

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	unionauthorizer "k8s.io/apiserver/pkg/authorization/union"

	"tako.dev/tako/internal/trust"
)

// healthPaths answer anybody: who watches over the server has no name.
func healthPaths() []string { return []string{"/healthz", "/livez", "/readyz"} }

// Authenticators make a user of a request: by client certificate, by token, and for health by nothing.
func Authenticators(ca *trust.CA, tokens *Tokens, now func() time.Time) authenticator.Request {
	options := requestx509.DefaultVerifyOptions()
	options.Roots = ca.Pool()
	var conditions []apiserver.AnonymousAuthCondition
	for _, p := range healthPaths() {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	known := group.NewAuthenticatedGroupAdder(union.New(
		explained{requestx509.New(options, requestx509.CommonNameUserConversion), now},
		bearertoken.New(tokens),
	))
	return union.New(known, anonymous.NewAuthenticator(conditions))
}

// explained says in words what is wrong with the time of a certificate.
type explained struct {
	authenticator.Request
	now func() time.Time
}

// AuthenticateRequest asks the authenticator of certificates.
func (e explained) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	r, ok, err := e.Request.AuthenticateRequest(req)
	if err != nil {
		if words, is := trust.ExplainCertificate("check the client's certificate", err, e.now()); is {
			return nil, false, words
		}
	}
	return r, ok, err
}

// Authorizers decide what a user may do: administrators everything, anybody the health paths, the rest what roles say.
func Authorizers(roles *RBAC) (authorizer.Authorizer, error) {
	return unionauthorizer.New(
		unionauthorizer.NamedAuthorizer{AuthorizerName: "administrators", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		unionauthorizer.NamedAuthorizer{AuthorizerName: "health", Authorizer: authorizer.AuthorizerFunc(health)},
		unionauthorizer.NamedAuthorizer{AuthorizerName: "roles", Authorizer: authorizer.AuthorizerFunc(roles.Authorize)},
	)
}

// health allows to ask whether the server lives and is ready, but not for the details of a check.
func health(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !a.IsResourceRequest() && a.GetVerb() == "get" && slices.Contains(healthPaths(), a.GetPath()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

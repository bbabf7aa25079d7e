package auth

import (
	"context"
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
	certificates := timed{newVerified(persons{requestx509.New(options, requestx509.CommonNameUserConversion)}, now), options, now}
	known := group.NewAuthenticatedGroupAdder(union.New(certificates, bearertoken.New(tokens)))
	return union.New(known, anonymous.NewAuthenticator(conditions))
}

// Authorizers decide what a user may do: administrators everything, anybody the health paths, the rest what roles say.
func Authorizers(roles *RBAC) (authorizer.Authorizer, error) {
	all, err := unionauthorizer.New(
		unionauthorizer.NamedAuthorizer{AuthorizerName: "administrators", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		unionauthorizer.NamedAuthorizer{AuthorizerName: "health", Authorizer: authorizer.AuthorizerFunc(health)},
		unionauthorizer.NamedAuthorizer{AuthorizerName: "roles", Authorizer: authorizer.AuthorizerFunc(roles.Authorize)},
	)
	return noted{all}, err
}

// noted notes what is allowed within a request: what goes on for long is asked about again, see Watches.
type noted struct{ authorizer.Authorizer }

// Authorize asks the authorizer.
func (n noted) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, why, err := n.Authorizer.Authorize(ctx, a)
	if err == nil && decision == authorizer.DecisionAllow {
		note := noteOf(ctx)
		note.allowed = append(note.allowed, a)
	}
	return decision, why, err
}

// health allows to ask whether the server lives and is ready. With ?verbose, or when it is not, the answer names all checks and which of
// them fail, and never why. A single check, at a path below, is for those who have a name.
func health(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !a.IsResourceRequest() && a.GetVerb() == "get" && slices.Contains(healthPaths(), a.GetPath()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

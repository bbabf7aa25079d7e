package auth

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// persons refuses the certificates of hosts, which the same authority has issued: a host speaks to the transfer listener, and is no
// user.
type persons struct{ authenticator.Request }

// AuthenticateRequest asks about certificates of people.
func (p persons) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && trust.IsMachine(r.TLS.PeerCertificates[0]) {
		return nil, false, &reason.Error{
			Code: reason.CertificateRefused, Doing: "check the client's certificate", Cause: errors.New("it is a host's, and this is the API for people and programs"),
			Hint: "use a kubeconfig, or a token of `tako token create user`",
		}
	}
	return p.Request.AuthenticateRequest(r)
}

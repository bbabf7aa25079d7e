package trust

import (
	"crypto/x509"
	"errors"
	"time"

	"tako.dev/tako/internal/reason"
)

// VerifyNode says of which node of a cluster the certificate is that a connection has shown, first, with those that came along: it is valid now,
// and of an authority of the cluster. It is how one host knows another. A node may be gone by then: that only servers know, so it
// holds for as long as its certificate. The error is CertificateRefused.
func VerifyNode(shown []*x509.Certificate, chain *Chain, cluster ClusterID, now time.Time) (NodeIdentity, error) {
	refused := func(cause error) (NodeIdentity, error) {
		return NodeIdentity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "recognize a host", Cause: cause}
	}
	if len(shown) == 0 {
		return refused(errors.New("it shows no certificate"))
	}
	rest := x509.NewCertPool()
	for _, c := range shown[1:] {
		rest.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots: chain.Pool(), Intermediates: rest, CurrentTime: chain.Time(now), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return refused(err)
	}
	who, err := ParseNode(shown[0])
	if err == nil && who.Cluster != cluster {
		return refused(errors.New("it is of another cluster"))
	}
	return who, err
}

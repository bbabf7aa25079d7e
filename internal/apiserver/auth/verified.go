package auth

import (
	"crypto/sha256"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// verifiedMax is more clients with certificates than one server has at a time.
	verifiedMax = 4096
	// verifiedFor is how long a certificate is believed without verifying it again. It cannot be revoked; its end is kept to.
	verifiedFor = 5 * time.Minute
)

// verified remembers certificates that were verified. That takes a signature's check for each request, which was a tenth of the
// processor time of a write.
type verified struct {
	authenticator.Request
	now  func() time.Time
	seen *cache.LRUExpireCache // of *authenticator.Response, by the hash of the certificate
}

func newVerified(r authenticator.Request, now func() time.Time) verified {
	return verified{Request: r, now: now, seen: cache.NewLRUExpireCacheWithClock(verifiedMax, clock(now))}
}

// AuthenticateRequest believes a certificate that was verified a moment ago, and has others verified.
func (v verified) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return v.Request.AuthenticateRequest(r)
	}
	own := r.TLS.PeerCertificates[0]
	hash := sha256.Sum256(own.Raw)
	if known, is := v.seen.Get(hash); is {
		response := *known.(*authenticator.Response)
		return &response, true, nil
	}
	response, ok, err := v.Request.AuthenticateRequest(r)
	if ok && err == nil {
		kept := *response
		v.seen.Add(hash, &kept, min(verifiedFor, own.NotAfter.Sub(v.now())))
	}
	return response, ok, err
}

// clock is a time function as the library's cache wants it.
type clock func() time.Time

// Now is the time.
func (c clock) Now() time.Time { return c() }

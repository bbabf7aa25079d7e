package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// clockLayout is how times are told to people here: with the zone, because a wrong zone is a common reason for a wrong clock.
const clockLayout = "2006-01-02 15:04:05 UTC"

// ExplainCertificate puts an error of TLS or of a verification, at time now, into words: which certificate is refused, and why.
// Where a time is the reason it names the clock. false means that the error is not about a certificate. The codes are
// CertificateTime and CertificateRefused; the cause is the error itself.
func ExplainCertificate(doing string, err error, now time.Time) (*reason.Error, bool) {
	if e := new(reason.Error); errors.As(err, &e) && (e.Code == reason.CertificateTime || e.Code == reason.CertificateRefused) {
		return e, true // it is in words already
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil {
		e := certificateTime(doing, "the certificate of "+subject(invalid.Cert), clockFor(invalid.Cert), invalid.Cert, now)
		e.Cause = &worded{e.Cause.Error(), err}
		return e, true
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		who := "the certificate"
		if unknown.Cert != nil {
			who += " of " + subject(unknown.Cert)
		}
		return &reason.Error{
			Code: reason.CertificateRefused, Doing: doing, Cause: &worded{who + " was issued by an authority that is not trusted here", err},
			Hint: "it belongs to another cluster, or the cluster was set up anew: take a new kubeconfig, or a new join line, from its server",
		}, true
	case errors.As(err, &host):
		return &reason.Error{
			Code: reason.CertificateRefused, Doing: doing, Cause: &worded{host.Error(), err},
			Hint: "reach the server by a name or address that its certificate is for, or have it issued for this one",
		}, true
	case errors.As(err, &invalid):
		return &reason.Error{Code: reason.CertificateRefused, Doing: doing, Cause: err}, true
	}
	return nil, false
}

// worded is an error with other words than the error it stands for.
type worded struct {
	words string
	err   error
}

func (w *worded) Error() string { return w.words }
func (w *worded) Unwrap() error { return w.err }

// subject names a certificate for a person.
func subject(c *x509.Certificate) string {
	var names []string
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	for _, n := range c.DNSNames {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if len(names) == 0 {
		return "serial number " + c.SerialNumber.String()
	}
	return fmt.Sprintf("%q", clipped(strings.Join(names[:min(len(names), 3)], ", ")))
}

// certificateTime says that a certificate is not valid at this time.
func certificateTime(doing, what string, whose clock, c *x509.Certificate, now time.Time) *reason.Error {
	words, hint := timeWords(what, whose, c.NotBefore, c.NotAfter, now)
	return &reason.Error{Code: reason.CertificateTime, Doing: doing, Cause: errors.New(words), Hint: hint}
}

// CheckTokenTime says whether a token is valid now: from notBefore less ClockSkew, until notAfter; the zero notAfter is never.
// It is for servers. Errors: TokenTime, which names the clock.
func CheckTokenTime(id TokenID, notBefore, notAfter, now time.Time) error {
	if now.Before(notBefore.Add(-ClockSkew)) || !notAfter.IsZero() && !now.Before(notAfter) {
		words, hint := timeWords("the token", serverClock, notBefore, notAfter, now)
		return &reason.Error{Code: reason.TokenTime, Doing: "check token " + string(id), Cause: errors.New(words), Hint: hint}
	}
	return nil
}

// CheckIssued says whether a document may follow at all when the clock says now: it must not have been issued more than
// ClockSkew after Time. It is for who puts a document into force. Hosts, whose clocks may have stopped, take the time from what
// they verify; one document from the future would take them, and every later number, there. Errors: TrustRefused, which names the
// clock.
func (c *Chain) CheckIssued(next Signed, now time.Time) error {
	d := &next.Document
	if !d.Issued.After(c.Time(now).Add(ClockSkew)) {
		return nil
	}
	return &reason.Error{
		Code: reason.TrustRefused, Doing: fmt.Sprintf("put trust document %d into force", d.Number),
		Cause: fmt.Errorf("it was issued at %s; %s says %s", d.Issued.UTC().Format(clockLayout), thisClock, now.UTC().Format(clockLayout)),
		Hint:  "one of two clocks is wrong: this machine's (" + thisClock.look() + "; then set it), or that of the machine that issued it (then set it, make the document again, and have it signed)",
	}
}

// clock is the name of one that somebody has to look at.
type clock string

const (
	thisClock   clock = "this machine's clock"
	serverClock clock = "the server's clock"
)

// look says how to look at it.
func (c clock) look() string {
	if c == thisClock {
		return "see `timedatectl`"
	}
	return "see `timedatectl` there"
}

// clockFor is the clock that a certificate was checked by: who checks one that is for clients only is a server, and the words
// are read elsewhere.
func clockFor(c *x509.Certificate) clock {
	if slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		return serverClock
	}
	return thisClock
}

// timeWords says from when or until when something is valid, and what the clock says.
func timeWords(what string, whose clock, from, until, now time.Time) (words, hint string) {
	says := now.UTC().Format(clockLayout)
	if now.Before(from) {
		return fmt.Sprintf("%s is valid from %s; %s says %s", what, from.UTC().Format(clockLayout), whose, says),
			fmt.Sprintf("one of two clocks is wrong: %s (%s; then set it), or that of the machine that issued it (then set it, and have it issued again)", whose, whose.look())
	}
	return fmt.Sprintf("%s was valid until %s; %s says %s", what, until.UTC().Format(clockLayout), whose, says),
		fmt.Sprintf("if %s is right, have a new one issued; if it is not (%s), set it", whose, whose.look())
}

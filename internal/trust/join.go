package trust

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	joinPrefix = "tako://"
	// joinMax is the longest address, hash and token, and what stands between them.
	joinMax = 512
)

// JoinLine is all that a host needs to join a cluster, in one line: where its server is, which trust it must show, and what to
// show to it. Its text form is tako://HOST:PORT/TRUST/TOKEN.
type JoinLine struct {
	Address string // HOST:PORT; an IPv6 address stands in brackets
	Trust   Hash   // of document 1
	Token   Token  // of kind TokenJoin
}

// Reveal returns the text form, which holds the token and is a secret.
func (l JoinLine) Reveal() string {
	return joinPrefix + l.Address + "/" + l.Trust.String() + "/" + l.Token.Reveal()
}

// Format prints the line without the secret of its token, whatever the verb.
func (l JoinLine) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, joinPrefix+l.Address+"/"+l.Trust.String()+"/")
	l.Token.Format(f, 's')
}

// ParseJoinLine reads the text form; white space around it is left out. Errors: TokenMalformed, which quotes nothing of the token.
func ParseJoinLine(s string) (JoinLine, error) {
	bad := func(cause error) (JoinLine, error) {
		return JoinLine{}, &reason.Error{
			Code: reason.TokenMalformed, Doing: "read join line", Cause: cause,
			Hint: "copy all of the line that `tako token create join` printed",
		}
	}
	s = strings.TrimSpace(s)
	rest, ok := strings.CutPrefix(s, joinPrefix)
	if !ok || len(s) > joinMax {
		return bad(fmt.Errorf("it does not begin with %s, or has more than %d characters", joinPrefix, joinMax))
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return bad(errors.New("want HOST:PORT/TRUST/TOKEN"))
	}
	if err := CheckAddress(parts[0]); err != nil {
		return bad(err)
	}
	hash, err := ParseHash(parts[1])
	if err != nil {
		return bad(errors.New("its second part is no hash: sha256: and 64 hexadecimal digits"))
	}
	token, err := ParseToken(parts[2])
	if err != nil {
		return bad(errors.Unwrap(err))
	}
	if token.Kind() != TokenJoin {
		return bad(errors.New("its token is for a person, not for a host"))
	}
	return JoinLine{Address: parts[0], Trust: hash, Token: token}, nil
}

// CheckAddress wants HOST:PORT, with a name or an IP address, as a join line has it. The error is words for a coded one.
func CheckAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("its address is not HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return errors.New("the port of its address is not 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); (err != nil || addr.Zone() != "") && !isHostName(host) {
		return errors.New("the host of its address is neither a name nor an IP address")
	}
	if net.JoinHostPort(host, port) != s {
		return errors.New("its address has brackets round what is no IPv6 address")
	}
	return nil
}

// isHostName wants labels of letters, digits, - and _, at most 253 characters in all.
func isHostName(s string) bool {
	if s == "" || len(s) > nameMax {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return true
}

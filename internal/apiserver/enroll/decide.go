package enroll

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// host is one that wants to join.
type host struct {
	name    string
	key     string // digest
	sealing []byte
	request *trust.HostRequest
}

// read checks what a host has sent. Errors: JoinRequestInvalid.
func read(r wire.JoinRequest) (host, error) {
	request, err := trust.ParseNodeRequest(r.Request)
	if err != nil {
		return host{}, err
	}
	bad := func(words, hint string) (host, error) {
		return host{key: request.Key()}, &reason.Error{Code: reason.JoinRequestInvalid, Doing: "join", Cause: errors.New(words), Hint: hint}
	}
	if !request.Binds(r.SealingKey) {
		return bad("the certificate request is for another sealing key, or that is none", "")
	}
	if len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
		return bad(fmt.Sprintf("%q is no name of a node", clip(r.Name)), "a name is small letters, digits, - and ., as in web-1.example.com: `tako-agent join --name NAME`")
	}
	return host{name: r.Name, key: request.Key(), sealing: bytes.Clone(r.SealingKey), request: request}, nil
}

// step is what to do about a host.
type step uint8

const (
	refuse  step = iota
	give         // a certificate for who it is already
	replace      // the identity: a person has approved that
	admit        // a use of the token, and an identity
	note         // refuse, and leave a request for a person
)

// shown is what the token that a host has shown is: err says why it is none.
type shown struct {
	token *v1alpha1.Token
	err   error
}

// decide says what to do about a host, given the Node of its name; nil when there is none. It does not look at how often the token was
// used. The error says why the host is refused.
func decide(h host, node *v1alpha1.Node, s shown) (step, error) {
	if node != nil {
		switch known := node.Status.Identity; {
		case node.DeletionTimestamp != nil:
			return refuse, &reason.Error{Code: reason.NameTaken, Doing: "join as node " + h.name, Cause: errors.New("the node of that name is being deleted"), Hint: "join again when it has gone"}
		case known != nil && known.Key == h.key && bytes.Equal(known.SealingKey, h.sealing):
			return give, nil
		case node.Spec.ApprovedKey != "" && node.Spec.ApprovedKey == h.key:
			return replace, nil
		}
	}
	if s.err != nil {
		return refuse, s.err
	}
	if s.token == nil {
		return refuse, &reason.Error{
			Code: reason.TokenRefused, Doing: "join as node " + h.name, Cause: fmt.Errorf("no token was shown, and nobody has approved key %s for that node", h.key),
			Hint: "take the line of `tako token create join`, or have the key approved: `tako node approve " + h.name + "`",
		}
	}
	if err := admits(s.token, h.name); err != nil {
		return refuse, err
	}
	switch {
	case node == nil:
		return admit, nil
	case node.Status.Identity != nil:
		differs := fmt.Errorf("a host with key %s has joined as that node, and this one has key %s", node.Status.Identity.Key, h.key)
		if node.Status.Identity.Key == h.key {
			differs = errors.New("the host that has joined as that node has the same key, and another sealing key")
		}
		if node.Spec.RejectedKey == h.key {
			return refuse, &reason.Error{
				Code: reason.NameTaken, Doing: "join as node " + h.name, Cause: fmt.Errorf("%w; somebody has rejected it", differs),
				Hint: "give it another name: `tako-agent join --name NAME`",
			}
		}
		return note, &reason.Error{
			Code: reason.NameTaken, Doing: "join as node " + h.name, Cause: differs,
			Hint: fmt.Sprintf("if this machine is to take its place: `tako node approve %s`, then join again; otherwise give it another name: `tako-agent join --name NAME`", h.name),
		}
	case node.Spec.Environment != s.token.Spec.Join.Environment:
		// The Node decides what the host gets; who holds a token for one environment must not get the secrets of another by that.
		return refuse, refused(s.token, fmt.Sprintf("node %s waits for its host in %s, and the token is for %s", h.name, environment(node.Spec.Environment), environment(s.token.Spec.Join.Environment)))
	}
	return admit, nil
}

func environment(name string) string {
	if name == "" {
		return "no environment"
	}
	return "environment " + name
}

// admits says why a token is not for a host of that name; nil when it is.
func admits(t *v1alpha1.Token, name string) error {
	j := t.Spec.Join
	switch {
	case j.Relay:
		return refused(t, "it is for a relay, and this is a host")
	case j.Name != "" && j.Name != name:
		return refused(t, fmt.Sprintf("it is for a host called %s, and this one is called %s", j.Name, name))
	case j.Name == "" && j.Pattern != "" && !fits(j.Pattern, name):
		return refused(t, fmt.Sprintf("it is for hosts called %s, and this one is called %s", j.Pattern, name))
	}
	return nil
}

func refused(t *v1alpha1.Token, words string) error {
	return &reason.Error{Code: reason.TokenRefused, Doing: "join with token " + t.Name, Cause: errors.New(words), Hint: "make another one: `tako token create join`"}
}

// fits says whether a name looks like a pattern, in which each * stands for any run of characters. Of the runs the first that fits is
// taken: for what follows, nothing is lost by that.
func fits(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return true
}

// clip bounds a text from outside for a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

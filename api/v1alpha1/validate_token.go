package v1alpha1

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Limits of who the bearer of a token is: ours, far above any real one, so that what goes along with every request is bounded.
const (
	userNameBytesMax = 253
	groupsMax        = 64
)

// ValidateToken returns every mistake of a new token, created at a time.
func ValidateToken(t *Token, now time.Time) []declare.Fault {
	var v validator
	v.labelCount("metadata.labels", t.Labels)
	if e := t.Spec.Expires; e != nil && !e.After(now) {
		v.invalid("spec.expires", fmt.Sprintf("the token ends at %s, and it is %s", e.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), "give a time to come; if this one is, set the server's clock")
	}
	switch t.Spec.Type {
	case TokenJoin:
		v.member(t.Spec.Join != nil, t.Spec.User != nil, string(TokenUser), TokenJoin)
	case TokenUser:
		v.member(t.Spec.User != nil, t.Spec.Join != nil, string(TokenJoin), TokenUser)
	case "":
		v.fault("spec.type", reason.MissingField, `spec has no "type"`, "write type: join or type: user")
	default:
		v.invalid("spec.type", fmt.Sprintf("unknown type of token %q", clip(string(t.Spec.Type))), "write join or user")
	}
	if t.Spec.User != nil {
		v.user(t.Spec.User)
	}
	if t.Spec.Join != nil {
		v.join(t.Spec.Join)
	}
	return v.faults
}

// ValidateTokenUpdate refuses any change of what a token is good for: what was handed out stays what it was.
func ValidateTokenUpdate(changed, old *Token) []declare.Fault {
	if equality.Semantic.DeepEqual(changed.Spec, old.Spec) {
		return nil
	}
	var v validator
	v.fault("spec", reason.FieldNotAllowed, "the spec of a token never changes", "delete the token and create another one")
	return v.faults
}

// member checks that of the fields user and join that one is given which the type names.
func (v *validator) member(given, otherGiven bool, other string, t TokenType) {
	if !given {
		v.fault("spec."+string(t), reason.MissingField, fmt.Sprintf("spec has no %q", t), fmt.Sprintf("a token of type %s needs it", t))
	}
	if otherGiven {
		v.fault("spec."+other, reason.FieldNotAllowed, fmt.Sprintf("a token of type %s has no %q", t, other), "leave it out, or write type: "+other)
	}
}

func (v *validator) user(u *UserToken) {
	v.given("spec.user", "name", u.Name)
	v.who("spec.user.name", u.Name)
	if len(u.Groups) > groupsMax {
		v.invalid("spec.user.groups", fmt.Sprintf("the user has %d groups, at most %d are allowed", len(u.Groups), groupsMax), "")
		return
	}
	for i, g := range u.Groups {
		path := fmt.Sprintf("spec.user.groups[%d]", i)
		if g == "" {
			v.invalid(path, "the name of a group is empty", "leave it out")
		}
		v.who(path, g)
	}
}

// who checks the name of a user or group, which appears in logs and role bindings.
func (v *validator) who(path, name string) {
	if len(name) > userNameBytesMax {
		v.invalid(path, fmt.Sprintf("the name has %d bytes, at most %d are allowed", len(name), userNameBytesMax), "")
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		v.invalid(path, "the name holds a control character", "")
	}
}

func (v *validator) join(j *JoinToken) {
	if j.Relay && (j.Environment != "" || len(j.Labels) > 0 || j.Count != nil || j.Name != "" || j.Pattern != "") {
		v.fault("spec.join.relay", reason.FieldNotAllowed, "a token for a relay has nothing else: a relay is called as its token, and no Node is made", "leave out the other fields of join")
		return
	}
	v.environment("spec.join.environment", j.Environment)
	v.labels("spec.join.labels", j.Labels)
	if j.Count != nil && *j.Count < 1 {
		v.invalid("spec.join.count", fmt.Sprintf("count is %d, the least is 1", *j.Count), "")
	}
	if j.Name != "" && len(validation.IsDNS1123Subdomain(j.Name)) > 0 {
		v.invalid("spec.join.name", fmt.Sprintf("%q is not a name", clip(j.Name)), nameRule)
	}
	if j.Name != "" && j.CountOrDefault() > 1 {
		v.fault("spec.join.count", reason.FieldNotAllowed, "only one host can join under one name", "leave count out, or write a pattern instead of the name")
	}
	if j.Pattern == "" {
		return
	}
	if j.Name != "" {
		v.fault("spec.join.pattern", reason.FieldNotAllowed, "a name and a pattern are given", "leave one of them out")
	}
	// A pattern that no name can fit would make a token that is good for nothing; with a letter for each *, it must be a name.
	if len(validation.IsDNS1123Subdomain(strings.ReplaceAll(j.Pattern, "*", "x"))) > 0 {
		v.invalid("spec.join.pattern", fmt.Sprintf("no name looks like %q", clip(j.Pattern)), "a name in which * stands for any run of letters, digits, - and ., such as web-*")
	}
}

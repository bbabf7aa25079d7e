package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token lets a host join the fleet, or a person use the API. The secret itself is in the answer to the request that creates
// the Token and nowhere else: what is stored is its hash. A token for somebody else is made by who may impersonate him; deleting a
// Token revokes it.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Token struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the token. The name is no secret.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the token is good for. It never changes.
	Spec TokenSpec `json:"spec"`
	// Status is written by tako alone.
	// +optional
	Status TokenStatus `json:"status,omitzero"`
}

// TokenList is a list of Tokens.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type TokenList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the tokens, without their secrets.
	Items []Token `json:"items"`
}

// TokenSpec is what a token is good for. Exactly the field that the type names is set.
type TokenSpec struct {
	// Type is join or user.
	Type TokenType `json:"type"`
	// Expires is when the token ends, to the second. Left out, it ends when it is deleted.
	Expires *metav1.Time `json:"expires,omitempty"`
	// User is who the bearer of a token of type user is.
	User *UserToken `json:"user,omitempty"`
	// Join is what a host becomes that shows a token of type join.
	Join *JoinToken `json:"join,omitempty"`
}

// TokenType is what a token is for.
//
// +enum
type TokenType string

// The types of tokens.
const (
	// TokenJoin lets a host join the fleet.
	TokenJoin TokenType = "join"
	// TokenUser lets a person or program use the API.
	TokenUser TokenType = "user"
)

// UserToken is who the bearer of a token is.
type UserToken struct {
	// Name is the user's name, as role bindings and the audit log know it; up to 253 bytes.
	Name string `json:"name"`
	// Groups are the user's groups, in any order. Default none; system:authenticated is added to everybody.
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// JoinToken is what a host becomes that shows the token. It never admits a name that another host has joined under.
type JoinToken struct {
	// Environment is the spec.environment of the new Node. Default none.
	Environment string `json:"environment,omitempty"`
	// Labels are the labels of the new Node. Default none.
	Labels map[string]string `json:"labels,omitempty"`
	// Count is how many hosts may join with the token, from 1. Default 1.
	Count *int32 `json:"count,omitempty"`
	// Name is the one name that a host may join under; with it, count is 1. Default any name that pattern allows.
	Name string `json:"name,omitempty"`
	// Pattern is what the names of hosts must look like: a name in which each * stands for any run of letters, digits, - and .,
	// such as "web-*". Default any name. Not together with name.
	Pattern string `json:"pattern,omitempty"`
	// Relay says that the token admits one relay, and no host: `tako relay join`. The relay is called as the Token is; deleting the Token
	// removes the relay. No other field is set with it. Default false.
	Relay bool `json:"relay,omitempty"`
}

// TokenStatus is what tako has noted about a token.
type TokenStatus struct {
	// Hash is what a token that is shown is compared with: sha256: and 64 hexadecimal digits. It is no secret, because a token
	// has more entropy than can be searched.
	Hash string `json:"hash,omitempty"`
	// Uses is how many hosts have joined with the token. Of a token of type user it stays 0.
	Uses int32 `json:"uses,omitempty"`
	// Relay is the relay that has joined with the token. Left out until one has, and for tokens that are for none.
	Relay *RelayIdentity `json:"relay,omitempty"`
	// Token is the secret. It is set in the answer to the request that creates the Token, and never stored.
	Token string `json:"token,omitempty"`
	// JoinLine is what a host joins with: where the server is, what the host is to trust, and the token. It is a secret, and as with
	// the token it is set in that answer only.
	JoinLine string `json:"joinLine,omitempty"`
}

// RelayIdentity is who may speak as a relay.
type RelayIdentity struct {
	// Key is the digest of its public key: sha256: and 64 hexadecimal digits.
	Key string `json:"key"`
	// Joined is when it joined.
	Joined metav1.Time `json:"joined"`
}

// CountOrDefault returns how many hosts may join, 1 when nothing is declared.
func (j *JoinToken) CountOrDefault() int32 {
	if j.Count == nil {
		return 1
	}
	return *j.Count
}

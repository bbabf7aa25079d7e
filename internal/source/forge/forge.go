// Package forge tells a forge what became of a commit: the commit status that people see beside it and that a protected branch
// can wait for.
//
// GitHub and Gitea (with Forgejo) take the same message at the same place below their API: POST
// repos/OWNER/NAME/statuses/COMMIT with state, description, context and target_url. They differ in how a token is presented.
// GitLab takes it at projects/OWNER%2FNAME/statuses/COMMIT, where OWNER may be groups in groups, and has its own word for a failure.
// A status with the same context replaces the one before, so that posting one again does no harm: GitLab alone refuses it, and
// that refusal is none. Whether and when to try again is for the caller to say (ForgeUnreachable carries what the forge asks for,
// ForgeRefused will not get better).
//
// The token goes into one header of one request to the host that the Source names: redirects are not followed, and no error
// holds it. The package owns no goroutine.
package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Kind is the kind of forge.
type Kind string

// The kinds.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	Gitea  Kind = "gitea"
)

// State is what became of a commit.
type State string

// The states, as GitHub and Gitea name them.
const (
	Pending State = "pending"
	Success State = "success"
	Failure State = "failure"
	Error   State = "error"
)

// Status is what people see beside a commit.
type Status struct {
	State State
	// Description is one line; what is longer than the 140 characters that GitHub takes is cut.
	Description string
	// Context tells statuses of one commit apart: one for each Source, for example tako/prod/site.
	Context string
	// TargetURL is where more is said; http or https, or empty.
	TargetURL string
}

// in is the state as a kind of forge names it. GitLab calls what went wrong failed, by whatever it did.
func (s State) in(k Kind) State {
	if k == GitLab && (s == Failure || s == Error) {
		return "failed"
	}
	return s
}

// Target is a commit at a forge.
type Target struct {
	Kind Kind
	// API is the root of the API: https://api.github.com, https://HOST/api/v3, https://HOST/api/v4 (GitLab) or https://HOST/api/v1 (Gitea).
	API string
	// Owner is who the repository is of; at GitLab it may be a group in a group: a/b.
	Owner  string
	Name   string // of the repository, without .git
	Commit string // full, in hexadecimal
	Token  Token
	// Authorities are certificates in PEM that are trusted beside the machine's own. Default none.
	Authorities []byte
}

// Token is a secret that is never shown.
type Token string

// String hides the token.
func (Token) String() string { return "…" }

// GoString hides the token too.
func (Token) GoString() string { return "…" }

// MarshalText hides the token from logs and JSON.
func (Token) MarshalText() ([]byte, error) { return []byte("…"), nil }

// descriptionRunesMax is what GitHub takes.
const descriptionRunesMax = 140

// message is the body that all kinds take.
type message struct {
	State       State  `json:"state"`
	TargetURL   string `json:"target_url,omitempty"`
	Description string `json:"description,omitempty"`
	Context     string `json:"context,omitempty"`
}

// NewRequest makes the request that posts a status. Plain http is refused but to this very host, because whoever listens would
// have the token. An error has code InvalidValue.
func NewRequest(ctx context.Context, t Target, s Status) (*http.Request, error) {
	address, err := t.address()
	if err != nil {
		return nil, invalid(err)
	}
	if err := s.check(); err != nil {
		return nil, invalid(err)
	}
	body, err := json.Marshal(message{s.State.in(t.Kind), s.TargetURL, cut(s.Description), s.Context})
	if err != nil {
		return nil, invalid(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, invalid(errors.New("the address of the API is no URL"))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "tako") // GitHub refuses who does not name himself
	switch t.Kind {
	case GitHub:
		request.Header.Set("Accept", "application/vnd.github+json")
		request.Header.Set("X-GitHub-Api-Version", "2022-11-28") // the version that the message above is of
		request.Header.Set("Authorization", "Bearer "+string(t.Token))
	case GitLab:
		request.Header.Set("Accept", "application/json")
		request.Header.Set("PRIVATE-TOKEN", string(t.Token))
	case Gitea:
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Authorization", "token "+string(t.Token))
	}
	return request, nil
}

// address checks a target, none of whose parts may change what the others mean.
func (t Target) address() (string, error) {
	if t.Kind != GitHub && t.Kind != GitLab && t.Kind != Gitea {
		return "", fmt.Errorf("the kind of forge is %q, and not github, gitlab or gitea", t.Kind)
	}
	u, err := url.Parse(t.API)
	local := err == nil && (u.Hostname() == "127.0.0.1" || u.Hostname() == "::1" || u.Hostname() == "localhost")
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the address of the API must be https://HOST and a path, without a user")
	case u.Scheme != "https" && (u.Scheme != "http" || !local):
		return "", errors.New("the address of the API must begin with https://")
	case len(t.Commit) != 40 && len(t.Commit) != 64 || strings.Trim(t.Commit, "0123456789abcdef") != "":
		return "", fmt.Errorf("%q is no full commit", t.Commit)
	case t.Token == "" || strings.ContainsFunc(string(t.Token), func(r rune) bool { return r <= 0x20 || r >= 0x7f }):
		return "", errors.New("the token is empty, or has spaces or characters that no header takes")
	}
	owners := []string{t.Owner}
	if t.Kind == GitLab {
		owners = strings.Split(t.Owner, "/")
	}
	for _, name := range append(owners, t.Name) {
		if !isName(name) {
			return "", fmt.Errorf("%q is no owner or name of a repository", name)
		}
	}
	if t.Kind == GitLab { // one segment, whose slashes are no separators
		return u.JoinPath("projects", url.PathEscape(t.Owner+"/"+t.Name), "statuses", t.Commit).String(), nil
	}
	return u.JoinPath("repos", t.Owner, t.Name, "statuses", t.Commit).String(), nil
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\\?#%") && !strings.ContainsFunc(s, func(r rune) bool { return r <= 0x20 || r == 0x7f })
}

func (s Status) check() error {
	switch s.State {
	case Pending, Success, Failure, Error:
	default:
		return fmt.Errorf("%q is no state of a commit", s.State)
	}
	if s.TargetURL == "" {
		return nil
	}
	if u, err := url.Parse(s.TargetURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the target must be an http or https URL")
	}
	return nil
}

// cut makes one line of a text that fits.
func cut(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if utf8.RuneCountInString(text) <= descriptionRunesMax {
		return text
	}
	return string([]rune(text)[:descriptionRunesMax-1]) + "…"
}

func invalid(cause error) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: "post a commit status", Cause: cause}
}

// Repository splits the URL of a repository, https://HOST/OWNER/NAME.git, ssh://… or user@HOST:OWNER/NAME.git, into what a
// Target of a kind needs. Where the forge is below a path, the last two names count; at GitLab all do, because groups stand in groups: one
// below a path cannot be told from one in a group.
func Repository(kind Kind, cloneURL string) (owner, name string, err error) {
	path := ""
	if u, err := url.Parse(cloneURL); err == nil && u.Host != "" {
		path = u.Path
	} else if before, after, ok := strings.Cut(cloneURL, ":"); ok && !strings.Contains(before, "/") && !strings.HasPrefix(after, "//") {
		path = after
	}
	names := strings.Split(strings.TrimSuffix(strings.Trim(path, "/"), ".git"), "/")
	last := len(names) - 1
	if last < 1 || names[last] == "" || names[last-1] == "" {
		return "", "", &reason.Error{Code: reason.InvalidValue, Doing: "find owner and name of a repository", Cause: errors.New("its URL does not end in OWNER/NAME")}
	}
	if kind == GitLab {
		return strings.Join(names[:last], "/"), names[last], nil
	}
	return names[last-1], names[last], nil
}

package git

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Remote says where a repository is and how to get in.
type Remote struct {
	// URL is https://HOST[:PORT]/PATH, ssh://[USER@]HOST[:PORT]/PATH, USER@HOST:PATH, file:///PATH or http://HOST/PATH.
	// It carries no password.
	URL  string
	Auth Auth
	// PlainHTTP allows http, over which no credentials are sent.
	PlainHTTP bool
	// Submodules has Fetch follow them. Those that are elsewhere than the repository itself are refused.
	Submodules bool
}

// Auth is what opens a repository. Only what fits the URL's protocol may be given. It prints as nothing.
type Auth struct {
	Username    string // https: with Password
	Password    string // https: password or access token; ssh: the passphrase of Identity
	BearerToken string // https, instead of Username and Password
	Identity    []byte // ssh: a private key in PEM
	KnownHosts  []byte // ssh: lines of known_hosts; required
	CA          []byte // https: certificates in PEM that are trusted instead of those of the machine
}

const hidden = "git.Auth(hidden)"

// String hides what it holds.
func (Auth) String() string { return hidden }

// GoString hides what it holds from %#v.
func (Auth) GoString() string { return hidden }

// Format hides what it holds from every verb.
func (Auth) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue hides what it holds from logs.
func (Auth) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides what it holds from encoders.
func (Auth) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// secrets lists the texts that must not be printed, in each form in which they leave this process.
func (a Auth) secrets() []string {
	var list []string
	for _, s := range []string{a.Password, a.BearerToken} {
		if s != "" {
			list = append(list, s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	if a.Username != "" && a.Password != "" {
		list = append(list, a.basic())
	}
	return list
}

func (a Auth) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + a.Password))
}

func (a Auth) header() string {
	switch {
	case a.BearerToken != "":
		return "Authorization: Bearer " + a.BearerToken
	case a.Password != "" || a.Username != "":
		return "Authorization: Basic " + a.basic()
	}
	return ""
}

type protocol string

const (
	overHTTPS protocol = "https"
	overHTTP  protocol = "http"
	overSSH   protocol = "ssh"
	overFile  protocol = "file"
)

// target is a Remote that was found to be allowed.
type target struct {
	protocol protocol
	url      string // as git gets it
	origin   string // scheme://host[:port]/ of https and http, to which credentials are bound
	auth     Auth
	reader   localReader // of file
}

// urlMax bounds an address: browsers and servers take 2,000 and more, no repository needs as much.
const urlMax = 2048

// target checks a remote. Errors never show the address where it may hold a password.
func (g *Git) target(r Remote) (*target, error) {
	if len(r.URL) > urlMax || !utf8.ValidString(r.URL) || strings.ContainsFunc(r.URL, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' }) {
		return nil, addressError("repository address", "it is too long, or has spaces or control characters", "write it as the forge shows it")
	}
	if !strings.Contains(r.URL, "://") {
		return scpTarget(r)
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, addressError("repository address", "it is not a URL", "write https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH")
	}
	if _, has := u.User.Password(); has || u.User != nil && u.Scheme != "ssh" {
		return nil, addressError("repository address at "+quote(u.Host), "it carries a user or password", "take them out of the address and put them into the Secret of the credentials")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, addressError("repository address at "+quote(u.Host), "it has a query or fragment", "write the address that git clone takes")
	}
	switch protocol(u.Scheme) {
	case overHTTPS, overHTTP:
		return httpTarget(r, u)
	case overSSH:
		user := u.User.Username()
		if dashed(u.Hostname()) || dashed(user) || u.Path == "" || u.Path == "/" {
			return nil, addressError(quote(r.URL), "host, user and path may not be empty or begin with a dash", "write ssh://USER@HOST/PATH")
		}
		return sshTarget(r)
	case overFile:
		return g.fileTarget(r, u)
	}
	return nil, addressError(quote(r.URL), "protocol "+quote(u.Scheme)+" is not allowed", "use https or ssh")
}

func dashed(s string) bool { return strings.HasPrefix(s, "-") }

func httpTarget(r Remote, u *url.URL) (*target, error) {
	a, plain := r.Auth, u.Scheme == "http"
	switch {
	case plain && !r.PlainHTTP:
		return nil, addressError(quote(r.URL), "http is not allowed: anybody on the way may change what comes", "use https")
	case plain && a.header() != "":
		return nil, addressError(quote(r.URL), "credentials are not sent over http", "use https, or take the credentials away")
	case u.Hostname() == "" || dashed(u.Hostname()):
		return nil, addressError(quote(r.URL), "it has no host", "write https://HOST/PATH")
	case len(a.Identity) > 0 || len(a.KnownHosts) > 0:
		return nil, addressError(quote(r.URL), "an ssh key or known hosts do not fit https", "give username and password, or a bearer token")
	case a.BearerToken != "" && (a.Username != "" || a.Password != ""):
		return nil, addressError(quote(r.URL), "both a bearer token and a password are given", "give one of them")
	case strings.ContainsAny(a.Username, ":") || unprintable(a.Username+a.Password+a.BearerToken):
		return nil, addressError(quote(r.URL), "user, password or token have a line end, a control character or (the user) a colon", "look for a line end at the end of the Secret's value")
	}
	return &target{protocol: protocol(u.Scheme), url: u.String(), origin: u.Scheme + "://" + u.Host + "/", auth: a}, nil
}

func unprintable(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}

func scpTarget(r Remote) (*target, error) {
	host, path, ok := strings.Cut(r.URL, ":")
	user, name, hasUser := strings.Cut(host, "@")
	if !hasUser {
		user, name = "", host
	}
	if !ok || path == "" || name == "" || hasUser && user == "" || dashed(user) || dashed(name) || dashed(path) || strings.ContainsAny(host, "/:[]") {
		return nil, addressError("repository address", "it is neither a URL nor USER@HOST:PATH", "write https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH")
	}
	return sshTarget(r)
}

func sshTarget(r Remote) (*target, error) {
	a := r.Auth
	switch {
	case len(a.KnownHosts) == 0:
		return nil, &reason.Error{Code: reason.RepositoryUntrusted, Doing: "reach repository " + quote(r.URL), Cause: fmt.Errorf("no known hosts are given"),
			Hint: "put the output of ssh-keyscan HOST, compared with what the forge publishes, into the Secret as known_hosts"}
	case a.Username != "" || a.BearerToken != "" || len(a.CA) > 0 || a.Password != "" && len(a.Identity) == 0:
		return nil, addressError(quote(r.URL), "username, password, token and CA do not fit ssh", "give an identity (a private key); the user belongs into the address")
	}
	return &target{protocol: overSSH, url: r.URL, auth: a}, nil
}

func addressError(what, why, hint string) error {
	return &reason.Error{Code: reason.RepositoryAddress, Doing: "use " + what, Cause: fmt.Errorf("%s", why), Hint: hint}
}

// quote shows text of others on one line, shortened.
func quote(s string) string {
	const most = 200 // a line of a terminal, and a half
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

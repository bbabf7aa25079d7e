package forge

import (
	"errors"
	"net/url"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Host is the host in the URL of a repository or an API, without the port; empty for none.
func Host(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if before, rest, ok := strings.Cut(address, "@"); ok && !strings.Contains(before, "/") {
		host, _, _ := strings.Cut(rest, ":")
		return host
	}
	return ""
}

// APIOf is where a forge has its API, by the URL of a repository: what its own documentation says. The error has the code InvalidValue.
func APIOf(kind Kind, repository string) (string, error) {
	host := Host(repository)
	if u, err := url.Parse(repository); err == nil && u.Host != "" && u.Scheme != "ssh" {
		host = u.Host // with the port, which is that of the API too
	}
	switch {
	case host == "":
		return "", &reason.Error{Code: reason.InvalidValue, Doing: "find the API of the forge", Cause: errors.New("the address of the repository names no host"), Hint: "spec.report.api says where it is"}
	case kind == Gitea:
		return "https://" + host + "/api/v1", nil
	case kind == GitLab:
		return "https://" + host + "/api/v4", nil
	case host == "github.com":
		return "https://api.github.com", nil
	}
	return "https://" + host + "/api/v3", nil
}

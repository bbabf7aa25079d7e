package forge

import (
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestAPIOf(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		url  string
		want string // empty for none
	}{
		{GitHub, "https://github.com/octo/fleet.git", "https://api.github.com"},
		{GitHub, "git@github.com:octo/fleet.git", "https://api.github.com"},
		{GitHub, "https://ghe.example.com/octo/fleet", "https://ghe.example.com/api/v3"},
		{GitLab, "https://gitlab.example.com:8443/a/b/fleet.git", "https://gitlab.example.com:8443/api/v4"},
		{GitLab, "ssh://git@gitlab.example.com:2222/a/fleet.git", "https://gitlab.example.com/api/v4"},
		{Gitea, "git@git.example.com:ops/fleet.git", "https://git.example.com/api/v1"},
		{Gitea, "file:///srv/git/fleet.git", ""},
	} {
		got, err := APIOf(c.kind, c.url)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s, %s: %q, %v", c.kind, c.url, got, err)
		}
	}
}

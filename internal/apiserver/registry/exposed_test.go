package registry

import (
	"context"
	"fmt"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/internal/fleet/exposed"
)

// TestExposedIsTheServers: nobody else adds to the list of who has had the values of a Secret, or takes from it, under whatever name; and
// what has changed leaves it.
func TestExposedIsTheServers(t *testing.T) {
	k := kindOf(t, "secrets")
	list := exposed.Write(exposed.Add(nil, exposed.Exposure{Node: "web-1", UID: "u", Why: "was deleted", At: time.Now(), Keys: []string{"a", "b"}}))
	secret := func(a, list string) *core.Secret {
		s := parse(t, k, fmt.Sprintf(`{"metadata":{"annotations":{"mine":"1"}},"stringData":{"a":%q,"b":"2","c":"3"}}`, a)).(*core.Secret)
		if list != "" {
			s.Annotations[exposed.Annotation] = list
		}
		strategyOf(k).fill(s)
		return s
	}
	pretender := request.WithUser(context.Background(), &user.DefaultInfo{Name: itself.Name, Groups: itself.Groups})
	own := as(context.Background(), "prod")
	for name, c := range map[string]struct {
		ctx      context.Context
		old, now *core.Secret // old is nil for a new one
		want     string       // keys
	}{
		"new, forged":                      {pretender, nil, secret("1", list), "[]"},
		"forged":                           {pretender, secret("1", ""), secret("1", list), "[]"},
		"left out":                         {pretender, secret("1", list), secret("1", ""), "[a b]"},
		"another list":                     {pretender, secret("1", list), secret("1", "[]"), "[a b]"},
		"by the server":                    {own, secret("1", ""), secret("1", list), "[a b]"},
		"taken away by the server":         {own, secret("1", list), secret("1", ""), "[]"},
		"one value changed":                {pretender, secret("1", list), secret("other", ""), "[b]"},
		"one value changed, sent with it":  {pretender, secret("1", list), secret("other", list), "[b]"},
		"by the server, and changed since": {own, secret("1", ""), secret("other", list), "[b]"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.old == nil {
				strategyOf(k).PrepareForCreate(c.ctx, c.now)
			} else {
				strategyOf(k).PrepareForUpdate(c.ctx, c.now, c.old)
			}
			text := c.now.Annotations[exposed.Annotation]
			if keys, _ := exposed.Keys(exposed.Read(text)); fmt.Sprint(keys) != c.want {
				t.Errorf("%v, want %s", keys, c.want)
			}
			if c.now.Annotations["mine"] != "1" {
				t.Error("another annotation was lost")
			}
			if want := fmt.Sprint(text != ""); k.Fields(c.now)["exposed"] != want {
				t.Errorf("the field selector finds %q, want %s", k.Fields(c.now)["exposed"], want)
			}
		})
	}
	gone := secret("1", "")
	delete(gone.Data, "a")
	delete(gone.Data, "b")
	strategyOf(k).PrepareForUpdate(pretender, gone, secret("1", list))
	if text, there := gone.Annotations[exposed.Annotation]; there {
		t.Errorf("keys that are gone are exposed: %q", text)
	}
	if n := exposedKeys(secret("1", list)); n != 2 {
		t.Errorf("the column has %v", n)
	}
}

package declare

import (
	"strings"
	"testing"
	"time"
)

// TestContentFrom: a file takes its content from one value of one object that its config may name.
func TestContentFrom(t *testing.T) {
	const at = "spec.resources[0].file.contentFrom"
	secret := func(namespace, name, key string) *ContentSource {
		return &ContentSource{Secret: &KeySelector{Namespace: namespace, Name: name, Key: key}}
	}
	configMap := func(namespace, name, key string) *ContentSource {
		return &ContentSource{ConfigMap: &KeySelector{Namespace: namespace, Name: name, Key: key}}
	}
	for _, c := range []struct {
		name    string
		cluster bool
		expand  bool
		content string
		from    *ContentSource
		want    string
	}{
		{"secret", false, false, "", secret("", "web.example.com", "tls.key"), ""},
		{"config map", false, true, "", configMap("", "web", "_a-B.0"), ""},
		{"of the cluster", true, false, "", secret("qa", "web", "k"), ""},
		{"nothing", false, false, "", &ContentSource{}, "TK0413 " + at},
		{"both", false, false, "", &ContentSource{Secret: &KeySelector{Name: "a", Key: "k"}, ConfigMap: &KeySelector{Name: "a", Key: "k"}}, "TK0415 " + at + ".configMap"},
		{"beside a content", false, false, "text", secret("", "web", "k"), "TK0415 " + at},
		{"a secret that is expanded", false, true, "", secret("", "web", "k"), "TK0415 spec.resources[0].expand"},
		{"another's namespace", false, false, "", secret("qa", "web", "k"), "TK0415 " + at + ".secret.namespace"},
		{"one's own namespace", false, false, "", configMap("default", "web", "k"), "TK0415 " + at + ".configMap.namespace"},
		{"no namespace in the cluster", true, false, "", configMap("", "web", "k"), "TK0413 " + at + ".configMap.namespace"},
		{"no namespace at all", true, false, "", configMap("a.b", "web", "k"), "TK0414 " + at + ".configMap.namespace"},
		{"no name, no key", false, false, "", secret("", "", ""), "TK0413 " + at + ".secret.name, TK0413 " + at + ".secret.key"},
		{"bad names", false, false, "", secret("", "Web", "a/b"), "TK0414 " + at + ".secret.name, TK0414 " + at + ".secret.key"},
		{"up", false, false, "", configMap("", "web", "..a"), "TK0414 " + at + ".configMap.key"},
		{"a long key", false, false, "", configMap("", "web", strings.Repeat("k", 254)), "TK0414 " + at + ".configMap.key"},
	} {
		config := config(Resource{Name: "a", Expand: c.expand, File: &File{Path: "/a", Content: c.content, ContentFrom: c.from}})
		if c.cluster {
			config.Kind = KindClusterNodeConfig
		}
		if got := summary(Validate(config)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestSecretFilesArePrivate: what comes from a Secret is shown nowhere, and only its owner reads it unless somebody says otherwise.
func TestSecretFilesArePrivate(t *testing.T) {
	secret := &ContentSource{Secret: &KeySelector{Name: "a", Key: "k"}}
	for _, c := range []struct {
		file    File
		mode    uint32
		private bool
	}{
		{File{}, 0o644, false},
		{File{Mode: "0600"}, 0o600, true},
		{File{ContentFrom: secret}, 0o600, true},
		{File{ContentFrom: secret, Mode: "0640"}, 0o640, true},
		{File{ContentFrom: &ContentSource{ConfigMap: secret.Secret}}, 0o644, false},
	} {
		want := OnRemoveKeep
		if c.file.FromSecret() {
			want = OnRemoveDelete
		}
		if got := (&Resource{File: &c.file}).OnRemoveOrDefault(); got != want {
			t.Errorf("%+v is removed by %q", c.file, got)
		}
		if got := (&Resource{File: &c.file, OnRemove: OnRemoveKeep}).OnRemoveOrDefault(); got != OnRemoveKeep {
			t.Errorf("%+v is to be kept, and is removed by %q", c.file, got)
		}
		if c.file.ModeOrDefault() != c.mode || c.file.Private() != c.private {
			t.Errorf("%+v has mode %o and private %v", c.file, c.file.ModeOrDefault(), c.file.Private())
		}
	}
}

func TestTry(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "1s": time.Second, "20s": 20 * time.Second, "1h30m": 90 * time.Minute, "24h": 24 * time.Hour} {
		c := config()
		c.Spec.Rollout.Try = text
		if got := summary(Validate(c)); got != "" || c.Spec.Rollout.TryOrZero() != want {
			t.Errorf("%q: %s, is %s", text, got, c.Spec.Rollout.TryOrZero())
		}
	}
	for _, text := range []string{"0", "0s", "-1m", "10", "999ms", "1500ms", "24h1s", "1d", "ten minutes", " 1s", "999999999h"} {
		c := config()
		c.Spec.Rollout.Try = text
		if got := summary(Validate(c)); got != "TK0414 spec.rollout.try" {
			t.Errorf("%q: %s", text, got)
		}
	}
}

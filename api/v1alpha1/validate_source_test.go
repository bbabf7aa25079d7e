package v1alpha1

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestValidateSource(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const good = "https://git.example.com/ops/fleet.git"
	at := func(url string) SourceSpec { return SourceSpec{URL: url} }
	ref := func(r SourceRef) SourceSpec { return SourceSpec{URL: good, Ref: r} }
	dir := func(path string) SourceSpec { return SourceSpec{URL: good, Path: path} }
	each := func(d time.Duration) SourceSpec {
		return SourceSpec{URL: good, Interval: &metav1.Duration{Duration: d}}
	}
	suspended := func(why, owner string, until time.Duration) SourceSpec {
		return SourceSpec{URL: good, Suspend: &SourceSuspension{Reason: why, Owner: owner, Until: metav1.NewTime(now.Add(until))}}
	}
	hash := strings.Repeat("0a", 20)
	for _, c := range []struct {
		name string
		spec SourceSpec
		want string
	}{
		{"the least", at(good), ""},
		{"nothing", SourceSpec{}, "TK0413 spec.url"},
		{"ssh", at("ssh://git@git.example.com:2222/ops/fleet.git"), ""},
		{"ssh as git writes it", at("git@git.example.com:ops/fleet.git"), ""},
		{"a directory", at("file:///srv/git/fleet.git"), ""},
		{"a directory of somebody else", at("file://host/srv/git"), "TK0414 spec.url"},
		{"a directory somewhere", at("file://"), "TK0414 spec.url"},
		{"a path", at("/srv/git/fleet.git"), "TK0414 spec.url"},
		{"a password", at("https://me:secret@git.example.com/a.git"), "TK0414 spec.url"},
		{"a token", at("https://secret@git.example.com/a.git"), "TK0414 spec.url"},
		{"a password for ssh", at("ssh://me:secret@git.example.com/a.git"), "TK0414 spec.url"},
		{"a password that is no URL", at("https://me:sec%ret@git.example.com/a.git"), "TK0414 spec.url"},
		{"a command", at("ext::sh -c id"), "TK0414 spec.url"},
		{"a helper", at("git@host::ext"), "TK0414 spec.url"},
		{"an option", at("--upload-pack=id"), "TK0414 spec.url"},
		{"git's own", at("git://git.example.com/a.git"), "TK0414 spec.url"},
		{"no host", at("https:///a.git"), "TK0414 spec.url"},
		{"a question", at(good + "?a=b"), "TK0414 spec.url"},
		{"a line more", at(good + "\nproxy"), "TK0414 spec.url"},
		{"long", at("https://git.example.com/" + strings.Repeat("a", 2048)), "TK0414 spec.url"},

		{"a branch", ref(SourceRef{Branch: "release/1.2"}), ""},
		{"a tag", ref(SourceRef{Tag: "v1.2.3"}), ""},
		{"a range", ref(SourceRef{Semver: ">=1.2.0 <2"}), ""},
		{"a commit", ref(SourceRef{Commit: hash}), ""},
		{"two", ref(SourceRef{Branch: "main", Tag: "v1"}), "TK0414 spec.ref"},
		{"a short commit", ref(SourceRef{Commit: hash[:39]}), "TK0414 spec.ref.commit"},
		{"a full name", ref(SourceRef{Branch: "refs/heads/main"}), "TK0414 spec.ref.branch"},
		{"a branch that is an option", ref(SourceRef{Branch: "--upload-pack=id"}), "TK0414 spec.ref.branch"},
		{"a branch that is two", ref(SourceRef{Branch: "a:b"}), "TK0414 spec.ref.branch"},
		{"a tag that goes up", ref(SourceRef{Tag: "a/../b"}), "TK0414 spec.ref.tag"},
		{"a long branch", ref(SourceRef{Branch: strings.Repeat("a", 256)}), "TK0414 spec.ref.branch"},

		{"a path within", dir("clusters/prod"), ""},
		{"a path with a dot", dir("./clusters/../prod"), ""},
		{"a path that goes up", dir("../etc"), "TK0414 spec.path"},
		{"a path that goes up in the end", dir("a/../../etc"), "TK0414 spec.path"},
		{"an absolute path", dir("/etc"), "TK0414 spec.path"},

		{"often", each(10 * time.Second), ""},
		{"too often", each(9 * time.Second), "TK0414 spec.interval"},
		{"never", each(25 * time.Hour), "TK0414 spec.interval"},
		{"waits", SourceSpec{URL: good, Wait: &SourceWait{Timeout: &metav1.Duration{Duration: time.Second}}}, ""},
		{"waits not", SourceSpec{URL: good, Wait: &SourceWait{Timeout: &metav1.Duration{}}}, "TK0414 spec.wait.timeout"},
		{"drift", SourceSpec{URL: good, Drift: "Ignore"}, "TK0414 spec.drift"},
		{"removed with all", SourceSpec{URL: good, OnRemove: SourceRemovalDelete}, ""},
		{"removed somehow", SourceSpec{URL: good, OnRemove: "Orphan"}, "TK0414 spec.onRemove"},
		{"patterns", SourceSpec{URL: good, Ignore: []string{"*.md", "a\nb"}}, "TK0414 spec.ignore[1]"},
		{"too many patterns", SourceSpec{URL: good, Ignore: make([]string, 101)}, "TK0414 spec.ignore"},
		{"credentials", SourceSpec{URL: good, Credentials: "Git"}, "TK0414 spec.credentials"},

		{"signed commits", SourceSpec{URL: good, Verify: &SourceVerify{Keys: "people"}}, ""},
		{"signed by nobody", SourceSpec{URL: good, Verify: &SourceVerify{}}, "TK0413 spec.verify.keys"},
		{"a signed tag of a branch", SourceSpec{URL: good, Verify: &SourceVerify{Keys: "people", Mode: SourceVerifyTag}}, "TK0414 spec.verify.mode"},
		{"a signed tag", SourceSpec{URL: good, Ref: SourceRef{Tag: "v1"}, Verify: &SourceVerify{Keys: "people", Mode: SourceVerifyTag}}, ""},
		{"signed somehow", SourceSpec{URL: good, Verify: &SourceVerify{Keys: "people", Mode: "Tree"}}, "TK0414 spec.verify.mode"},

		{"a webhook", SourceSpec{URL: good, Webhook: &SourceWebhook{Type: SourceForgeGitLab, Secret: "hook"}}, ""},
		{"a webhook of nobody", SourceSpec{URL: good, Webhook: &SourceWebhook{}}, "TK0413 spec.webhook.type, TK0413 spec.webhook.secret"},
		{"a webhook of another forge", SourceSpec{URL: good, Webhook: &SourceWebhook{Type: "Forge", Secret: "hook"}}, "TK0414 spec.webhook.type"},
		{"a report", SourceSpec{URL: good, Report: &SourceReport{Type: SourceForgeGitea, API: "https://git.example.com/api/v1", Secret: "token"}}, ""},
		{"a report to GitLab", SourceSpec{URL: good, Report: &SourceReport{Type: SourceForgeGitLab, Secret: "token"}}, ""},
		{"a report to whom nothing is told", SourceSpec{URL: good, Report: &SourceReport{Type: SourceForgeGeneric, API: "https://t:secret@git.example.com", Secret: "token"}}, "TK0414 spec.report.type, TK0414 spec.report.api"},

		{"depends", SourceSpec{URL: good, DependsOn: []SourceReference{{Name: "base"}, {Name: "fleet", Namespace: "other"}}}, ""},
		{"depends on itself", SourceSpec{URL: good, DependsOn: []SourceReference{{Name: "fleet"}}}, "TK0414 spec.dependsOn[0]"},
		{"depends on nothing", SourceSpec{URL: good, DependsOn: []SourceReference{{}}}, "TK0413 spec.dependsOn[0].name"},
		{"depends on all", SourceSpec{URL: good, DependsOn: make([]SourceReference, 21)}, "TK0414 spec.dependsOn"},

		{"suspended", suspended("r", "o", time.Hour), ""},
		{"suspended until now", suspended("r", "o", 0), "TK0414 spec.suspend.until"},
		{"suspended for ever", SourceSpec{URL: good, Suspend: &SourceSuspension{Reason: "r", Owner: "o"}}, "TK0413 spec.suspend.until"},
		{"suspended for no reason by nobody", suspended(" ", "", time.Hour), "TK0413 spec.suspend.reason, TK0413 spec.suspend.owner"},
		{"suspended too long", suspended("r", "o", 367*24*time.Hour), "TK0414 spec.suspend.until"},
	} {
		s := &Source{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "fleet"}, Spec: c.spec}
		faults := ValidateSource(s, nil, now)
		if got := summary(faults); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		for _, f := range faults {
			if strings.Contains(f.Message+f.Hint, "secret@") || strings.Contains(f.Message+f.Hint, "sec%ret") {
				t.Errorf("%s: %s %s shows what is secret", c.name, f.Message, f.Hint)
			}
		}
	}
}

// TestValidateSourceLater: what is right when it is written does not keep anybody from changing the source later, and a label has room.
func TestValidateSourceLater(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &Source{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "fleet"}, Spec: SourceSpec{
		URL: "https://git.example.com/a.git", Suspend: &SourceSuspension{Reason: "r", Owner: "o", Until: metav1.NewTime(now.Add(-time.Hour))},
	}}
	if got := summary(ValidateSource(s, s, now)); got != "" {
		t.Errorf("a suspension that has ended: %s", got)
	}
	s.Spec.Suspend = nil
	s.Name = strings.Repeat("a", 58)
	if got := summary(ValidateSource(s, nil, now)); got != "" {
		t.Errorf("a label of %d characters: %s", len(s.SourceLabel()), got)
	}
	s.Name += "a"
	if got := summary(ValidateSource(s, nil, now)); got != "TK0414 metadata.name" {
		t.Errorf("a label of %d characters: %s", len(s.SourceLabel()), got)
	}
}

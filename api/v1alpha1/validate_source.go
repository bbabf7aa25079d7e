package v1alpha1

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// What a source may say.
const (
	// SourceIntervalDefault is how often a repository is asked where nothing is said: soon enough for somebody who waits without a
	// webhook, and cheap for the forge.
	SourceIntervalDefault = 5 * time.Minute
	sourceIntervalMin     = 10 * time.Second // less would be a load on the forge that a webhook spares
	sourceIntervalMax     = 24 * time.Hour
	// SourceWaitDefault is how long what was applied may take to be well: some rounds of a rollout over a few hosts.
	SourceWaitDefault  = 10 * time.Minute
	sourceWaitMin      = time.Second
	sourceWaitMax      = 24 * time.Hour
	sourceURLBytesMax  = 2048
	sourceTextBytesMax = 255 // of a ref, or a path: what a file's name may have
	sourcePatternsMax  = 100
	sourceDependsMax   = 20
)

// AnnotationReconcile asks a source to look at its repository now: its value is anything that has not stood there before.
const AnnotationReconcile = "tako.dev/reconcile"

// SourceLabel is the value of the label tako.dev/set of what the source applies.
func (s *Source) SourceLabel() string { return s.Namespace + "." + s.Name }

// ValidateSource returns every mistake of a source at a time; old is nil for a new one.
func ValidateSource(s, old *Source, now time.Time) []declare.Fault {
	var v validator
	if label := s.SourceLabel(); len(label) > validation.LabelValueMaxLength {
		v.invalid("metadata.name", fmt.Sprintf("namespace and name have %d characters together with the dot between them, at most %d are allowed", len(label), validation.LabelValueMaxLength),
			"what the source applies is marked by a label of both: take a shorter name")
	}
	spec := &s.Spec
	v.sourceURL("spec.url", spec.URL)
	v.sourceRef("spec.ref", &spec.Ref)
	v.sourcePath("spec.path", spec.Path)
	v.sourceDuration("spec.interval", spec.Interval, sourceIntervalMin, sourceIntervalMax)
	v.objectName("spec.credentials", spec.Credentials)
	v.sourceIgnore("spec.ignore", spec.Ignore)
	switch spec.OnRemove {
	case "", SourceRemovalKeep, SourceRemovalDelete:
	default:
		v.invalid("spec.onRemove", fmt.Sprintf("unknown removal %q", clip(string(spec.OnRemove))), "one of: Keep, Delete")
	}
	switch spec.Drift {
	case "", SourceDriftRevert, SourceDriftReport:
	default:
		v.invalid("spec.drift", fmt.Sprintf("unknown drift %q", clip(string(spec.Drift))), "one of: Revert, Report")
	}
	if w := spec.Wait; w != nil {
		v.sourceDuration("spec.wait.timeout", w.Timeout, sourceWaitMin, sourceWaitMax)
	}
	v.sourceVerify(spec)
	v.sourceForges(spec)
	v.dependsOn(s)
	var before *SourceSuspension
	if old != nil {
		before = old.Spec.Suspend
	}
	v.suspension("spec.suspend", spec.Suspend, before, now)
	return v.faults
}

// scpForm is USER@HOST:PATH, which git takes for ssh.
var scpForm = regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^:].*$`)

func (v *validator) sourceURL(at, text string) {
	const forms = "https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, or file:///PATH where the server allows it"
	switch {
	case text == "":
		v.fault(at, reason.MissingField, `spec has no "url"`, forms)
		return
	case len(text) > sourceURLBytesMax || !utf8.ValidString(text) || strings.ContainsFunc(text, isControl):
		v.invalid(at, "it is no address of a repository", forms)
		return
	case scpForm.MatchString(text):
		return
	}
	u, err := url.Parse(text)
	if err != nil {
		v.invalid(at, "it is no address of a repository", forms) // what is wrong would quote a password
		return
	}
	_, password := u.User.Password()
	switch {
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" && u.Scheme != "file":
		v.invalid(at, fmt.Sprintf("repositories are not fetched by %q", clip(u.Scheme)), forms)
	case password || u.User != nil && u.Scheme != "ssh":
		v.invalid(at, "it holds credentials, and everybody who may read the source would see them", "put them into a Secret, and its name into spec.credentials")
	case u.Scheme == "file" && (u.Host != "" || !path.IsAbs(u.Path)), u.Scheme != "file" && u.Host == "", u.RawQuery != "", u.Fragment != "":
		v.invalid(at, "it is no address of a repository", forms)
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

var commitForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func (v *validator) sourceRef(at string, r *SourceRef) {
	var given []string
	for _, f := range []struct{ name, value string }{{"branch", r.Branch}, {"tag", r.Tag}, {"semver", r.Semver}, {"commit", r.Commit}} {
		if f.value == "" {
			continue
		}
		given = append(given, f.name)
		if f.name == "branch" || f.name == "tag" {
			v.refName(at+"."+f.name, f.value)
		}
		if len(f.value) > sourceTextBytesMax {
			v.invalid(at+"."+f.name, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(f.value), sourceTextBytesMax), "")
		}
	}
	if len(given) > 1 {
		v.invalid(at, "it says "+strings.Join(given, " and "), "say one of branch, tag, semver and commit")
	}
	if r.Commit != "" && !commitForm.MatchString(r.Commit) {
		v.invalid(at+".commit", fmt.Sprintf("%q is not a commit", clip(r.Commit)), "40 hexadecimal digits, small letters")
	}
}

// refName has the rules of git check-ref-format that matter: nothing that git takes for something else.
func (v *validator) refName(at, name string) {
	bad := name[0] == '-' || name[0] == '/' || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") ||
		strings.Contains(name, "..") || strings.Contains(name, "//") || strings.Contains(name, "@{") || strings.HasPrefix(name, "refs/") ||
		strings.ContainsAny(name, " ~^:?*[\\") || strings.ContainsFunc(name, isControl) || !utf8.ValidString(name)
	if bad {
		v.invalid(at, fmt.Sprintf("%q is not the name of a branch or tag", clip(name)), "the name without refs/heads/ or refs/tags/")
	}
}

func (v *validator) sourcePath(at, text string) {
	if text == "" {
		return
	}
	clean := path.Clean(text)
	if path.IsAbs(text) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsFunc(text, isControl) || !utf8.ValidString(text) || len(text) > 4*sourceTextBytesMax {
		v.invalid(at, fmt.Sprintf("%q is not a directory of a repository", clip(text)), "a path from the root of the repository, such as clusters/prod")
	}
}

func (v *validator) sourceDuration(at string, d *metav1.Duration, least, most time.Duration) {
	if d != nil && (d.Duration < least || d.Duration > most) {
		v.invalid(at, fmt.Sprintf("it is %s, must be %s to %s", d.Duration, least, most), "")
	}
}

// objectName checks the name of an object that is referred to; empty is none.
func (v *validator) objectName(at, name string) {
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		v.invalid(at, fmt.Sprintf("%q is not the name of an object", clip(name)), nameRule)
	}
}

func (v *validator) sourceIgnore(at string, patterns []string) {
	if len(patterns) > sourcePatternsMax {
		v.invalid(at, fmt.Sprintf("there are %d patterns, at most %d are allowed", len(patterns), sourcePatternsMax), "a file .takoignore in the directory may have more")
		return
	}
	for i, p := range patterns {
		if len(p) > 4*sourceTextBytesMax || strings.ContainsAny(p, "\n\x00") {
			v.invalid(fmt.Sprintf("%s[%d]", at, i), "it is not one pattern", "one line as in .gitignore")
		}
	}
}

func (v *validator) sourceVerify(spec *SourceSpec) {
	if spec.Verify == nil {
		return
	}
	v.given("spec.verify", "keys", spec.Verify.Keys)
	v.objectName("spec.verify.keys", spec.Verify.Keys)
	switch spec.Verify.Mode {
	case "", SourceVerifyCommit:
	case SourceVerifyTag:
		if spec.Ref.Tag == "" && spec.Ref.Semver == "" {
			v.invalid("spec.verify.mode", "there is no tag whose signature could be verified", "give spec.ref.tag or spec.ref.semver, or verify the Commit")
		}
	default:
		v.invalid("spec.verify.mode", fmt.Sprintf("unknown mode %q", clip(string(spec.Verify.Mode))), "one of: Commit, Tag")
	}
}

func (v *validator) sourceForges(spec *SourceSpec) {
	if w := spec.Webhook; w != nil {
		v.forge("spec.webhook.type", w.Type, SourceForgeGitHub, SourceForgeGitLab, SourceForgeGitea, SourceForgeGeneric)
		v.given("spec.webhook", "secret", w.Secret)
		v.objectName("spec.webhook.secret", w.Secret)
	}
	if r := spec.Report; r != nil {
		v.forge("spec.report.type", r.Type, SourceForgeGitHub, SourceForgeGitLab, SourceForgeGitea)
		v.given("spec.report", "secret", r.Secret)
		v.objectName("spec.report.secret", r.Secret)
		if u, err := url.Parse(r.API); r.API != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil) {
			v.invalid("spec.report.api", "it is no address of an API", "such as https://api.github.com; the token stands in the Secret")
		}
	}
}

func (v *validator) forge(at string, is SourceForge, known ...SourceForge) {
	names := make([]string, len(known))
	for i, k := range known {
		if is == k {
			return
		}
		names[i] = string(k)
	}
	if is == "" {
		v.fault(at, reason.MissingField, "there is no "+strings.TrimPrefix(at, "spec."), "one of: "+strings.Join(names, ", "))
		return
	}
	v.invalid(at, fmt.Sprintf("unknown type %q", clip(string(is))), "one of: "+strings.Join(names, ", "))
}

func (v *validator) dependsOn(s *Source) {
	if n := len(s.Spec.DependsOn); n > sourceDependsMax {
		v.invalid("spec.dependsOn", fmt.Sprintf("there are %d, at most %d are allowed", n, sourceDependsMax), "")
		return
	}
	for i, d := range s.Spec.DependsOn {
		at := fmt.Sprintf("spec.dependsOn[%d]", i)
		v.given(at, "name", d.Name)
		v.objectName(at+".name", d.Name)
		v.environment(at+".namespace", d.Namespace)
		if d.Name == s.Name && (d.Namespace == "" || d.Namespace == s.Namespace) {
			v.invalid(at, "it depends on itself", "remove it")
		}
	}
}

func (v *validator) suspension(at string, s, before *SourceSuspension, now time.Time) {
	if s == nil {
		return
	}
	for _, text := range []struct{ field, value string }{{"reason", s.Reason}, {"owner", s.Owner}} {
		v.given(at, text.field, strings.TrimSpace(text.value))
		if len(text.value) > holdTextBytesMax {
			v.invalid(at+"."+text.field, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text.value), holdTextBytesMax), "")
		}
	}
	switch left := s.Until.Sub(now); {
	case s.Until.IsZero():
		v.fault(at+".until", reason.MissingField, fmt.Sprintf("%s has no %q", at, "until"), "every suspension ends by itself: write when")
	case before != nil && before.Until.Equal(&s.Until): // it may have ended since
	case left <= 0:
		v.invalid(at+".until", fmt.Sprintf("the suspension ends at %s, and it is %s", s.Until.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), "give a time to come")
	case left > holdMax:
		v.invalid(at+".until", fmt.Sprintf("the suspension ends at %s, more than a year from now", s.Until.UTC().Format(time.RFC3339)), "what is never to be applied is not to be declared")
	}
}

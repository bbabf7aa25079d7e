package declare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Package is a package of the host's package manager: apt, or dnf.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Package struct {
	// Package is its name for the package manager. Default the resource's name.
	Package string `json:"package,omitempty"`
	// State is present (the default), latest, absent or purged.
	State PackageState `json:"state,omitempty"`
	// Version is one exact version, or a range such as ">=1.2 <2". Empty takes any. Only with state present and latest.
	Version string `json:"version,omitempty"`
	// Hold says whether the package is marked so that nobody else changes it. Left out, that is not managed, and a mark of somebody else
	// is respected. Only with state present and latest.
	Hold *bool `json:"hold,omitempty"`
	// Options are for how it is installed.
	Options *PackageOptions `json:"options,omitempty"`
	// Conffiles says whose configuration files count when the package is installed or changed: keep (the default) or replace.
	Conffiles Conffiles `json:"conffiles,omitempty"`
	// Preseed answers the questions that the package asks when it is installed: lines of owner, question, type and value, as
	// debconf-get-selections prints them. They are noted before each change of the package, and shown nowhere.
	Preseed string `json:"preseed,omitempty"`
	// PreseedFrom takes the answers from a Secret or a ConfigMap instead. Alone, without a server, there is nothing to take them from.
	PreseedFrom *ContentSource `json:"preseedFrom,omitempty"`
}

// PackageOptions are for how a package is installed.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type PackageOptions struct {
	// Recommends says whether what the package recommends comes with it. Left out, as the host is configured.
	Recommends *bool `json:"recommends,omitempty"`
	// AllowDowngrade lets an older version take the place of a newer one. Default false.
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
}

// PackageState is whether a package is wanted.
//
// +enum
type PackageState string

// The package states.
const (
	PackagePresent PackageState = "present"
	// PackageLatest is the newest that the lists on the host have, within version.
	PackageLatest PackageState = "latest"
	PackageAbsent PackageState = "absent"
	// PackagePurged is absent, with its configuration.
	PackagePurged PackageState = "purged"
)

// Conffiles says whose configuration files count.
//
// +enum
type Conffiles string

// The answers to a configuration file that somebody has changed.
const (
	// ConffilesKeep leaves it as it is.
	ConffilesKeep Conffiles = "keep"
	// ConffilesReplace takes the package's, and keeps the other one beside it.
	ConffilesReplace Conffiles = "replace"
)

// preseedLinesMax bounds the answers for one package: ours, far above any real one.
const preseedLinesMax = 256

// answerTypes are the types of debconf-set-selections(1); its flag "seen" is none.
var answerTypes = []string{"boolean", "multiselect", "note", "password", "select", "string", "text", "title"}

func (p *Package) claim(name string) Claim { return Claim{ClaimPackage, p.NameOr(name)} }

func (p *Package) claimField() string { return "package.package" }

func (p *Package) texts() []expandableText {
	return []expandableText{{"package.version", &p.Version}, {"package.preseed", &p.Preseed}}
}

func (p *Package) source() *ContentSource { return p.PreseedFrom }

func (p *Package) fill(text string, from *ContentSource) (body, error) {
	out := *p
	out.Preseed, out.PreseedFrom = text, from
	if message, _ := preseedMistake(text); message != "" {
		return nil, errors.New(message)
	}
	return &out, nil
}

// NameOr returns the declared package name; when none is it is the resource's.
func (p *Package) NameOr(resource string) string { return cmp.Or(p.Package, resource) }

// StateOrDefault returns the declared state, present when none is.
func (p *Package) StateOrDefault() PackageState { return cmp.Or(p.State, PackagePresent) }

// Gone reports whether the package must not be there.
func (p *Package) Gone() bool { return p.State == PackageAbsent || p.State == PackagePurged }

// Answers reports whether the package comes with answers to its questions.
func (p *Package) Answers() bool { return p.Preseed != "" || p.PreseedFrom != nil }

// VersionRange is what the version of a package may be. The zero value allows any.
type VersionRange struct {
	Exact string         // the one that is allowed; then there are no bounds
	Lower []VersionBound // at most one
	Upper []VersionBound // at most one
}

// VersionBound is one end of a range.
type VersionBound struct {
	Version string
	Open    bool // the version itself is not allowed
}

// Allows reports whether a version is allowed; compare orders two versions as cmp.Compare does.
func (r VersionRange) Allows(version string, compare func(a, b string) int) bool {
	if r.Exact != "" {
		return version == r.Exact
	}
	for _, b := range r.Lower {
		if c := compare(version, b.Version); c < 0 || c == 0 && b.Open {
			return false
		}
	}
	for _, b := range r.Upper {
		if c := compare(version, b.Version); c > 0 || c == 0 && b.Open {
			return false
		}
	}
	return true
}

// Bounded reports whether it has an end, and so is more than one version or any.
func (r VersionRange) Bounded() bool { return len(r.Lower)+len(r.Upper) > 0 }

// ParseVersionRange reads what `version` says. Its error says what is wrong with it.
func ParseVersionRange(text string) (VersionRange, error) {
	r, message, _ := parseVersionRange(text)
	if message != "" {
		return VersionRange{}, errors.New(message)
	}
	return r, nil
}

func parseVersionRange(text string) (r VersionRange, message, hint string) {
	const rule = `one exact version, as "apt-cache policy" prints it, or a range: ">=1.2 <2"`
	if !strings.ContainsAny(text, "<>= ") {
		if text != "" && !isPackageVersion(text) {
			return r, fmt.Sprintf("%q is not a package version", clipText(text)), rule
		}
		r.Exact = text
		return r, "", ""
	}
	for word := range strings.SplitSeq(text, " ") {
		version := strings.TrimLeft(word, "<>=")
		end := &r.Lower
		bound := VersionBound{Version: version}
		switch word[:len(word)-len(version)] {
		case ">=":
		case ">":
			bound.Open = true
		case "<=":
			end = &r.Upper
		case "<":
			end, bound.Open = &r.Upper, true
		default:
			return r, fmt.Sprintf("%q is not a range of package versions", clipText(text)), rule
		}
		if !isPackageVersion(version) {
			return r, fmt.Sprintf("%q is not a range of package versions", clipText(text)), "write the sign and its version as one word, with a space between two: " + `">=1.2 <2"`
		}
		if len(*end) > 0 {
			return r, fmt.Sprintf("the range %q has two lower or two upper ends", clipText(text)), "keep one of each"
		}
		*end = append(*end, bound)
	}
	return r, "", ""
}

func (p *Package) validate(v *validator) {
	name := p.NameOr(v.resource.Name)
	if name != "" && !isPackageName(name) {
		v.invalid(v.path("package.package"), fmt.Sprintf("%q is not a package name", clipText(name)), "at least two letters, digits and any of + - . _, with a letter or digit first; give the package's own name in `package`")
	}
	switch p.State {
	case "", PackagePresent, PackageLatest, PackageAbsent, PackagePurged:
	default:
		v.unknownWord(v.path("package.state"), "package state", string(p.State), []string{string(PackagePresent), string(PackageLatest), string(PackageAbsent), string(PackagePurged)})
	}
	switch p.Conffiles {
	case "", ConffilesKeep, ConffilesReplace:
	default:
		v.unknownWord(v.path("package.conffiles"), "answer to changed configuration files", string(p.Conffiles), []string{string(ConffilesKeep), string(ConffilesReplace)})
	}
	if p.Gone() {
		p.validateGone(v)
	}
	if p.Version != "" && !v.expands(p.Version) {
		r, message, hint := parseVersionRange(p.Version)
		if message != "" {
			v.invalid(v.path("package.version"), message, hint)
		}
		if r.Exact != "" && p.State == PackageLatest {
			v.fault(v.path("package.version"), reason.FieldNotAllowed, "the latest of one version is that version", "write state: present, or a range of versions")
		}
	}
	v.contentSource("package.preseedFrom", p.PreseedFrom, p.Preseed != "")
	if p.Preseed != "" && !v.expands(p.Preseed) {
		if message, hint := preseedMistake(p.Preseed); message != "" {
			v.invalid(v.path("package.preseed"), message, hint)
		}
	}
}

// validateGone refuses what says something of a package that is not there.
func (p *Package) validateGone(v *validator) {
	for _, f := range []struct {
		field string
		given bool
	}{
		{"version", p.Version != ""}, {"hold", p.Hold != nil}, {"options", p.Options != nil}, {"conffiles", p.Conffiles != ""},
		{"preseed", p.Preseed != ""}, {"preseedFrom", p.PreseedFrom != nil},
	} {
		if f.given {
			v.fault(v.path("package."+f.field), reason.FieldNotAllowed, fmt.Sprintf("a package that must be %s has no %s", p.State, f.field), "leave it out")
		}
	}
}

// preseedMistake returns what is wrong with answers, or "". It quotes none of them.
func preseedMistake(text string) (message, hint string) {
	const rule = "write OWNER QUESTION TYPE VALUE on one line, as debconf-get-selections prints it"
	if strings.Contains(text, "\x00") {
		return "the answers hold a NUL byte", ""
	}
	number, answers := 0, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		switch answers++; {
		case answers > preseedLinesMax:
			return fmt.Sprintf("there are more than %d answers", preseedLinesMax), ""
		case strings.HasSuffix(line, `\`):
			return fmt.Sprintf("line %d ends with a backslash, which would join the next one to it", number), rule
		case len(words) < 3 || !isPackageName(words[0]) || !strings.Contains(words[1], "/"):
			return fmt.Sprintf("line %d is not OWNER QUESTION TYPE VALUE", number), rule
		case !slices.Contains(answerTypes, words[2]):
			return fmt.Sprintf("line %d has no type of an answer", number), "one of " + joinWords(answerTypes)
		case words[2] == "boolean" && (len(words) != 4 || words[3] != "true" && words[3] != "false"):
			return fmt.Sprintf("line %d answers a question of type boolean with neither true nor false", number), ""
		}
	}
	if answers == 0 {
		return "there is no answer in it", rule
	}
	return "", ""
}

// permanent says why a package cannot be deleted.
func (p *Package) permanent() (message, hint string) {
	if p.Gone() {
		return "a package that is " + string(p.State) + " cannot be deleted", "leave it out, or write onRemove: restore"
	}
	return "", ""
}

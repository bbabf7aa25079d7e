package declare

import (
	"cmp"
	"slices"
	"strings"
)

// Repository is where a package manager gets packages from. Exactly one of apt and dnf is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Repository struct {
	// Repository is its name: that of its file. Default the resource's name.
	Repository string `json:"repository,omitempty"`
	// State is present (the default) or absent. Of one that must be absent, apt or dnf is empty: it says which of the two.
	State EditState `json:"state,omitempty"`
	// Apt is one of Debian and its like, deb822: sources.list(5).
	Apt *AptRepository `json:"apt,omitempty"`
	// Dnf is one of Fedora and its like, dnf.conf(5).
	Dnf *DnfRepository `json:"dnf,omitempty"`
}

// AptRepository is a repository for apt.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type AptRepository struct {
	// Uris are where it is.
	// +listType=atomic
	Uris []string `json:"uris,omitempty"`
	// Suites are its parts by release: "bookworm", or a path that ends with a slash.
	// +listType=atomic
	Suites []string `json:"suites,omitempty"`
	// Components are its parts by topic: "main". None where a suite is a path.
	// +listType=atomic
	Components []string `json:"components,omitempty"`
	// Architectures are those that are read. Default the host's.
	// +listType=atomic
	Architectures []string `json:"architectures,omitempty"`
	// Key is the OpenPGP keys of which one must have signed it, armored. Default those that the host trusts.
	Key string `json:"key,omitempty"`
	// Source says whether source packages are listed too.
	Source bool `json:"source,omitempty"`
	// Options are further fields of the file.
	Options map[string]string `json:"options,omitempty"`
}

// DnfRepository is a repository for dnf.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type DnfRepository struct {
	// BaseURL is where it is.
	// +listType=atomic
	BaseURL []string `json:"baseURL,omitempty"`
	// Mirrorlist is where it is found out where it is; exactly one of the two is set.
	Mirrorlist string `json:"mirrorlist,omitempty"`
	// Title is its name for people. Default the repository's name.
	Title string `json:"title,omitempty"`
	// Key is the OpenPGP keys of which one must have signed its packages, armored. Instead options may have gpgkey, a file of the host, or
	// gpgcheck: "0", with which nothing of it is checked.
	Key string `json:"key,omitempty"`
	// Options are further fields of the file.
	Options map[string]string `json:"options,omitempty"`
}

// Where repositories and their keys are.
const (
	aptSourcesDir = "/etc/apt/sources.list.d"
	aptKeysDir    = "/etc/apt/keyrings"
	dnfReposDir   = "/etc/yum.repos.d"
	dnfKeysDir    = "/etc/pki/rpm-gpg"
)

// claim: apt and dnf have names of their own.
func (r *Repository) claim(name string) Claim {
	if r.Dnf != nil {
		return Claim{ClaimRepository, "dnf/" + r.NameOr(name)}
	}
	return Claim{ClaimRepository, "apt/" + r.NameOr(name)}
}

func (r *Repository) claimField() string { return "repository.repository" }

func (r *Repository) texts() []expandableText {
	var texts []expandableText
	list := func(field string, values []string) {
		for i := range values {
			texts = append(texts, expandableText{indexPath("repository."+field, i), &values[i]})
		}
	}
	if a := r.Apt; a != nil {
		list("apt.uris", a.Uris)
		list("apt.suites", a.Suites)
		list("apt.components", a.Components)
		list("apt.architectures", a.Architectures)
	}
	if d := r.Dnf; d != nil {
		list("dnf.baseURL", d.BaseURL)
		texts = append(texts, expandableText{"repository.dnf.mirrorlist", &d.Mirrorlist})
	}
	return texts
}

// NameOr returns the name of the repository; when none is declared it is the resource's.
func (r *Repository) NameOr(resource string) string { return cmp.Or(r.Repository, resource) }

// Absent reports whether there must be no such repository.
func (r *Repository) Absent() bool { return r.State == EditAbsent }

// Path returns where the file is that names the repository.
func (r *Repository) Path(resource string) string {
	if r.Dnf != nil {
		return dnfReposDir + "/" + r.NameOr(resource) + ".repo"
	}
	return aptSourcesDir + "/" + r.NameOr(resource) + ".sources"
}

// Key returns the keys that are declared, in armor; empty for none.
func (r *Repository) Key() string {
	switch {
	case r.Dnf != nil:
		return r.Dnf.Key
	case r.Apt != nil:
		return r.Apt.Key
	}
	return ""
}

// KeyPath returns where the keys are that come with the repository: for apt a keyring without armor, which every version of it reads.
func (r *Repository) KeyPath(resource string) string {
	if r.Dnf != nil {
		return dnfKeysDir + "/" + r.NameOr(resource) + ".asc"
	}
	return aptKeysDir + "/" + r.NameOr(resource) + ".gpg"
}

// OptionNames returns the names of the options, in the order in which they are written.
func OptionNames(options map[string]string) []string {
	names := make([]string, 0, len(options))
	for name := range options {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Unchecked says by which of its options a repository is used without a check of who made it; empty for none. Options of apt are words
// of sources.list(5), those of dnf of dnf.conf(5).
func (r *Repository) Unchecked() string {
	var options map[string]string
	on := []string{"Trusted", "Allow-Insecure", "Allow-Weak", "Allow-Downgrade-To-Insecure"}
	off := []string{"Check-Valid-Until", "Check-Date"}
	switch {
	case r.Dnf != nil:
		options, on, off = r.Dnf.Options, nil, []string{"gpgcheck", "sslverify"}
	case r.Apt != nil:
		options = r.Apt.Options
	}
	for _, name := range OptionNames(options) {
		is := func(word string) bool { return strings.EqualFold(word, name) }
		if slices.ContainsFunc(on, is) && isYes(options[name]) || slices.ContainsFunc(off, is) && isNo(options[name]) {
			return name + ": " + options[name]
		}
	}
	return ""
}

// isYes and isNo are truth values as apt (StringToBool) and dnf read them.
func isYes(s string) bool {
	return slices.Contains([]string{"yes", "true", "with", "on", "enable", "1"}, strings.ToLower(s))
}

func isNo(s string) bool {
	return slices.Contains([]string{"no", "false", "without", "off", "disable", "0"}, strings.ToLower(s))
}

// permanent says why a repository cannot be deleted.
func (r *Repository) permanent() (message, hint string) {
	if r.Absent() {
		return "a repository that is absent cannot be deleted", "leave it out, or write onRemove: restore"
	}
	return "", ""
}

// certificates are the packages that a repository may itself need: they come before it, not after.
var certificates = []string{"ca-certificates", "apt-transport-https"}

// autoEdges puts a repository after what it is reached with.
func (r *Repository) autoEdges(claim Claim) []AutoEdge {
	_, name, _ := strings.Cut(claim.ID, "/")
	edges := pathAutoEdges(r.Path(name))
	for _, name := range certificates {
		edges = append(edges, AutoEdge{Other: Claim{ClaimPackage, name}, Why: "certificates for a repository", Loose: true})
	}
	return edges
}

// autoEdges puts a package after every repository, wherever it comes from: which has it is known on a host only. One that cannot be had
// keeps no package back.
func (p *Package) autoEdges(claim Claim) []AutoEdge {
	if slices.Contains(certificates, claim.ID) {
		return nil
	}
	return []AutoEdge{{Other: Claim{Kind: ClaimRepository}, Why: "repositories before packages", Loose: true}}
}

package declare

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/reason"
)

// Bounds of repositories: ours, far above any real one.
const (
	repositoryNameBytesMax = 200
	repositoryListMax      = 32
	repositoryOptionsMax   = 64
	repositoryTextBytesMax = 1024
)

const repositoryNameRule = "letters, digits and any of . _ - with a letter or digit first, up to 200"

// aptFields and dnfFields are what other fields of a declaration say.
var (
	aptFields = map[string]string{"types": "source", "uris": "uris", "suites": "suites", "components": "components", "architectures": "architectures", "enabled": "state"}
	dnfFields = map[string]string{"baseurl": "baseURL", "mirrorlist": "mirrorlist", "name": "title", "enabled": "state", "metalink": "mirrorlist"}
)

func (r *Repository) validate(v *validator) {
	if name := r.NameOr(v.resource.Name); v.resource.Name != "" || r.Repository != "" {
		v.repositoryName(name)
	}
	switch r.State {
	case "", EditPresent, EditAbsent:
	default:
		v.unknownWord(v.path("repository.state"), "state", string(r.State), []string{string(EditPresent), string(EditAbsent)})
	}
	switch {
	case r.Apt == nil && r.Dnf == nil:
		v.fault(v.path("repository"), reason.MissingField, v.path("repository")+` has neither "apt" nor "dnf"`, "write apt: for Debian and its like, dnf: for Fedora and its like")
	case r.Apt != nil && r.Dnf != nil:
		v.fault(v.path("repository.dnf"), reason.FieldNotAllowed, "a repository is for apt or for dnf", "make one resource of each, with `when`")
	case r.Absent():
		v.absentRepository(r)
	case r.Apt != nil:
		v.aptRepository(r.Apt)
	default:
		v.dnfRepository(r.Dnf)
	}
}

func (v *validator) repositoryName(name string) {
	at := v.path("repository.repository")
	for _, suffix := range []string{".sources", ".list", ".repo"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok {
			v.invalid(at, fmt.Sprintf("repository %q is written with a suffix", clipText(name)), fmt.Sprintf("write %q", clipText(stem)))
			return
		}
	}
	if !isMadeOf(name, "._-") || !isAlphanum(name[0]) || len(name) > repositoryNameBytesMax {
		v.invalid(at, fmt.Sprintf("%q is not a name of a repository", clipText(name)), repositoryNameRule)
	}
}

func (v *validator) absentRepository(r *Repository) {
	if a := r.Apt; a != nil {
		v.notOfAbsent("a repository", []written{
			{"repository.apt.uris", len(a.Uris) > 0}, {"repository.apt.suites", len(a.Suites) > 0}, {"repository.apt.components", len(a.Components) > 0},
			{"repository.apt.architectures", len(a.Architectures) > 0}, {"repository.apt.key", a.Key != ""}, {"repository.apt.source", a.Source}, {"repository.apt.options", len(a.Options) > 0},
		})
	}
	if d := r.Dnf; d != nil {
		v.notOfAbsent("a repository", []written{
			{"repository.dnf.baseURL", len(d.BaseURL) > 0}, {"repository.dnf.mirrorlist", d.Mirrorlist != ""}, {"repository.dnf.title", d.Title != ""},
			{"repository.dnf.key", d.Key != ""}, {"repository.dnf.options", len(d.Options) > 0},
		})
	}
}

func (v *validator) aptRepository(a *AptRepository) {
	v.repositoryTexts("repository.apt.uris", "uris", a.Uris, true, AptURIMistake)
	v.repositoryTexts("repository.apt.suites", "suites", a.Suites, true, AptWordMistake)
	paths := 0
	for _, s := range a.Suites {
		if strings.HasSuffix(s, "/") {
			paths++
		}
	}
	unknown := slices.ContainsFunc(a.Suites, v.expands)
	switch {
	case len(a.Suites) == 0 || unknown:
	case paths == 0:
		v.repositoryTexts("repository.apt.components", "components", a.Components, true, AptWordMistake)
	case paths < len(a.Suites):
		v.invalid(v.path("repository.apt.suites"), "some suites are paths and some are not", "make two resources: those of releases have components, paths have none")
	case len(a.Components) > 0:
		v.fault(v.path("repository.apt.components"), reason.FieldNotAllowed, "a suite that is a path has no components", "leave them out, or take the slash off the suite")
	}
	if unknown {
		v.repositoryTexts("repository.apt.components", "components", a.Components, false, AptWordMistake)
	}
	v.repositoryTexts("repository.apt.architectures", "architectures", a.Architectures, false, AptWordMistake)
	v.repositoryKey("repository.apt.key", a.Key)
	v.repositoryOptions("repository.apt.options", a.Options, "-", aptFields)
	for name := range a.Options {
		if a.Key != "" && strings.EqualFold(name, "Signed-By") {
			v.fault(v.path("repository.apt.options"), reason.FieldNotAllowed, "Signed-By is there beside key", "write one of them")
		}
	}
}

func (v *validator) dnfRepository(d *DnfRepository) {
	switch {
	case len(d.BaseURL) == 0 && d.Mirrorlist == "":
		v.fault(v.path("repository.dnf"), reason.MissingField, v.path("repository.dnf")+` has neither "baseURL" nor "mirrorlist"`, "")
	case len(d.BaseURL) > 0 && d.Mirrorlist != "":
		v.fault(v.path("repository.dnf.mirrorlist"), reason.FieldNotAllowed, "mirrorlist is there beside baseURL", "write one of them")
	}
	v.repositoryTexts("repository.dnf.baseURL", "baseURL", d.BaseURL, false, DnfURLMistake)
	if d.Mirrorlist != "" && !v.expands(d.Mirrorlist) {
		if message, hint := DnfURLMistake(d.Mirrorlist); message != "" {
			v.invalid(v.path("repository.dnf.mirrorlist"), message, hint)
		}
	}
	if message := lineMistake(d.Title); message != "" {
		v.invalid(v.path("repository.dnf.title"), "the title "+message, "")
	}
	v.repositoryKey("repository.dnf.key", d.Key)
	v.repositoryOptions("repository.dnf.options", d.Options, "_.", dnfFields)
	v.dnfChecks(d)
}

// dnfChecks wants that somebody has decided whose packages these are.
func (v *validator) dnfChecks(d *DnfRepository) {
	at := v.path("repository.dnf.options")
	key, check := d.Options["gpgkey"], d.Options["gpgcheck"]
	switch {
	case key != "" && d.Key != "":
		v.fault(at, reason.FieldNotAllowed, "gpgkey is there beside key", "write one of them")
	case key != "":
		for _, k := range strings.FieldsFunc(key, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
			if !strings.HasPrefix(k, "file:///") {
				v.invalid(at, fmt.Sprintf("gpgkey %q is not a file of the host", clipText(k)), "paste the key into `key`, so that nobody on the way can give another one; or write file:///PATH")
			}
		}
	case d.Key == "" && !isNo(check):
		v.fault(v.path("repository.dnf"), reason.MissingField, v.path("repository.dnf")+` has no "key"`, `to take packages that nobody has signed, write options: {gpgcheck: "0"}`)
	}
}

// repositoryTexts checks the members of a list. What is expanded is checked on the host, with the same mistake.
func (v *validator) repositoryTexts(field, what string, list []string, needed bool, mistake func(string) (message, hint string)) {
	at := v.path(field)
	if needed && len(list) == 0 {
		parent := at[:strings.LastIndexByte(at, '.')]
		v.fault(at, reason.MissingField, parent+fmt.Sprintf(" has no %q", what), "")
		return
	}
	if !v.atMost(at, len(list), repositoryListMax, what, "") {
		return
	}
	for i, text := range list {
		if v.expands(text) {
			continue
		}
		message, hint := mistake(text)
		if message == "" && slices.Contains(list[:i], text) {
			message, hint = fmt.Sprintf("%q is there already", clipText(text)), "remove one of them"
		}
		if message != "" {
			v.invalid(v.path(indexPath(field, i)), message, hint)
		}
	}
}

// repositoryKey checks keys without quoting them.
func (v *validator) repositoryKey(field, key string) {
	if key == "" {
		return
	}
	_, err := openpgp.Parse(key)
	hint := "paste all that `gpg --armor --export` prints, from the first line with dashes to the last"
	if errors.Is(err, openpgp.ErrPrivate) {
		hint = "whoever could read it here has it now: make another one. The public key is what `gpg --armor --export` prints"
	}
	if err != nil {
		v.invalid(v.path(field), "the key is not usable: "+err.Error(), hint)
	}
}

func (v *validator) repositoryOptions(field string, options map[string]string, others string, own map[string]string) {
	at := v.path(field)
	if !v.atMost(at, len(options), repositoryOptionsMax, "options", "") {
		return
	}
	seen := map[string]string{}
	for _, name := range OptionNames(options) {
		folded := strings.ToLower(name)
		message := lineMistake(options[name])
		switch {
		case !isMadeOf(name, others) || !isAlphanum(name[0]) || len(name) > repositoryNameBytesMax:
			v.invalid(at, fmt.Sprintf("%q is not a name of a field", clipText(name)), "")
		case own[folded] != "":
			v.fault(at, reason.FieldNotAllowed, name+" is not an option", "write it as "+own[folded])
		case seen[folded] != "":
			v.invalid(at, fmt.Sprintf("%s and %s are one field", seen[folded], clipText(name)), "remove one of them")
		case options[name] == "":
			v.invalid(at, "option "+name+" is empty", "leave it out")
		case message != "":
			v.invalid(at, "option "+name+" "+message, "")
		}
		seen[folded] = name
	}
}

// lineMistake says why a text cannot stand on one line of a file, or "".
func lineMistake(s string) string {
	switch {
	case len(s) > repositoryTextBytesMax:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), repositoryTextBytesMax)
	case strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufffd'
	}):
		return "holds a line break or another control character"
	case strings.TrimSpace(s) != s:
		return "begins or ends with a blank"
	}
	return ""
}

// AptWordMistake returns what is wrong with a suite, a component or an architecture, or "".
func AptWordMistake(s string) (message, hint string) {
	if s == "" || len(s) > repositoryTextBytesMax || strings.ContainsFunc(s, func(r rune) bool {
		return r >= 0x80 || !isAlphanum(byte(r)) && !strings.ContainsRune("._-+~:/", r)
	}) || s[0] == '-' {
		return fmt.Sprintf("%q is not a word of a repository", clipText(s)), "letters, digits and any of . _ - + ~ : /, one word for each member of the list"
	}
	if slices.Contains(strings.Split(s, "/"), "..") {
		return fmt.Sprintf("%q leads out of the repository", clipText(s)), ""
	}
	return "", ""
}

// aptSchemes and dnfSchemes are the ways to a repository that the package managers bring with them.
var (
	aptSchemes = []string{"http", "https", "file", "copy", "mirror+http", "mirror+https", "mirror+file", "tor+http", "tor+https"}
	dnfSchemes = []string{"http", "https", "ftp", "file"}
)

// AptURIMistake returns what is wrong with the place of a repository for apt, or "".
func AptURIMistake(s string) (message, hint string) {
	return placeMistake(s, aptSchemes, "put user and password into a file below /etc/apt/auth.conf.d, apt_auth.conf(5), with mode 0600: a file with contentFrom a Secret")
}

// DnfURLMistake returns what is wrong with the place of a repository for dnf, or "". Variables of dnf may be in it: $releasever.
func DnfURLMistake(s string) (message, hint string) {
	return placeMistake(s, dnfSchemes, "anybody on the host can read the file: give hosts certificates (options sslclientcert, sslclientkey), or the repository a network of its own")
}

// placeMistake says what is wrong with a URI. It quotes none that has a password.
func placeMistake(s string, schemes []string, credentials string) (message, hint string) {
	scheme, rest, _ := strings.Cut(s, ":")
	authority, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	if strings.Contains(authority, "@") {
		return "the URI holds a user or a password, which everybody on the host could read", credentials
	}
	const rule = "write it as https://HOST/PATH"
	u, err := url.Parse(strings.NewReplacer("$", "S", "(", "S", ")", "S").Replace(s))
	switch {
	case lineMistake(s) != "" || strings.ContainsAny(s, " \t[]\"'<>\\^`{}|,;") || err != nil:
		return fmt.Sprintf("%q is not a URI", clipText(s)), rule
	case !slices.Contains(schemes, scheme):
		return fmt.Sprintf("%q does not begin with a way to a repository", clipText(s)), "one of " + joinWords(schemes) + ", followed by ://"
	case strings.HasSuffix(scheme, "http") || strings.HasSuffix(scheme, "https") || scheme == "ftp":
		if u.Host == "" {
			return fmt.Sprintf("%q names no host", clipText(s)), rule
		}
	case u.Host != "" || !strings.HasPrefix(u.Path, "/"):
		return fmt.Sprintf("%q is not an absolute path", clipText(s)), "write it as file:///PATH"
	}
	if u.Fragment != "" {
		return fmt.Sprintf("%q holds a #, which is for pages", clipText(s)), "leave it and what follows it out"
	}
	return "", ""
}

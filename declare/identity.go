package declare

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	hostnameBytesMax  = 64  // HOST_NAME_MAX, gethostname(2)
	hostNamesMax      = 64  // ours: names of one address
	localeBytesMax    = 64  // ours: far above any real name
	localesMax        = 100 // ours
	hostnameRule      = "letters, digits and - in parts of up to 63 with dots between them, with a letter or digit first and last"
	localeExample     = "as `locale -a` prints it: C.UTF-8, de_DE.UTF-8"
	localeOverrideAll = "LC_ALL"
)

// localeVariables are those of locale(7) besides LANG and LC_ALL.
var localeVariables = []string{"LANGUAGE", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES",
	"LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME"}

// Hostname is the host's name.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Hostname struct {
	// Name is it: up to 64 of letters, digits, - and dots.
	Name string `json:"name"`
}

// HostEntry is what /etc/hosts says of an address.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type HostEntry struct {
	// Address is an IPv4 or IPv6 address.
	Address string `json:"address"`
	// Names lead to it; the first one is its canonical name. Default the resource's name alone.
	// +listType=atomic
	Names []string `json:"names,omitempty"`
	// State is present (the default) or absent.
	State EditState `json:"state,omitempty"`
}

// Timezone is the host's time zone.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Timezone struct {
	// Zone is its name in the zone database: Europe/Berlin, UTC.
	Zone string `json:"zone"`
}

// Locale is the host's language.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Locale struct {
	// Lang is LANG for the whole host: C.UTF-8, de_DE.UTF-8. Left out, that is not managed.
	Lang string `json:"lang,omitempty"`
	// Variables are further ones of locale(7): LC_TIME, LANGUAGE. Others are left as they are.
	Variables map[string]string `json:"variables,omitempty"`
	// Generate are locales that the host must have, where the distribution compiles them: "de_DE.UTF-8".
	// +listType=atomic
	Generate []string `json:"generate,omitempty"`
}

func (h *Hostname) claim(string) Claim { return Claim{ClaimHostname, "hostname"} }

func (h *Hostname) claimField() string { return "hostname.name" }

func (h *Hostname) texts() []expandableText { return []expandableText{{"hostname.name", &h.Name}} }

func (h *Hostname) validate(v *validator) {
	if h.Name == "" {
		v.fault(v.path("hostname.name"), reason.MissingField, v.path("hostname")+` has no "name"`, "")
	} else if !v.expands(h.Name) {
		if message, hint := HostnameMistake(h.Name); message != "" {
			v.invalid(v.path("hostname.name"), message, hint)
		}
	}
}

// HostnameMistake returns what is wrong with a name of a host, or "". A name may be expanded, so the host asks too.
func HostnameMistake(name string) (message, hint string) {
	switch {
	case len(name) > hostnameBytesMax:
		return fmt.Sprintf("the host name has %d bytes, at most %d are possible", len(name), hostnameBytesMax), "the short name will do; the domain comes from DNS or a hostEntry"
	case !isHostName(name):
		return fmt.Sprintf("%q is not a name of a host", clipText(name)), hostnameRule
	case isLocalhost(name):
		return fmt.Sprintf("%q is every host's own name for itself, and not one to be told from others by", name), "choose another one"
	}
	return "", ""
}

func isLocalhost(name string) bool {
	name = strings.ToLower(name)
	return name == "localhost" || strings.HasPrefix(name, "localhost.") || strings.HasSuffix(name, ".localhost")
}

// isHostName is RFC 1123, in any case.
func isHostName(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if !isDomainLabel(strings.ToLower(part)) {
			return false
		}
	}
	return len(name) <= NameBytesMax
}

// claim is the canonical name, so that nobody else says where it leads; a host may have one IPv4 and one IPv6 address.
func (h *HostEntry) claim(name string) Claim {
	id := h.NamesOr(name)[0]
	if strings.Contains(h.Address, ":") {
		id += "#ip6"
	}
	return Claim{ClaimHostEntry, id}
}

func (h *HostEntry) claimField() string { return "hostEntry.names" }

func (h *HostEntry) texts() []expandableText {
	return []expandableText{{"hostEntry.address", &h.Address}}
}

// NamesOr returns the declared names; when there are none it is the resource's. The caller changes nothing in it.
func (h *HostEntry) NamesOr(resource string) []string {
	if len(h.Names) > 0 {
		return h.Names
	}
	return []string{resource}
}

func (h *HostEntry) validate(v *validator) {
	switch {
	case h.Address == "":
		v.fault(v.path("hostEntry.address"), reason.MissingField, v.path("hostEntry")+` has no "address"`, "")
	case !v.expands(h.Address):
		if message, hint := HostAddressMistake(h.Address); message != "" {
			v.invalid(v.path("hostEntry.address"), message, hint)
		}
	}
	v.hostNames(h)
	switch h.State {
	case "", EditPresent, EditAbsent:
	default:
		v.unknownWord(v.path("hostEntry.state"), "state of an entry", string(h.State), []string{string(EditPresent), string(EditAbsent)})
	}
}

func (v *validator) hostNames(h *HostEntry) {
	if !v.atMost(v.path("hostEntry.names"), len(h.Names), hostNamesMax, "names", "write another resource for the rest") {
		return
	}
	if len(h.Names) == 0 && v.resource.Name != "" && !isHostsName(v.resource.Name) {
		v.invalid(v.path("hostEntry.names"), fmt.Sprintf("%q is not a name of a host", clipText(v.resource.Name)), hostnameRule+"; give the names in `names`")
	}
	for i, name := range h.Names {
		at := v.path(indexPath("hostEntry.names", i))
		switch first := slices.IndexFunc(h.Names, func(s string) bool { return strings.EqualFold(s, name) }); {
		case !isHostsName(name):
			v.invalid(at, fmt.Sprintf("%q is not a name of a host", clipText(name)), hostnameRule)
		case first < i:
			v.invalid(at, fmt.Sprintf("%q stands in the list already", name), "remove one of them")
		}
	}
}

// isHostsName also takes _, which names of services in DNS begin with.
func isHostsName(name string) bool { return isHostName(strings.ReplaceAll(name, "_", "x")) }

// HostAddressMistake returns what is wrong with an address of /etc/hosts, or "". It may be expanded, so the host asks too.
func HostAddressMistake(text string) (message, hint string) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not an IP address", clipText(text)), "an address alone, without mask and port: 192.0.2.7, 2001:db8::7"
	case a.Zone() != "" && !isMadeOf(a.Zone(), "._-"):
		return fmt.Sprintf("the zone of %q is not a name of an interface", clipText(text)), ""
	}
	return "", ""
}

func (t *Timezone) claim(string) Claim { return Claim{ClaimTimezone, "timezone"} }

func (t *Timezone) claimField() string { return "timezone.zone" }

func (t *Timezone) texts() []expandableText { return []expandableText{{"timezone.zone", &t.Zone}} }

func (t *Timezone) autoEdges(Claim) []AutoEdge {
	return []AutoEdge{{Other: Claim{ClaimPackage, "tzdata"}, Why: "package of the time zones"}}
}

func (t *Timezone) validate(v *validator) {
	if t.Zone == "" {
		v.fault(v.path("timezone.zone"), reason.MissingField, v.path("timezone")+` has no "zone"`, "")
	} else if !v.expands(t.Zone) {
		if message, hint := ZoneMistake(t.Zone); message != "" {
			v.invalid(v.path("timezone.zone"), message, hint)
		}
	}
}

// ZoneMistake returns what is wrong with the form of a name of a time zone, or "". Which zones there are is known on the host.
func ZoneMistake(zone string) (message, hint string) {
	if len(zone) > NameBytesMax || !isMadeOf(zone, "/_-+") || path.Clean("/"+zone) != "/"+zone {
		return fmt.Sprintf("%q is not a name of a time zone", clipText(zone)), "as the zone database has it: Europe/Berlin, UTC; `timedatectl list-timezones` lists them"
	}
	return "", ""
}

func (l *Locale) claim(string) Claim { return Claim{ClaimLocale, "locale"} }

func (l *Locale) claimField() string { return "locale.lang" }

func (l *Locale) texts() []expandableText { return []expandableText{{"locale.lang", &l.Lang}} }

func (l *Locale) autoEdges(Claim) []AutoEdge {
	const why = "package of a locale"
	edges := []AutoEdge{{Other: Claim{ClaimPackage, "locales"}, Why: why}}
	for _, name := range append([]string{l.Lang}, l.Generate...) {
		if language, _, ok := strings.Cut(name, "_"); ok && !strings.Contains(name, "$(") {
			edge := AutoEdge{Other: Claim{ClaimPackage, "glibc-langpack-" + language}, Why: why}
			if !slices.Contains(edges, edge) {
				edges = append(edges, edge)
			}
		}
	}
	return edges
}

func (l *Locale) validate(v *validator) {
	if l.Lang == "" && len(l.Variables) == 0 && len(l.Generate) == 0 {
		v.fault(v.path("locale.lang"), reason.MissingField, v.path("locale")+" says nothing", "give one of lang, variables and generate")
	}
	if l.Lang != "" && !v.expands(l.Lang) {
		if message, hint := LocaleMistake(l.Lang); message != "" {
			v.invalid(v.path("locale.lang"), message, hint)
		}
	}
	for _, name := range sortedKeys(l.Variables) {
		v.localeVariable(name, l.Variables[name])
	}
	if !v.atMost(v.path("locale.generate"), len(l.Generate), localesMax, "locales", "") {
		return
	}
	for i, name := range l.Generate {
		at := v.path(indexPath("locale.generate", i))
		switch message, hint := LocaleMistake(name); {
		case message != "":
			v.invalid(at, message, hint)
		case slices.Index(l.Generate, name) < i:
			v.invalid(at, fmt.Sprintf("%q stands in the list already", name), "remove one of them")
		case !strings.Contains(name, "."):
			v.invalid(at, fmt.Sprintf("%q says no character set", name), fmt.Sprintf("write %q", name+".UTF-8"))
		}
	}
}

func (v *validator) localeVariable(name, value string) {
	const field = "locale.variables"
	message, hint := LocaleMistake(value)
	if name == "LANGUAGE" { // a list of languages, gettext(3)
		message, hint = "", ""
		for part := range strings.SplitSeq(value, ":") {
			if message == "" {
				message, hint = LocaleMistake(part)
			}
		}
	}
	switch {
	case name == "LANG":
		v.fault(v.path(field), reason.FieldNotAllowed, "LANG has a field of its own", "write it in `lang`")
	case name == localeOverrideAll:
		v.fault(v.path(field), reason.FieldNotAllowed, "LC_ALL would overrule everything that users choose, and is not read from the file of a host", "write `lang`")
	case !slices.Contains(localeVariables, name):
		v.invalid(v.path(field), fmt.Sprintf("%q is not a variable of locale(7)", clipText(name)), didYouMean(name, localeVariables))
	case message != "":
		v.invalid(v.path(field), name+": "+message, hint)
	}
}

// LocaleMistake returns what is wrong with the form of a name of a locale, or "". Which ones there are is known on the host.
func LocaleMistake(name string) (message, hint string) {
	if len(name) > localeBytesMax || !isMadeOf(name, "_.@-") || !isAlphanum(name[0]) || strings.Contains(name, "..") {
		return fmt.Sprintf("%q is not a name of a locale", clipText(name)), localeExample
	}
	return "", ""
}

// Nearest returns the candidate that a misspelt word most likely meant, or "" where none is near.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }

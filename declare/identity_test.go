package declare

import (
	"slices"
	"strings"
	"testing"
)

func TestValidateHostname(t *testing.T) {
	for _, good := range []string{"web", "WEB-1", "web-1.example.com", "1", strings.Repeat("a", 63)} {
		if got := mistakes(Resource{Name: "x", Hostname: &Hostname{Name: good}}); got != "" {
			t.Errorf("%q: %s", good, got)
		}
	}
	for _, bad := range []string{"localhost", "LOCALHOST", "localhost.localdomain", "a.localhost", "-a", "a-", "a..b", ".a", "a.", "a_b", "a b", "é", strings.Repeat("a", 64), strings.Repeat("a.", 32) + "a", "a\n"} {
		if got := mistakes(Resource{Name: "x", Hostname: &Hostname{Name: bad}}); got != "TK0414 spec.resources[0].hostname.name" {
			t.Errorf("%q: %s", bad, got)
		}
	}
	if got := mistakes(Resource{Name: "x", Hostname: &Hostname{}}); got != "TK0413 spec.resources[0].hostname.name" {
		t.Errorf("none: %s", got)
	}
	r := Resource{Name: "x", Expand: true, Hostname: &Hostname{Name: "$(node.name)"}}
	if got := mistakes(r); got != "" {
		t.Errorf("expanded: %s", got)
	}
	if out, err := r.Expanded(Scope{NodeName: "web-1"}.Lookup); err != nil || out.Hostname.Name != "web-1" {
		t.Errorf("%+v, %v", out.Hostname, err)
	}
}

func TestValidateHostEntry(t *testing.T) {
	for _, c := range []struct {
		e    HostEntry
		want string
	}{
		{HostEntry{Address: "192.0.2.7"}, ""}, {HostEntry{Address: "2001:db8::7", Names: []string{"web", "web.example.com", "_x.y"}}, ""}, {HostEntry{Address: "fe80::1%eth0"}, ""},
		{HostEntry{Address: "192.0.2.7", State: EditAbsent}, ""}, {HostEntry{Address: "192.0.2.7", Names: []string{"localhost"}}, ""},
		{HostEntry{}, "TK0413 address"}, {HostEntry{Address: "192.0.2.7/24"}, "TK0414 address"}, {HostEntry{Address: "192.0.2.07"}, "TK0414 address"}, {HostEntry{Address: "web"}, "TK0414 address"},
		{HostEntry{Address: "fe80::1%a b"}, "TK0414 address"}, {HostEntry{Address: "192.0.2.7", Names: []string{"a b"}}, "TK0414 names[0]"}, {HostEntry{Address: "192.0.2.7", Names: []string{"a", "#"}}, "TK0414 names[1]"},
		{HostEntry{Address: "192.0.2.7", Names: []string{"a", "A"}}, "TK0414 names[1]"}, {HostEntry{Address: "192.0.2.7", State: "gone"}, "TK0414 state"},
		{HostEntry{Address: "192.0.2.7", Names: slices.Repeat([]string{"a"}, 65)}, "TK0414 names"},
	} {
		want := strings.Replace(c.want, " ", " spec.resources[0].hostEntry.", 1)
		if got := mistakes(Resource{Name: "web", HostEntry: &c.e}); got != want {
			t.Errorf("%+v: %s, want %s", c.e, got, want)
		}
	}
	if got := mistakes(Resource{Name: "web+x", HostEntry: &HostEntry{Address: "192.0.2.7"}}); got != "TK0414 spec.resources[0].hostEntry.names" {
		t.Errorf("a name that no host has: %s", got)
	}
	// One name has one address of each kind.
	both := []Resource{{Name: "web", HostEntry: &HostEntry{Address: "192.0.2.7"}}, {Name: "web6", HostEntry: &HostEntry{Address: "2001:db8::7", Names: []string{"web"}}}}
	if got := summary(Validate(config(both...))); got != "" {
		t.Errorf("both kinds: %s", got)
	}
	both[1].HostEntry.Address = "192.0.2.8"
	if got := summary(Validate(config(both...))); got != "TK0421 spec.resources[1].hostEntry.names" {
		t.Errorf("two of one kind: %s", got)
	}
}

func TestValidateTimezone(t *testing.T) {
	for _, good := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+1", "America/Port-au-Prince"} {
		if got := mistakes(Resource{Name: "x", Timezone: &Timezone{Zone: good}}); got != "" {
			t.Errorf("%q: %s", good, got)
		}
	}
	for _, bad := range []string{"../../etc/shadow", "/Europe/Berlin", "Europe/", "Europe//Berlin", "Europe Berlin", "Europe/./Berlin", "é"} {
		if got := mistakes(Resource{Name: "x", Timezone: &Timezone{Zone: bad}}); got != "TK0414 spec.resources[0].timezone.zone" {
			t.Errorf("%q: %s", bad, got)
		}
	}
	if got := mistakes(Resource{Name: "x", Timezone: &Timezone{}}); got != "TK0413 spec.resources[0].timezone.zone" {
		t.Errorf("none: %s", got)
	}
}

func TestValidateLocale(t *testing.T) {
	for _, c := range []struct {
		l    Locale
		want string
	}{
		{Locale{Lang: "C.UTF-8"}, ""}, {Locale{Variables: map[string]string{"LC_TIME": "de_DE@euro", "LANGUAGE": "de:en_GB:en"}}, ""}, {Locale{Generate: []string{"de_DE.UTF-8", "ca_ES.UTF-8@valencia"}}, ""},
		{Locale{}, "TK0413 lang"}, {Locale{Lang: "de DE"}, "TK0414 lang"}, {Locale{Lang: "../x"}, "TK0414 lang"}, {Locale{Lang: "$(x)"}, "TK0414 lang"},
		{Locale{Variables: map[string]string{"LANG": "C"}}, "TK0415 variables"}, {Locale{Variables: map[string]string{"LC_ALL": "C"}}, "TK0415 variables"},
		{Locale{Variables: map[string]string{"LC_TIMES": "C"}}, "TK0414 variables"}, {Locale{Variables: map[string]string{"LC_TIME": "C\nX=y"}}, "TK0414 variables"},
		{Locale{Variables: map[string]string{"LC_TIME": ""}}, "TK0414 variables"}, {Locale{Variables: map[string]string{"LANGUAGE": "de::en"}}, "TK0414 variables"},
		{Locale{Generate: []string{"de_DE"}}, "TK0414 generate[0]"}, {Locale{Generate: []string{"de_DE.UTF-8", "de_DE.UTF-8"}}, "TK0414 generate[1]"},
	} {
		want := strings.Replace(c.want, " ", " spec.resources[0].locale.", 1)
		if got := mistakes(Resource{Name: "x", Locale: &c.l}); got != want {
			t.Errorf("%+v: %s, want %s", c.l, got, want)
		}
	}
	r := Resource{Name: "x", Locale: &Locale{Lang: "de_DE.UTF-8", Generate: []string{"de_DE.UTF-8", "fr_FR.UTF-8"}}}
	var others []string
	for _, e := range r.AutoEdges() {
		others = append(others, e.Other.ID)
	}
	if want := []string{"locales", "glibc-langpack-de", "glibc-langpack-fr"}; !slices.Equal(others, want) {
		t.Errorf("edges: %v, want %v", others, want)
	}
}

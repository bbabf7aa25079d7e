package declare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// config is a valid config with the given resources.
func config(resources ...Resource) *NodeConfig {
	return &NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: "web"}, Spec: NodeConfigSpec{Resources: resources}}
}

func TestValidatePaths(t *testing.T) {
	for _, good := range []string{
		"/a", "/-", "/a/-rf", "/a.", "/a/..b", "/a b/\n", "/\x1b[31m", "/ÿ", "/a'\"\\$(x)", "/" + strings.Repeat("n", 255),
		strings.Repeat("/"+strings.Repeat("n", 204), 19) + "/" + strings.Repeat("n", 199),
	} {
		if faults := Validate(config(Resource{Name: "a", File: &File{Path: good}})); len(faults) > 0 {
			t.Errorf("%q: %v", good, faults)
		}
	}
	for _, bad := range []string{
		"", "a", "./a", "~/a", "/", "//", "/a/", "/a//b", "/a/./b", "/a/../b", "/..", "/a\x00", "/" + strings.Repeat("n", 256),
		strings.Repeat("/n", 2048), "/a/.tako.b.1", " /a",
	} {
		for _, r := range []Resource{{File: &File{Path: bad}}, {Directory: &Directory{Path: bad}}, {Symlink: &Symlink{Path: bad, Target: "x"}}} {
			r.Name = "a"
			faults := Validate(config(r))
			if len(faults) != 1 || faults[0].Path != "spec.resources[0]."+string(r.Type())+".path" {
				t.Errorf("%q as %s: %v", bad, r.Type(), faults)
			}
		}
	}
}

// TestNameRules runs each rule of names over what it takes and what it does not.
func TestNameRules(t *testing.T) {
	l63, l64 := strings.Repeat("a", 63), strings.Repeat("a", 64)
	for _, c := range []struct {
		rule      string
		takes     func(string) bool
		good, bad []string
	}{
		{"resource", isResourceName, []string{"a", "0", "Nginx.conf", "a_b-c+d@e:f", "a.", strings.Repeat("a", 253)}, []string{"", "-a", ".a", "a b", "a/b", "é", "a\n", strings.Repeat("a", 254)}},
		{"subdomain", isSubdomain, []string{"a", "a.b-c.0", l64}, []string{"", "A", "a_b", ".a", "a.", "a..b", "-a", "a-", "a-.b", strings.Repeat("a", 254)}},
		{"domain label", isDomainLabel, []string{"a", "a-b", l63}, []string{"", "a.b", "A", "-a", "a-", l64}},
		{"label value", isLabelValue, []string{"", "a", "A_b-c.d", l63}, []string{"-a", "a-", ".", "a b", "a/b", "é", l64}},
		{"label key", func(s string) bool { return labelKeyMistake(s) == "" }, []string{"a", "A.b_c", "example.com/a", l63, "x/" + l63},
			[]string{"", "a b", "/a", "a/", "a/b/c", "Example.com/a", "a_b/c", l64, "x/" + l64}},
		{"owner", isOwner, []string{"root", "0", "1000", "4294967294", "www-data", "_apt", "DOMAIN\\user", "user@example.com", "max müller"[:3]},
			[]string{"-1", "4294967295", "4294967296", "99999999999999999999999", "00", "a b", "a:b", "a/b", "-a", "a\n", strings.Repeat("a", 257)}},
		{"package", isPackageName, []string{"nginx", "g++", "libc6", "0ad", "a.b-c+d", "NetworkManager", "mod_ssl"}, []string{"", "a", "-a", "+a", "_a", "a b", "libc6:i386", "a=1", "../x"}},
		{"version", isPackageVersion, []string{"1", "1:2.3~rc1+dfsg-4", "20240101", "1.0^git_2-3.el9"}, []string{"", "-1", ":1", "1 2", "1*", ">=1"}},
		{"unit", func(s string) bool { m, _ := unitMistake(s); return m == "" }, []string{"nginx.service", "a@b.service", `dev-disk\x2dby.mount`, "a:b_c.timer", "a.b.socket", "-.mount", "user.slice"},
			[]string{"", "nginx", ".service", "a@.service", "@b.service", "a b.service", "a/b.service", "a+b.service", "a.servce", "a.device", "a.scope", strings.Repeat("a", 248) + ".service"}},
		{"mode", func(s string) bool { _, ok := Mode(s).Bits(); return ok }, []string{"0", "644", "0644", "7777", "07777", "00000"}, []string{"", "8", "0o644", "10000", "000644", "-1", "+644", "u=rw", " 644", "0x1"}},
		{"maxUnavailable", func(s string) bool { return IntOrPercent(s).valid() }, []string{"1", "100", "1%", "100%"}, []string{"", "0", "-1", "0%", "101%", "%", "1.5", "+1", "1 %"}},
	} {
		for _, s := range c.good {
			if !c.takes(s) {
				t.Errorf("%s refuses %q", c.rule, s)
			}
		}
		for _, s := range c.bad {
			if c.takes(s) {
				t.Errorf("%s takes %q", c.rule, s)
			}
		}
	}
}

func TestValidateHeader(t *testing.T) {
	priority := func(n int) NodeConfigSpec { return NodeConfigSpec{Priority: &n} }
	for _, c := range []struct {
		name   string
		config NodeConfig
		want   string
	}{
		{"empty", NodeConfig{}, "TK0413 apiVersion, TK0413 kind, TK0413 metadata.name"},
		{"unknown", NodeConfig{APIVersion: "v1", Kind: "Pod", Metadata: Metadata{Name: "a"}}, "TK0406 apiVersion, TK0405 kind"},
		{"cluster with a namespace", NodeConfig{APIVersion: APIVersion, Kind: KindClusterNodeConfig, Metadata: Metadata{Name: "a", Namespace: "b"}}, "TK0415 metadata.namespace"},
		{"namespace", NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: "a", Namespace: "a.b"}}, "TK0414 metadata.namespace"},
		{"low", NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: "a"}, Spec: priority(-1)}, "TK0414 spec.priority"},
		{"least", NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: "a"}, Spec: priority(0)}, ""},
		{"cluster low", NodeConfig{APIVersion: APIVersion, Kind: KindClusterNodeConfig, Metadata: Metadata{Name: "a"}, Spec: priority(999)}, "TK0414 spec.priority"},
		{"cluster high", NodeConfig{APIVersion: APIVersion, Kind: KindClusterNodeConfig, Metadata: Metadata{Name: "a"}, Spec: priority(1999)}, ""},
		{"annotations", NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: "a", Annotations: map[string]string{"k": strings.Repeat("x", annotationsBytesMax)}}}, "TK0414 metadata.annotations"},
	} {
		if got := summary(Validate(&c.config)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func summary(faults []Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, f.Code.String()+" "+f.Path)
	}
	return strings.Join(out, ", ")
}

func TestValidateResources(t *testing.T) {
	file := func(p string) *File { return &File{Path: p} }
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"nothing", nil, ""},
		{"no type", []Resource{{Name: "a"}}, "TK0416 spec.resources[0]"},
		{"two types", []Resource{{Name: "aa", File: file("/a"), Package: &Package{}}}, "TK0416 spec.resources[0].package"},
		{"one name", []Resource{{Name: "a", File: file("/a")}, {Name: "a", File: file("/b")}}, "TK0420 spec.resources[1].name"},
		{"one path", []Resource{{Name: "a", File: file("/a")}, {Name: "b", Directory: &Directory{Path: "/a"}}}, "TK0421 spec.resources[1].directory.path"},
		{"one package by its default name", []Resource{{Name: "vim", Package: &Package{}}, {Name: "b", Package: &Package{Package: "vim"}}}, "TK0421 spec.resources[1].package.package"},
		{"one unit by its default suffix", []Resource{{Name: "ssh", Service: &Service{}}, {Name: "b", Service: &Service{Unit: "ssh.service"}}}, "TK0421 spec.resources[1].service.unit"},
		{"path and package of one name", []Resource{{Name: "a", File: file("/vim")}, {Name: "vim", Package: &Package{}}}, ""},
		{"dangling", []Resource{{Name: "a", File: file("/a"), Require: []string{"b"}, Notify: []string{"c"}}}, "TK0422 spec.resources[0].require[0], TK0422 spec.resources[0].notify[0]"},
		{"later ones may be named", []Resource{{Name: "a", File: file("/a"), Notify: []string{"s"}}, {Name: "s", Service: &Service{}}}, ""},
		{"itself", []Resource{{Name: "a", File: file("/a"), Require: []string{"a"}}}, "TK0414 spec.resources[0].require[0]"},
		{"twice", []Resource{{Name: "a", File: file("/a")}, {Name: "b", File: file("/b"), Require: []string{"a", "a"}}}, "TK0414 spec.resources[1].require[1]"},
		{"notify a file", []Resource{{Name: "a", File: file("/a")}, {Name: "b", File: file("/b"), Notify: []string{"a"}}}, "TK0414 spec.resources[1].notify[0]"},
		{"large content", []Resource{{Name: "a", File: &File{Path: "/a", Content: strings.Repeat("x", BodyBytesMax)}}}, "TK0429 spec.resources[0]"},
		{"check", []Resource{{Name: "a", File: &File{Path: "/a", Check: []string{"{}", "x\x00"}}}}, "TK0414 spec.resources[0].file.check[0], TK0414 spec.resources[0].file.check, TK0414 spec.resources[0].file.check[1]"},
		{"check inside a word", []Resource{{Name: "a", File: &File{Path: "/a", Check: []string{"sh", "--file={}"}}}}, ""},
		{"target", []Resource{{Name: "a", Symlink: &Symlink{Path: "/a"}}, {Name: "b", Symlink: &Symlink{Path: "/b", Target: "x\x00"}}}, "TK0413 spec.resources[0].symlink.target, TK0414 spec.resources[1].symlink.target"},
		{"words", []Resource{{Name: "aa", Package: &Package{State: "newest"}, OnRemove: "purge"}, {Name: "b", Service: &Service{State: "up", OnNotify: "kill"}}},
			"TK0414 spec.resources[0].package.state, TK0414 spec.resources[0].onRemove, TK0414 spec.resources[1].service.state, TK0414 spec.resources[1].service.onNotify"},
		{"delete", []Resource{{Name: "s", Service: &Service{}, OnRemove: OnRemoveDelete}, {Name: "pp", Package: &Package{State: PackageAbsent}, OnRemove: OnRemoveDelete}, {Name: "f", File: file("/f"), OnRemove: OnRemoveDelete}},
			"TK0415 spec.resources[0].onRemove, TK0415 spec.resources[1].onRemove"},
		{"expansions", []Resource{{Name: "a", Expand: true, File: &File{Path: "/$(node.name)", Owner: "$(node.nme)", Content: "$("}}},
			"TK0428 spec.resources[0].file.content, TK0427 spec.resources[0].file.owner, TK0415 spec.resources[0].file.path"},
		{"a dollar without expand", []Resource{{Name: "a", File: &File{Path: "/$(node.name)", Content: "$("}}}, ""},
		{"expansions that are filled later", []Resource{{Name: "vim", Expand: true, Package: &Package{Version: "$(node.labels['vim'])"}}}, ""},
		{"unit of an odd name", []Resource{{Name: "a+b", Service: &Service{}}}, "TK0414 spec.resources[0].service.unit"},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestValidateCounts declares as much as there may be of each list and mapping, and one more.
func TestValidateCounts(t *testing.T) {
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("l", i)] = "v"
		}
		return m
	}
	words := func(n int, word string) []string { return slices.Repeat([]string{word}, n) }
	requirements := func(n int) []SelectorRequirement {
		return slices.Repeat([]SelectorRequirement{{Key: "zone", Operator: OpExists}}, n)
	}
	in := func(n int) []SelectorRequirement {
		return []SelectorRequirement{{Key: "zone", Operator: OpIn, Values: words(n, "a")}}
	}
	check := func(n int) Resource {
		return Resource{Name: "a", File: &File{Path: "/a", Check: append(words(n-1, "test"), "{}")}}
	}
	named := func(n int) []Resource {
		all := make([]Resource, n)
		for i := range all {
			all[i] = Resource{Name: fmt.Sprint("r", i), Package: &Package{Package: fmt.Sprint("p", i)}}
			all[0].Require = append(all[0].Require, all[i].Name)
		}
		all[0].Require = all[0].Require[1:] // not itself
		return all
	}
	for _, c := range []struct {
		path  string
		limit int
		with  func(c *NodeConfig, n int)
	}{
		{"metadata.labels", LabelsMax, func(c *NodeConfig, n int) { c.Metadata.Labels = labels(n) }},
		{"spec.selector.matchLabels", LabelsMax, func(c *NodeConfig, n int) { c.Spec.Selector.MatchLabels = labels(n) }},
		{"spec.selector.matchExpressions", ExpressionsMax, func(c *NodeConfig, n int) { c.Spec.Selector.MatchExpressions = requirements(n) }},
		{"spec.selector.matchExpressions[0].values", ValuesMax, func(c *NodeConfig, n int) { c.Spec.Selector.MatchExpressions = in(n) }},
		{"spec.rollout.waves", WavesMax, func(c *NodeConfig, n int) { c.Spec.Rollout.Waves = make([]Wave, n) }},
		{"spec.rollout.waves[0].matchLabels", LabelsMax, func(c *NodeConfig, n int) {
			c.Spec.Rollout.Waves = []Wave{{Selector: Selector{MatchLabels: labels(n)}}}
		}},
		{"spec.resources[0].file.check", ArgumentsMax, func(c *NodeConfig, n int) { c.Spec.Resources = []Resource{check(n)} }},
		{"spec.resources[0].require", ReferencesMax, func(c *NodeConfig, n int) { c.Spec.Resources = named(n + 1) }},
	} {
		full := config()
		c.with(full, c.limit)
		if got := summary(Validate(full)); got != "" {
			t.Errorf("%s: %d: %s", c.path, c.limit, got)
		}
		c.with(full, c.limit+1)
		if got := summary(Validate(full)); got != "TK0414 "+c.path {
			t.Errorf("%s: %d: %s", c.path, c.limit+1, got)
		}
	}
}

// TestValidateManyMistakes: what is no declaration at all is not told of at any length.
func TestValidateManyMistakes(t *testing.T) {
	if n := len(Validate(config(make([]Resource, faultsMax)...))); n != faultsMax {
		t.Errorf("%d mistakes are told, want %d", n, faultsMax)
	}
}

func TestValidateManyDanglingReferences(t *testing.T) {
	var all []Resource
	for i := range 5000 {
		all = append(all, Resource{Name: "a" + strings.Repeat("b", i%200) + string(rune('a'+i%26)), File: &File{Path: "/a"}, Require: []string{"nothing"}})
	}
	hints := 0
	for _, f := range Validate(config(all...)) {
		if f.Code == reason.DanglingReference && f.Hint != "" {
			hints++
		}
	}
	if hints > faultsShownMax {
		t.Errorf("%d suggestions, each of which looks at every name", hints)
	}
}

func TestSelectorMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": ""}
	expression := func(key string, op SelectorOperator, values ...string) Selector {
		return Selector{MatchExpressions: []SelectorRequirement{{key, op, values}}}
	}
	for _, c := range []struct {
		name     string
		selector Selector
		want     bool
	}{
		{"empty", Selector{}, true},
		{"label", Selector{MatchLabels: map[string]string{"zone": "a"}}, true},
		{"other value", Selector{MatchLabels: map[string]string{"zone": "b"}}, false},
		{"empty value is not absence", Selector{MatchLabels: map[string]string{"absent": ""}}, false},
		{"in", expression("zone", OpIn, "b", "a"), true},
		{"in absent", expression("absent", OpIn, ""), false},
		{"not in", expression("zone", OpNotIn, "a"), false},
		{"not in absent", expression("absent", OpNotIn, "a"), true},
		{"exists", expression("empty", OpExists), true},
		{"does not exist", expression("empty", OpDoesNotExist), false},
		{"unknown operator", expression("zone", "Near"), false},
		{"both must hold", Selector{MatchLabels: map[string]string{"zone": "a"}, MatchExpressions: []SelectorRequirement{{"absent", OpExists, nil}}}, false},
	} {
		if got := c.selector.Matches(labels); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	if got := (&File{}).ModeOrDefault(); got != 0o644 {
		t.Errorf("file mode %o", got)
	}
	if got := (&Directory{}).ModeOrDefault(); got != 0o755 {
		t.Errorf("directory mode %o", got)
	}
	if got := (&File{Mode: "4755"}).ModeOrDefault(); got != 0o4755 {
		t.Errorf("declared mode %o", got)
	}
	for mode, private := range map[Mode]bool{"": false, "0600": true, "0700": true, "4700": true, "0640": false, "0601": false} {
		if got := (&File{Mode: mode}).Private(); got != private {
			t.Errorf("mode %q is private: %v", mode, got)
		}
	}
	n := 7
	for want, got := range map[int]int{
		100:  (&NodeConfigSpec{}).PriorityOr(KindNodeConfig),
		1100: (&NodeConfigSpec{}).PriorityOr(KindClusterNodeConfig),
		7:    (&NodeConfigSpec{Priority: &n}).PriorityOr(KindClusterNodeConfig),
	} {
		if got != want {
			t.Errorf("priority %d, want %d", got, want)
		}
	}
}

// TestEditDistance compares with the definition, written as a recursion.
func TestEditDistance(t *testing.T) {
	word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := editDistance(a, b), naiveDistance(a, b); got != want {
			t.Fatalf("%q to %q: %d, want %d", a, b, got, want)
		}
	})
	if editDistance("onremove", "onRemove") != 0 {
		t.Error("a change of case counts as a change of letters")
	}
}

func naiveDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[0] == b[0] {
		cost = 0
	}
	d := min(naiveDistance(a[1:], b)+1, naiveDistance(a, b[1:])+1, naiveDistance(a[1:], b[1:])+cost)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, naiveDistance(a[2:], b[2:])+1)
	}
	return d
}

package declare

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// groundScope is a host with two disks, an interface and facts of its own.
func groundScope() Scope {
	known := map[string]any{
		"facts.disks":                                  []string{"nvme0n1", "sda"},
		"facts.disks['sda'].bytes":                     int64(1 << 40),
		"facts.disks['sda'].rotational":                true,
		"facts.network.addresses":                      []string{"192.0.2.2", "fd00::2"},
		"facts.network.interfaces['eth0.100'].address": "192.0.2.2",
		"facts.network.interfaces['eth0'].addresses":   []string{},
		"facts.custom.app.role":                        "web",
		"facts.custom.app.cores":                       int64(4),
		"facts.custom.app.spare":                       int64(4),
		"facts.custom.app.canary":                      true,
		"facts.custom.app.sites":                       []string{"a b", "c"},
		"facts.custom.app.none":                        []string{},
		"facts.custom.app.zero":                        int64(0),
		"facts.custom.app.empty":                       "",
	}
	return Scope{NodeName: "web-1", Fact: func(name string) (any, bool) { x, ok := known[name]; return x, ok }}
}

func TestEvalOfListsMembersAndOwnFacts(t *testing.T) {
	for when, want := range map[string]bool{
		"'sda' in facts.disks":                                          true,
		"'sd' in facts.disks":                                           false,
		"node.name in facts.disks":                                      false,
		"facts.disks['sda'].bytes >= 1099511627776":                     true,
		"facts.disks['sda'].rotational":                                 true,
		"!facts.disks['sdb'].rotational":                                true,
		"facts.network.interfaces[\"eth0.100\"].address == '192.0.2.2'": true,
		"'fd00::2' in facts.network.addresses":                          true,
		"'' in facts.network.interfaces['eth0'].addresses":              false,
		"facts.custom.app.role == 'web'":                                true,
		"'web' == facts.custom.app.role":                                true,
		"facts.custom.app.role in ['db', 'web']":                        true,
		"facts.custom.app.role == 1":                                    false, // another type than it has
		"facts.custom.app.role != 1":                                    false,
		"facts.custom.app.cores > 3":                                    true,
		"facts.custom.app.cores >= facts.custom.app.spare":              true,
		"facts.custom.app.cores == facts.custom.app.spare":              true,
		"facts.custom.app.zero == facts.custom.app.empty":               false,
		"facts.custom.app.role < facts.custom.app.cores":                false,
		"facts.custom.app.canary":                                       true,
		"facts.custom.app.canary == true":                               true,
		"facts.custom.app.role":                                         false,
		"'a b' in facts.custom.app.sites":                               true,
		"'a' in facts.custom.app.sites":                                 false,
		"'' in facts.custom.app.none":                                   false,
		"facts.custom.app.role in facts.custom.app.sites":               false,
		"'a' in facts.custom.app.role":                                  false,
		"facts.custom.other.role == 'web'":                              false,
	} {
		e, err := ParseWhen(when)
		if err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		if got, err := e.Eval(groundScope().Lookup); got != want || err != nil {
			t.Errorf("%s is %v, %v", when, got, err)
		}
	}
}

func TestMistakesWithFacts(t *testing.T) {
	for when, want := range map[string][2]string{
		"facts.disks == 'sda'":                 {"column 16: facts.disks is a list, \"sda\" is text", "'sda' in facts.disks"},
		"'sda' == facts.disks":                 {"is a list", "'sda' in facts.disks"},
		"facts.disks == facts.disks":           {"lists are not compared", "'sda' in facts.disks"},
		"facts.disks":                          {"facts.disks is a list, not a condition", "'sda' in facts.disks"},
		"4 in facts.disks":                     {"a list holds texts, 4 is a number", ""},
		"'a' in facts.os.id":                   {"facts.os.id is text, not a list", "['debian', 'ubuntu']"},
		"facts.disks['sda'] == 1":              {"where ]. and a field must follow", "facts.disks['sda'].bytes"},
		"facts.disks[sda].bytes == 1":          {"found sda where the name of one of facts.disks must stand", "facts.disks['sda'].bytes"},
		"facts.disks['s d'].bytes == 1":        {"where the name of one of facts.disks", ""},
		"facts.disks['sda'].byts == 1":         {"unknown name \"facts.disks['sda'].byts\"", "did you mean \"bytes\"?"},
		"facts.disks['sda'].rotational > 1":    {"is true or false, 1 is a number", ""},
		"facts.disks.sda.bytes == 1":           {"unknown name", "facts.disks['sda'].bytes"},
		"facts.network.interfaces.eth0 == 'a'": {"unknown name", "facts.network.interfaces['eth0'].address"},
		"facts.custom.app == 'a'":              {"unknown name", "facts.custom.FILE.KEY"},
		"facts.custom.app.2x == 'a'":           {"unknown name", "facts.custom.FILE.KEY"},
		"facts.custom.app.a.b == 'a'":          {"unknown name", "facts.custom.FILE.KEY"},
		"facts == 'a'":                         {"unknown name", ""},
		"facts.disks[":                         {"where the name of one of facts.disks must stand", ""},
		"facts.disks['sda'].":                  {"where a field of facts.disks must stand", ""},
	} {
		_, err := ParseWhen(when)
		if err == nil || !strings.Contains(err.Error(), want[0]) || !strings.Contains(reason.Of(err).Hint, want[1]) {
			t.Errorf("%s: got %v, help %q; want %q, %q", when, err, reason.Of(err).Hint, want[0], want[1])
		}
	}
}

func TestExpandFacts(t *testing.T) {
	const text = "$(facts.disks) $(facts.disks['sda'].bytes) $(facts.disks['sda'].rotational) $(facts.custom.app.role) $(facts.custom.app.none)."
	got, err := Expand(text, groundScope().Lookup)
	if want := "nvme0n1 sda 1099511627776 true web ."; got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = Expand("$(facts.custom.app.rol)", groundScope().Lookup)
	if !reason.Is(err, reason.InvalidValue) || !strings.Contains(reason.Of(err).Hint, OwnFactsDir) {
		t.Errorf("an own fact that is not there: %v, help %q", err, reason.Of(err).Hint)
	}
}

func TestFactsSelectNothing(t *testing.T) {
	for _, s := range []Selector{
		{MatchLabels: map[string]string{"facts.os.id": "debian"}},
		{MatchExpressions: []SelectorRequirement{{Key: "facts.custom.app.role", Operator: OpExists}}},
	} {
		v := validator{config: &NodeConfig{}}
		v.selector("spec.selector", &s)
		if len(v.faults) != 1 || !strings.Contains(v.faults[0].Message, "facts select nothing") {
			t.Errorf("%v: got %v", s, v.faults)
		}
	}
}

func TestMemberNames(t *testing.T) {
	for _, group := range []string{DiskFacts, InterfaceFacts} {
		for _, f := range MemberFields(group) {
			name := MemberName(group, "eth0.100@x", f.Name)
			g, key, field, ok := CutMember(name)
			kind, known := nameType(name)
			if !ok || g != group || key != "eth0.100@x" || field != f.Name || !known || kind != f.Type || f.Doc == "" {
				t.Errorf("%s: %s %s %s %v %v", name, g, key, field, kind, known)
			}
		}
	}
}

// TestListsAgainstAModel: what is in a list, and what its text is.
func TestListsAgainstAModel(t *testing.T) {
	word := rapid.StringMatching(`[ab ]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		list, ask := rapid.SliceOfN(word, 0, 4).Draw(t, "list"), word.Draw(t, "ask")
		v := ListValue(list)
		if v.holds(ask) != slices.Contains(list, ask) {
			t.Fatalf("%q in %q", ask, list)
		}
		if v.String() != strings.Join(list, " ") {
			t.Fatalf("%q is written %q", list, v.String())
		}
	})
}

// TestPartsOfValues: what programs need of a value, other than expressions.
func TestPartsOfValues(t *testing.T) {
	for _, c := range []struct {
		value  Value
		texts  []string
		number int64
	}{
		{ListValue([]string{"sda", "a b"}), []string{"sda", "a b"}, 0},
		{ListValue([]string{""}), []string{""}, 0},
		{ListValue(nil), nil, 0},
		{TextValue("sda\nsdb"), nil, 0},
		{IntegerValue(-7), nil, -7},
		{BooleanValue(true), nil, 1},
		{Value{}, nil, 0},
	} {
		if got := c.value.Texts(); !slices.Equal(got, c.texts) || c.value.Number() != c.number {
			t.Errorf("%+v has the texts %q and the number %d", c.value, got, c.value.Number())
		}
	}
}

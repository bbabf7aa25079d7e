package declare

import (
	"cmp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

func TestPackageRange(t *testing.T) {
	for _, row := range []struct {
		text           string
		allows, denies string
	}{
		{"", "1 2", ""},
		{"1", "1", "0 2"},
		{">=1", "1 2", "0"},
		{">1", "2", "0 1"},
		{"<=1", "0 1", "2"},
		{"<1", "0", "1 2"},
		{">=1 <3", "1 2", "0 3"},
		{"<=3 >1", "2 3", "1 4"},
	} {
		r, err := ParseVersionRange(row.text)
		if err != nil {
			t.Errorf("%q: %v", row.text, err)
		}
		for _, v := range strings.Fields(row.allows) {
			if !r.Allows(v, cmp.Compare[string]) {
				t.Errorf("%q does not allow %s", row.text, v)
			}
		}
		for _, v := range strings.Fields(row.denies) {
			if r.Allows(v, cmp.Compare[string]) {
				t.Errorf("%q allows %s", row.text, v)
			}
		}
	}
	for _, bad := range []string{" ", "1 2", "=1", "==1", ">= 1", ">=", ">=1  <2", ">=1 >2", "<1 <=2", ">=1,<2", "!=1", ">=1 2", "><1", " >=1", ">=-1", ">=1 <2 "} {
		if r, err := ParseVersionRange(bad); err == nil {
			t.Errorf("%q is %+v", bad, r)
		}
	}
}

// TestPackageRangeModel draws ranges of numbers and compares with what numbers say.
func TestPackageRangeModel(t *testing.T) {
	digit := rapid.IntRange(0, 9)
	rapid.Check(t, func(t *rapid.T) {
		low, high, v := digit.Draw(t, "low"), digit.Draw(t, "high"), digit.Draw(t, "version")
		openLow, openHigh := rapid.Bool().Draw(t, "open low"), rapid.Bool().Draw(t, "open high")
		text := map[bool]string{true: ">", false: ">="}[openLow] + string(rune('0'+low)) + " " + map[bool]string{true: "<", false: "<="}[openHigh] + string(rune('0'+high))
		want := (v > low || v == low && !openLow) && (v < high || v == high && !openHigh)
		r, err := ParseVersionRange(text)
		if err != nil || r.Allows(string(rune('0'+v)), cmp.Compare[string]) != want || !r.Bounded() {
			t.Fatalf("%q and %d: %+v, %v", text, v, r, err)
		}
	})
}

func FuzzPackageRange(f *testing.F) {
	f.Add(">=1.2 <2", "1.5")
	f.Add("1:2.3~rc1-4", "1")
	f.Fuzz(func(t *testing.T, text, version string) {
		r, err := ParseVersionRange(text)
		if err == nil && r.Exact == "" && !r.Bounded() && text != "" {
			t.Errorf("%q says nothing", text)
		}
		if err == nil {
			r.Allows(version, cmp.Compare[string])
		}
	})
}

func TestPackagePreseed(t *testing.T) {
	for _, good := range []string{
		"postfix postfix/main_mailer_type select No configuration",
		"# words\n\n one\tone/x boolean true\r\none one/password password hunter2\n",
		"one one/empty string\n",
	} {
		if message, _ := preseedMistake(good); message != "" {
			t.Errorf("%q: %s", good, message)
		}
	}
	for _, bad := range []string{
		"", "# only words\n", "one", "one one/x", "one x string y", "one one/x text\x00", "one one/x seen true", "one one/x strng hunter2",
		"one one/x boolean hunter2", "one one/x string hunter2\\\n", "-o one/x string hunter2", strings.Repeat("one one/x string hunter2\n", preseedLinesMax+1),
	} {
		if message, hint := preseedMistake(bad); message == "" || strings.Contains(message+hint, "hunter2") {
			t.Errorf("%q: %q", clipText(bad), message)
		}
	}
}

func FuzzPackagePreseed(f *testing.F) {
	f.Add("one one/x string y\n")
	f.Fuzz(func(t *testing.T, text string) {
		if message, _ := preseedMistake(text); len(message) > 200 || message == "" && strings.Contains(text, "\x00") {
			t.Errorf("%q: %q", text, message)
		}
	})
}

func TestPackageValidation(t *testing.T) {
	for _, row := range []struct {
		spec string
		code reason.Code
		path string
		hint string
	}{
		{`{}`, 0, "", ""},
		{`{state: latest, version: "<2", hold: true, options: {recommends: false, allowDowngrade: true}, conffiles: replace}`, 0, "", ""},
		{`{preseed: "one one/x string y"}`, 0, "", ""},
		{`{preseedFrom: {secret: {name: web, key: answers}}}`, 0, "", ""},
		{`{state: purged}`, 0, "", ""},
		{`{package: "a b"}`, reason.InvalidValue, "package.package", "letters"},
		{`{state: newest}`, reason.InvalidValue, "package.state", "latest"},
		{`{version: ">= 1"}`, reason.InvalidValue, "package.version", "one word"},
		{`{version: "1 2"}`, reason.InvalidValue, "package.version", ">=1.2 <2"},
		{`{version: ">=1 >2"}`, reason.InvalidValue, "package.version", "one of each"},
		{`{state: latest, version: "1"}`, reason.FieldNotAllowed, "package.version", "range"},
		{`{state: absent, version: "1"}`, reason.FieldNotAllowed, "package.version", ""},
		{`{state: purged, hold: true}`, reason.FieldNotAllowed, "package.hold", ""},
		{`{state: absent, options: {}}`, reason.FieldNotAllowed, "package.options", ""},
		{`{state: absent, conffiles: keep}`, reason.FieldNotAllowed, "package.conffiles", ""},
		{`{state: absent, preseed: "one one/x string y"}`, reason.FieldNotAllowed, "package.preseed", ""},
		{`{state: absent, preseedFrom: {secret: {name: a, key: b}}}`, reason.FieldNotAllowed, "package.preseedFrom", ""},
		{`{options: {allowUnauthenticated: true}}`, reason.UnknownField, "package.options.allowUnauthenticated", ""},
		{`{conffiles: ask}`, reason.InvalidValue, "package.conffiles", "keep"},
		{`{preseed: "one one/x hunter2"}`, reason.InvalidValue, "package.preseed", "string"},
		{`{preseed: "one one/x string y", preseedFrom: {secret: {name: a, key: b}}}`, reason.FieldNotAllowed, "package.preseedFrom", "preseed"},
	} {
		doc := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: x}\nspec:\n  resources:\n    - name: one\n      package: " + row.spec + "\n"
		documents, faults := Read("x", []byte(doc))
		if len(faults) == 0 {
			faults = Validate(documents[0].Config)
		}
		if row.code == 0 {
			if len(faults) > 0 {
				t.Errorf("%s: %+v", row.spec, faults)
			}
			continue
		}
		if len(faults) != 1 || faults[0].Code != row.code || !strings.HasSuffix(faults[0].Path, row.path) || !strings.Contains(faults[0].Hint, row.hint) || strings.Contains(faults[0].Message, "hunter2") {
			t.Errorf("%s: %+v", row.spec, faults)
		}
	}
}

// TestPackageFilled has a Secret in the place of answers.
func TestPackageFilled(t *testing.T) {
	from := &ContentSource{Secret: &KeySelector{Name: "web", Key: "answers"}}
	r := Resource{Name: "one", Package: &Package{PreseedFrom: from}}
	filled, err := r.Filled("one one/x password hunter2\n")
	if err != nil || filled.Package.Preseed != "one one/x password hunter2\n" || filled.Package.PreseedFrom != from || r.Package.Preseed != "" {
		t.Errorf("%+v, %v", filled.Package, err)
	}
	if _, err := r.Filled("one hunter2"); !reason.Is(err, reason.InvalidValue) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

package repository

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

func TestParseSources(t *testing.T) {
	line := "# c\ndeb http://a/d bookworm main contrib # x\n deb-src [ arch=amd64 signed-by=/k.gpg trusted=yes ] http://a/d/ bookworm/updates main\ndeb\ncdrom: x\ndeb [x http://b ./\ndeb http://c/ ./\n"
	stanzas := "# c\n\nTypes: deb\nURIs: http://a/d\n http://b\nSuites: one two\n# in between\nSigned-By:\n -----BEGIN\n .\n\nTypes: deb\nEnabled: no\nURIs: http://off/\nSuites: x\n \nuris: file:/x\nSUITES: ./\nTrusted: Yes"
	for _, c := range []struct {
		file, text string
		want       []mention
	}{
		{"x.list", line, []mention{
			{file: "x.list", line: 2, place: "http://a/d/", suite: "bookworm", trust: " "}, {file: "x.list", line: 3, place: "http://a/d/", suite: "bookworm/updates", trust: "/k.gpg trusted=yes", keys: "/k.gpg"},
			{file: "x.list", line: 7, place: "http://c/", suite: "./", trust: " "},
		}},
		{"x.sources", stanzas, []mention{
			{file: "x.sources", line: 3, place: "http://a/d/", suite: "one", trust: "-----BEGIN . ", keys: "\n -----BEGIN\n ."}, {file: "x.sources", line: 3, place: "http://a/d/", suite: "two", trust: "-----BEGIN . ", keys: "\n -----BEGIN\n ."},
			{file: "x.sources", line: 3, place: "http://b/", suite: "one", trust: "-----BEGIN . ", keys: "\n -----BEGIN\n ."}, {file: "x.sources", line: 3, place: "http://b/", suite: "two", trust: "-----BEGIN . ", keys: "\n -----BEGIN\n ."},
			{file: "x.sources", line: 17, place: "file:/x/", suite: "./", trust: " trusted=yes"},
		}},
	} {
		if got := (apt{}).parse(c.file, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", c.file, got, c.want)
		}
	}
	got := dnf{}.parse("x.repo", "[main]\nbaseurl=http://no/\n# c\n[a]\nname = A\nbaseurl = http://x/\n   http://y/\ngpgkey=file:///k\n file:///l\n;x\n[b\nmirrorlist=http://m/\n")
	want := []mention{{file: "x.repo", line: 4, id: "a", place: "http://x/ http://y/", keys: " file:///k file:///l"}, {file: "x.repo", line: 11, id: "b\nmirrorlist=http://m/"}}
	want[1] = mention{file: "x.repo", line: 11, id: "b", place: "http://m/"}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestAptAgrees has apt itself read two files of one repository that differ in one option: where it refuses to, that is a rival.
func TestAptAgrees(t *testing.T) {
	needs(t, "apt-get")
	dir := t.TempDir()
	refuses := func(a, b string) (bool, string) {
		lines := [2]string{"deb " + a + " http://x.example/ ./\n", "deb " + b + " http://x.example/ ./\n"}
		for i, text := range lines {
			if err := os.WriteFile(filepath.Join(dir, string('a'+rune(i))+".list"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run := exec.CommandContext(t.Context(), "apt-get", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts="+dir, "indextargets")
		out, err := run.CombinedOutput()
		return err != nil && strings.Contains(string(out), "Conflicting values set for option"), string(out)
	}
	rival := func(a, b string) bool {
		one, other := apt{}.parse("a.list", "deb "+a+" http://x.example/ ./"), apt{}.parse("b.list", "deb "+b+" http://x.example/ ./")
		is, double := apt{}.rival(one[0], other[0])
		if is == double {
			t.Errorf("%s and %s: both or neither", a, b)
		}
		return is
	}
	for _, c := range []struct{ a, b string }{
		{"[trusted=yes]", ""}, {"[trusted=no]", "[trusted=Yes]"}, {"[trusted=yes]", "[trusted=1]"}, {"[check-valid-until=no]", ""}, {"[check-valid-until=no]", "[check-valid-until=false]"},
		{"[check-date=no]", "[check-date=yes]"}, {"[check-date=off]", "[check-date=no]"}, {"[allow-insecure=yes]", ""}, {"[allow-weak=yes]", ""}, {"[allow-downgrade-to-insecure=yes]", ""},
		{"[valid-until-min=1]", "[valid-until-min=2]"}, {"[valid-until-max=1]", "[valid-until-max=2]"}, {"[date-max-future=1]", "[date-max-future=2]"}, {"[valid-until-min=1]", "[valid-until-min=1]"},
		{"[inrelease-path=a]", "[inrelease-path=b]"}, {"[signed-by=/a.gpg]", "[signed-by=/b.gpg]"}, {"[signed-by=/a.gpg]", "[signed-by=/a.gpg]"},
		{"[arch=amd64]", "[arch=i386]"}, {"[lang=none]", ""}, {"[target=Packages]", ""}, {"[pdiffs=no]", ""}, {"[by-hash=no]", "[by-hash=yes]"},
	} {
		apts, said := refuses(c.a, c.b)
		if ours := rival(c.a, c.b); ours != apts {
			t.Errorf("%s and %s: a rival: %v, apt refuses: %v\n%s", c.a, c.b, ours, apts, said)
		}
	}
}

// TestWrittenIsRead reads what is written for random declarations: no text of one may become something else of the file.
func TestWrittenIsRead(t *testing.T) {
	text := rapid.StringMatching(`[a-z0-9:/.=#;\[\]$%&?~+_-]{1,8}`)
	valid := func(prefix string, mistake func(string) (string, string)) *rapid.Generator[[]string] {
		one := rapid.Map(text, func(s string) string { return prefix + s }).Filter(func(s string) bool { m, _ := mistake(s); return m == "" })
		return rapid.SliceOfNDistinct(one, 1, 3, rapid.ID)
	}
	rapid.Check(t, func(t *rapid.T) {
		uris, suites := valid("http://h/", declare.AptURIMistake).Draw(t, "uris"), valid("s", declare.AptWordMistake).Draw(t, "suites")
		r := &declare.Repository{Apt: &declare.AptRepository{Uris: uris, Suites: suites, Components: []string{"main"}, Options: map[string]string{"Description": text.Draw(t, "option")}}}
		got := apt{}.parse("x.sources", apt{}.text(r, "lab", "/k.gpg"))
		if len(got) != len(uris)*len(suites) {
			t.Fatalf("%d mentions of %v, %v", len(got), uris, suites)
		}
		for _, m := range got {
			if !slices.Contains(suites, m.suite) || !slices.Contains(uris, strings.TrimSuffix(m.place, "/")) && !slices.Contains(uris, m.place) || m.keys != "/k.gpg" {
				t.Fatalf("%+v of %v, %v", m, uris, suites)
			}
		}
	})
}

func FuzzParseSources(f *testing.F) {
	f.Add("deb [a=b] http://x ./\n\nURIs: x\n y\nSuites: z\n[a]\nbaseurl=b")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range slices.Concat(apt{}.parse("x.list", text), apt{}.parse("x.sources", text), dnf{}.parse("x.repo", text)) {
			if m.line < 1 || m.line > strings.Count(text, "\n")+1 {
				t.Fatalf("%+v of %q", m, text)
			}
			_ = m.prefix()
		}
	})
}

func TestFaults(t *testing.T) {
	failed := errors.New("exit status 100")
	for _, c := range []struct {
		output string
		err    error
		want   reason.Code
	}{
		{"Hit:1 http://x\n", nil, 0},
		{"W: GPG error: http://x InRelease: NO_PUBKEY 1", nil, reason.PackageSourceUntrusted},
		{"W: Failed to fetch http://x  404  Not Found", nil, reason.PackageSourceUnreachable},
		{"E: The repository 'http://x InRelease' is not signed.", failed, reason.PackageSourceUntrusted},
		{"E: The repository 'http://x Release' does not have a Release file.", failed, reason.PackageSourceUnreachable},
		{"E: Release file for http://x/InRelease is expired (invalid since 2d). Updates for this repository will not be applied.", failed, reason.PackageSourceUntrusted},
		{"E: Malformed stanza 1 in source list", failed, reason.PackageToolFailed},
		{"E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (systemd)", failed, reason.PackageLock},
		{"", command.ErrStopped, reason.OperationTimeout},
	} {
		err := apt{}.fault("x", []byte(c.output), c.err)
		if c.want == 0 && err != nil || c.want != 0 && !reason.Is(err, c.want) {
			t.Errorf("%q: %v", c.output, err)
		}
	}
	for output, want := range map[string]reason.Code{
		"Error: Failed to download metadata for repo 'x': Cannot download repomd.xml": reason.PackageSourceUnreachable, "Error: repomd.xml GPG signature verification error: Bad GPG signature": reason.PackageSourceUntrusted,
		"Error: something": reason.PackageToolFailed,
	} {
		if err := (dnf{}).fault("x", []byte(output), failed); !reason.Is(err, want) {
			t.Errorf("%q: %v", output, err)
		}
	}
}

func TestIsCacheOf(t *testing.T) {
	for entry, want := range map[string]bool{
		"lab-0123456789abcdef": true, "lab.solv": true, "lab-filenames.solvx": true, "lab-two-0123456789abcdef": false, "lab": false, "lab-0123456789abcdeg": false, "other.solv": false, "lab2.solv": false,
	} {
		if isCacheOf("lab", entry) != want {
			t.Errorf("%s: %t", entry, !want)
		}
	}
}

// TestSandbox writes files, and fetches nothing.
func TestSandbox(t *testing.T) {
	g := newGround(t, t.TempDir())
	armored, err := os.ReadFile("../../../declare/testdata/repository.asc")
	if err != nil {
		t.Fatal(err)
	}
	r := aptRepository("http://nowhere.invalid/", "stable", string(armored))
	bound := g.bind(r)
	plan := g.Check(t.Context(), []host.Resource{bound}, host.Explain)[0]
	if plan.Err != nil || plan.Changes[0].Text == nil || !strings.Contains(string(plan.Changes[0].Text.To), "URIs: http://nowhere.invalid/\n") {
		t.Errorf("%+v", plan)
	}
	g.Made(r)
	keys, err := openpgp.ParseBinary([]byte(g.see(labKey)))
	if err != nil || len(keys.Fingerprints) != 1 || !strings.Contains(g.see(labFile), "Signed-By: "+labKey+"\n") {
		t.Errorf("%v, %v: %s", keys.Fingerprints, err, g.see(labFile))
	}
	if err := os.Chmod(g.path(labFile), 0o600); err != nil {
		t.Fatal(err)
	}
	g.put("/etc/apt/sources.list.d/lab.sources", "URIs: http://me:geheim@x/\n")
	if err := os.Chmod(g.path(labFile), 0o600); err != nil {
		t.Fatal(err)
	}
	plan = g.Check(t.Context(), []host.Resource{bound}, host.Explain)[0]
	if plan.Err != nil || len(plan.Changes) != 2 || plan.Changes[0].Text != nil {
		t.Errorf("what nobody else may read is shown: %+v", plan)
	}
	g.Made(r)
	g.Made(declare.Resource{Name: "lab", Repository: &declare.Repository{State: declare.EditAbsent, Apt: &declare.AptRepository{}}})
	if left, _ := filepath.Glob(g.path("/etc/apt/*/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// What is expanded is looked at again.
	bad := aptRepository("http://x/", "stable", "")
	bad.Expand, bad.Repository.Apt.Uris[0] = true, "http://x/\nTrusted: yes"
	if _, err := g.Bind(t.Context(), hosttest.Declared(bad)); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("an expansion that breaks out: %v", err)
	}
}

package declare

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestModeRule(t *testing.T) {
	for text, want := range map[Mode]ModeRule{
		"0640": {0o640, 0o7137}, "u=rw,g=r,o=": {0o640, 0o7137}, "o-rwx": {0, 0o007}, "u+x": {0o100, 0}, "ug+w,o-w": {0o220, 0o002}, "a-s": {0, 0o6000},
		"u+x-x": {0, 0o100}, "u-x+x": {0o100, 0}, "go=": {0, 0o3077}, "o+t": {0o1000, 0}, "u+t": {}, "o+s": {}, "u=rwxs": {0o4700, 0},
	} {
		got, ok := text.Rule(false)
		if !ok || got != want {
			t.Errorf("%s: %o, %v, want %o", text, got, ok, want)
		}
	}
	if got, _ := Mode("u=rwx,g=rx,o=").Rule(true); got != (ModeRule{0o750, 0o1027}) || got.Left() != 0o6000 {
		t.Errorf("a directory keeps its set-id bits: %o", got)
	}
	for _, bad := range []Mode{"", "+x", "=r", "u", "u+X", "g=u", "u+r,", ",u+r", "u+r,,g+r", "u +r", "rw-r--r--", "x=r", "u:r", "0o644", "u+é", Mode(strings.Repeat("u", 65) + "+r")} {
		if got, ok := bad.Rule(false); ok {
			t.Errorf("%q is taken as %o", bad, got)
		}
	}
}

// symbols draws a mode in symbols.
func symbols(t *rapid.T) Mode {
	clause := rapid.Custom(func(t *rapid.T) string {
		text := rapid.StringMatching(`[ugoa]{1,3}`).Draw(t, "who")
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			text += rapid.StringMatching(`[-+=][rwxst]{0,4}`).Draw(t, "change")
		}
		return text
	})
	return Mode(strings.Join(rapid.SliceOfN(clause, 1, 3).Draw(t, "clauses"), ","))
}

// TestModeAsChmod compares with chmod(1), on a file and on a directory, and does it twice.
func TestModeAsChmod(t *testing.T) {
	if _, err := exec.LookPath("chmod"); err != nil {
		t.Skip("needs chmod")
	}
	dir := t.TempDir()
	paths := map[bool]string{false: dir + "/file", true: dir + "/directory"}
	if err := os.WriteFile(paths[false], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(paths[true], 0o700); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	rapid.Check(t, func(t *rapid.T) {
		mode, directory, before := symbols(t), rapid.Bool().Draw(t, "directory"), rapid.Uint32Range(0, 0o7777).Draw(t, "before")
		rule, ok := mode.Rule(directory)
		if !ok {
			if len(mode) > modeBytesMax {
				return
			}
			t.Fatalf("%s is refused", mode)
		}
		after := rule.Of(before)
		if rule.Set&rule.Clear != 0 || rule.Of(after) != after || after&^modeMax != 0 {
			t.Fatalf("%s: %o makes %o of %o, and then %o", mode, rule, after, before, rule.Of(after))
		}
		if rounds++; rounds > 60 { // a process each
			return
		}
		if err := syscall.Chmod(paths[directory], before); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("chmod", "--", string(mode), paths[directory]).CombinedOutput(); err != nil {
			t.Fatalf("chmod %s: %v\n%s", mode, err, out)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(paths[directory], &st); err != nil {
			t.Fatal(err)
		}
		if got := st.Mode & modeMax; got != after {
			t.Fatalf("chmod %s makes %o of %o, we %o", mode, got, before, after)
		}
	})
}

func FuzzMode(f *testing.F) {
	for _, s := range []string{"0644", "u=rw,g=r,o=", "u+x,go-w", "a=rwxst", "g=u", "u+X", ",", "u=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, directory := range []bool{false, true} {
			rule, ok := Mode(s).Rule(directory)
			if ok && (rule.Set&rule.Clear != 0 || rule.Set|rule.Clear|rule.Left() != modeMax) {
				t.Errorf("%q: %o", s, rule)
			}
			if _, octal := Mode(s).Bits(); octal && (!ok || rule.Left() != 0) {
				t.Errorf("%q is octal and leaves %o", s, rule.Left())
			}
		}
	})
}

// TestModeOfFile: what is private and what is public does not depend on what is there.
func TestModeOfFile(t *testing.T) {
	for mode, want := range map[Mode]struct {
		bits            uint32
		private, public bool
	}{
		"": {0o644, false, true}, "0600": {0o600, true, false}, "0640": {0o640, false, false}, "u=rw,go=": {0o600, true, false}, "go-rwx": {0o600, true, false},
		"o-rwx": {0o640, false, false}, "u+x": {0o744, false, false}, "a+r": {0o644, false, true}, "o+r": {0o644, false, true},
	} {
		f := &File{Mode: mode}
		if f.ModeOrDefault() != want.bits || f.Private() != want.private || f.Public() != want.public {
			t.Errorf("%q: %o, private %v, public %v", mode, f.ModeOrDefault(), f.Private(), f.Public())
		}
	}
	secret := &ContentSource{Secret: &KeySelector{Name: "a", Key: "k"}}
	if f := (&File{Mode: "u+x", ContentFrom: secret}); f.ModeOrDefault() != 0o700 || !f.Private() {
		t.Errorf("of a secret: %o, private %v", f.ModeOrDefault(), f.Private())
	}
}

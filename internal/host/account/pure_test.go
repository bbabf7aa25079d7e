package account

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestField: what becomes of the field of the password, for what is declared and what is there.
func TestField(t *testing.T) {
	yes, no := true, false
	const h, o = "$6$a$declared", "$6$b$other"
	for _, row := range []struct {
		hash   string
		locked *bool
		have   string
		want   string // "refused" for an error
	}{
		{"", nil, "", ""}, {"", nil, "!", "!"}, {"", nil, o, o}, {"", nil, "!" + o, "!" + o},
		{h, nil, h, h}, {h, nil, o, h}, {h, nil, "!", h}, {h, nil, "*", h}, {h, nil, "!!", h}, {h, nil, "", h},
		{h, nil, "!" + h, "!" + h}, {h, nil, "!!" + h, "!!" + h}, {h, nil, "!" + o, "!" + h},
		{"!", nil, "!", "!"}, {"!", nil, "*", "*"}, {"!", nil, "!!", "!!"}, {"!", nil, o, "!"}, {"!", nil, "!" + o, "!"}, {"!", nil, "", "!"}, {"*", nil, o, "*"},
		{"", &yes, o, "!" + o}, {"", &yes, "!" + o, "!" + o}, {"", &yes, "*", "*"}, {"", &yes, "!", "!"}, {"", &yes, "", "!"},
		{"", &no, "!" + o, o}, {"", &no, "!!" + o, o}, {"", &no, o, o}, {"", &no, "!", "refused"}, {"", &no, "*", "refused"}, {"", &no, "", ""},
		{h, &yes, h, "!" + h}, {h, &yes, o, "!" + h}, {h, &yes, "!" + h, "!" + h}, {h, &yes, "!", "!" + h},
		{h, &no, "!" + h, h}, {h, &no, "!" + o, h}, {h, &no, "!", h}, {h, &no, h, h},
	} {
		u := newUser(&declare.User{PasswordHash: row.hash, Locked: row.locked}, "t-alice")
		got, err := u.field(row.have)
		if err != nil {
			got = "refused"
		}
		if got != row.want {
			t.Errorf("hash %q, locked %v, have %q: got %q, want %q", row.hash, row.locked, row.have, got, row.want)
		}
		if again, err := u.field(got); err == nil && again != got {
			t.Errorf("hash %q, locked %v, have %q: %q would become %q", row.hash, row.locked, row.have, got, again)
		}
	}
}

// FuzzTables reads any text as each of the files: no account comes out of what is none, and none is lost beside it.
func FuzzTables(f *testing.F) {
	for _, s := range []string{"", "root:x:0:0:root:/root:/bin/bash\n", "+::::::\n-x\n", "a:x:1:1\r\n", "a::99999999999:1::/:\n", ":::::::\n", "a:x:1:b,,c, d\n", "\x00:\xff:1:1:::\n", "#a:x:1:1::/:/\n", "a:!:19000:0:99999:7:::"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := table(b)
		for _, name := range []string{"a", "root", "+", ""} {
			if _, ok := text.user(name); ok && (name == "" || name == "+") {
				t.Fatalf("an account %q in %q", name, b)
			}
			text.groupsOf(name)
			text.othersAt("/"+name, name)
			if _, expires, _ := text.shadow(name); expires < never {
				t.Fatalf("%q expires on day %d in %q", name, expires, b)
			}
		}
		if !slices.IsSorted(splitMembers(string(b))) {
			t.Fatalf("members of %q are not sorted", b)
		}
		const good = "t-good:x:61001:61002:c:/home/t-good:/bin/sh\n"
		if _, there := text.user("t-good"); there {
			return
		}
		for _, whole := range []string{good + string(b), strings.TrimSuffix(string(b), "\n") + "\n" + good} {
			e, ok := table(whole).user("t-good")
			if !ok || e != (entry{61001, 61002, "c", "/home/t-good", "/bin/sh", "x"}) {
				t.Fatalf("in %q: %+v, %v", whole, e, ok)
			}
		}
	})
}

// TestTablesAgainstNaive compares look-ups with loops over lists of accounts.
func TestTablesAgainstNaive(t *testing.T) {
	type line struct {
		name    string
		id      uint32
		members []string
	}
	name := rapid.SampledFrom([]string{"a", "b", "ab", "c"})
	lines := rapid.SliceOf(rapid.Custom(func(t *rapid.T) line {
		return line{name.Draw(t, "name"), rapid.Uint32Range(0, 3).Draw(t, "id"), rapid.SliceOf(name).Draw(t, "members")}
	}))
	noise := rapid.SampledFrom([]string{"", "#\n", "+\n", "\n", "a\n", "b:x\n", "c:x:many:\n"})
	rapid.Check(t, func(t *rapid.T) {
		all := lines.Draw(t, "lines")
		var b strings.Builder
		for _, l := range all {
			b.WriteString(noise.Draw(t, "noise"))
			b.WriteString(l.name + ":x:" + strconv.Itoa(int(l.id)) + ":" + strings.Join(l.members, ",") + "\n")
		}
		text := table(b.String())
		who, id := name.Draw(t, "who"), rapid.Uint32Range(0, 3).Draw(t, "number")
		var wantGroups []string
		byName, byID := -1, -1
		for i, l := range all {
			if l.name == who && byName < 0 {
				byName = i
			}
			if l.id == id && byID < 0 {
				byID = i
			}
			if slices.Contains(l.members, who) && !slices.Contains(wantGroups, l.name) {
				wantGroups = append(wantGroups, l.name)
			}
		}
		slices.Sort(wantGroups)
		// A line of a number that is none comes first and counts, as for find; it is left out here.
		if gid, _, ok := text.group(who); ok && (byName < 0 || gid != all[byName].id) {
			t.Fatalf("group %s is %d, %v in\n%s", who, gid, ok, b.String())
		}
		if got, ok := text.withNumber(groupGID, groupFields, id); ok != (byID >= 0) || ok && got != all[byID].name {
			t.Fatalf("number %d is %s, %v in\n%s", id, got, ok, b.String())
		}
		if got := text.groupsOf(who); !slices.Equal(got, wantGroups) {
			t.Fatalf("groups of %s are %v, want %v in\n%s", who, got, wantGroups, b.String())
		}
	})
}

// TestLines: what becomes of a file of keys.
func TestLines(t *testing.T) {
	const opts = `from="10.0.0.0/8",command="echo \"a b\"" `
	for _, row := range []struct {
		name, have string
		lines      []string
		with       string
		without    string
	}{
		{"nothing", "", []string{keyA}, keyA + "\n", ""},
		{"there", keyA + "\n", []string{keyA}, keyA + "\n", ""},
		{"no last newline", keyB, []string{keyA}, keyB + "\n" + keyA + "\n", keyB},
		{"others stay", "# c\n\n" + keyB + "\r\nrubbish\n", []string{keyA}, "# c\n\n" + keyB + "\r\nrubbish\n" + keyA + "\n", "# c\n\n" + keyB + "\r\nrubbish\n"},
		{"other options", opts + keyA + "\n" + keyB + "\n", []string{keyA}, keyA + "\n" + keyB + "\n", keyB + "\n"},
		{"declared options", keyA + "\n" + keyB + "\n", []string{opts + keyA}, opts + keyA + "\n" + keyB + "\n", keyB + "\n"},
		{"repeated with more rights", opts + keyA + "\n" + keyB + "\n" + keyA + "\n", []string{opts + keyA}, opts + keyA + "\n" + keyB + "\n", keyB + "\n"},
		{"commented out", "#" + keyA + "\n", []string{keyA}, "#" + keyA + "\n" + keyA + "\n", "#" + keyA + "\n"},
		{"order", keyC + "\n", []string{keyB, keyA}, keyC + "\n" + keyB + "\n" + keyA + "\n", keyC + "\n"},
		{"blanks", "", []string{"\t" + keyA + "  "}, keyA + "\n", ""},
	} {
		if got := with(row.have, row.lines); got != row.with {
			t.Errorf("%s: with:\n%q, want\n%q", row.name, got, row.with)
		}
		if got := with(row.with, row.lines); got != row.with {
			t.Errorf("%s: with, twice:\n%q", row.name, got)
		}
		if got := without(row.have, row.lines); got != row.without {
			t.Errorf("%s: without:\n%q, want\n%q", row.name, got, row.without)
		}
	}
	if got, want := exactly([]string{" " + opts + keyB, keyA}), opts+keyB+"\n"+keyA+"\n"; got != want {
		t.Errorf("exactly: %q, want %q", got, want)
	}
}

// FuzzLines adds keys to any text: all are there then, each once, and what was there before stays; taking them out again leaves the rest.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "\n", "# c", keyA, keyA + "\n" + keyA, `command="x ` + keyA, keyB + "\r\n\x00", "\\\"\"" + keyB} {
		f.Add(s)
	}
	lines := []string{keyA, `no-pty ` + keyB}
	f.Fuzz(func(t *testing.T, text string) {
		got := with(text, lines)
		if again := with(got, lines); again != got {
			t.Fatalf("%q becomes %q, and then %q", text, got, again)
		}
		count := 0
		for line := range strings.Lines(got) {
			if k, err := declare.ParseSSHKey(endless(line)); err == nil && (strings.HasPrefix(keyA, "ssh-ed25519 "+k.Blob) || k.Options == "no-pty") {
				count++
			}
			if !strings.Contains(text, endless(line)) && !slices.Contains(lines, endless(line)) {
				t.Fatalf("%q becomes %q: a line of nobody's", text, got)
			}
		}
		if count < len(lines) {
			t.Fatalf("%q becomes %q: a key is missing", text, got)
		}
		for _, k := range keysOf(without(got, lines)) {
			if strings.Contains(keyA+keyB, k.Blob) {
				t.Fatalf("%q: a key is left in %q", text, without(got, lines))
			}
		}
	})
}

func TestDayText(t *testing.T) {
	for _, day := range []string{"never", "1970-01-02", "2027-01-31", "2000-02-29", "9999-12-31"} {
		n, ok := (&declare.User{Expires: day}).ExpiryDay()
		if !ok || dayText(n) != day {
			t.Errorf("%s is day %d, %v, which is %s", day, n, ok, dayText(n))
		}
	}
}

// TestToolErrors reads what the programs say.
func TestToolErrors(t *testing.T) {
	u := tool("/usr/sbin/usermod", "x")
	for output, want := range map[string]reason.Code{
		"usermod: cannot lock /etc/passwd; try again later.\n":                 reason.AccountLock,
		"groupadd: cannot lock /etc/group; try again later.\n":                 reason.AccountLock,
		"usermod: group 'x' does not exist\n":                                  reason.UnknownOwner,
		"gpasswd: user 'x' does not exist\n":                                   reason.UnknownOwner,
		"Multiple entries named 'x' in /etc/passwd. Please fix this with pwck": reason.AccountToolFailed,
		"": reason.AccountToolFailed,
	} {
		_, err := run(t.Context(), tool("/bin/false"))
		e := reason.Of(toolError("change user x", u, []byte(output), err))
		if e.Code != want || e.Cause == nil {
			t.Errorf("%q: %+v", output, e)
		}
	}
}

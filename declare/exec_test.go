package declare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidateExec(t *testing.T) {
	one := func(e Exec) []Resource { return []Resource{{Name: "a", Exec: &e}} }
	run := []string{"true"}
	const at = "spec.resources[0]."
	long := strings.Repeat("x", argumentBytesMax+1)
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"least", one(Exec{Command: run}), ""},
		{"everything", one(Exec{Command: []string{"/bin/sh", "-c", ""}, Creates: "/a b", Unless: run, OnlyIf: run, Timeout: "1h30m", User: "www-data", Group: "4",
			Directory: "/", Environment: map[string]string{"A_1": "", "_": "x\ny", "path": "z"}, Umask: "27", ExitCodes: []int{0, 255}, Tries: 2}), ""},
		{"no command", one(Exec{Unless: run}), "TK0413 " + at + "exec.command"},
		{"no program", one(Exec{Command: []string{"", "a"}}), "TK0414 " + at + "exec.command[0]"},
		{"a line of shell", one(Exec{Command: []string{"systemctl reload nginx"}}), "TK0414 " + at + "exec.command[0]"},
		{"an absolute program with a blank", one(Exec{Command: []string{"/opt/my program"}}), ""},
		{"a relative program", one(Exec{Command: []string{"./configure"}, Unless: []string{"bin/x"}, OnlyIf: []string{"~/x"}}),
			"TK0414 " + at + "exec.command[0], TK0414 " + at + "exec.unless[0], TK0414 " + at + "exec.onlyIf[0]"},
		{"NUL", one(Exec{Command: []string{"echo", "a\x00"}, Environment: map[string]string{"A": "\x00"}}), "TK0414 " + at + "exec.command[1], TK0414 " + at + "exec.environment['A']"},
		{"a long argument", one(Exec{Command: []string{"echo", long[1:], long}}), "TK0414 " + at + "exec.command[2]"},
		{"paths", one(Exec{Command: run, Creates: "a", Directory: "/a/"}), "TK0414 " + at + "exec.creates, TK0414 " + at + "exec.directory"},
		{"who", one(Exec{Command: run, User: "a:b", Group: "-g"}), "TK0414 " + at + "exec.user, TK0414 " + at + "exec.group"},
		{"no time", one(Exec{Command: run, Timeout: "5 minutes"}), "TK0414 " + at + "exec.timeout"},
		{"too short", one(Exec{Command: run, Timeout: "0s"}), "TK0414 " + at + "exec.timeout"},
		{"too long", one(Exec{Command: run, Timeout: "24h1s"}), "TK0414 " + at + "exec.timeout"},
		{"broken seconds", one(Exec{Command: run, Timeout: "1.5s"}), "TK0414 " + at + "exec.timeout"},
		{"longest", one(Exec{Command: run, Timeout: "24h"}), ""},
		{"tries", one(Exec{Command: run, Tries: ExecTriesMax}), ""},
		{"tries that are none", []Resource{{Name: "a", Exec: &Exec{Command: run, Tries: -1}}, {Name: "b", Exec: &Exec{Command: run, Tries: ExecTriesMax + 1}}},
			"TK0414 spec.resources[0].exec.tries, TK0414 spec.resources[1].exec.tries"},
		{"tries of a day", one(Exec{Command: run, Tries: 2, Timeout: "12h"}), ""},
		{"tries of more than a day", one(Exec{Command: run, Tries: 3, Timeout: "12h"}), "TK0414 " + at + "exec.tries"},
		{"variables", one(Exec{Command: run, Environment: map[string]string{"": "", "1A": "", "A-B": "", "A=B": "", "Ä": ""}}),
			"TK0414 " + at + "exec.environment[''], TK0414 " + at + "exec.environment['1A'], TK0414 " + at + "exec.environment['A-B'], TK0414 " + at + "exec.environment['A=B'], TK0414 " + at + "exec.environment['Ä']"},
		{"large environment", one(Exec{Command: run, Environment: map[string]string{"A": strings.Repeat("x", environmentBytesMax)}}), "TK0414 " + at + "exec.environment"},
		{"umask", one(Exec{Command: run, Umask: "1777"}), "TK0414 " + at + "exec.umask"},
		{"umask in words", one(Exec{Command: run, Umask: "u=rwx"}), "TK0414 " + at + "exec.umask"},
		{"exit codes", one(Exec{Command: run, ExitCodes: []int{-1, 256, 3, 3}}), "TK0414 " + at + "exec.exitCodes[0], TK0414 " + at + "exec.exitCodes[1], TK0414 " + at + "exec.exitCodes[3]"},
		{"removed", []Resource{{Name: "a", Exec: &Exec{Command: run}, OnRemove: OnRemoveDelete}, {Name: "b", Exec: &Exec{Command: run}, OnRemove: OnRemoveRestore}, {Name: "c", Exec: &Exec{Command: run}, OnRemove: OnRemoveKeep}},
			"TK0415 spec.resources[0].onRemove, TK0415 spec.resources[1].onRemove"},
		{"notified", []Resource{{Name: "a", Exec: &Exec{Command: run, RefreshOnly: true}}, {Name: "f", File: &File{Path: "/f"}, Notify: []string{"a"}}}, ""},
		{"expansions", []Resource{{Name: "a", Expand: true, Exec: &Exec{Command: []string{"$(facts.os.id)", "$(node.nme)"}, Creates: "$(node.name)", Directory: "$(node.name)", User: "$(node.name)"}}},
			"TK0427 " + at + "exec.command[1]"},
		{"large", one(Exec{Command: slices.Repeat([]string{long[1:]}, 9)}), "TK0429 spec.resources[0]"},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	for field, with := range map[string]func(e *Exec, n int){
		"command": func(e *Exec, n int) { e.Command = slices.Repeat(run, n) },
		"unless":  func(e *Exec, n int) { e.Unless = slices.Repeat(run, n) },
		"onlyIf":  func(e *Exec, n int) { e.OnlyIf = slices.Repeat(run, n) },
		"exitCodes": func(e *Exec, n int) {
			e.ExitCodes = nil
			for i := range n {
				e.ExitCodes = append(e.ExitCodes, i)
			}
		},
		"environment": func(e *Exec, n int) {
			e.Environment = map[string]string{}
			for i := range n {
				e.Environment[fmt.Sprint("V", i)] = ""
			}
		},
	} {
		limit := map[string]int{"exitCodes": exitCodeMax + 1, "environment": variablesMax}[field]
		if limit == 0 {
			limit = ArgumentsMax
		}
		e := Exec{Command: run}
		if with(&e, limit); summary(Validate(config(one(e)...))) != "" {
			t.Errorf("%s: %d: %s", field, limit, summary(Validate(config(one(e)...))))
		}
		if with(&e, limit+1); summary(Validate(config(one(e)...))) != "TK0414 "+at+"exec."+field {
			t.Errorf("%s: %d: %s", field, limit+1, summary(Validate(config(one(e)...))))
		}
	}
}

func TestExecDefaults(t *testing.T) {
	e := Exec{}
	if e.TimeoutOrDefault() != 5*time.Minute || e.UmaskOrDefault() != 0o022 || e.DirectoryOrDefault() != "/" || !e.Succeeds(0) || e.Succeeds(1) {
		t.Errorf("%+v", e)
	}
	e = Exec{Timeout: "2s", Umask: "0", Directory: "/srv", ExitCodes: []int{3}}
	if e.TimeoutOrDefault() != 2*time.Second || e.UmaskOrDefault() != 0 || e.DirectoryOrDefault() != "/srv" || e.Succeeds(0) || !e.Succeeds(3) {
		t.Errorf("%+v", e)
	}
}

func TestExecEdges(t *testing.T) {
	r := Resource{Name: "a", Exec: &Exec{Command: []string{"/usr/local/bin/setup"}, Unless: []string{"test"}, OnlyIf: []string{"/opt/check"}, User: "app", Group: "0", Directory: "/srv/app"}}
	want := []AutoEdge{{Other: Claim{ClaimUser, "app"}, Why: "user of a command"}, {Other: Claim{ClaimPath, "/opt/check"}, Why: "program of a command"},
		{Other: Claim{ClaimPath, "/srv/app"}, Why: "directory of a command"}, {Other: Claim{ClaimPath, "/usr/local/bin/setup"}, Why: "program of a command"}}
	if got := r.AutoEdges(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// What it creates needs its directory: without an order the command may run first, and fail.
	r = Resource{Name: "a", Exec: &Exec{Command: []string{"touch", "/etc/made"}, Creates: "/etc/made"}}
	if got := r.AutoEdges(); !slices.Equal(got, []AutoEdge{{Other: Claim{ClaimPath, "/etc"}, Why: ParentDirectory}, {Other: Claim{ClaimMount, "/etc"}, Why: fileSystemOf}}) {
		t.Errorf("of what it creates: %v", got)
	}
	if got := (&Resource{Name: "a", Exec: &Exec{Command: []string{"true"}, Directory: "/", User: "root"}}).AutoEdges(); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

func TestExecExpands(t *testing.T) {
	r := Resource{Name: "a", Expand: true, Exec: &Exec{Command: []string{"echo", "$(node.name)"}, OnlyIf: []string{"test", "$$(x)"}, Creates: "/run/$(node.name)", Environment: map[string]string{"A": "$(node.name)"}}}
	got, err := r.Expanded(Scope{NodeName: "web-1"}.Lookup)
	if err != nil || got.Exec.Command[1] != "web-1" || got.Exec.OnlyIf[1] != "$(x)" || got.Exec.Creates != "/run/web-1" || got.Exec.Environment["A"] != "$(node.name)" {
		t.Errorf("%+v, %v", got.Exec, err)
	}
	if r.Exec.Command[1] != "$(node.name)" {
		t.Error("the declaration itself was changed")
	}
}

// TestExecTimes: what validation takes is the time that holds.
func TestExecTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Int64Range(-10, 100_000).Draw(t, "seconds")
		d := time.Duration(seconds) * time.Second
		e := Exec{Command: []string{"true"}, Timeout: d.String()}
		good := len(Validate(config(Resource{Name: "a", Exec: &e}))) == 0
		if want := d >= time.Second && d <= ExecTimeoutMax; good != want || good && e.TimeoutOrDefault() != d {
			t.Fatalf("%v: taken %v, want %v; holds %v", d, good, want, e.TimeoutOrDefault())
		}
	})
}

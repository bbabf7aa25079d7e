//go:build e2e

package alone_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

// everyType declares each type that a container can have, twice: FIRST and THEN stand for what differs.
const everyType = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: types}
spec:
  resources:
    - {name: dir, directory: {path: /srv/types, mode: "FIRST0755THEN0750END"}}
    - {name: file, file: {path: /srv/types/file, content: "one\nFIRSTtwoTHEN2END\nthree\n"}}
    - {name: private, file: {path: /srv/types/private, mode: "0600", content: "hunter2-FIRSToldTHENnewEND\n"}}
    - {name: link, symlink: {path: /srv/types/link, target: FIRSTfileTHENprivateEND}}
    - {name: line, edit: {path: /etc/types.conf, create: true, line: {match: "^level ", text: "level FIRSTlowTHENhighEND"}}}
    - {name: block, edit: {path: /etc/types.conf, create: true, block: {content: "a\nFIRSTbTHENcEND\n"}}}
    - {name: ini, edit: {path: /etc/types.ini, create: true, ini: {section: main, key: color, value: FIRSTredTHENblueEND}}}
    - {name: json, edit: {path: /etc/types.json, create: true, json: {pointer: /log/level, value: FIRSTdebugTHENinfoEND}}}
    - {name: yaml, edit: {path: /etc/types.yaml, create: true, yaml: {pointer: /server/port, value: "FIRST8080THEN8081END"}}}
    - {name: staff2, group: {gid: FIRST2000THEN2001END}}
    - {name: alice, user: {uid: 2100, comment: "FIRSTAlice ATHENAlice BEND", passwordHash: "$6$ohu0Lae4$FIRST3ZqTHEN4ZqEND0sJ5yYkXxN2H8mQvVb1cWf6tRrPpLlKkJjHhGgFfDdSsAaQqWwEeRrTtYyUuIiOoPpAaSsDdFfGgHhJjKk1"}}
    - {name: alice-keys, authorizedKeys: {user: alice, keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g alice@FIRSTlaptopTHENdesktopEND"]}}
    - {name: db, hostEntry: {address: 192.0.2.20, names: [FIRSTdbTHENdb2END]}}
    - {name: zone, timezone: {zone: FIRSTEtc/GMTTHENEtc/UTCEND}}
    - {name: language, locale: {lang: FIRSTC.UTF-8THENPOSIXEND}}
    - {name: types-FIRSTaTHENbEND, hostname: {name: types-FIRSTaTHENbEND}}
    - {name: tool, package: {version: "FIRST1.0THEN2.0END"}}
    - {name: web-unit, unit: {unit: web.service, content: "[Service]\nExecStart=/bin/sleep infinity\nNice=FIRST1THEN2END\n"}, notify: [web]}
    - {name: web, service: {}}
    - {name: tidy, timer: {timer: tidy, calendar: ["FIRSThourlyTHENdailyEND"], command: ["/bin/true"]}}
    - {name: schema, exec: {command: ["/bin/touch", "/srv/types/FIRSTschemaTHENschema2END"], creates: /srv/types/FIRSTschemaTHENschema2END}}
`

// told is one resource as a report tells it.
type told struct {
	Title, Would, Outcome, Unknown string
	Changes                        []struct{ Text, Field, From, To, Diff string }
	Problem                        *struct{ Code, Message string }
}

// reports is what converge tells a program.
func (s *site) reports(t *testing.T, flags string) (resources []told, exit int) {
	t.Helper()
	out := s.MustRun(t, "sh", "-c", agentPath+" converge -f "+confDir+" -o json "+flags+"; test $? -le 1")
	var doc struct {
		Version, Exit int
		Resources     []told
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Version != 1 {
		t.Fatalf("converge tells %v:\n%s", err, out)
	}
	if strings.Contains(out, "hunter2") || strings.Contains(out, "sJ5yYkXxN2H8") {
		t.Errorf("it tells a secret:\n%s", out)
	}
	return doc.Resources, doc.Exit
}

// TestEveryTypeTellsWhatItDoes: on a fresh host and after a change of each field, a plan says of each resource what becomes of it, with
// no secret in it; then it becomes that, and nothing is left to do.
func TestEveryTypeTellsWhatItDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, host.Deb{Name: "tool", Version: "1.0"}, host.Deb{Name: "tool", Version: "2.0"})
	s.MustRun(t, "apt-get", "update")
	for i, declaration := range variants(everyType) {
		s.put(t, declaration)
		human := s.MustRun(t, "sh", "-c", agentPath+" converge -f "+confDir+" --diff; test $? -le 1")
		t.Logf("declaration %d:\n%s", i, human)
		if strings.Contains(human, "hunter2") || strings.Contains(human, "sJ5yYkXxN2H8") {
			t.Errorf("a diff tells a secret:\n%s", human)
		}
		planned, exit := s.reports(t, "--diff")
		if exit != 1 {
			t.Errorf("with differences it exits with %d", exit)
		}
		var due []string
		for _, r := range planned {
			switch r.Would {
			case "change", "unknown":
				due = append(due, r.Title)
			default:
				t.Errorf("%s: would %s: %+v", r.Title, r.Would, r.Problem)
			}
			for _, c := range r.Changes {
				if r.Title == "file/file" && c.Field == "content" && c.Diff == "" { // its directory is not there yet
					t.Errorf("%s: the plan does not show what will be in it: %+v", r.Title, r)
				}
				if i > 0 && c.Field != "" && c.Field != "notified" && c.Field != "check" && (c.From == "" || c.To == "") {
					t.Errorf("%s: what was or what will be is left out: %+v", r.Title, c)
				}
			}
		}
		var done []string
		after, exit := s.reports(t, "")
		if exit != 0 {
			t.Errorf("converging exits with %d", exit)
		}
		for _, r := range after {
			if r.Outcome == "repaired" {
				done = append(done, r.Title)
			} else {
				t.Errorf("%s became %s: %+v", r.Title, r.Outcome, r.Problem)
			}
		}
		slices.Sort(due)
		slices.Sort(done)
		if !slices.Equal(due, done) {
			t.Errorf("planned %q,\nand done %q", due, done)
		}
		if left, exit := s.reports(t, "--diff"); exit != 0 {
			t.Errorf("after it there is left %+v", left)
		}
	}
}

// variants are the two texts that one with FIRST...THEN...END in it stands for.
func variants(text string) []string {
	var first, then strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "FIRST")
		first.WriteString(before)
		then.WriteString(before)
		if !found {
			return []string{first.String(), then.String()}
		}
		one, after, _ := strings.Cut(after, "THEN")
		two, after, _ := strings.Cut(after, "END")
		first.WriteString(one)
		then.WriteString(two)
		rest = after
	}
}

//go:build e2e

package alone_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
)

// everyType declares each type twice: FIRST and THEN stand for what differs. What prepare makes is there before.
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
    - {name: tool, package: {version: "FIRST1.0THEN2.0END", options: {allowDowngrade: true}}}
    - {name: web-unit, unit: {unit: web.service, content: "[Service]\nExecStart=/bin/sleep infinity\nNice=FIRST1THEN2END\n"}, notify: [web]}
    - {name: web, service: {}}
    - {name: tidy, timer: {timer: tidy, calendar: ["FIRSTyearlyTHEN*-07-01END"], command: ["/bin/true"]}}
    - {name: schema, exec: {command: ["/bin/touch", "/srv/types/FIRSTschemaTHENschema2END"], creates: /srv/types/FIRSTschemaTHENschema2END}}
    - {name: net.ipv4.ip_forward, sysctl: {value: "FIRST1THEN0END"}}
    - {name: t_nowhere, kernelModule: {state: FIRSTblockedTHENunloadedEND}}
    - {name: cache, mount: {path: /mnt, source: tmpfs, type: tmpfs, options: [FIRSTsize=8mTHENsize=4mEND]}}
    - {name: old-swap, swap: {path: /var/FIRSToldTHENolderEND.swap, state: absent}}
    - {name: lab, repository: {apt: {uris: ["http://LAB/"], suites: [./], options: {Signed-By: /etc/apt/keyrings/lab.asc, Languages: "FIRSTnoneTHENenEND"}}}}
    - {name: app, archive: {path: /srv/app, from: {path: /srv/FIRSToneTHENtwoEND.tar.gz}}}
    - {name: deploy, sudoers: {rules: ["deploy ALL=(root) NOPASSWD: /usr/bin/FIRSTtrueTHENfalseEND"]}}
    - {name: pieces, file: {path: /etc/pieces.conf, fragments: true, content: "head\n"}}
    - {name: piece, fragment: {path: /etc/pieces.conf, content: "FIRSToneTHENtwoEND\n"}}
    - {name: packages, endpoint: {host: LAB, port: 80, http: {path: /Packages, contains: "Package: tool"}}}
`

// steady are those of everyType that are as declared from the start: a piece is written by its file, and somebody else's service is only asked.
var steady = []string{"fragment/piece", "endpoint/packages"}

// elsewhere are the types that everyType lacks, and where they are looked at instead.
var elsewhere = map[declare.ResourceType]string{
	"agent": "upgrade_test.go: it needs another agent to become",
	"data":  "nothing is done about it",
}

// notHere is what a container cannot have, and a service that nobody runs.
const notHere = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: nothere}
spec:
  resources:
    - {name: kernel.panic, sysctl: {value: "7"}}
    - {name: t_nowhere, kernelModule: {}}
    - {name: memory, swap: {path: /run/swapfile, size: 1Mi}}
    - {name: silent, endpoint: {host: 127.0.0.1, port: 9}}
    - {name: waiting, file: {path: /srv/waiting, content: "x"}, require: [silent]}
`

// told is one resource as a report tells it.
type told struct {
	Title, Would, Outcome, Unknown, Waits string
	Changes                               []struct{ Text, Field, From, To, Diff string }
	Problem                               *struct{ Code, Message string }
}

// prepare makes what everyType needs to be there. The packages are in the lab's repository from the start.
func (s *site) prepare(t *testing.T) {
	t.Helper()
	s.MustRun(t, "apt-get", "update")
	s.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "sudo")
	s.MustRun(t, "sh", "-ec", `for n in one two; do mkdir -p /root/$n/bin; echo $n >/root/$n/bin/app; tar -czf /srv/$n.tar.gz -C /root/$n bin; done
		printf '/var/%s.swap none swap sw,noauto 0 0\n' old older >>/etc/fstab`)
}

// everyType is the text everyType on this host, in both its forms.
func (s *site) everyType(t *testing.T) []string {
	t.Helper()
	_, rest, _ := strings.Cut(s.Get(t, "/etc/apt/sources.list"), "http://")
	lab, _, found := strings.Cut(rest, "/")
	if !found {
		t.Fatalf("where is the host's repository? %q", rest)
	}
	return variants(strings.ReplaceAll(everyType, "LAB", lab))
}

// reports is what converge tells a program.
func (s *site) reports(t *testing.T, flags string) (resources []told, exit int) {
	t.Helper()
	out := s.MustRun(t, "sh", "-c", agentPath+" converge -f "+confDir+" -o json "+flags+"; test $? -le 2")
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
	s.prepare(t)
	for i, declaration := range s.everyType(t) {
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
			switch steady := slices.Contains(steady, r.Title); {
			case steady && r.Would == "keep":
			case !steady && (r.Would == "change" || r.Would == "unknown"):
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
			switch steady := slices.Contains(steady, r.Title); {
			case steady && r.Outcome == "kept":
			case !steady && r.Outcome == "repaired":
				done = append(done, r.Title)
			default:
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

// TestEveryTypeIsDeclared: a type that is added is added here, too.
func TestEveryTypeIsDeclared(t *testing.T) {
	want := declare.ResourceTypes()
	for typ := range elsewhere {
		want = slices.DeleteFunc(want, func(w declare.ResourceType) bool { return w == typ })
	}
	slices.Sort(want)
	for _, declaration := range variants(strings.ReplaceAll(everyType, "LAB", "192.0.2.1")) {
		documents, faults := declare.Read("types.yaml", []byte(declaration))
		if len(faults) > 0 || len(documents) != 1 {
			t.Fatalf("%d documents, %v", len(documents), faults)
		}
		var got []declare.ResourceType
		for _, r := range documents[0].Config.Spec.Resources {
			got = append(got, r.Type())
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("everyType has %v,\nwant %v", got, want)
		}
	}
}

// TestWhatCannotBeHere: what the kernel keeps from a container is said in words, in the plan where that can be known, and by converging.
func TestWhatCannotBeHere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(t, notHere)
	type fate struct{ became, code, words string }
	refused := map[string]fate{
		"sysctl/kernel.panic":    {"failed", "TK0641", "set kernel parameter kernel.panic: setting was not taken: open /proc/sys/kernel/panic: read-only file system"},
		"kernelModule/t_nowhere": {"failed", "TK0643", " is not there: this kernel takes no modules, or, in a container, they are its host's"},
		"swap/memory":            {"failed", "TK0657", "swap to /run/swapfile: not made for swapping: the file system of /run is none that swaps to files"},
		"endpoint/silent":        {"deferred", "TK0695", "ask endpoint 127.0.0.1:9: "},
		"file/waiting":           {became: "blocked"},
	}
	look := func(flags string, exit int, want map[string]fate) {
		t.Helper()
		got, is := s.reports(t, flags)
		if is != exit || len(got) != len(want) {
			t.Errorf("converge %s exits with %d, want %d: %+v", flags, is, exit, got)
		}
		for _, r := range got {
			w := want[r.Title]
			if r.Would+r.Outcome != w.became {
				t.Errorf("%s: %s%s, want %s", r.Title, r.Would, r.Outcome, w.became)
			}
			if w.code != "" && (r.Problem == nil || r.Problem.Code != w.code || !strings.Contains(r.Problem.Message, w.words)) {
				t.Errorf("%s: %+v, want %s %q", r.Title, r.Problem, w.code, w.words)
			}
			if r.Title == "file/waiting" && r.Would != "" && r.Waits != "it requires endpoint/silent, which would not be as declared" {
				t.Errorf("%s: waits %q", r.Title, r.Waits)
			}
		}
	}
	planned := maps.Clone(refused)
	for title, f := range planned {
		if f.became = "fail"; strings.HasPrefix(title, "endpoint/") {
			f.became = "wait"
		}
		planned[title] = f
	}
	planned["file/waiting"] = fate{became: "change"}
	look("--diff", 2, planned)
	look("", 1, refused)
	if s.exists(t, "/srv/waiting") {
		t.Error("what was blocked is there")
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

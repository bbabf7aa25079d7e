package declare

import (
	"slices"
	"strings"
	"testing"
)

func TestValidateUnit(t *testing.T) {
	one := func(u Unit) []Resource { return []Resource{{Name: "a", Unit: &u}} }
	const at = "spec.resources[0]."
	const content = "# a comment\n[Service]\nExecStart=/bin/a \\\n  b\n"
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"least", one(Unit{Content: content}), ""},
		{"a template", one(Unit{Unit: "a@.service", Content: content}), ""},
		{"an instance", one(Unit{Unit: "a@b.socket", Content: content}), ""},
		{"a device", one(Unit{Unit: "dev-sda.device", DropIn: "x", Content: content}), ""},
		{"a drop-in", one(Unit{Unit: "nginx.service", DropIn: "50-limits", Content: content}), ""},
		{"no content", one(Unit{}), "TK0413 " + at + "unit.content"},
		{"blanks", one(Unit{Content: " \n"}), "TK0413 " + at + "unit.content"},
		{"no unit", one(Unit{Unit: "a/b", Content: content}), "TK0414 " + at + "unit.unit"},
		{"a scope", one(Unit{Unit: "a.scope", Content: content}), "TK0414 " + at + "unit.unit"},
		{"nothing but @", one(Unit{Unit: "@.service", Content: content}), "TK0414 " + at + "unit.unit"},
		{"drop-in with suffix", one(Unit{DropIn: "a.conf", Content: content}), "TK0414 " + at + "unit.dropIn"},
		{"drop-in elsewhere", one(Unit{DropIn: "../a", Content: content}), "TK0414 " + at + "unit.dropIn"},
		{"NUL", one(Unit{Content: "[Unit]\nA=\x00\n"}), "TK0414 " + at + "unit.content"},
		{"no section", one(Unit{Content: "A=b\n[Unit]\n"}), "TK0414 " + at + "unit.content"},
		{"no assignment", one(Unit{Content: "[Unit]\nA\n"}), "TK0414 " + at + "unit.content"},
		{"half a section", one(Unit{Content: "[Unit\n"}), "TK0414 " + at + "unit.content"},
		{"file and unit", append(one(Unit{Content: content}), Resource{Name: "f", File: &File{Path: UnitDir + "/a.service"}}), "TK0421 spec.resources[1].file.path"},
		{"expansion", []Resource{{Name: "a", Expand: true, Unit: &Unit{Content: "[Unit]\nA=$(node.nme)\n"}}}, "TK0427 " + at + "unit.content"},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestUnitEdges(t *testing.T) {
	edges := func(r Resource) (list []string) {
		for _, e := range r.AutoEdges() {
			text := e.Why + ": " + e.Other.String()
			if e.Before {
				text = "before " + text
			}
			list = append(list, text)
		}
		return list
	}
	content := "[Service]\nUser=app\nGroup=team\nExecStart=-/usr/lib/app/run --fast\nExecStartPre=/bin/%i\nExecStop=kill x\n"
	for _, row := range []struct {
		r    Resource
		want []string
	}{
		{Resource{Name: "app", Unit: &Unit{Content: content}}, []string{"package of a unit: package:app", "user of a unit: user:app", "user of a unit: group:team", "program of a unit: path:/usr/lib/app/run"}},
		{Resource{Name: "app", Unit: &Unit{DropIn: "x", Content: "[Service]\n"}}, []string{"before drop-in of a service: unit:app.service", "unit file of a drop-in: path:/etc/systemd/system/app.service"}},
		{Resource{Name: "app.socket", Unit: &Unit{Content: "[Socket]\nService=other.service\n"}}, []string{"unit that is started: path:/etc/systemd/system/app.service", "unit that is started: path:/etc/systemd/system/other.service"}},
		{Resource{Name: "app", Timer: &Timer{Command: []string{"/usr/bin/x"}, User: "app", Directory: "/srv"}}, []string{"user of a command: user:app", "program of a command: path:/usr/bin/x", "directory of a command: path:/srv"}},
		{Resource{Name: "app", Timer: &Timer{Unit: "b@c.service"}}, []string{"unit that is started: path:/etc/systemd/system/b@.service", "package of a unit: package:b"}},
	} {
		got := edges(row.r)
		for _, want := range row.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: no %q in %q", row.r.Title(), want, got)
			}
		}
	}
}

func TestValidateTimer(t *testing.T) {
	one := func(x Timer) []Resource { return []Resource{{Name: "a", Timer: &x}} }
	const at = "spec.resources[0].timer"
	daily, run := []string{"daily"}, []string{"/usr/bin/backup", "--all"}
	yes := true
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"least", one(Timer{Calendar: daily, Command: run}), ""},
		{"a unit", one(Timer{Calendar: daily, Unit: "backup.service"}), ""},
		{"everything", one(Timer{Timer: "b", Calendar: []string{"daily", "Mon..Fri 02:00 Europe/Berlin"}, Command: run, User: "www-data", Directory: "/srv", Environment: map[string]string{"A": "b\tc\nd"},
			Jitter: "15m", CatchUp: &yes, Timeout: "168h", State: EditPresent}), ""},
		{"absent", one(Timer{State: EditAbsent}), ""},
		{"absent with", one(Timer{State: EditAbsent, Calendar: daily, Command: run, CatchUp: &yes}), "TK0415 " + at + ".calendar, TK0415 " + at + ".command, TK0415 " + at + ".catchUp"},
		{"nothing", one(Timer{}), "TK0413 " + at + ".calendar, TK0413 " + at},
		{"both", one(Timer{Calendar: daily, Command: run, Unit: "b.service"}), "TK0415 " + at + ".unit"},
		{"of a unit", one(Timer{Calendar: daily, Unit: "b.service", User: "c", Timeout: "1s"}), "TK0415 " + at + ".user, TK0415 " + at + ".timeout"},
		{"itself", one(Timer{Calendar: daily, Unit: "a.timer"}), "TK0414 " + at + ".unit"},
		{"no such unit", one(Timer{Calendar: daily, Unit: "b"}), "TK0414 " + at + ".unit"},
		{"name", one(Timer{Timer: "a b", Calendar: daily, Command: run}), "TK0414 " + at + ".timer"},
		{"suffix", one(Timer{Timer: "a.timer", Calendar: daily, Command: run}), "TK0414 " + at + ".timer"},
		{"calendars", one(Timer{Calendar: []string{"daily", "dayly", "*-*-*", "25:00"}, Command: run}), "TK0414 " + at + ".calendar[1], TK0414 " + at + ".calendar[2], TK0414 " + at + ".calendar[3]"},
		{"too many", one(Timer{Calendar: slices.Repeat(daily, 33), Command: run}), "TK0414 " + at + ".calendar"},
		{"command", one(Timer{Calendar: daily, Command: []string{"backup --all"}}), "TK0414 " + at + ".command[0]"},
		{"odd program", one(Timer{Calendar: daily, Command: []string{`/bin/a"b`}}), "TK0414 " + at + ".command[0]"},
		{"who and where", one(Timer{Calendar: daily, Command: run, User: "a:b", Directory: "srv"}), "TK0414 " + at + ".user, TK0414 " + at + ".directory"},
		{"odd directory", one(Timer{Calendar: daily, Command: run, Directory: "/a\nb"}), "TK0414 " + at + ".directory"},
		{"environment", one(Timer{Calendar: daily, Command: run, Environment: map[string]string{"A": "\x1b", "B-C": ""}}), "TK0414 " + at + ".environment['B-C'], TK0414 " + at + ".environment['A']"},
		{"times", one(Timer{Calendar: daily, Command: run, Jitter: "200h", Timeout: "1.5s"}), "TK0414 " + at + ".jitter, TK0414 " + at + ".timeout"},
		{"state", one(Timer{Calendar: daily, Command: run, State: "gone"}), "TK0414 " + at + ".state"},
		{"its files", append(one(Timer{Calendar: daily, Command: run}), Resource{Name: "a.timer", Service: &Service{}}, Resource{Name: "u", Unit: &Unit{Unit: "a.service", Content: "[Unit]\n"}}),
			"TK0421 spec.resources[1].service.unit, TK0421 spec.resources[2].unit.unit"},
		{"not its file", append(one(Timer{Calendar: daily, Unit: "a.service"}), Resource{Name: "u", Unit: &Unit{Unit: "a.service", Content: "[Unit]\n"}}), ""},
		{"expansion", []Resource{{Name: "a", Expand: true, Timer: &Timer{Calendar: []string{"$(node.labels['backup'])"}, Command: run}}}, ""},
		{"notified", append(one(Timer{Calendar: daily, Command: run}), Resource{Name: "f", File: &File{Path: "/f"}, Notify: []string{"a"}}), "TK0414 spec.resources[1].notify[0]"},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestValidateMasked(t *testing.T) {
	yes, no := true, false
	for _, row := range []struct {
		s    Service
		want string
	}{
		{Service{Masked: &yes}, ""},
		{Service{Masked: &yes, State: ServiceStopped, Enabled: &no}, ""},
		{Service{Masked: &no, State: ServiceRunning, Enabled: &yes}, ""},
		{Service{Masked: &yes, State: ServiceRunning, Enabled: &yes}, "TK0415 spec.resources[0].service.state, TK0415 spec.resources[0].service.enabled"},
	} {
		if got := summary(Validate(config(Resource{Name: "a", Service: &row.s}))); got != row.want {
			t.Errorf("%+v: got\n%s\nwant\n%s", row.s, got, row.want)
		}
	}
	if (&Service{Masked: &yes}).StateOrDefault() != ServiceStopped || !strings.HasSuffix((&Service{}).UnitOr("a"), ".service") {
		t.Error("what is masked is stopped")
	}
}

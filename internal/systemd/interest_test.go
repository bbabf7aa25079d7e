package systemd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRulesPerUnit(t *testing.T) {
	in := newInterest()
	always := []string{ruleReload, ruleFiles, ruleOwner}
	nginx := []string{ruleChanges + ",path='/org/freedesktop/systemd1/unit/nginx_2eservice'", ruleJobs + ",arg2='nginx.service'"}
	expect := func(what string, withJobs bool, want ...[]string) {
		t.Helper()
		all := slices.Concat(want...)
		slices.Sort(all)
		if got := in.rules(withJobs); !slices.Equal(got, all) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(all, "\n"))
		}
	}
	expect("nothing wanted", false, always)
	expect("a job under way", true, always, []string{ruleJobs})
	in.replace([]string{"nginx.service"})
	expect("one unit", false, always, nginx)
	in.replace([]string{"nginx.service", "it's.service", ""})
	expect("names that would break a rule", false, always, nginx)
}

func TestRulesOfManyUnits(t *testing.T) {
	in := newInterest()
	var units []string
	for i := range rulesPerUnitMax {
		units = append(units, fmt.Sprintf("u%d.service", i))
	}
	in.replace(units)
	if got, want := len(in.rules(false)), 3+2*rulesPerUnitMax; got != want {
		t.Errorf("%d rules for %d units, want %d", got, len(units), want)
	}
	in.replace(append(units, "one-more.service"))
	if got := in.rules(false); len(got) != 5 || !slices.Contains(got, ruleJobs) {
		t.Errorf("rules for many units: %q", got)
	}
}

func TestAliases(t *testing.T) {
	in := newInterest()
	in.replace([]string{"sshd.service", "nginx.service"})
	if in.learn("nginx.service", "nginx.service") {
		t.Error("a main name asked for by itself changes nothing")
	}
	if !in.learn("sshd.service", "ssh.service") {
		t.Error("an alias must be asked for")
	}
	if in.learn("sshd.service", "ssh.service") {
		t.Error("an alias already known changes nothing")
	}
	if in.learn("other.service", "x.service") {
		t.Error("a unit that is not wanted changes nothing")
	}
	if got := in.wantedAs["ssh.service"]; !slices.Equal(got, []string{"sshd.service"}) {
		t.Errorf("ssh.service is reported as %q", got)
	}
	in.replace([]string{"sshd.service", "ssh.service"})
	if got := in.wantedAs["ssh.service"]; !slices.Equal(got, []string{"ssh.service", "sshd.service"}) {
		t.Errorf("wanted by both names, it is reported as %q", got)
	}
	if !in.learn("sshd.service", "sshd.service") {
		t.Error("an alias that became a unit of its own must be asked for")
	}
	if got := in.wantedAs["ssh.service"]; !slices.Equal(got, []string{"ssh.service"}) {
		t.Errorf("after the alias went, ssh.service is reported as %q", got)
	}
	in.replace(nil)
	if len(in.wantedAs) != 0 {
		t.Errorf("nothing is wanted, yet: %q", in.wantedAs)
	}
}

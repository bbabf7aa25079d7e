//go:build e2e

package alone_test

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// drift is one thing that an operator does to a host that an agent keeps.
type drift struct {
	name    string
	command string // the operator's, for a shell; it must succeed: nobody may keep it from its work
	subject string // the resource that it makes differ
	// trace prints what the command leaves behind also when its effect is undone: an inode with the time of its last change, the
	// number of a unit's run, dpkg's log. It must differ from before.
	trace    string
	repaired string // exits with 0 when the host is as declared again
	// refreshes is how many notifications the repair causes: each is told, and counted, as a change of what was notified.
	refreshes uint64
}

// onFile is something done to a page of its own, so that no page is changed often enough to count as contended.
func onFile(name, command, repaired string) drift {
	page := "/srv/www/" + name + ".html"
	fill := strings.NewReplacer("PAGE", page)
	return drift{name: name, command: fill.Replace(command), subject: "file/" + name, trace: "stat --format='%i %z' " + page, repaired: fill.Replace(repaired)}
}

func drifts() []drift {
	const run = "systemctl show --property=InvocationID nginx"
	return []drift{
		onFile("edit", "echo broken >>PAGE", "! grep broken PAGE"),
		onFile("truncate", "truncate --size=0 PAGE", "test -s PAGE"),
		onFile("chmod", "chmod 600 PAGE", "test $(stat -c %a PAGE) = 644"),
		onFile("chown", "chown www-data PAGE", "test $(stat -c %U PAGE) = root"),
		onFile("rename-over", "echo other >/srv/other && mv /srv/other PAGE", "! grep other PAGE"),
		onFile("delete", "rm PAGE", "test -s PAGE"),
		onFile("hide", "mv PAGE PAGE.gone", "test -s PAGE"),
		{
			name: "edit-configuration", command: "sed -i 's/worker_processes auto/worker_processes 7/' /etc/nginx/nginx.conf", subject: "file/nginx.conf",
			trace: "stat --format='%i %z' /etc/nginx/nginx.conf", repaired: "grep 'worker_processes auto' /etc/nginx/nginx.conf", refreshes: 1,
		},
		{
			name: "move-directory", command: "mv /srv/www /srv/gone", subject: "directory/www",
			trace: "stat --format=%i /srv/www", repaired: "test -s /srv/www/index.html",
		},
		{name: "stop", command: "systemctl stop nginx", subject: "service/nginx", trace: run, repaired: "systemctl is-active nginx"},
		{name: "kill", command: "systemctl kill --signal=KILL nginx", subject: "service/nginx", trace: run, repaired: "systemctl is-active nginx"},
		{
			name: "disable", command: "systemctl disable nginx", subject: "service/nginx",
			trace: "stat --format='%i %z' /etc/systemd/system/multi-user.target.wants", repaired: "systemctl is-enabled nginx",
		},
		{
			name: "remove", command: "apt-get remove --yes nginx", subject: "package/nginx-package",
			trace: "grep ' remove nginx:' /var/log/dpkg.log || true", repaired: "dpkg-query --show --showformat='${db:Status-Status}' nginx | grep -x installed",
		},
	}
}

// TestScenario3_DriftIsRepaired has an operator do what operators do. Each time the command must have its effect, and the host
// come back, counted as drift that an event told of.
func TestScenario3_DriftIsRepaired(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	declaration := example(t)
	for _, d := range drifts() {
		if name, ok := strings.CutPrefix(d.subject, "file/"); ok && name != "nginx.conf" {
			declaration += fmt.Sprintf("    - name: %s\n      file: {path: /srv/www/%s.html, content: declared}\n", name, name)
		}
	}
	s.start(t, declaration)
	s.awaitConverged(t)
	for _, d := range drifts() {
		t.Run(d.name, func(t *testing.T) { d.test(t, s) })
	}
}

func (d drift) test(t *testing.T, s *site) {
	before := s.status(t)
	trace, told := s.MustRun(t, "sh", "-c", d.trace), len(s.history(t, d.subject))
	s.MustRun(t, "sh", "-c", d.command)
	s.await(t, convergeTime, "drift is repaired", func(r *agent.Report) bool {
		return r.Converged && r.Settled && r.Totals.Drift > before.Totals.Drift
	})
	s.MustRun(t, "sh", "-c", d.repaired)
	if after := s.MustRun(t, "sh", "-c", d.trace); after == trace {
		t.Errorf("%q had no effect: %q, as before", d.command, trace)
	}
	s.wantPage(t, "Kept as declared.")

	after := s.status(t)
	if after.Totals.Change != before.Totals.Change+d.refreshes || after.Totals.Missed != 0 {
		t.Errorf("drift counts as %d changes, want %d, and %d that no event told of, want 0: %s",
			after.Totals.Change-before.Totals.Change, d.refreshes, after.Totals.Missed, shown(after))
	}
	history := s.history(t, d.subject)
	var repairs []string
	for _, h := range history[:max(0, len(history)-told)] {
		if h.Outcome == reason.Repaired.String() {
			repairs = append(repairs, fmt.Sprintf("%s, %s: %s", h.Detail, h.Cause, strings.Join(h.Changes, ", ")))
		}
	}
	if len(repairs) != 1 || !strings.HasPrefix(repairs[0], string(reason.Drift)+", ") {
		t.Errorf("the history of %s tells of repairs %q, want one of drift", d.subject, repairs)
	}
}

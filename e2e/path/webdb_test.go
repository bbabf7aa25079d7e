//go:build e2e

package path

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

const (
	webAndDatabase = "../../examples/web-and-database"
	greeting       = "Good morning from the database."
	greetings      = `apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: v1
kind: Secret
metadata: {name: greetings, namespace: prod}
stringData:
  environment: PASSWORD=correct-horse
  pgpass: "*:*:*:*:correct-horse\n"
---
`
)

// webLooks and databaseLooks print what is declared of the two hosts, as it is.
const (
	webLooks = `
for f in /etc/apt/sources.list.d/backports.sources /etc/nginx/nginx.conf /usr/local/bin/greet /etc/greetings/pgpass /etc/systemd/system/greetings@.service /etc/systemd/system/greetings.socket /etc/systemd/system/nginx.service.d/50-limits.conf; do
	stat -c '%n %F %a %U:%G' $f; sha256sum $f
done
stat -c '%n %F %a %U:%G' /etc/greetings
systemctl is-active nginx greetings.socket
systemctl is-enabled nginx greetings.socket
systemctl show -p LimitNOFILE nginx
getent passwd greetings; id greetings
getent -s files hosts db.greetings
readlink /etc/localtime
cat /etc/default/locale /proc/sys/net/ipv4/ip_local_port_range
dpkg-query -W -f '${Package} ${Status}\n' nginx postgresql-client
true`
	databaseLooks = `
for f in /etc/apt/sources.list.d/backports.sources /etc/postgresql/15/main/conf.d/50-tako.conf /etc/postgresql/15/main/conf.d/40-passwords.conf /etc/postgresql/15/main/pg_hba.conf /etc/systemd/system/backup-greetings.timer /etc/systemd/system/backup-greetings.service; do
	stat -c '%n %F %a %U:%G' $f; sha256sum $f
done
stat -c '%n %F %a %U:%G' /var/backups/greetings /home/dbadmin/.ssh/authorized_keys; cat /home/dbadmin/.ssh/authorized_keys
systemctl is-active postgresql@15-main backup-greetings.timer
systemctl is-enabled backup-greetings.timer
getent passwd dbadmin; id dbadmin; getent group dba
cat /proc/sys/net/core/somaxconn
readlink /etc/localtime
dpkg-query -W -f '${Package} ${Status}\n' postgresql
true`
)

// drift is one way in which a host is changed by somebody else. What changes one thing in two steps may find it repaired between them.
type drift struct{ what, command string }

var webDrifts = []drift{
	{"configuration appended to", "echo '# mine' >>/etc/nginx/nginx.conf"},
	{"configuration removed", "rm /etc/nginx/nginx.conf"},
	{"configuration made a link", "cd /etc/nginx; cp nginx.conf mine.conf; ln -s mine.conf new; mv -T new nginx.conf"},
	{"configuration broken, nginx reloaded with it", "echo '}' >/etc/nginx/nginx.conf; nginx -s reload || true"},
	{"program truncated", ": >/usr/local/bin/greet"},
	{"program not executable", "chmod 644 /usr/local/bin/greet"},
	{"program given away", "chown www-data /usr/local/bin/greet"},
	{"password replaced", "echo '*:*:*:*:wrong' >/root/new; chmod 644 /root/new; mv /root/new /etc/greetings/pgpass"},
	{"directory opened", "chmod 777 /etc/greetings"},
	{"web server stopped", "systemctl stop nginx"},
	{"web server disabled", "systemctl disable -q nginx"},
	{"web server killed", "systemctl kill -s KILL nginx"},
	{"drop-in changed", "sed -i s/65536/1024/ /etc/systemd/system/nginx.service.d/50-limits.conf; systemctl daemon-reload"},
	{"unit removed", "rm /etc/systemd/system/greetings@.service; systemctl daemon-reload"},
	{"socket stopped and disabled", "systemctl disable -q --now greetings.socket"},
	{"shell of the user changed", "usermod -s /bin/bash greetings"},
	{"user taken out of a group", "gpasswd -d greetings www-data"},
	{"host entry removed", "sed -i /db.greetings/d /etc/hosts"},
	{"time zone changed", "ln -sf /usr/share/zoneinfo/Asia/Tokyo /etc/localtime"},
	{"language changed", "echo LANG=C >/etc/default/locale"},
	{"kernel parameter set", "echo 1024 2048 >/proc/sys/net/ipv4/ip_local_port_range"},
	{"repository removed", "rm /etc/apt/sources.list.d/backports.sources"},
	{"repository's signature not asked for", "echo 'Trusted: yes' >>/etc/apt/sources.list.d/backports.sources"},
	{"package removed", "apt-get -q -y remove postgresql-client"},
}

var databaseDrifts = []drift{
	{"access block edited", "sed -i '/greetings/s/scram-sha-256/trust/' /etc/postgresql/15/main/pg_hba.conf"},
	{"settings changed", "sed -i s/32MB/16MB/ /etc/postgresql/15/main/conf.d/50-tako.conf"},
	{"repository led elsewhere", "sed -i 's|^URIs: .*|URIs: http://192.0.2.1/|' /etc/apt/sources.list.d/backports.sources"},
	{"database server stopped", "systemctl stop postgresql@15-main"},
	{"database server killed", "systemctl kill -s KILL postgresql@15-main"},
	{"backup timer stopped and disabled", "systemctl disable -q --now backup-greetings.timer"},
	{"backup's unit removed", "rm /etc/systemd/system/backup-greetings.service; systemctl daemon-reload"},
	{"backups opened to all", "chmod 777 /var/backups/greetings; chown root /var/backups/greetings"},
	{"administrator deleted", "userdel dbadmin"},
	{"number of a group changed", "groupmod -g 3199 dba"},
	{"key of a stranger added", "echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH/z3fvXiODXgAustShlfGTDA86QT84VN1i7by8/7d1P stranger' >>/home/dbadmin/.ssh/authorized_keys"},
	{"keys moved away", "mv /home/dbadmin/.ssh /root/away"},
	{"kernel parameter set", "echo 128 >/proc/sys/net/core/somaxconn"},
}

// TestWebAndDatabase converges the example on two fresh hosts, changes it in every way that an administrator's slip may, and sees that each
// change is noticed by its event and undone.
func TestWebAndDatabase(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	database := f.lab.Boot(t, "db")
	web := f.lab.Boot(t, "web")
	f.apply(t, greetings+f.exampleOf(t, "database.yaml", database)+"---\n"+f.exampleOf(t, "web.yaml", database), "-n", "prod")
	f.prepare(t, database)
	f.prepare(t, web)
	f.join(t, web, "--environment", "prod", "--label", "role=web")
	host.Eventually(t, slow, "the web server's host waits for the database, and for nothing else", func() (string, bool) {
		report := totals(t, web)
		return fmt.Sprintf("%+v", report), report.Settled && report.Counts[reason.Deferred] == 1 && report.Counts[reason.Blocked] == 1 && report.Counts[reason.Failed] == 0
	})
	f.join(t, database, "--environment", "prod", "--label", "role=database")
	f.awaitConverged(t, "db", "web")
	f.wantPage(t, web, greeting)

	t.Run("web", func(t *testing.T) { healed(t, f, web, webLooks, webDrifts) })
	t.Run("database", func(t *testing.T) { healed(t, f, database, databaseLooks, databaseDrifts) })
	f.wantPage(t, web, greeting)
	f.awaitConverged(t, "db", "web")
}

// exampleOf is a file of the example, with the database's address, and the lab's repository in the place of Debian's.
func (f *fleet) exampleOf(t *testing.T, name string, database *host.Host) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(webAndDatabase, name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(database.Get(t, "/etc/apt/sources.list"), "http://")
	lab, _, found := strings.Cut(rest, "/")
	if !found {
		t.Fatalf("where is the host's repository? %q", rest)
	}
	return strings.NewReplacer("10.77.0.11", database.Address(), "https://deb.example.org/debian", "http://"+lab+"/", "[bookworm-backports]", "[./]",
		"          components: [main]\n", "", "/usr/share/keyrings/debian-archive-keyring.gpg", "/etc/apt/keyrings/lab.asc").Replace(string(text))
}

// healed changes a host in each of the ways, and waits until it is as it was.
func healed(t *testing.T, f *fleet, h *host.Host, looks string, drifts []drift) {
	look := func() string {
		r, err := h.Run(t.Context(), "sh", "-c", looks)
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout + r.Stderr
	}
	want := look()
	for _, d := range drifts {
		before := totals(t, h)
		h.MustRun(t, "sh", "-ec", d.command)
		host.Eventually(t, soon, d.what+" is undone", func() (string, bool) {
			now, report := look(), totals(t, h)
			return fmt.Sprintf("was\n%s\nis\n%s\n%+v", want, now, report), now == want && report.Totals.Drift > before.Totals.Drift && report.Converged
		})
	}
	if n := totals(t, h).Totals; n.Missed != 0 {
		t.Errorf("%d changes were found by an audit, want all by their events: %+v", n.Missed, n)
	}
}

// totals is what the agent of a host says of itself.
func totals(t *testing.T, h *host.Host) agent.Report {
	t.Helper()
	r, err := h.Run(t.Context(), agentPath, "status", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report agent.Report
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		return agent.Report{} // it does not run yet: it is asked again
	}
	return report
}

//go:build e2e

package path

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

// motd is a config for all hosts of all environments.
func motd(content string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: motd}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: motd
      file: {path: /etc/motd, content: %q}
`, content)
}

// web is nginx with a page, for the hosts of prod, one after the other.
func web(page, directive string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: web, namespace: prod}
spec:
  rollout: {maxUnavailable: 1}
  resources:
    - name: nginx-package
      package: {package: nginx}
    - name: nginx.conf
      file:
        path: /etc/nginx/nginx.conf
        check: [/usr/sbin/nginx, -t, -c, "{}"]
        content: |
          worker_processes 1;
          events {}
          http {
            %s on;
            server { listen 80; root /srv/www; }
          }
      require: [nginx-package]
      notify: [nginx]
    - name: www
      directory: {path: /srv/www}
    - name: index
      file: {path: /srv/www/index.html, content: %q}
    - name: nginx
      service: {onNotify: reload, enabled: true}
      require: [index]
`, directive, page)
}

const secret = `apiVersion: v1
kind: Secret
metadata: {name: app, namespace: prod}
stringData: {token: %q}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: token, namespace: prod}
spec:
  selector: {matchLabels: {host: web-1}}
  resources:
    - name: token
      file:
        path: /etc/app.token
        mode: "0600"
        contentFrom: {secret: {name: app, key: token}}
`

// TestFleet is the life of a fleet of three hosts in two environments.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"web-1": "prod", "web-2": "prod", "qa-1": "qa"})
	for _, s := range []struct {
		name string
		run  func(*testing.T, *fleet)
	}{
		{"1 declared once, reaches every host that it selects", declaredOnce},
		{"2 one host after another, halted at the first, undone", haltsAndGoesBack},
		{"3 the server is away", serverAway},
		{"4 a link is cut", linkCut},
		{"5 a change that cuts the network comes back alone", triedAndBack},
		{"6 two configs in conflict", conflict},
		{"7 moved to another environment", moved},
		{"8 what is another host's is refused", stolen},
		{"10 who may join", joins},
		{"11 an update that empties a host is withheld", emptied},
		{"12 held while it drifts", heldBack},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, f) }) {
			t.Fatal("the scenarios after this one stand on it")
		}
	}
}

func declaredOnce(t *testing.T, f *fleet) {
	f.apply(t, motd("welcome\n")+"---\n"+web("hello of tako", "sendfile")+"---\n"+fmt.Sprintf(secret, "s3cret-of-prod"))
	f.awaitConverged(t, "web-1", "web-2", "qa-1")
	for _, h := range f.hosts {
		wantFile(t, h, "/etc/motd", "welcome\n")
	}
	f.wantPage(t, f.hosts["web-1"], "hello of tako")
	f.wantPage(t, f.hosts["web-2"], "hello of tako")
	wantFile(t, f.hosts["web-1"], "/etc/app.token", "s3cret-of-prod")
	if r, err := f.hosts["qa-1"].Run(t.Context(), "test", "-e", "/usr/sbin/nginx"); err != nil || r.Code == 0 {
		t.Errorf("a host of qa has what is for prod: %+v %v", r, err)
	}
	if r, _ := f.hosts["web-2"].Run(t.Context(), "test", "-e", "/etc/app.token"); r.Code == 0 {
		t.Error("the secret of web-1 is on web-2")
	}
	for _, h := range f.hosts {
		if r, _ := h.Run(t.Context(), "grep", "-rl", "s3cret-of-prod", "/var/lib/tako", "/var/log"); strings.TrimSpace(r.Stdout) != "" {
			t.Errorf("the secret is in clear on %s in %s", h.Name(), r.Stdout)
		}
	}
	// Soon after hosts have joined they are told of their peers, and are on the way to that for a moment.
	host.Eventually(t, slow, "nothing needs attention", func() (string, bool) {
		out, errs, exit := f.try(t, "status")
		return fmt.Sprintf("exit %d\n%s%s", exit, out, errs), exit == 0 && strings.Contains(out, "nothing needs attention")
	})
}

func haltsAndGoesBack(t *testing.T, f *fleet) {
	f.apply(t, web("second page", "sendfile"))
	c := f.awaitConfig(t, "prod", "web", "complete", phase("Complete"))
	for _, name := range []string{"web-1", "web-2"} {
		f.wantPage(t, f.hosts[name], "second page")
	}
	proven := c.Status.Revision

	f.apply(t, web("third page", "sendfil"))
	c = f.awaitConfig(t, "prod", "web", "halted", phase("Halted"))
	if len(c.Status.Rollout.Culprits) != 1 {
		t.Fatalf("halted by %+v, want one node", c.Status.Rollout.Culprits)
	}
	culprit := c.Status.Rollout.Culprits[0].Node
	for _, name := range []string{"web-1", "web-2"} {
		a := object[v1alpha1.Assignment](t, f, "assignment/"+name)
		for _, layer := range a.Spec.Layers {
			if layer.Config == "NodeConfig/prod/web" && (layer.Revision == c.Status.Revision) != (name == culprit) {
				t.Errorf("%s has revision %s, and it halted at %s", name, layer.Revision, culprit)
			}
		}
		f.wantPage(t, f.hosts[name], "page") // nginx goes on with what it has
	}
	for _, args := range [][]string{{"why", "nodeconfig/web", "-n", "prod"}, {"why", "node/" + culprit}, {"why", "file/nginx.conf", "--node", culprit}} {
		if out := f.tako(t, args...); !strings.Contains(out, culprit) || !strings.Contains(out, `unknown directive "sendfil"`) {
			t.Errorf("%v does not quote nginx:\n%s", args, out)
		}
	}
	f.tako(t, "rollout", "undo", "nodeconfig/web", "-n", "prod")
	c = f.awaitConfig(t, "prod", "web", "complete again", phase("Complete"))
	if c.Status.Revision != proven {
		t.Errorf("gone back to %s, want %s", c.Status.Revision, proven)
	}
	f.awaitConverged(t, "web-1", "web-2")
	f.wantPage(t, f.hosts[culprit], "second page")
}

func serverAway(t *testing.T, f *fleet) {
	f.ctl.MustRun(t, "systemctl", "kill", "--signal=KILL", serverUnit)
	f.ctl.MustRun(t, "systemctl", "stop", serverUnit)
	h := f.hosts["web-1"]
	h.MustRun(t, "sh", "-c", "echo mine > /etc/motd")
	wantFile(t, h, "/etc/motd", "welcome\n")
	h.Poweroff(t)
	// Changed while nobody looked: the agent finds it when it starts.
	h.Boot(t)
	h.MustRun(t, "sh", "-c", "rm /srv/www/index.html")
	f.wantPage(t, h, "second page")
	wantFile(t, h, "/etc/app.token", "s3cret-of-prod")

	f.ctl.MustRun(t, "systemctl", "start", serverUnit)
	f.awaitConverged(t, "web-1", "web-2", "qa-1")
	before := f.transferred(t)
	f.apply(t, motd("welcome back\n"))
	f.awaitConverged(t, "web-1", "web-2", "qa-1")
	for _, h := range f.hosts {
		wantFile(t, h, "/etc/motd", "welcome back\n")
	}
	// Three hosts, one entry of some 100 bytes each: what is unchanged does not move.
	if moved := f.transferred(t) - before; moved > 3*2048 {
		t.Errorf("%d bytes moved for one changed file on three hosts", moved)
	}
}

// transferred is how many bytes the server has sent for states: differences, nodes and snapshots.
func (f *fleet) transferred(t testing.TB) int {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(f.ctl.Get(t, kubeconfig)))
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.Dial = "https://"+f.ctl.Address()+":6443", f.lab.Dial
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(config.Host + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	total, found := 0, false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "tako_transfer_sent_bytes_total{") || strings.Contains(line, `"watch"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		total, found = total+int(value), true
	}
	if !found {
		t.Fatal("the server does not say how many bytes it has sent")
	}
	return total
}

func linkCut(t *testing.T, f *fleet) {
	h := f.hosts["web-2"]
	run := invocation(t, h, "nginx")
	agent := invocation(t, h, agentUnit)
	h.CutLink(t)
	n := f.eventually(t, "web-2", "unknown", has("Ready", metav1.ConditionUnknown))
	if out, _, _ := f.try(t, "status"); !strings.Contains(out, "node/web-2") || !strings.Contains(out, "Unknown") {
		t.Errorf("status does not say that web-2 is unknown:\n%s", out)
	}
	if n.Status.LastHeard == nil {
		t.Error("nobody says when it was heard last")
	}
	for i := range 5 {
		f.apply(t, motd(fmt.Sprintf("version %d\n", i)))
	}
	f.awaitConverged(t, "web-1", "qa-1")
	h.RestoreLink(t)
	f.awaitConverged(t, "web-2")
	wantFile(t, h, "/etc/motd", "version 4\n")
	history := f.tako(t, "history", "node/web-2", "file/motd", "-o", "json")
	if strings.Contains(history, "version 2") {
		t.Errorf("a state in between was applied:\n%s", history)
	}
	if invocation(t, h, "nginx") != run || invocation(t, h, agentUnit) != agent {
		t.Error("nginx or the agent was restarted")
	}
}

// link is a config whose file, once it is there, takes the host's link down.
const link = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: link, namespace: qa}
spec:
  resources:
    - name: down
      service: {unit: linkdown.service, state: %s}
`

func triedAndBack(t *testing.T, f *fleet) {
	h := f.hosts["qa-1"]
	h.Put(t, "/etc/systemd/system/linkdown.service", `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "ip link set host0 down"
ExecStop=/bin/sh -c "ip link set host0 up"
`, 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	f.apply(t, fmt.Sprintf(link, "stopped"))
	f.awaitConverged(t, "qa-1")
	f.apply(t, fmt.Sprintf(link, "running"), "--try", "20s")
	host.Eventually(t, soon, "the link is down", func() (string, bool) {
		state := h.MustRun(t, "systemctl", "show", "--value", "-p", "ActiveState", "linkdown.service")
		return state, strings.TrimSpace(state) == "active"
	})
	// Nobody reaches the host, and nobody confirms: it goes back by itself.
	f.eventually(t, "qa-1", "back, and says why", func(n *v1alpha1.Node) bool {
		v := n.Status.Verdict
		return v != nil && v.Type == v1alpha1.VerdictRejected && has("Ready", metav1.ConditionTrue)(n)
	})
	if state := h.MustRun(t, "systemctl", "show", "--value", "-p", "ActiveState", "linkdown.service"); strings.TrimSpace(state) != "inactive" {
		t.Errorf("linkdown.service is %s", state)
	}
	f.awaitConfig(t, "qa", "link", "halted", phase("Halted"))
	f.tako(t, "rollout", "undo", "nodeconfig/link", "-n", "qa")
	f.awaitConverged(t, "qa-1")
	f.tako(t, "delete", "nodeconfig/link", "-n", "qa")
	f.awaitConverged(t, "qa-1")
}

func conflict(t *testing.T, f *fleet) {
	config := func(name, content string) string {
		return fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: %s, namespace: prod}\nspec:\n  rollout: {maxUnavailable: \"100%%\"}\n  resources:\n"+
			"    - name: issue\n      file: {path: /etc/issue.tako, content: %q}\n", name, content)
	}
	f.apply(t, config("older", "of older\n"))
	f.awaitConverged(t, "web-1", "web-2")
	f.apply(t, config("younger", "of younger\n"))
	for _, name := range []string{"older", "younger"} {
		f.awaitConfig(t, "prod", name, "told of the conflict", func(c *v1alpha1.NodeConfig) bool {
			return len(c.Status.Conflicts) == 1 && strings.Contains(c.Status.Conflicts[0].Message, "/etc/issue.tako")
		})
		if out := f.tako(t, "why", "nodeconfig/"+name, "-n", "prod"); !strings.Contains(out, "Conflict") {
			t.Errorf("why nodeconfig/%s says nothing of the conflict:\n%s", name, out)
		}
	}
	wantFile(t, f.hosts["web-1"], "/etc/issue.tako", "of older\n")
	// A fresh host gets neither.
	h := f.lab.Boot(t, "web-3")
	f.prepare(t, h)
	f.join(t, h, "--environment", "prod")
	f.awaitConverged(t, "web-3")
	if r, _ := h.Run(t.Context(), "test", "-e", "/etc/issue.tako"); r.Code == 0 {
		t.Errorf("a fresh host has one of the two: %s", h.Get(t, "/etc/issue.tako"))
	}
	f.tako(t, "delete", "nodeconfig/younger", "-n", "prod")
	wantFile(t, h, "/etc/issue.tako", "of older\n")
	f.tako(t, "delete", "node/web-3")
	h.Poweroff(t)
	f.tako(t, "delete", "nodeconfig/older", "-n", "prod")
	f.awaitConverged(t, "web-1", "web-2")
}

func moved(t *testing.T, f *fleet) {
	before := f.node(t, "qa-1")
	f.move(t, "qa-1", "prod")
	f.awaitConverged(t, "qa-1")
	f.wantPage(t, f.hosts["qa-1"], "second page")
	after := f.node(t, "qa-1")
	if after.UID != before.UID || after.Status.Identity.Key != before.Status.Identity.Key {
		t.Errorf("the identity changed: %+v, before %+v", after.Status.Identity, before.Status.Identity)
	}
	f.move(t, "qa-1", "qa")
	f.awaitConverged(t, "qa-1")
}

// move puts a node into another environment, as `tako edit` does.
func (f *fleet) move(t *testing.T, node, environment string) {
	t.Helper()
	f.ctl.Put(t, "/root/editor", "#!/bin/sh\nsed -i 's/environment: .*/environment: "+environment+"/' \"$1\"\n", 0o755)
	f.tako(t, "edit", "node/"+node)
}

func emptied(t *testing.T, f *fleet) {
	var b strings.Builder
	b.WriteString("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: many, namespace: qa}\nspec:\n  resources:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "    - name: f%d\n      onRemove: delete\n      file: {path: /srv/many/%d, content: \"%d\\n\"}\n", i, i, i)
	}
	b.WriteString("    - name: many\n      directory: {path: /srv/many}\n")
	f.apply(t, b.String())
	f.awaitConverged(t, "qa-1")
	f.tako(t, "delete", "nodeconfig/many", "-n", "qa")
	f.eventually(t, "qa-1", "withholding", func(n *v1alpha1.Node) bool {
		return n.Status.Verdict != nil && n.Status.Verdict.Type == v1alpha1.VerdictWithheld
	})
	wantFile(t, f.hosts["qa-1"], "/srv/many/7", "7\n")
	if out := f.tako(t, "why", "node/qa-1"); !strings.Contains(out, "Withheld") || !strings.Contains(out, "tako resume node/qa-1") {
		t.Errorf("why does not say what is withheld:\n%s", out)
	}
	f.tako(t, "resume", "node/qa-1")
	f.awaitConverged(t, "qa-1")
	if r, _ := f.hosts["qa-1"].Run(t.Context(), "test", "-e", "/srv/many/7"); r.Code == 0 {
		t.Error("what was consented to is not deleted")
	}
}

func heldBack(t *testing.T, f *fleet) {
	h := f.hosts["qa-1"]
	want := h.Get(t, "/etc/motd")
	f.tako(t, "hold", "node/qa-1", "--resource", "path:/etc/motd", "--reason", "looking at it", "--for", "1h")
	f.awaitHolds(t, "qa-1", 1)
	h.MustRun(t, "sh", "-c", "echo mine > /etc/motd")
	host.Eventually(t, soon, "the drift is seen", func() (string, bool) {
		out := f.tako(t, "why", "file/motd", "--node", "qa-1")
		return out, strings.Contains(out, "Deferred") && strings.Contains(out, "looking at it")
	})
	if got := h.Get(t, "/etc/motd"); got != "mine\n" {
		t.Errorf("it was repaired while it was held: %q", got)
	}
	f.tako(t, "resume", "node/qa-1")
	wantFile(t, h, "/etc/motd", want)
	f.awaitHolds(t, "qa-1", 0)
}

// awaitHolds waits until a host has taken up that many holds.
func (f *fleet) awaitHolds(t *testing.T, node string, count int) {
	t.Helper()
	host.Eventually(t, soon, fmt.Sprintf("%d holds for %s", count, node), func() (string, bool) {
		a := object[v1alpha1.Assignment](t, f, "assignment/"+node)
		return shown(a.Spec.Own), a.Name != "" && (a.Spec.Own == nil && count == 0 || a.Spec.Own != nil && len(a.Spec.Own.Holds) == count)
	})
	f.awaitConverged(t, node)
}

//go:build e2e

package workloads

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// cutFor is how long a host is off the network.
const cutFor = 2 * time.Minute

// installTime bounds the wait for the packages of Debian, on a busy machine: PostgreSQL makes a cluster of its own.
const installTime = 5 * time.Minute

// packages are what the hosts have of Debian, without the services that it starts for them: workloads run the programs.
const packages = `apiVersion: v1
kind: Secret
metadata: {name: shop, namespace: prod}
stringData: {password: correct-horse}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: front, namespace: prod}
spec:
  selector: {matchLabels: {role: front}}
  resources:
    - name: nginx
      package: {}
    - name: nginx.service
      service: {state: stopped, enabled: false}
      require: [nginx]
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: database, namespace: prod}
spec:
  selector: {matchLabels: {role: database}}
  resources:
    - name: postgresql
      package: {}
    - name: all-clusters
      service: {unit: postgresql.service, state: stopped, enabled: false}
      require: [postgresql]
    - name: main-cluster
      service: {unit: postgresql@15-main.service, state: stopped}
      require: [all-clusters]
`

// databaseTier keeps its data on its host, and runs in one place only, whatever happens.
const databaseTier = `apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: db, namespace: prod}
spec:
  replicas: 1
  selector: {matchLabels: {role: database}}
  onUnreachable: {action: Fence, after: 1m}
  rollout: {maxSurge: "0", maxUnavailable: "1"}
  template:
    labels: {app: db}
    terminationGrace: 60s
    volumes:
      - {name: data, data: {stick: Must}}
    tasks:
      - name: postgres
        user: postgres
        command: [/bin/sh, -euc]
        args:
          - |
            export PATH=/usr/lib/postgresql/15/bin:$PATH
            data=/srv/db/data
            if [ ! -e $data/PG_VERSION ]; then
              rm -rf $data.new
              initdb --pgdata=$data.new --auth=reject >/dev/null
              echo 'host all shop 10.77.0.0/24 scram-sha-256' >$data.new/pg_hba.conf
              printf "create role shop login password '%s';\ncreate database shop owner shop;\n" "$PASSWORD" | postgres --single -D $data.new postgres >/dev/null
              printf 'create table orders (number int not null);\nalter table orders owner to shop;\n' | postgres --single -D $data.new shop >/dev/null
              mv $data.new $data
            fi
            exec postgres -D $data -c listen_addresses='*' -c port=$PORT_POSTGRESQL -c unix_socket_directories=
        env:
          - {name: PASSWORD, valueFrom: {secret: {name: shop, key: password}}}
        ports: [{name: postgresql, port: 5432}]
        mounts: [{volume: data, path: /srv/db}]
        stopSignal: SIGINT
        readiness: {tcp: {port: postgresql}, period: 500ms}
`

// frontTier is nginx, and beside it what tells it of the endpoints that the agent writes down.
const frontTier = `apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: front, namespace: prod}
spec:
  replicas: 1
  selector: {matchLabels: {role: front}}
  template:
    labels: {app: front}
    volumes:
      - {name: state, temporary: {}}
    tasks:
      - name: follow
        command: [/bin/sh, -euc]
        args:
          - |
            cd /srv/front
            while :; do
              awk '$1 == "prod" && $2 == "api" && $3 == "http" {print "server " $5 ":" $6 " max_fails=1 fail_timeout=2s;"}' $(dirname $TAKO_ENDPOINTS)/endpoints | sort >next
              if [ -s next ] && ! cmp -s next api; then
                mv next api
                [ ! -s nginx.pid ] || kill -HUP $(cat nginx.pid) || true
              fi
              sleep 0.1
            done
        mounts: [{volume: state, path: /srv/front}]
      - name: nginx
        command: [/bin/sh, -euc, 'until [ -s /srv/front/api ]; do sleep 0.1; done; exec /usr/sbin/nginx -e stderr -c /srv/nginx.conf']
        mounts: [{volume: state, path: /srv/front}]
        files:
          - path: /srv/nginx.conf
            content: |
              daemon off;
              pid /srv/front/nginx.pid;
              error_log stderr warn;
              worker_processes 1;
              events {}
              http {
                access_log off;
                client_body_temp_path /srv/front/body;
                proxy_temp_path /srv/front/proxy;
                fastcgi_temp_path /srv/front/fastcgi;
                uwsgi_temp_path /srv/front/uwsgi;
                scgi_temp_path /srv/front/scgi;
                upstream api { include /srv/front/api; }
                server {
                  listen 8080;
                  location = /health { return 200; }
                  location / {
                    proxy_pass http://api;
                    proxy_connect_timeout 1s;
                    proxy_read_timeout 12s;
                  }
                }
              }
        ports: [{name: http, port: 8080}]
        stopSignal: SIGQUIT
        readiness: {http: {port: http, path: /health}, period: 500ms}
`

// apiTier is the program in between.
func apiTier(version, database, rollout string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: api, namespace: prod}
spec:
  replicas: 4
  placement:
    topologySpread:
      - {topologyKey: topology.kubernetes.io/zone}
  disruptionBudget: {minAvailable: "4"}
  onUnreachable: {action: Replace, after: 15s}
  rollout: {%s, maxSurge: "1", maxUnavailable: "0", minReady: 1s}
  template:
    labels: {app: api}
    shutdownDelay: 5s
    tasks:
      - name: shop
        command: [/usr/local/bin/shop]
        ports: [{name: http}]
        resources: {requests: {cpu: 10m, memory: 16Mi}}
        readiness: {http: {port: http, path: /ready}, period: 500ms, timeout: 3s}
        env:
          - {name: VERSION, value: %s}
          - {name: INSTANCE, valueFrom: {field: instance.name}}
          - {name: DATABASE_HOST, value: db.prod.tako.internal}
          - {name: DATABASE_PORT, value: "5432"}
          - {name: DATABASE, value: %s}
          - {name: DATABASE_USER, value: shop}
          - {name: PASSWORD, valueFrom: {secret: {name: shop, key: password}}}
`, rollout, version, database)
}

// scaledMax is how many there are of the middle tier under load, at most.
const scaledMax = 6

const rolling, canary = "strategy: Rolling, progressDeadline: 1m", `strategy: Canary, steps: [{replicas: "1", pause: 1s}], progressDeadline: 30s`

// tiers is the application on five hosts.
type tiers struct {
	*cluster
	client *shopper
}

// TestThreeTiers runs nginx, a program of ours and PostgreSQL on five hosts in three zones, with a client that asks all the time, through what happens to
// such an application.
func TestThreeTiers(t *testing.T) {
	t.Parallel() // its hosts are its own
	f := &tiers{cluster: newCluster(t, host.NewLab(t), map[string][]string{
		"front":  {"topology.kubernetes.io/zone=a", "role=front"},
		"box-a":  {"topology.kubernetes.io/zone=a"},
		"box-b1": {"topology.kubernetes.io/zone=b"},
		"box-b2": {"topology.kubernetes.io/zone=b"},
		"db":     {"topology.kubernetes.io/zone=c", "role=database"},
	})}
	f.begins()
	stop := f.client.start()
	defer stop()
	t.Run("rolled out", f.rolledOut)
	t.Run("a revision that never becomes ready", f.neverReady)
	t.Run("a host without power", f.powerCut)
	t.Run("a host off the network", f.linkCut)
	t.Run("drained", f.drained)
	t.Run("scaled by load", f.scaled)
	stop()
	f.counted()
	f.ends()
}

// begins brings the application up.
func (f *tiers) begins() {
	shop := host.Program(f.t, "shop", "tako.dev/tako/e2e/workloads/shop")
	for _, h := range f.boxes {
		h.CopyIn(f.t, shop, "/usr/local/bin/shop")
		h.Put(f.t, "/etc/resolv.conf", "nameserver 127.0.0.88\n", 0o644)
	}
	f.apply(packages)
	for _, name := range []string{"front", "database"} {
		host.Eventually(f.t, installTime, name+" has its packages", func() (string, bool) {
			out, code := f.try("wait", "nodeconfig/"+name, "-n", environment, "--timeout", "20s")
			return out, code == 0
		})
	}
	f.apply(databaseTier + "---\n" + frontTier + "---\n" + apiTier("v1", "shop", rolling))
	for name, replicas := range map[string]int32{"db": 1, "front": 1, "api": 4} {
		f.until("complete", name, complete(replicas))
	}
	zones := map[string]int{}
	for _, in := range f.instances("api") {
		zones[f.zone(in.Spec.Node)]++
	}
	if zones["a"]+zones["b"]+zones["c"] != 4 || min(zones["a"], zones["b"], zones["c"]) != 1 {
		f.t.Errorf("in zones are %v", zones)
	}
	f.client = newShopper(f.t, f.lab, f.boxes["front"].Address()+":8080")
}

func (f *tiers) zone(node string) string {
	switch node {
	case "front", "box-a":
		return "a"
	case "db":
		return "c"
	}
	return "b"
}

// until waits until a workload is as it should be, about what is declared now.
func (f *tiers) until(what, name string, is func(*v1alpha1.Workload) bool) v1alpha1.Workload {
	f.t.Helper()
	var w v1alpha1.Workload
	host.Eventually(f.t, rig.InTime, name+" is "+what, func() (string, bool) {
		w = f.workload(name)
		return shown(w.Status) + "\n" + shown(f.instances(name)), w.Generation > 0 && w.Status.ObservedGeneration == w.Generation && is(&w)
	})
	return w
}

func (f *tiers) workload(name string) (w v1alpha1.Workload) {
	f.get(&w, "workload/"+name, "-n", environment)
	return w
}

func (f *tiers) instances(workload string) []v1alpha1.Instance {
	var list v1alpha1.InstanceList
	f.get(&list, "instances", "-n", environment, "-l", v1alpha1.LabelWorkload+"="+workload)
	return list.Items
}

// pids are the processes of instances, as their hosts' systemd says, by the name of the instance.
func (f *tiers) pids(workloads ...string) map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, name := range workloads {
		for _, in := range f.instances(name) {
			out := f.boxes[in.Spec.Node].MustRun(f.t, "systemctl", "show", "--property=MainPID", "--value", "tako-"+string(in.UID)+".*.service")
			all[in.Name] = strings.Join(strings.Fields(out), " ")
		}
	}
	return all
}

// quiet fails a test whose requests have.
func (f *tiers) quiet(t *testing.T, since asked) asked {
	t.Helper()
	is := f.client.asked().minus(since)
	t.Logf("of requests: %v", is)
	if is.reads < 50 || is.writes < 20 || is.readsFailed+is.writesFailed > 0 {
		t.Errorf("of requests: %v", is)
	}
	return is
}

func (f *tiers) rolledOut(t *testing.T) {
	before := f.client.asked()
	f.apply(apiTier("v2", "shop", rolling))
	f.until("complete with the new revision", "api", complete(4))
	f.quiet(t, before)
	if last := f.client.version(); last != "v2" {
		t.Errorf("%s answers", last)
	}
}

// neverReady: a revision whose readiness asks a database that is not there comes to one copy, and goes back by itself.
func (f *tiers) neverReady(t *testing.T) {
	before, stable, pids := f.client.asked(), f.workload("api").Status.Stable, f.pids("api")
	f.apply(apiTier("v3", "nowhere", canary))
	told := ""
	w := f.until("rolled back", "api", func(w *v1alpha1.Workload) bool {
		if w.Status.Phase == "Rolling" {
			if n := w.Status.UpdatedReplicas; n > 1 {
				t.Errorf("%d have the revision that is not ready", n)
			}
			if why, _ := f.try("why", "workload/api", "-n", environment); strings.Contains(why, "nowhere") {
				told = why
			}
		}
		return w.Status.Phase == "RolledBack" && w.Status.AvailableReplicas == 4 && w.Status.TerminatingReplicas == 0
	})
	f.quiet(t, before)
	if w.Status.Stable != stable || len(w.Status.Failed) != 1 || w.Status.Failed[0].Revision == stable {
		t.Errorf("rolled back to %s, which was %s; failed %+v", w.Status.Stable, stable, w.Status.Failed)
	}
	after, _ := f.try("why", "workload/api", "-n", environment)
	for when, why := range map[string]string{"while it was not ready": told, "when it was rolled back": after} {
		for _, words := range []string{"readiness", "GET /ready: 503", `database "nowhere" does not exist`} {
			if !strings.Contains(why, words) {
				t.Errorf("%s why does not say %q:\n%s", when, words, why)
			}
		}
	}
	if is := f.pids("api"); !maps.Equal(is, pids) {
		t.Errorf("what was stable has not been left alone: %v were %v", is, pids)
	}
	f.apply(apiTier("v2", "shop", rolling))
	f.until("complete", "api", complete(4))
}

// victim is an instance of the middle tier on a host that has neither of the others.
func (f *tiers) victim() v1alpha1.Instance {
	f.t.Helper()
	all := f.instances("api")
	at := slices.IndexFunc(all, func(in v1alpha1.Instance) bool { return strings.HasPrefix(in.Spec.Node, "box-") })
	if at < 0 {
		f.t.Fatalf("nothing is on the boxes: %s", shown(all))
	}
	return all[at]
}

// powerCut: what ran on a host that is gone runs elsewhere. What reads fails for nobody; of what writes, what was under way may have been done.
func (f *tiers) powerCut(t *testing.T) {
	before, victim := f.client.asked(), f.victim()
	lost := f.boxes[victim.Spec.Node]
	lost.PowerCut(t)
	f.until("complete without "+lost.Name(), "api", func(w *v1alpha1.Workload) bool {
		return w.Status.AvailableReplicas == 4 && w.Status.AbandonedReplicas >= 1
	})
	lost.Boot(t)
	f.until("complete, and nothing is given up any more", "api", func(w *v1alpha1.Workload) bool {
		return complete(4)(w) && w.Status.AbandonedReplicas == 0
	})
	f.survived(t, before)
}

// survived fails a test where more failed than could not be helped.
func (f *tiers) survived(t *testing.T, since asked) {
	t.Helper()
	is := f.client.asked().minus(since)
	t.Logf("of requests: %v", is)
	if is.reads < 50 || is.writes < 20 || is.readsFailed > 0 || is.writesFailed > writers {
		t.Errorf("of requests: %v", is)
	}
}

// linkCut: what runs on a host that nobody hears goes on, and is what stays when the host is back; its replacement ends.
func (f *tiers) linkCut(t *testing.T) {
	before, victim := f.client.asked(), f.victim()
	away := f.boxes[victim.Spec.Node]
	pid := f.pids("api")[victim.Name]
	others := f.pids("db", "front")
	away.CutLink(t)
	over := time.NewTimer(cutFor)
	defer over.Stop()
	f.until("complete without "+away.Name(), "api", func(w *v1alpha1.Workload) bool {
		return w.Status.AvailableReplicas == 4 && w.Status.AbandonedReplicas >= 1
	})
	select {
	case <-over.C:
	case <-t.Context().Done():
	}
	if comm := strings.TrimSpace(away.MustRun(t, "cat", "/proc/"+pid+"/comm")); comm != "shop" {
		t.Errorf("process %s is %s", pid, comm)
	}
	away.RestoreLink(t)
	f.until("complete with one copy of each", "api", func(w *v1alpha1.Workload) bool {
		return complete(4)(w) && w.Status.AbandonedReplicas == 0
	})
	f.survived(t, before)
	all := f.instances("api")
	at := slices.IndexFunc(all, func(in v1alpha1.Instance) bool { return in.UID == victim.UID })
	if at < 0 || all[at].Status.Restarts != victim.Status.Restarts || all[at].Status.Attempt != victim.Status.Attempt {
		t.Errorf("the instance was %s, and there are %s", shown(victim), shown(all))
	} else if is := f.pids("api")[victim.Name]; is != pid {
		t.Errorf("it runs as %s, and ran as %s", is, pid)
	}
	if is := f.pids("db", "front"); !maps.Equal(is, others) {
		t.Errorf("of the others run %v, and ran %v", is, others)
	}
}

func (f *tiers) drained(t *testing.T) {
	before, victim := f.client.asked(), f.victim()
	pid := f.pids("api")[victim.Name]
	f.tako("node", "drain", victim.Spec.Node, "--timeout", "4m")
	if r, err := f.boxes[victim.Spec.Node].Run(t.Context(), "test", "-d", "/proc/"+pid); err != nil || r.Code == 0 {
		t.Errorf("it counts as drained, and process %s runs: %v", pid, err)
	}
	f.until("complete elsewhere", "api", complete(4))
	f.quiet(t, before)
	for _, in := range f.instances("api") {
		if in.Spec.Node == victim.Spec.Node {
			t.Errorf("%s is on the host that was drained", in.Name)
		}
	}
	f.tako("node", "uncordon", victim.Spec.Node)
}

// scaled: what the hosts' kernels say of the processors that the middle tier takes has more of it run while many ask, and as many as before when they do
// not any more. Nobody's request fails, of those who came first.
func (f *tiers) scaled(t *testing.T) {
	before := f.client.asked()
	scaled := strings.Replace(apiTier("v2", "shop", rolling), "  replicas: 4\n", fmt.Sprintf("  scale: {min: 4, max: %d, targets: [{name: cpu, cpu: 450}], down: {stabilization: 15s}}\n", scaledMax), 1)
	f.apply(scaled)
	f.until("complete with as many as before", "api", complete(4))
	stop := f.client.crowd()
	defer stop()
	f.until("complete with more", "api", func(w *v1alpha1.Workload) bool { return w.Status.Wanted > 4 && complete(w.Status.Wanted)(w) })
	stop()
	w := f.until("complete with as many as before the crowd", "api", complete(4))
	t.Logf("it was scaled: %s", shown(w.Status.Scale))
	if len(w.Status.Scale.Grown) == 0 || len(w.Status.Scale.Shrunk) == 0 {
		t.Errorf("it was scaled: %s", shown(w.Status.Scale))
	}
	f.quiet(t, before)
}

// counted: whatever was answered with yes is in the database, once.
func (f *tiers) counted() {
	is := f.client.asked()
	in, err := f.client.read()
	if err != nil || in.orders < is.writes-is.writesFailed || in.orders > is.writes {
		f.t.Errorf("%d orders are noted, %v; of requests: %v", in.orders, err, is)
	}
}

// ends: nothing of it is left on any host.
func (f *tiers) ends() {
	for _, name := range []string{"front", "api", "db"} {
		f.tako("delete", "workload/"+name, "-n", environment)
	}
	for name, h := range f.boxes {
		host.Eventually(f.t, rig.InTime, "nothing runs on "+name, func() (string, bool) {
			r, err := h.Run(f.t.Context(), "sh", "-c", `cat /proc/[0-9]*/comm 2>/dev/null | grep -x -E 'shop|nginx|postgres'; systemctl list-units --all --no-legend 'tako-*.*.*.service'; true`)
			return r.Stdout + r.Stderr, err == nil && strings.TrimSpace(r.Stdout) == ""
		})
	}
	for _, name := range []string{"front", "api", "db"} {
		host.Eventually(f.t, rig.InTime, "no instance of "+name+" is left", func() (string, bool) {
			left := f.instances(name)
			return shown(left), len(left) == 0
		})
	}
	f.boxes["db"].MustRun(f.t, "test", "-e", "/var/lib/tako/volumes/"+environment+"/db/0/data/data/PG_VERSION") // data stays
}

package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// whole is a workload without a mistake that has something of everything.
const whole = `apiVersion: tako.dev/v1alpha1
kind: Workload
metadata:
  name: web
  namespace: shop
spec:
  replicas: 4
  priority: 10
  selector: {matchLabels: {role: web}}
  placement:
    strategy: BinPack
    preferred: [{selector: {matchLabels: {disk: fast}}, weight: 10}]
    affinity: [{selector: {matchLabels: {app: cache}}, topologyKey: zone, weight: 5}]
    antiAffinity: [{selector: {matchLabels: {app: web}}}]
    topologySpread: [{topologyKey: zone, maxSkew: 1, minDomains: 3}]
    tolerations:
    - {key: dedicated, value: web, effect: NoExecute, tolerationSeconds: 60}
    - {operator: Exists}
    architectures: [amd64, arm64]
  template:
    labels: {app: web}
    terminationGrace: 45s
    restart: {backoff: 2s, backoffMax: 1m}
    volumes:
    - {name: scratch, temporary: {inMemory: true, size: 64Mi}}
    - {name: data, data: {size: 10Gi}}
    - {name: certs, host: {path: /etc/ssl}}
    tasks:
    - name: api
      command: [/usr/bin/api]
      args: [--verbose]
      user: www-data
      env:
      - {name: BASE, value: /srv}
      - {name: ROOT, value: "$(BASE)/www on $(PORT_HTTP), not $$(THIS)"}
      - {name: NODE, valueFrom: {field: "node.labels['zone']"}}
      - {name: PASSWORD, valueFrom: {secret: {name: db, key: password}}}
      ports:
      - {name: http, text: {path: /}}
      - {name: dns, protocol: UDP, port: 53}
      resources:
        requests: {cpu: 0.5, memory: 256Mi}
        limits: {cpu: "2", memory: 512Mi, processes: 100}
        devices: [{name: nvidia.com/gpu, count: 1}]
      mounts:
      - {volume: scratch, path: /tmp/scratch}
      - {volume: certs, path: /etc/certs, readOnly: true}
      files:
      - {path: /etc/api.conf, content: "a = b", mode: 0440}
      - {path: /etc/api.key, secret: {name: api, key: tls.key}}
      startup: {exec: {command: [/usr/bin/api, --check]}}
      readiness: {http: {port: http, path: /ready}, period: 1s}
      liveness: {tcp: {port: http}}
      stopSignal: SIGINT
  rollout:
    strategy: Canary
    maxSurge: 1
    maxUnavailable: 0
    minReady: 10s
    steps: [{replicas: 1, pause: 10m}, {replicas: "50%"}, {replicas: 100%, promotion: Manual}]
    maxFailures: 10%
  disruptionBudget: {minAvailable: 75%}
  scale:
    min: 2
    max: 40
    targets:
    - {name: cpu, cpu: 60}
    - {name: requests, prometheus: {server: main, query: "sum(rate(requests[1m]))", perInstance: 0.5, auth: {token: {name: prometheus, key: token}}, ca: {configMap: {name: authorities, key: ca.crt}}}}
    up: {maxChange: 400%}
    scheduled: [{name: night, window: {opens: "22:00 Europe/Berlin", duration: 8h}, min: 1, max: 4}]
  onUnreachable: {action: Replace, after: 2m, reconnect: LongestReady}
`

// task is the least that a template needs.
const task = "template: {tasks: [{name: a, command: [/bin/a]}]}"

// spec is a workload in one line, as a file.
func spec(fields string) string {
	return "apiVersion: tako.dev/v1alpha1\nkind: Workload\nmetadata: {name: w}\nspec: {" + fields + "}\n"
}

func read(t testing.TB, text string) *Declaration {
	t.Helper()
	d, _, faults := Read("w.yaml", []byte(text))
	if len(faults) > 0 {
		t.Fatalf("%v\n%s", declare.Faults(faults), text)
	}
	return d
}

func TestValidateTakes(t *testing.T) {
	d := read(t, whole)
	r := d.Spec.Template.Tasks[0].Resources
	if r.Requests.CPU != "0.5" || r.Requests.Memory != "256Mi" || r.Limits.CPU != "2" || d.Spec.Rollout.MaxSurge != "1" || *d.Spec.Replicas != 4 || d.Spec.Template.Tasks[0].Files[0].Mode != "0440" {
		t.Errorf("read as %+v", d.Spec)
	}
	for _, text := range []string{
		task,
		"mode: PerNode, rollout: {maxUnavailable: 10%}, " + task,
		"mode: PerNode, rollout: {maxUnavailable: 1, maxSurge: 0}, " + task,
		"mode: Job, job: {completions: 1000, parallelism: 100000, gang: true}, " + task,
		"mode: Job, job: {completions: 10, parallelism: 3, gang: true, activeDeadline: 1h, keepFinished: 0s}, schedule: {cron: \"*/5 * * * *\", timeZone: Europe/Berlin}, " + task,
		"rollout: {strategy: BlueGreen, keepOld: 5m}, " + task,
		"rollout: {gates: [{name: errors, prometheus: {query: rate(errors), server: main}, max: '0.05'}, {name: speed, prometheus: {query: speed}, min: 1, max: 2k}]}, " + task,
		"rollout: {strategy: Canary, steps: [{replicas: 2}, {replicas: 30%}]}, scale: {max: 9, scheduled: [{name: a, window: {opens: daily, duration: 1h}, max: 3}]}, " + task,
		"template: {network: Own, tasks: [{name: a, image: {path: /srv/image}, writable: true}, {name: b, image: {object: {digest: \"sha256:" + strings.Repeat("a", 64) + "\", sizeBytes: 3}}, args: [x]}]}",
		"onUnreachable: {action: Fence, after: 15s}, " + task,
		"template: {tasks: [{name: a, command: [/bin/a], workingDirectory: /, resources: {limits: {cpu: 1e-1, memory: 1e9, disk: 1.5Gi}}}]}",
	} {
		read(t, spec(text))
	}
}

// TestValidateRefuses: each mistake has its field and its code, and there is no other.
func TestValidateRefuses(t *testing.T) {
	tasks := func(fields string) string { return "template: {tasks: [{name: a, command: [/bin/a], " + fields + "}]}" }
	of := func(template string) string { return "template: {" + template + "}" }
	const one = "spec.template.tasks[0]"
	for _, c := range []struct {
		fields, path string
		code         reason.Code
	}{
		// Modes.
		{"mode: Once, " + task, "spec.mode", reason.InvalidValue},
		{"mode: PerNode, replicas: 3, " + task, "spec.replicas", reason.FieldNotAllowed},
		{"mode: Job, scale: {max: 3, scheduled: [{name: a, window: {opens: daily, duration: 1h}, max: 3}]}, " + task, "spec.scale", reason.FieldNotAllowed},
		{"job: {completions: 1}, " + task, "spec.job", reason.FieldNotAllowed},
		{"schedule: {cron: \"@daily\"}, " + task, "spec.schedule", reason.FieldNotAllowed},
		{"rollout: {gates: [{name: a, prometheus: {query: q}}]}, " + task, "spec.rollout.gates[0].max", reason.MissingField},
		{"rollout: {gates: [{name: a, prometheus: {query: q}, min: 2, max: 1}]}, " + task, "spec.rollout.gates[0].max", reason.InvalidValue},
		{"rollout: {gates: [{name: a, prometheus: {query: q}, max: -1}]}, " + task, "spec.rollout.gates[0].max", reason.InvalidValue},
		{"rollout: {gates: [{name: a, prometheus: {query: q}, max: ''}]}, " + task, "spec.rollout.gates[0].max", reason.InvalidValue},
		{"rollout: {gates: [{name: a, prometheus: {query: q}, max: much}]}, " + task, "spec.rollout.gates[0].max", reason.InvalidValue},
		{"rollout: {gates: [{name: a, prometheus: {}, max: 1}]}, " + task, "spec.rollout.gates[0].prometheus.query", reason.MissingField},
		{"rollout: {gates: [{name: a, prometheus: {query: q, server: 'http://a'}, max: 1}]}, " + task, "spec.rollout.gates[0].prometheus.server", reason.InvalidValue},
		{"rollout: {gates: [{name: a, prometheus: {query: q}, max: 1}, {name: a, prometheus: {query: q}, max: 1}]}, " + task, "spec.rollout.gates[1].name", reason.DuplicateName},
		{"rollout: {gates: [" + strings.Repeat("{name: a, prometheus: {query: q}, max: 1},", 9) + "]}, " + task, "spec.rollout.gates", reason.InvalidValue},
		{"mode: Job, rollout: {maxSurge: 1}, " + task, "spec.rollout", reason.FieldNotAllowed},
		{"replicas: -1, " + task, "spec.replicas", reason.InvalidValue},
		{"replicas: 100001, " + task, "spec.replicas", reason.InvalidValue},
		{"replicas: 3000000000, " + task, "spec.replicas", reason.WrongType},
		{"priority: 1001, " + task, "spec.priority", reason.InvalidValue},
		{"selector: {matchLabels: {facts.cpu: x}}, " + task, "spec.selector.matchLabels['facts.cpu']", reason.InvalidValue},
		{"revisionHistoryLimit: 0, " + task, "spec.revisionHistoryLimit", reason.InvalidValue},
		// Jobs.
		{"mode: Job, job: {completions: 0}, " + task, "spec.job.completions", reason.InvalidValue},
		{"mode: Job, job: {gang: true, completions: 2000, parallelism: 1001}, " + task, "spec.job.parallelism", reason.InvalidValue},
		{"mode: Job, job: {activeDeadline: 0s}, " + task, "spec.job.activeDeadline", reason.InvalidValue},
		{"mode: Job, job: {backoffLimit: 1001}, " + task, "spec.job.backoffLimit", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"61 * * * *\"}, " + task, "spec.schedule.cron", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"0 0 31 2 *\"}, " + task, "spec.schedule.cron", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"\"}, " + task, "spec.schedule.cron", reason.MissingField},
		{"mode: Job, schedule: {cron: \"@daily\", timeZone: CEST}, " + task, "spec.schedule.timeZone", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"@daily\", timeZone: Local}, " + task, "spec.schedule.timeZone", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"@daily\", timeZone: ../etc/passwd}, " + task, "spec.schedule.timeZone", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"@daily\", concurrency: Wait}, " + task, "spec.schedule.concurrency", reason.InvalidValue},
		{"mode: Job, schedule: {cron: \"@daily\", startingDeadline: 10d}, " + task, "spec.schedule.startingDeadline", reason.InvalidValue},
		{"mode: Job, template: {restart: {policy: Always}, tasks: [{name: a, command: [/bin/a]}]}", "spec.template.restart.policy", reason.FieldNotAllowed},
		{of("restart: {policy: Never}, tasks: [{name: a, command: [/bin/a]}]"), "spec.template.restart.policy", reason.FieldNotAllowed},
		{of("restart: {backoff: 1h, backoffMax: 1m}, tasks: [{name: a, command: [/bin/a]}]"), "spec.template.restart.backoffMax", reason.InvalidValue},
		// Rollouts.
		{"rollout: {maxSurge: 0, maxUnavailable: 0}, " + task, "spec.rollout.maxUnavailable", reason.InvalidValue},
		{"rollout: {maxSurge: 0%, maxUnavailable: 0%}, " + task, "spec.rollout.maxUnavailable", reason.InvalidValue},
		{"mode: PerNode, rollout: {maxUnavailable: 0}, " + task, "spec.rollout.maxUnavailable", reason.InvalidValue},
		{"mode: PerNode, rollout: {maxSurge: 1}, " + task, "spec.rollout.maxSurge", reason.FieldNotAllowed},
		{"mode: PerNode, rollout: {strategy: BlueGreen}, " + task, "spec.rollout.strategy", reason.FieldNotAllowed},
		{"rollout: {maxUnavailable: 101%}, " + task, "spec.rollout.maxUnavailable", reason.InvalidValue},
		{"rollout: {maxSurge: -1}, " + task, "spec.rollout.maxSurge", reason.InvalidValue},
		{"rollout: {maxFailures: 0}, " + task, "spec.rollout.maxFailures", reason.InvalidValue},
		{"rollout: {minReady: 10m}, " + task, "spec.rollout.progressDeadline", reason.InvalidValue},
		{"rollout: {steps: [{replicas: 1}]}, " + task, "spec.rollout.steps", reason.FieldNotAllowed},
		{"rollout: {strategy: Canary}, " + task, "spec.rollout.steps", reason.MissingField},
		{"rollout: {strategy: Canary, steps: [{replicas: 20%}, {replicas: 10%}]}, " + task, "spec.rollout.steps[1].replicas", reason.InvalidValue},
		{"replicas: 10, rollout: {strategy: Canary, steps: [{replicas: 3}, {replicas: 20%}]}, " + task, "spec.rollout.steps[1].replicas", reason.InvalidValue},
		{"rollout: {strategy: Canary, steps: [{replicas: 0}]}, " + task, "spec.rollout.steps[0].replicas", reason.InvalidValue},
		{"rollout: {keepOld: 1m}, " + task, "spec.rollout.keepOld", reason.FieldNotAllowed},
		{"rollout: {onFailure: Ignore}, " + task, "spec.rollout.onFailure", reason.InvalidValue},
		// Budgets and unreachable nodes.
		{"disruptionBudget: {}, " + task, "spec.disruptionBudget", reason.MissingField},
		{"disruptionBudget: {maxUnavailable: 1, minAvailable: 1}, " + task, "spec.disruptionBudget.minAvailable", reason.FieldNotAllowed},
		{"disruptionBudget: {minAvailable: 150%}, " + task, "spec.disruptionBudget.minAvailable", reason.InvalidValue},
		{"onUnreachable: {after: 1s}, " + task, "spec.onUnreachable.after", reason.InvalidValue},
		{"onUnreachable: {action: Keep, after: 1m}, " + task, "spec.onUnreachable.after", reason.FieldNotAllowed},
		{"onUnreachable: {action: Fence, reconnect: Original}, " + task, "spec.onUnreachable.reconnect", reason.FieldNotAllowed},
		// Scale.
		{"scale: {max: 3}, " + task, "spec.scale.targets", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a}]}, " + task, "spec.scale.targets[0]", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, cpu: 50}]}, " + task, "spec.scale.targets[0].cpu", reason.InvalidValue},
		{"scale: {min: 4, max: 3, scheduled: [{name: a, window: {opens: daily, duration: 1h}, min: 1}]}, " + task, "spec.scale.max", reason.InvalidValue},
		{"scale: {min: 0, max: 3, targets: [{name: a, cpu: 50}]}, " + tasks("resources: {requests: {cpu: 1}}"), "spec.scale.min", reason.InvalidValue},
		{"scale: {max: 3, scheduled: [{name: a, window: {opens: daily, duration: 1h}, min: 5}]}, " + task, "spec.scale.scheduled[0]", reason.InvalidValue},
		{"scale: {max: 3, scheduled: [{name: a, window: {opens: never, duration: 1h}, min: 2}]}, " + task, "spec.scale.scheduled[0].window.opens", reason.InvalidValue},
		{"scale: {max: 3, targets: [{name: a, prometheus: {server: \"http://h\", query: up, perInstance: 1}}]}, " + task, "spec.scale.targets[0].prometheus.server", reason.InvalidValue},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 0}}]}, " + task, "spec.scale.targets[0].prometheus.perInstance", reason.InvalidValue},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.token", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {username: {name: s, key: k}}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.password", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {password: {name: s, key: k}}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.username", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {token: {name: s, key: k}, password: {name: s, key: k}}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.token", reason.FieldNotAllowed},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {token: {name: s, key: k, namespace: other}}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.token.namespace", reason.FieldNotAllowed},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, auth: {token: {name: s}}}}]}, " + task, "spec.scale.targets[0].prometheus.auth.token.key", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, ca: {}}}]}, " + task, "spec.scale.targets[0].prometheus.ca", reason.MissingField},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, ca: {secret: {name: s, key: k}, configMap: {name: s, key: k}}}}]}, " + task, "spec.scale.targets[0].prometheus.ca", reason.FieldNotAllowed},
		{"scale: {max: 3, targets: [{name: a, prometheus: {query: up, perInstance: 1, ca: {configMap: {name: ../x, key: k}}}}]}, " + task, "spec.scale.targets[0].prometheus.ca.configMap.name", reason.InvalidValue},
		{"scale: {max: 3, down: {maxChange: 200%}, targets: [{name: a, prometheus: {query: up, perInstance: 1}}]}, " + task, "spec.scale.down.maxChange", reason.InvalidValue},
		// Placement.
		{"placement: {affinity: [{selector: {matchLabels: {a: b}}, topologyKey: zone}], antiAffinity: [{selector: {matchLabels: {a: b}}, topologyKey: zone}]}, " + task, "spec.placement.antiAffinity[0]", reason.InvalidValue},
		{"placement: {preferred: [{selector: {}, weight: 0}]}, " + task, "spec.placement.preferred[0].weight", reason.InvalidValue},
		{"placement: {affinity: [{selector: {}, topologyKey: a b}]}, " + task, "spec.placement.affinity[0].topologyKey", reason.InvalidValue},
		{"placement: {topologySpread: [{topologyKey: zone}, {topologyKey: zone}]}, " + task, "spec.placement.topologySpread[1].topologyKey", reason.DuplicateName},
		{"placement: {topologySpread: [{topologyKey: zone, maxSkew: 0}]}, " + task, "spec.placement.topologySpread[0].maxSkew", reason.InvalidValue},
		{"placement: {tolerations: [{value: x}]}, " + task, "spec.placement.tolerations[0].key", reason.MissingField},
		{"placement: {tolerations: [{key: a, operator: Exists, value: x}]}, " + task, "spec.placement.tolerations[0].value", reason.FieldNotAllowed},
		{"placement: {tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 3}]}, " + task, "spec.placement.tolerations[0].tolerationSeconds", reason.FieldNotAllowed},
		{"placement: {tolerations: [{key: a, effect: Never}]}, " + task, "spec.placement.tolerations[0].effect", reason.InvalidValue},
		{"placement: {architectures: [amd64, amd64]}, " + task, "spec.placement.architectures[1]", reason.DuplicateName},
		// Templates.
		{of("tasks: []"), "spec.template.tasks", reason.MissingField},
		{of("tasks: [{name: a, command: [/a]}, {name: a, command: [/a]}]"), "spec.template.tasks[1].name", reason.DuplicateName},
		{of("tasks: [{name: A, command: [/a]}]"), "spec.template.tasks[0].name", reason.InvalidValue},
		{of("labels: {\"a b\": c}, tasks: [{name: a, command: [/a]}]"), "spec.template.labels['a b']", reason.InvalidValue},
		{of("network: Own, tasks: [{name: a, command: [/a]}]"), "spec.template.network", reason.FieldNotAllowed},
		{of("tasks: [{name: a, image: {path: /i}}, {name: b, command: [/b]}]"), "spec.template.tasks[1].image", reason.MissingField},
		{of("runtime: Systemd, tasks: [{name: a, image: {path: /i}}]"), "spec.template.tasks[0].image", reason.FieldNotAllowed},
		{of("tasks: [{name: a, image: {}}]"), one + ".image", reason.MissingField},
		{of("tasks: [{name: a, image: {path: srv/image}}]"), one + ".image.path", reason.InvalidValue},
		{of("tasks: [{name: a, image: {object: {sizeBytes: 3}}}]"), one + ".image.object.digest", reason.MissingField},
		{of("tasks: [{name: a, image: {object: {digest: \"sha256:A\", sizeBytes: 3}}}]"), one + ".image.object.digest", reason.InvalidValue},
		{of("tasks: [{name: a, image: {path: /i, object: {digest: \"sha256:" + strings.Repeat("a", 64) + "\", sizeBytes: 3}}}]"), one + ".image", reason.FieldNotAllowed},
		{of("shutdownDelay: 61m, tasks: [{name: a, command: [/a]}]"), "spec.template.shutdownDelay", reason.InvalidValue},
		{of("terminationGrace: -1s, tasks: [{name: a, command: [/a]}]"), "spec.template.terminationGrace", reason.InvalidValue},
		{of("volumes: [{name: v}], tasks: [{name: a, command: [/a]}]"), "spec.template.volumes[0]", reason.MissingField},
		{of("volumes: [{name: v, host: {path: x}}], tasks: [{name: a, command: [/a]}]"), "spec.template.volumes[0].host.path", reason.InvalidValue},
		{of("volumes: [{name: v, temporary: {inMemory: true}}], tasks: [{name: a, command: [/a]}]"), "spec.template.volumes[0].temporary.size", reason.MissingField},
		{of("volumes: [{name: v, temporary: {}, data: {}}], tasks: [{name: a, command: [/a]}]"), "spec.template.volumes[0]", reason.FieldNotAllowed},
		{of("tasks: [{name: a}]"), one + ".command", reason.MissingField},
		{of("tasks: [{name: a, command: [a]}]"), one + ".command[0]", reason.InvalidValue},
		{of("tasks: [{name: a, command: [/a], ports: [{name: p}]}, {name: b, command: [/b], ports: [{name: p}]}]"), "spec.template.tasks[1].ports[0].name", reason.DuplicateName},
		{of("tasks: [{name: a, command: [/a], ports: [{name: p, port: 80}]}, {name: b, command: [/b], ports: [{name: q, port: 80}]}]"), "spec.template.tasks[1].ports[0].port", reason.DuplicateName},
		{tasks("ports: [{name: 80}]"), one + ".ports[0].name", reason.WrongType},
		{tasks("ports: [{name: \"80\"}]"), one + ".ports[0].name", reason.InvalidValue},
		{tasks("ports: [{name: p, port: 65536}]"), one + ".ports[0].port", reason.InvalidValue},
		{tasks("ports: [{name: p, text: {TxtVers: \"2\"}}]"), one + ".ports[0].text['TxtVers']", reason.FieldNotAllowed},
		{tasks("ports: [{name: p, text: {k: " + strings.Repeat("x", 254) + "}}]"), one + ".ports[0].text['k']", reason.InvalidValue},
		{tasks("workingDirectory: srv"), one + ".workingDirectory", reason.InvalidValue},
		{tasks("user: a b"), one + ".user", reason.InvalidValue},
		{tasks("writable: true"), one + ".writable", reason.FieldNotAllowed},
		{tasks("stopSignal: SIGKILL"), one + ".stopSignal", reason.InvalidValue},
		// Resources.
		{tasks("resources: {requests: {cpu: -1}}"), one + ".resources.requests.cpu", reason.InvalidValue},
		{tasks("resources: {requests: {cpu: \"-0\"}}"), one + ".resources.requests.cpu", reason.InvalidValue},
		{tasks("resources: {requests: {memory: 9000000000E}}"), one + ".resources.requests.memory", reason.InvalidValue},
		{tasks("resources: {requests: {memory: 1Ei}}"), one + ".resources.requests.memory", reason.InvalidValue},
		{tasks("resources: {requests: {memory: lots}}"), one + ".resources.requests.memory", reason.InvalidValue},
		{tasks("resources: {limits: {memory: 0}}"), one + ".resources.limits.memory", reason.InvalidValue},
		{tasks("resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}"), one + ".resources.limits.cpu", reason.InvalidValue},
		{tasks("resources: {requests: {memory: 1Gi}, limits: {memory: 1G}}"), one + ".resources.limits.memory", reason.InvalidValue},
		{tasks("resources: {requests: {processes: 3}}"), one + ".resources.requests.processes", reason.FieldNotAllowed},
		{tasks("resources: {limits: {processes: 0}}"), one + ".resources.limits.processes", reason.InvalidValue},
		{tasks("resources: {devices: [{name: gpu, count: 65}]}"), one + ".resources.devices[0].count", reason.InvalidValue},
		{tasks("resources: {devices: [{name: gpu}, {name: gpu}]}"), one + ".resources.devices[1].name", reason.DuplicateName},
		// Probes.
		{tasks("readiness: {}"), one + ".readiness", reason.MissingField},
		{tasks("ports: [{name: p}], readiness: {tcp: {port: p}, grpc: {port: p}}"), one + ".readiness", reason.FieldNotAllowed},
		{tasks("ports: [{name: http}], readiness: {http: {port: htpp}}"), one + ".readiness.http.port", reason.DanglingReference},
		{tasks("ports: [{name: d, protocol: UDP}], liveness: {tcp: {port: d}}"), one + ".liveness.tcp.port", reason.InvalidValue},
		{tasks("ports: [{name: p}], readiness: {http: {port: p, path: ready}}"), one + ".readiness.http.path", reason.InvalidValue},
		{tasks("ports: [{name: p}], readiness: {http: {port: p, scheme: ftp}}"), one + ".readiness.http.scheme", reason.InvalidValue},
		{tasks("ports: [{name: p}], readiness: {tcp: {port: p}, period: 1ms}"), one + ".readiness.period", reason.InvalidValue},
		{tasks("ports: [{name: p}], readiness: {tcp: {port: p}, timeout: 0s}"), one + ".readiness.timeout", reason.InvalidValue},
		{tasks("ports: [{name: p}], readiness: {tcp: {port: p}, failureThreshold: 0}"), one + ".readiness.failureThreshold", reason.InvalidValue},
		{tasks("startup: {exec: {command: [check]}}"), one + ".startup.exec.command[0]", reason.InvalidValue},
		// Mounts and files.
		{of("volumes: [{name: data, data: {}}], tasks: [{name: a, command: [/a], mounts: [{volume: dta, path: /x}]}]"), one + ".mounts[0].volume", reason.DanglingReference},
		{of("volumes: [{name: data, data: {}}], tasks: [{name: a, command: [/a], mounts: [{volume: data, path: x}]}]"), one + ".mounts[0].path", reason.InvalidValue},
		{of("volumes: [{name: data, data: {}}], tasks: [{name: a, command: [/a], mounts: [{volume: data, path: /x}], files: [{path: /x, content: y}]}]"), one + ".files[0].path", reason.DuplicateName},
		{tasks("files: [{path: /x}]"), one + ".files[0]", reason.MissingField},
		{tasks("files: [{path: /x, content: y, mode: u=rw}]"), one + ".files[0].mode", reason.InvalidValue},
		{tasks("files: [{path: /x, secret: {name: s, key: k, namespace: other}}]"), one + ".files[0].secret.namespace", reason.FieldNotAllowed},
		// Environment.
		{tasks("env: [{name: 1A}]"), one + ".env[0].name", reason.InvalidValue},
		{tasks("env: [{name: A}, {name: A}]"), one + ".env[1].name", reason.DuplicateName},
		{tasks("ports: [{name: my-port}], env: [{name: PORT_MY_PORT, value: x}]"), one + ".env[0].name", reason.DuplicateName},
		{tasks("env: [{name: A, value: $(B)}, {name: B, value: x}]"), one + ".env[0].value", reason.InvalidValue},
		{tasks("env: [{name: A, value: $(A)}]"), one + ".env[0].value", reason.InvalidValue},
		{tasks("env: [{name: A, value: $(NOTHING)}]"), one + ".env[0].value", reason.UnknownName},
		{tasks("env: [{name: A, value: x, valueFrom: {field: node.name}}]"), one + ".env[0].valueFrom", reason.FieldNotAllowed},
		{tasks("env: [{name: A, valueFrom: {field: node.nmae}}]"), one + ".env[0].valueFrom.field", reason.UnknownName},
		{tasks("env: [{name: A, valueFrom: {field: \"ports['none']\"}}]"), one + ".env[0].valueFrom.field", reason.UnknownName},
		{tasks("env: [{name: A, valueFrom: {}}]"), one + ".env[0].valueFrom", reason.MissingField},
	} {
		_, _, faults := Read("w.yaml", []byte(spec(c.fields)))
		if len(faults) != 1 || faults[0].Path != c.path || faults[0].Code != c.code {
			t.Errorf("%s\n got %v\nwant %s at %s", c.fields, declare.Faults(faults), c.code, c.path)
		}
		for _, f := range faults {
			if f.Line == 0 {
				t.Errorf("%s: %v has no place", c.fields, f)
			}
		}
	}
}

func TestNames(t *testing.T) {
	d := read(t, whole)
	for name, good := range map[string]bool{"web": true, strings.Repeat("a", 52): true, strings.Repeat("a", 53): false, "Web": false, "a.b": false, "": false} {
		if faults := Validate(name, "", &d.Spec); (len(faults) == 0) != good {
			t.Errorf("%q: %v", name, faults)
		}
	}
	if faults := Validate("web", "no namespace", &d.Spec); len(faults) != 1 || faults[0].Path != "metadata.namespace" {
		t.Errorf("%v", faults)
	}
}

// TestTooMany: a list that is longer than anybody would read is refused as a whole.
func TestTooMany(t *testing.T) {
	var ports []string
	for i := range 65 {
		ports = append(ports, fmt.Sprintf("{name: BAD%d}", i))
	}
	_, _, faults := Read("w.yaml", []byte(spec("template: {tasks: [{name: a, command: [/a], ports: ["+strings.Join(ports, ", ")+"]}]}")))
	if len(faults) != 1 || faults[0].Path != "spec.template.tasks[0].ports" {
		t.Errorf("%v", faults)
	}
	big := read(t, whole)
	big.Spec.Template.Tasks[0].Files[0].Content = strings.Repeat("x", declare.BodyBytesMax)
	if faults := Validate("web", "", &big.Spec); len(faults) != 1 || faults[0].Code != reason.BodyTooLarge {
		t.Errorf("%v", faults)
	}
}

// TestReadOnePass: what is misspelt is said once, with the line, and what only follows from it is not.
func TestReadOnePass(t *testing.T) {
	text := strings.NewReplacer("  - name: api", "  - nmae: api", "priority: 10", "priority: many", "volume: scratch", "volume: scrach").Replace(whole)
	_, _, faults := Read("w.yaml", []byte(text))
	var got []string
	for _, f := range faults {
		got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Code, f.Path))
	}
	want := []string{"8 TK0411 spec.priority", "29 TK0412 spec.template.tasks[0].nmae"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestValidateUpdate(t *testing.T) {
	replicated, perNode := read(t, spec(task)), read(t, spec("mode: PerNode, "+task))
	if faults := ValidateUpdate("w", "", &perNode.Spec, &replicated.Spec); len(faults) != 1 || faults[0].Path != "spec.mode" || faults[0].Code != reason.FieldNotAllowed {
		t.Errorf("%v", faults)
	}
	written := read(t, spec("mode: Replicated, replicas: 3, "+task))
	if faults := ValidateUpdate("w", "", &written.Spec, &replicated.Spec); len(faults) != 0 {
		t.Errorf("%v: the default was written out", faults)
	}
}

func TestExpandEnv(t *testing.T) {
	lookup := func(name string) (string, bool) { return strings.ToLower(name), name != "NO" }
	for value, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "a", "x$(A)y$(B_1)": "xayb_1", "$$(A)": "$(A)", "$$$(A)": "$$(A)", "$(": "$(", "$(A": "$(A", "$(1)": "$(1)", "$()": "$()", "$A": "$A", "$(A)$(NO)": "?NO", "$$(NO) $(A)": "$(NO) a", "$($(A))": "$(a)",
	} {
		got, unknown := ExpandEnv(value, lookup)
		if unknown != "" {
			got = "?" + unknown
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

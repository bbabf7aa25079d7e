package workload

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
)

// changed returns what is said of the whole workload with pieces of its text replaced.
func changed(t testing.TB, pairs ...string) Change {
	t.Helper()
	before := read(t, whole)
	text := strings.NewReplacer(pairs...).Replace(whole)
	if text == whole {
		t.Fatalf("%q are not there", pairs)
	}
	return Compare(&before.Spec, &read(t, text).Spec)
}

// What is about where instances go, how many there are and how fast they change touches none that runs; what a process has since its start
// does.
func TestWorkloadCase23_InPlaceOrRestart(t *testing.T) {
	c := casetest.Start(t)
	for what, pairs := range map[string][]string{
		"affinity": {"app: cache", "app: store"}, "anti-affinity": {"antiAffinity: [{selector: {matchLabels: {app: web}}}]", "antiAffinity: []"}, "spread": {"maxSkew: 1", "maxSkew: 2"},
		"preferences": {"weight: 10", "weight: 20"}, "strategy": {"strategy: BinPack", "strategy: Spread"}, "tolerations": {"- {operator: Exists}", ""}, "rollout": {"maxSurge: 1", "maxSurge: 2"},
		"budget": {"minAvailable: 75%", "minAvailable: 50%"}, "scale": {"max: 40", "max: 50"}, "replicas": {"replicas: 4", "replicas: 5"}, "priority": {"priority: 10", "priority: 11"},
		"unreachable": {"after: 2m", "after: 3m"}, "metadata": {"name: web\n", "name: web\n  labels: {team: shop}\n"},
		"the same amount": {"cpu: 0.5", "cpu: 500m"}, "the same time": {"terminationGrace: 45s", "terminationGrace: 0m45s"}, "a default": {"  template:\n", "  template:\n    shutdownDelay: 0s\n    network: Host\n    runtime: Systemd\n"},
	} {
		got := changed(t, pairs...)
		c.Check(got.Effect == Nothing && !got.Moves && len(got.InPlace)+len(got.Restarts) == 0, "%s: %+v", what, got)
	}
	for what, row := range map[string]struct{ from, to, path string }{
		"labels":          {"labels: {app: web}", "labels: {app: web, tier: front}", "template.labels"},
		"grace":           {"terminationGrace: 45s", "terminationGrace: 60s", "template.terminationGrace"},
		"delay":           {"terminationGrace: 45s", "terminationGrace: 45s\n    shutdownDelay: 5s", "template.shutdownDelay"},
		"restart":         {"backoff: 2s", "backoff: 3s", "template.restart"},
		"readiness":       {"path: /ready", "path: /healthy", "template.tasks['api'].readiness"},
		"no liveness":     {"liveness: {tcp: {port: http}}", "", "template.tasks['api'].liveness"},
		"text of a port":  {"text: {path: /}", "text: {path: /shop}", "template.tasks['api'].ports['http'].text"},
		"startup's limit": {"startup: {", "startup: {failureThreshold: 61, ", "template.tasks['api'].startup"},
	} {
		got := changed(t, row.from, row.to)
		c.Check(got.Effect == InPlace && slices.Equal(got.InPlace, []string{row.path}) && len(got.Restarts) == 0, "%s: %+v", what, got)
	}
	for what, row := range map[string]struct{ from, to, path string }{
		"command":      {"[/usr/bin/api]", "[/usr/bin/api2]", "template.tasks['api'].command"},
		"arguments":    {"--verbose", "--quiet", "template.tasks['api'].args"},
		"environment":  {"value: /srv", "value: /data", "template.tasks['api'].env"},
		"order of env": {"- {name: BASE, value: /srv}\n      - {name: ROOT, value: \"$(BASE)/www on $(PORT_HTTP), not $$(THIS)\"}", "- {name: ROOT, value: x}\n      - {name: BASE, value: /srv}", "template.tasks['api'].env"},
		"user":         {"user: www-data", "user: root", "template.tasks['api'].user"},
		"number":       {"port: 53", "port: 5353", "template.tasks['api'].ports['dns']"},
		"limit":        {"memory: 512Mi", "memory: 1Gi", "template.tasks['api'].resources"},
		"request":      {"memory: 256Mi", "memory: 128Mi", "template.tasks['api'].resources"},
		"devices":      {"count: 1", "count: 2", "template.tasks['api'].resources"},
		"file":         {"a = b", "a = c", "template.tasks['api'].files"},
		"mount":        {"readOnly: true", "readOnly: false", "template.tasks['api'].mounts"},
		"volume":       {"size: 10Gi", "size: 20Gi", "template.volumes['data']"},
		"signal":       {"SIGINT", "SIGTERM", "template.tasks['api'].stopSignal"},
		"task":         {"    tasks:\n", "    tasks:\n    - {name: sidecar, command: [/usr/bin/sidecar]}\n", "template.tasks['sidecar']"},
	} {
		got := changed(t, row.from, row.to)
		c.Check(got.Effect == NeedsRestart && slices.Equal(got.Restarts, []string{row.path}) && len(got.InPlace) == 0, "%s: %+v", what, got)
	}
	for what, pairs := range map[string][]string{"selector": {"role: web", "role: front"}, "architectures": {"[amd64, arm64]", "[amd64]"}} {
		got := changed(t, pairs...)
		c.Check(got.Moves && got.Effect == Nothing, "%s: %+v", what, got)
	}
	both := changed(t, "--verbose", "--quiet", "app: web}", "app: web, a: b}")
	c.Check(both.Effect == NeedsRestart && len(both.InPlace) == 1 && len(both.Restarts) == 1, "one of each: %+v", both)
}

// Two templates with one hash are two revisions, and each is found again, whatever has been dropped meanwhile.
func TestWorkloadCase27_HashCollision(t *testing.T) {
	c := casetest.Start(t)
	mine, other := read(t, whole).Spec.Template, read(t, spec(task)).Spec.Template
	kept := map[string]*Template{}
	find := func(hash string) (*Template, bool) { r, ok := kept[hash]; return r, ok }
	name := func() string {
		hash, ok := RevisionHash(&mine, find)
		c.Check(ok && len(hash) == hashSigns && declare.IsDomainLabel("a"+hash), "hash %q", hash)
		return hash
	}
	c.Equal(name(), Hash(&mine, 0), "with no revisions")
	kept[Hash(&mine, 0)] = &other // as if the two had one hash
	second := name()
	c.Equal(second, Hash(&mine, 1), "its own hash is another's")
	c.Check(second != Hash(&mine, 0), "the hashes are one")
	kept[second] = &mine
	c.Equal(name(), second, "when it is asked for again")
	delete(kept, Hash(&mine, 0))
	c.Equal(name(), second, "when the other has gone: no new revision for the same template")
	for i := range collisionsMax {
		kept[Hash(&mine, i)] = &other
	}
	_, ok := RevisionHash(&mine, find)
	c.Check(!ok, "all hashes are taken")
}

// TestHash: what means the same is one revision, and what does not is another. The hashes stay what they are: a server that names revisions
// in another way would restart every instance there is.
func TestHash(t *testing.T) {
	a := read(t, whole).Spec.Template
	want := Hash(&a, 0)
	if was := "7fafkfuudf"; want != was {
		t.Errorf("the hash is %s, and was %s", want, was)
	}
	shuffled := a.DeepCopy()
	slices.Reverse(shuffled.Volumes)
	for i := range shuffled.Tasks {
		slices.Reverse(shuffled.Tasks[i].Ports)
		slices.Reverse(shuffled.Tasks[i].Mounts)
		slices.Reverse(shuffled.Tasks[i].Files)
	}
	shuffled.Tasks[0].Resources.Requests.CPU = "500m"
	if got := Hash(shuffled, 0); got != want {
		t.Errorf("in another order it is %s, not %s", got, want)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var again Template
	if err := json.Unmarshal(text, &again); err != nil || Hash(&again, 0) != want {
		t.Errorf("stored and read again it is another: %v", err)
	}
	env := a.DeepCopy()
	slices.Reverse(env.Tasks[0].Env)
	if Hash(env, 0) == want {
		t.Error("the order of variables means something")
	}
}

// TestIsHash: a template may have the hashes that it gets where others have its own, and none else.
func TestIsHash(t *testing.T) {
	a, b := &Template{Tasks: []Task{{Name: "a"}}}, &Template{Tasks: []Task{{Name: "b"}}}
	for collisions := range collisionsMax {
		if hash := Hash(a, collisions); !IsHash(a, hash) || IsHash(b, hash) {
			t.Errorf("%s of %d collisions is taken for another's", hash, collisions)
		}
	}
	if IsHash(a, Hash(a, collisionsMax)) || IsHash(a, "") {
		t.Error("any hash is its own")
	}
}

// TestEscapeEnv: whatever a text is, a program gets it.
func TestEscapeEnv(t *testing.T) {
	for _, text := range []string{"", "plain", "$(A)", "$$(A)", "$$$(A)", "$$(", "$", "$$", "a$(b$(c)", "(A)", "$($(A))"} {
		if got, unknown := ExpandEnv(EscapeEnv(text), func(string) (string, bool) { return "", false }); got != text || unknown != "" {
			t.Errorf("%q becomes %q (%s)", text, got, unknown)
		}
	}
}

//go:build e2e

package api_test

// group is operations that belong together.
type group struct {
	name       string
	operations []operation
}

func operationGroups() []group {
	return []group{
		{"server", serverOperations()},
		{"get", getOperations()},
		{"apply", applyOperations()},
		{"server-side apply", serverSideOperations()},
		{"patch", patchOperations()},
		{"change", changeOperations()},
		{"status", statusOperations()},
		{"revisions", revisionOperations()},
		{"workloads", workloadOperations()},
		{"rights", rightsOperations()},
		{"more rights", escalationOperations()},
		{"kinds of others", customOperations()},
		{"namespaces", namespaceOperations()},
		{"delete", deleteOperations()},
	}
}

func serverOperations() []operation {
	return []operation{
		{name: "version", run: "kubectl version", out: "Server Version: v"},
		{name: "version json", run: "kubectl version -o json", out: `"serverVersion"`},
		{name: "api-versions", run: "kubectl api-versions", out: `rbac.authorization.k8s.io/v1.*tako.dev/v1alpha1.*\bv1\b`},
		{name: "api-resources", run: "kubectl api-resources", out: `nodeconfigs +nc +tako.dev/v1alpha1 +true +NodeConfig`},
		{name: "api-resources of a group", run: "kubectl api-resources --api-group=tako.dev --namespaced=false -o name", out: `clusternodeconfigs.tako.dev\n.*nodes.tako.dev\n.*tokens.tako.dev`, none: "^nodeconfigs"},
		{name: "api-resources by verb and category", run: "kubectl api-resources --verbs=list,watch,create,update,patch,delete,deletecollection --categories=tako -o wide", out: "nodeconfigs.*revisions"},
		{name: "livez", run: "kubectl get --raw /livez", out: "^ok$"},
		{name: "readyz", run: "kubectl get --raw '/readyz?verbose'", out: `\[\+\]ping ok.*readyz check passed`},
		{name: "metrics", run: "kubectl get --raw /metrics", out: "apiserver_request_total"},
		{name: "metrics of tako", run: "kubectl get --raw /metrics", out: "(?m)^tako_"},
		{name: "OpenAPI v2", run: "kubectl get --raw /openapi/v2", out: `"swagger":"2.0".*NodeConfigSpec`},
		{name: "OpenAPI v3 index", run: "kubectl get --raw /openapi/v3", out: `apis/tako.dev/v1alpha1`},
		{name: "OpenAPI v3 of a group", run: "kubectl get --raw /openapi/v3/apis/tako.dev/v1alpha1", out: `"openapi":"3.0.0".*NodeConfigSpec`},
		{name: "discovery", run: "kubectl get --raw /apis/tako.dev/v1alpha1", out: `"kind":"APIResourceList".*"shortNames":\["nc"\]`},
		{name: "a path that is not there", run: "kubectl get --raw /nothing", exit: 1, err: "NotFound"},
		{name: "a kind that is not there", run: "kubectl get pods", exit: 1, err: `doesn't have a resource type "pods"`},
		{name: "explain a kind", run: "kubectl explain nodeconfig", out: "KIND: +NodeConfig.*DESCRIPTION:.*resources that matching nodes.*spec\t<NodeConfigSpec> -required-"},
		{name: "explain a field", run: "kubectl explain nc.spec.resources.file.content", out: "content <string>.*UTF-8"},
		{name: "explain everything", run: "kubectl explain nodes --recursive", out: "environment\t<string>.*facts\t<map"},
		{name: "explain a field that is not there", run: "kubectl explain nc.spec.nothing", exit: 1, err: `field "nothing" does not exist`},
	}
}

func getOperations() []operation {
	return []operation{
		{name: "create", run: "kubectl create -f web.yaml", out: "nodeconfig.tako.dev/web created"},
		{name: "create twice", run: "kubectl create -f web.yaml", exit: 1, err: `AlreadyExists.*nodeconfigs.tako.dev "web" already exists`},
		{name: "create a node", run: "kubectl create -f node.yaml", out: "node.tako.dev/web-1 created"},
		{name: "create an event", run: "sed s/UID/$(kubectl get nc web -o jsonpath={.metadata.uid})/ event.yaml | kubectl create -f -", out: "event/web.1 created"},
		{name: "create a configmap", run: "kubectl create configmap plain --from-literal=a=1", out: "configmap/plain created"},
		{name: "create a secret", run: "kubectl create secret generic hidden --from-literal=password=swordfish", out: "secret/hidden created"},
		{name: "table", run: "kubectl get nodeconfig", out: `^NAME +RESOURCES +REVISION +ROLLOUT +READY +AGE\nweb +2 `},
		{name: "table by short name", run: "kubectl get nc/web --no-headers", out: `^web +2 `},
		{name: "wide", run: "kubectl get nc -o wide", out: `READY +MESSAGE +AGE`},
		{name: "json", run: "kubectl get nc web -o json", out: `^\{\n +"apiVersion": "tako.dev/v1alpha1",\n +"kind": "NodeConfig"`},
		{name: "yaml", run: "kubectl get nc web -o yaml", out: `^apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\n.*generation: 1\n.*path: /etc/motd`, none: "managedFields"},
		{name: "name", run: "kubectl get nc,nodes -o name", out: "^nodeconfig.tako.dev/web\nnode.tako.dev/web-1\n$"},
		{name: "jsonpath", run: `kubectl get nc web -o jsonpath='{range .spec.resources[*]}{.name}={.file.path}{.directory.path};{end}'`, out: "^motd=/etc/motd;site=/srv/site;$"},
		{name: "go-template", run: `kubectl get nc -o go-template='{{range .items}}{{.metadata.name}} {{len .spec.resources}}{{end}}'`, out: "^web 2$"},
		{name: "custom-columns", run: "kubectl get nodes -o custom-columns=NAME:.metadata.name,ENV:.spec.environment", out: `^NAME +ENV\nweb-1 +default\n$`},
		{name: "managed fields", run: "kubectl get nc web -o yaml --show-managed-fields", out: "managedFields:.*manager: kubectl-create"},
		{name: "label column", run: "kubectl get nc -L app --show-labels", out: `APP +LABELS\nweb .* web +app=web\n$`},
		{name: "selector", run: "kubectl get nc -l app=web,app!=db -o name", out: "^nodeconfig.tako.dev/web\n$"},
		{name: "set selector", run: "kubectl get nc -l 'app notin (web)' -o name", out: "^$"},
		{name: "field selector", run: "kubectl get nodes --field-selector=spec.environment=default,metadata.name=web-1 -o name", out: "^node.tako.dev/web-1\n$"},
		{name: "a field that cannot be selected", run: "kubectl get nodes --field-selector=spec.nothing=1", exit: 1, err: "spec.nothing"},
		{name: "category", run: "kubectl get tako -o name", out: "nodeconfig.tako.dev/web\n.*node.tako.dev/web-1\n"},
		{name: "all namespaces, sorted", run: "kubectl create configmap another >/dev/null && kubectl get configmaps -A --sort-by=.metadata.name", out: `default +another .*default +plain `},
		{name: "chunks", run: "kubectl create configmap plain-2 && kubectl get configmaps --chunk-size=1 -o name", out: "configmap/another\nconfigmap/plain\nconfigmap/plain-2\n$"},
		{name: "not found", run: "kubectl get nc db", exit: 1, err: `Error from server \(NotFound\): nodeconfigs.tako.dev "db" not found`},
		{name: "not found, ignored", run: "kubectl get nc db --ignore-not-found", out: "^$"},
		{name: "by file", run: "kubectl get -f web.yaml -f node.yaml -o name", out: "^nodeconfig.tako.dev/web\nnode.tako.dev/web-1\n$"},
		{name: "describe", run: "kubectl describe nc web", out: `Name: +web\n.*Labels: +app=web\n.*Path: +/etc/motd.*Events:\n.*Warning +Drifted .*somebody changed /etc/motd`},
		{name: "describe by selector", run: "kubectl describe nodes -l rack=a", out: `Environment: +default`},
		{name: "describe a secret", run: "kubectl describe secret hidden", out: "password: +9 bytes", none: "swordfish|c3dvcmRmaXNo"},
		{name: "events", run: "kubectl events --for nodeconfig.tako.dev/web", out: `Warning +Drifted +NodeConfig/web +somebody changed`},
		{name: "events by field", run: "kubectl get events --field-selector=type=Warning,involvedObject.name=web -o wide", out: `Warning +Drifted +NodeConfig/web`},
		{name: "watch", run: watchOfChanges, out: "configmap/plain\n.*configmap/seen\n.*configmap/seen\n"},
		{name: "watch with events", run: watching("kubectl get configmaps plain -w --output-watch-events", "ADDED"), out: `EVENT +NAME +DATA +AGE\nADDED +plain +1`, none: "it has ended"},
	}
}

// watching runs a watch until it has told some word, and prints what it has told, and before it whether it has ended by itself.
func watching(watch, word string) string {
	return watch + ` >told.txt & w=$!
for i in $(seq 500); do grep -q '` + word + `' told.txt && break; sleep 0.1; done
kill $w || echo 'it has ended'; wait $w; cat told.txt`
}

// watchOfChanges watches until both changes were told: it must have begun before the first, and may not end before the second.
const watchOfChanges = `kubectl get configmaps -w -o name >told.txt & w=$!
told() { for i in $(seq 600); do [ "$(grep -c "$1" told.txt)" -ge "$2" ] && return; sleep 0.1; done; }
told configmap/plain 1; kubectl create configmap seen >/dev/null; kubectl delete configmap seen >/dev/null; told configmap/seen 2
kill $w; cat told.txt`

func applyOperations() []operation {
	return []operation{
		{name: "diff of something new", run: "kubectl diff -f set.yaml", exit: 1, out: `\+kind: ConfigMap`},
		{name: "apply two", run: "kubectl apply -f set.yaml", out: "configmap/kept created\nconfigmap/pruned created\n"},
		{name: "apply again", run: "kubectl apply -f set.yaml", out: "configmap/kept unchanged\nconfigmap/pruned unchanged\n"},
		{name: "diff of nothing", run: "kubectl diff -f set.yaml", out: "^$"},
		{name: "prune, dry", run: "kubectl apply -f set-less.yaml --prune -l set=one --prune-allowlist=core/v1/ConfigMap --dry-run=server", out: `configmap/pruned pruned \(server dry run\)`},
		{name: "prune", run: "kubectl apply -f set-less.yaml --prune -l set=one --prune-allowlist=core/v1/ConfigMap", out: "configmap/kept unchanged\nconfigmap/pruned pruned\n"},
		{name: "pruned it is", run: "kubectl get configmaps -l set=one -o name", out: "^configmap/kept\n$"},
		{name: "apply over create", run: "kubectl apply -f web.yaml", out: "nodeconfig.tako.dev/web configured", err: "missing the kubectl.kubernetes.io/last-applied-configuration"},
		{name: "diff of a change", run: "kubectl diff -f web-changed.yaml", exit: 1, out: `-  +generation: 1\n\+ +generation: 2.*- +hello\n\+ +bye`},
		{name: "dry run on the client", run: "kubectl apply -f web-changed.yaml --dry-run=client", out: `web configured \(dry run\)`},
		{name: "dry run on the server", run: "kubectl apply -f web-changed.yaml --dry-run=server -o yaml", out: "generation: 2.*bye"},
		{name: "dry it was", run: "kubectl get nc web -o yaml", out: "generation: 1\n.*hello", none: "bye"},
		{name: "apply a change", run: "kubectl apply -f web-changed.yaml", out: "nodeconfig.tako.dev/web configured"},
		{name: "the generation counts", run: "kubectl get nc web -o jsonpath='{.metadata.generation} {.spec.resources[0].file.content}'", out: "^2 bye\n$"},
		{name: "apply edits of last applied", run: "kubectl apply view-last-applied nc web", out: "bye"},
		{name: "strict: unknown field", run: "sed s/content/cnotent/ web.yaml | kubectl apply -f -", exit: 1, err: `unknown field "spec.resources\[0\].file.cnotent"`},
		{name: "strict: duplicate field", run: `echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dup","name":"dup"}}' | kubectl create --raw '/api/v1/namespaces/default/configmaps?fieldValidation=Strict' -f -`, exit: 1, err: `duplicate field "metadata.name"`},
		{name: "warn: unknown field", run: "sed 's/content/cnotent/; s/name: web/name: warned/' web.yaml | kubectl create --validate=warn --dry-run=server -f -", out: "created", err: `unknown field "spec.resources\[0\].file.cnotent"`},
		{name: "wrong value", run: "sed s,/etc/motd,etc/motd, web.yaml | kubectl apply -f -", exit: 1, err: `spec.resources\[(0|motd)\].file.path.*TK\d{4}`},
		{name: "wrong type", run: "sed 's,/srv/site,[],' web.yaml | kubectl apply -f -", exit: 1, err: "is invalid"},
		{name: "wrong name", run: "sed 's/name: web/name: Web_1/' web.yaml | kubectl create -f -", exit: 1, err: "RFC 1123"},
		{name: "wrong kind", run: "sed 's/kind: NodeConfig/kind: NodeConf/' web.yaml | kubectl create -f -", exit: 1, err: `no matches for kind "NodeConf"`},
		{name: "no such namespace", run: "kubectl create -n nowhere -f web.yaml", exit: 1, err: `namespaces "nowhere" not found`},
	}
}

func serverSideOperations() []operation {
	const mine = `printf 'apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: shared}\nspec: {resources: [{name: a, file: {path: /etc/a, content: "%s"}}]}\n' `
	const theirs = `printf 'apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: shared}\nspec: {resources: [{name: b, file: {path: /etc/b}}]}\n' `
	return []operation{
		{name: "create", run: mine + "one | kubectl apply --server-side --field-manager=me -f -", out: "shared serverside-applied"},
		{name: "another adds", run: theirs + "| kubectl apply --server-side --field-manager=them -f -", out: "shared serverside-applied"},
		{name: "merged by name", run: "kubectl get nc shared -o jsonpath='{.spec.resources[*].name}'", out: "^a b$"},
		{name: "conflict", run: mine + "two | kubectl apply --server-side --field-manager=them -f -", exit: 1, err: `conflict with "me": .spec.resources\[name="a"\].file.content`},
		{name: "conflict, dry", run: mine + "two | kubectl apply --server-side --field-manager=them --force-conflicts --dry-run=server -f -", out: "dry run"},
		{name: "force", run: mine + "two | kubectl apply --server-side --field-manager=them --force-conflicts -f -", out: "shared serverside-applied"},
		{name: "what is not sent any more goes", run: "kubectl get nc shared -o jsonpath='{.spec.resources[*].name} {.spec.resources[0].file.content}'", out: "^a two$"},
		{name: "owners", run: "kubectl get nc shared -o jsonpath='{.metadata.managedFields[*].manager}' --show-managed-fields", out: "me.*them|them.*me"},
		{name: "diff", run: mine + "three | kubectl diff --server-side --field-manager=them -f -", exit: 1, out: `- +content: two\n\+ +content: three`},
		{name: "unknown field", run: mine + "x | sed s/content/cnotent/ | kubectl apply --server-side --field-manager=them -f -", exit: 1, err: "cnotent: field not declared in schema"},
		{name: "from client-side", run: "kubectl apply --server-side -f web-changed.yaml", out: "web serverside-applied"},
		{name: "a core kind", run: "kubectl apply --server-side -f set.yaml", out: "configmap/kept serverside-applied\nconfigmap/pruned serverside-applied"},
	}
}

func patchOperations() []operation {
	return []operation{
		{name: "merge", run: `kubectl patch nc web --type=merge -p '{"metadata":{"annotations":{"by":"merge"}}}'`, out: "web patched"},
		{name: "merge without a change", run: `kubectl patch nc web --type=merge -p '{"metadata":{"annotations":{"by":"merge"}}}'`, out: `patched \(no change\)`},
		{name: "json", run: `kubectl patch nc web --type=json -p '[{"op":"test","path":"/spec/resources/0/name","value":"motd"},{"op":"replace","path":"/spec/resources/0/file/content","value":"patched"}]' -o jsonpath='{.spec.resources[0].file.content}'`, out: "^patched$"},
		{name: "json whose test fails", run: `kubectl patch nc web --type=json -p '[{"op":"test","path":"/spec/resources/0/name","value":"other"}]'`, exit: 1, err: "rejected our request"},
		{name: "json that is not valid then", run: `kubectl patch nc web --type=json -p '[{"op":"replace","path":"/spec/resources/0/file/path","value":"relative"}]'`, exit: 1, err: `TK\d{4}`},
		{name: "strategic", run: `kubectl patch configmap plain --type=strategic -p '{"data":{"b":"2"},"metadata":{"finalizers":["example.org/x"]}}' -o jsonpath='{.data}{.metadata.finalizers}'`, out: `{"a":"1","b":"2"}\["example.org/x"\]`},
		{name: "strategic delete from a list", run: `kubectl patch configmap plain -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/x"]}}' -o jsonpath='{.metadata.finalizers}'`, out: `^$`},
		{name: "file", run: `echo '{"metadata":{"labels":{"from":"file"}}}' >patch.json; kubectl patch nc web --type=merge --patch-file patch.json`, out: "patched"},
		{name: "dry run", run: `kubectl patch nc web --type=merge --dry-run=server -p '{"metadata":{"labels":{"dry":"run"}}}' -o jsonpath='{.metadata.labels.dry}'; kubectl get nc web --show-labels`, out: "^run", none: "dry=run"},
		{name: "label", run: "kubectl label nc web tier=front", out: "web labeled"},
		{name: "label again", run: "kubectl label nc web tier=back", exit: 1, err: "already has a value"},
		{name: "label over", run: "kubectl label nc web tier=back --overwrite && kubectl get nc -l tier=back -o name", out: "nodeconfig.tako.dev/web"},
		{name: "label off", run: "kubectl label nc --all tier-", out: "web unlabeled"},
		{name: "wrong label", run: "kubectl label nc web 'tier=a b'", exit: 1, err: "invalid label value"},
		{name: "annotate", run: "kubectl annotate nc web note='a b' by-", out: "web annotated"},
	}
}

func changeOperations() []operation {
	return []operation{
		{name: "edit", run: `EDITOR="sed -i s/patched/edited/" kubectl edit nc web`, out: "web edited"},
		{name: "edit nothing", run: "EDITOR=true kubectl edit nc web", err: "Edit cancelled, no changes made"},
		{name: "edit into a mistake", run: `EDITOR='sed -i s,/etc/motd,relative,' kubectl edit nc web`, exit: 1, err: `"web" is invalid`},
		{name: "replace", run: "kubectl replace -f web.yaml && kubectl get nc web -o yaml", out: "web replaced\n.*hello", none: "note: a b"},
		{name: "replace an old version", run: `kubectl get nc web -o json | sed 's/"resourceVersion": "[0-9]*"/"resourceVersion": "1"/' | kubectl replace -f -`, exit: 1, err: "Conflict.*the object has been modified"},
		{name: "replace by force", run: `u() { kubectl get nc web -o jsonpath={.metadata.uid}; }; a=$(u); kubectl replace --force -f web.yaml && test "$a" != "$(u)"`, out: `"web" deleted.*web replaced`},
		{name: "generateName", run: `echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"made-"}}' | kubectl create -f - -o name`, out: `^configmap/made-[a-z0-9]{5}\n$`},
		{name: "immutable", run: `echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed"},"immutable":true,"data":{"a":"1"}}' | kubectl create -f - && kubectl patch configmap fixed -p '{"data":{"a":"2"}}'`, exit: 1, err: "immutable"},
		{name: "a secret is encrypted at rest", run: `grep -r swordfish "${KUBECONFIG%/*}/etcd" | grep . && exit 3; kubectl get secret hidden -o jsonpath='{.data.password}' | base64 -d`, out: "^swordfish$"},
		{name: "a revision never changes", run: `echo '{"apiVersion":"tako.dev/v1alpha1","kind":"Revision","metadata":{"name":"by-hand"},"spec":{"resources":[]}}' | kubectl create -f - && kubectl patch revision by-hand --type=merge -p '{"spec":{"resources":[{"name":"a","file":{"path":"/a"}}]}}'`, exit: 1, err: "a revision never changes"},
		{name: "lease", run: `echo '{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"led"},"spec":{"holderIdentity":"me","leaseDurationSeconds":15}}' | kubectl create -f - && kubectl get lease led`, out: `led +me`},
		{name: "scale", run: "kubectl scale --replicas=2 nc/web", exit: 1, err: "could not find the requested resource|NotFound"},
	}
}

func statusOperations() []operation {
	// What is written here is a condition that nobody else writes, of a config that waits for nothing more.
	const stated = `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"stated"},"spec":{"selector":{"matchLabels":{"no":"node"}},"resources":[]}}`
	const condition = `{"type":"Tested","status":"False","reason":"Silent","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	apply := func(status, reason string) string {
		return `echo '{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"stated"},"status":{"conditions":[{"type":"Tested","status":"` + status + `","reason":"` + reason +
			`","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}' | kubectl apply --server-side --force-conflicts --subresource=status --field-manager=agent -f -`
	}
	const reason = `kubectl get nc stated -o jsonpath='{.status.conditions[?(@.type=="Tested")].reason}'`
	return []operation{
		{name: "the object leaves the status", run: `kubectl patch node web-1 --type=merge -p '{"metadata":{"labels":{"a":"b"}},"status":{"observedGeneration":98765}}' -o yaml`, out: "a: b", none: "98765"},
		{name: "nobody writes the status of a node", run: `kubectl patch node web-1 --subresource=status --type=merge -p '{"status":{"observedGeneration":98765}}'`, exit: 1, err: "NotFound|could not find"},
		{name: "stated", run: `echo '` + stated + `' | kubectl create -f - && kubectl wait --for=condition=Ready --timeout=50s nc/stated`, out: "condition met"},
		{name: "the status is patched", run: `kubectl patch nc stated --subresource=status --type=json -p '[{"op":"add","path":"/status/conditions/-","value":` + condition + `}]'`, out: "stated patched"},
		{name: "the status leaves the object", run: `kubectl patch nc stated --subresource=status --type=merge -p '{"metadata":{"labels":{"c":"d"}},"spec":{"priority":7}}' >/dev/null; kubectl get nc stated -o yaml`, out: "reason: Silent", none: "c: d|priority: 7"},
		{name: "the status is read", run: "kubectl get nc stated --subresource=status -o yaml", out: "reason: Silent"},
		{name: "the status does not count", run: "kubectl get nc stated -o jsonpath={.metadata.generation}", out: "^1$"},
		{name: "wait in vain", run: "kubectl wait --for=condition=Tested --timeout=1s nc/stated", exit: 1, err: "timed out"},
		{name: "wait", run: `kubectl wait --for=condition=Tested --timeout=50s nc/stated & w=$!; ` + apply("True", "Heard") + ` >/dev/null && wait $w`, out: "stated condition met"},
		{name: "wait for a value", run: "kubectl wait --for=jsonpath='{.spec.environment}'=default --timeout=50s node/web-1", out: "condition met"},
		{name: "the columns of a node", run: "kubectl get nodes", out: `NAME +ENVIRONMENT +READY +HEAD +KEPT .*\nweb-1 +default `},
		{name: "more of them", run: "kubectl get nodes -o wide", out: `HEARD +HELD +VERDICT +AGENT`},
		{name: "the column of a config", run: "kubectl get nc stated", out: `NAME +RESOURCES +REVISION +ROLLOUT +READY .*\nstated +0 +stated-`},
		{name: "status by server-side apply", run: apply("True", "Seen") + ` && ` + reason, out: `Seen$`},
		{name: "replace the status", run: `kubectl get nc stated -o json | sed s/Seen/Replaced/ | kubectl replace --subresource=status -f - && ` + reason, out: "Replaced$"},
		{name: "the other conditions stay", run: "kubectl wait --for=condition=Ready --timeout=50s nc/stated && kubectl delete nc stated", out: `condition met.*"stated" deleted`},
		{name: "a kind without status", run: `kubectl patch configmap plain --subresource=status --type=merge -p '{}'`, exit: 1, err: "NotFound|could not find"},
		{name: "nobody writes assignments", run: `echo '{"apiVersion":"tako.dev/v1alpha1","kind":"Assignment","metadata":{"name":"web-1"},"spec":{"nodeUID":"u"}}' | kubectl create -f -`, exit: 1, err: "Forbidden.*tako works it out from nodes and configs"},
		{name: "assignments are read", run: "kubectl get asg"},
		{name: "no host to ask", run: "kubectl get --raw /apis/tako.dev/v1alpha1/nodes/web-1/history", exit: 1, err: "ServiceUnavailable|unavailable|not connected"},
	}
}

func revisionOperations() []operation {
	return []operation{
		{name: "made", run: "kubectl create ns revised >/dev/null && kubectl create -n revised -f web.yaml && kubectl wait -n revised --for=condition=Ready --timeout=20s nc/web", out: "condition met"},
		{name: "named by its content", run: "kubectl get nc web -n revised -o jsonpath={.status.revision}", out: "^web-[0-9a-f]{10}$"},
		{name: "listed", run: "kubectl get revisions -n revised", out: `NAME +CONFIG +RESOURCES +AGE\nweb-[0-9a-f]{10} +web +2 `},
		{name: "owned", run: "kubectl get revisions -n revised -o jsonpath='{.items[0].metadata.ownerReferences[0].kind}/{.items[0].metadata.ownerReferences[0].name}'", out: "^NodeConfig/web$"},
		{name: "another for a change", run: "kubectl replace -n revised -f web-changed.yaml && kubectl wait -n revised --for=jsonpath='{.status.observedGeneration}'=2 nc/web && kubectl get revisions -n revised -o name", out: `(revision.tako.dev/web-[0-9a-f]{10}\n){2}$`},
		{name: "the first again for the change back", run: "kubectl replace -n revised -f web.yaml && kubectl wait -n revised --for=jsonpath='{.status.observedGeneration}'=3 nc/web && kubectl get revisions -n revised -o name", out: `(revision.tako.dev/web-[0-9a-f]{10}\n){2}$`},
		{name: "none for a label", run: "kubectl label -n revised nc web a=b && kubectl get nc web -n revised -o jsonpath='{.metadata.generation}'", out: "3$"},
		{name: "gone with the config", run: "kubectl delete -n revised nc web && kubectl wait -n revised --for=delete revisions --all --timeout=30s && kubectl get revisions -n revised -o name", none: "revision.tako"},
	}
}

func workloadOperations() []operation {
	return []operation{
		{name: "create", run: "kubectl create -f workload.yaml", out: "workload.tako.dev/shop created"},
		{name: "table", run: "kubectl get wl", out: `^NAME +MODE +READY +UP-TO-DATE +AVAILABLE +PHASE +AGE\nshop +Replicated +0/`},
		{name: "wide", run: "kubectl get workload shop -o wide", out: `PHASE +REVISION +COMPLETIONS +MESSAGE +AGE`},
		{name: "instances", run: "kubectl get inst --field-selector=spec.workload=shop", err: "No resources found"},
		{name: "explain", run: "kubectl explain workload.spec.rollout.strategy", out: "strategy <string>.*Rolling"},
		{name: "scale", run: "kubectl scale workload/shop --replicas=3 && kubectl get wl shop -o jsonpath={.spec.replicas}", out: "scaled\n3$"},
		{name: "scale on a condition", run: "kubectl scale wl shop --current-replicas=2 --replicas=4", exit: 1, err: "Expected replicas to be 2, was 3"},
		{name: "scale to less than none", run: `kubectl patch workload shop --subresource=scale --type=merge -p '{"spec":{"replicas":-1}}'`, exit: 1, err: "less than none"},
		{name: "scale as it is", run: "kubectl get workload shop --subresource=scale -o yaml", out: "^apiVersion: autoscaling/v1\nkind: Scale\n.*replicas: 3.*selector: tako.dev/workload=shop"},
		{name: "the scaler owns the number", run: "kubectl get wl shop -o yaml --show-managed-fields", out: `f:replicas: \{\}\n +manager: kubectl\n +operation: Update\n +subresource: scale`},
		{name: "applied over that", run: "kubectl apply --server-side --field-manager=me -f workload.yaml", exit: 1, err: `conflict with "kubectl" .*subresource "scale".*\.spec\.replicas`},
		{name: "applied without the number", run: "sed /replicas/d workload.yaml | kubectl apply --server-side --field-manager=me -f - && kubectl get wl shop -o jsonpath={.spec.replicas}", out: "serverside-applied\n3$"},
		{name: "a mistake", run: "sed 's/port: http}/port: htpp}/' workload.yaml | kubectl replace -f -", exit: 1, err: `TK0422: it names "htpp", which is no port of the task; did you mean "http"\?`},
		{name: "another mode", run: `kubectl patch workload shop --type=merge -p '{"spec":{"mode":"PerNode","replicas":null}}'`, exit: 1, err: "TK0415: the mode is Replicated and cannot become PerNode"},
		{name: "an instance of one's own", run: `printf '{"apiVersion":"tako.dev/v1alpha1","kind":"Instance","metadata":{"name":"shop-0"},"spec":{"workload":"shop","revision":"r","slot":0,"node":"n","nodeUID":"u"}}' | kubectl create -f -`, exit: 1, err: "change the Workload"},
		{name: "delete", run: "kubectl delete workload shop --timeout=30s", out: `"shop" deleted`},
	}
}

func rightsOperations() []operation {
	// A person without the administrator's certificate.
	const eve = `KUBECONFIG=eve.kubeconfig kubectl `
	const withToken = `KUBECONFIG=/dev/null kubectl --server="$SERVER" --certificate-authority=ca.crt --token=`
	return []operation{
		{name: "whoami", run: "kubectl auth whoami", out: "Username +tako:admin\n.*system:authenticated"},
		{name: "may I", run: "kubectl auth can-i delete nodes.tako.dev", out: "^yes\n$"},
		{name: "roles", run: "kubectl apply -f viewer.yaml", out: "clusterrole.*viewer created\n.*rolebinding.*editors created"},
		{name: "reconcile roles", run: "kubectl auth reconcile -f viewer.yaml", out: "viewer reconciled"},
		{name: "token", run: `kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >ca.crt
			kubectl create -f token.yaml -o jsonpath='{.status.token}' >token && grep -q . token &&
			kubectl --kubeconfig=eve.kubeconfig config set-cluster tako --server="$SERVER" --certificate-authority=ca.crt --embed-certs &&
			kubectl --kubeconfig=eve.kubeconfig config set-credentials eve --token="$(cat token)" &&
			kubectl --kubeconfig=eve.kubeconfig config set-context eve --cluster=tako --user=eve &&
			kubectl --kubeconfig=eve.kubeconfig config use-context eve`, out: "Switched to context"},
		{name: "the token is shown once", run: "kubectl get token eve -o yaml", out: "hash: sha256:", none: "\n  token:"},
		{name: "a token is made by create only", run: "sed 's/eve/applied/' token.yaml | kubectl apply --server-side -f -", exit: 1, err: "create"},
		{name: "what a token is recognised by stays", run: `kubectl patch token eve --subresource=status --type=merge -p '{"status":{"hash":"sha256:00"}}'; kubectl get token eve -o yaml`, none: "sha256:00\n"},
		{name: "the token is not stored", run: `grep -rqF "$(cat token)" "${KUBECONFIG%/*}"`, exit: 1},
		{name: "the viewer's name", run: eve + "auth whoami", out: "Username +eve\n.*viewers", wait: true},
		{name: "the viewer reads", run: eve + "get nc,nodes,configmaps", out: "web.*web-1.*plain"},
		{name: "the viewer watches", run: watching(eve+"get nc -w", "web"), out: "web", none: "it has ended"},
		{name: "the viewer creates where he may", run: eve + "create configmap eves", out: "configmap/eves created"},
		{name: "the viewer denied to create", run: eve + "create -f web.yaml", exit: 1, err: `Forbidden.*User "eve" cannot create resource "nodeconfigs" in API group "tako.dev" in the namespace "default"`},
		{name: "the viewer denied to change", run: eve + "label nc web a=b", exit: 1, err: `cannot patch resource "nodeconfigs"`},
		{name: "the viewer denied to delete", run: eve + "delete nc web", exit: 1, err: `cannot delete resource "nodeconfigs"`},
		{name: "the viewer denied another namespace", run: eve + "create configmap -n other eves", exit: 1, err: `forbidden: User "eve"`},
		{name: "the viewer denied secrets", run: eve + "get secrets", exit: 1, err: `cannot list resource "secrets"`},
		{name: "the viewer denied status", run: eve + "patch node web-1 --subresource=status --type=merge -p '{}'", exit: 1, err: `cannot (get|patch) resource "nodes/status"`},
		{name: "the viewer denied more rights", run: eve + "create clusterrolebinding more --clusterrole=viewer --user=eve", exit: 1, err: `cannot create resource "clusterrolebindings"`},
		{name: "may the viewer", run: eve + "auth can-i list nodes.tako.dev", out: "^yes\n$"},
		{name: "may the viewer not", run: eve + "auth can-i create tokens.tako.dev", exit: 1, out: "^no\n$"},
		{name: "what may the viewer", run: eve + "auth can-i --list", out: `nodeconfigs.tako.dev +\[\] +\[\] +\[get list watch\]`},
		{name: "as somebody else", run: "kubectl --as=eve --as-group=viewers get secrets", exit: 1, err: "Forbidden|impersonat"},
		{name: "a token of nobody", run: withToken + `"$(sed -e 's/x$/y/;t' -e 's/.$/x/' token)" get nc`, exit: 1, err: "Unauthorized|must be logged in"},
		{name: "no token form at all", run: withToken + `garbage get nc`, exit: 1, err: "Unauthorized|must be logged in"},
		{name: "revoked", run: "kubectl delete token eve", out: `"eve" deleted`},
		{name: "revoked it is", run: eve + "get nc", exit: 1, err: "Unauthorized|must be logged in", wait: true},
		{name: "every denial is in the audit log", run: `grep -c '"code":403' "${KUBECONFIG%/*}/audit.log"`, out: `^[1-9]`},
		{name: "the audit log is private", run: `stat -c %a "${KUBECONFIG%/*}/audit.log" "$KUBECONFIG"`, out: "^600\n600\n$"},
		{name: "no secret in the audit log", run: `grep -c -e swordfish -e "$(cat token)" "${KUBECONFIG%/*}/audit.log"`, exit: 1, out: "^0"},
	}
}

// escalationOperations are attempts of somebody with rights to get more.
func escalationOperations() []operation {
	const mo = `KUBECONFIG=mo.kubeconfig kubectl `
	return []operation{
		{name: "somebody", run: `kubectl apply -f mo.yaml >/dev/null && sed 's/eve/mo/; s/{name: eve.*/{name: mo}/' token.yaml >mo-token.yaml && kubectl create -f mo-token.yaml -o jsonpath='{.status.token}' >mo &&
			kubectl --kubeconfig=mo.kubeconfig config set-cluster tako --server="$SERVER" --certificate-authority=ca.crt --embed-certs >/dev/null &&
			kubectl --kubeconfig=mo.kubeconfig config set-credentials mo --token="$(cat mo)" >/dev/null &&
			kubectl --kubeconfig=mo.kubeconfig config set-context mo --cluster=tako --user=mo >/dev/null &&
			kubectl --kubeconfig=mo.kubeconfig config use-context mo`, out: "Switched"},
		{name: "may much", run: mo + "auth can-i create rolebindings", out: "^yes", wait: true},
		{name: "gives what he has", run: mo + "create role reader --verb=get --resource=configmaps", out: "reader created"},
		{name: "gives what he has not", run: mo + "create role taker --verb=delete --resource=nodes.tako.dev", exit: 1, err: "gives rights that he does not have"},
		{name: "adds to a role", run: mo + `patch role reader --type=json -p '[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]'`, exit: 1, err: "gives rights that he does not have"},
		{name: "binds what he has not", run: mo + "create rolebinding taker --clusterrole=cluster-admin --user=mo", exit: 1, err: "gives rights that he does not have"},
		{name: "joins a binding", run: `kubectl create rolebinding boss --clusterrole=cluster-admin --user=boss >/dev/null; ` + mo + `patch rolebinding boss --type=json -p '[{"op":"add","path":"/subjects/-","value":{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mo"}}]'`, exit: 1, err: "gives rights that he does not have"},
		{name: "binds what is not there yet", run: mo + "create rolebinding early --clusterrole=not-yet --user=mo", exit: 1, err: "not-yet"},
		{name: "creates a token of somebody else", run: "sed s/eve/other/ token.yaml | " + mo + "create -f -", exit: 1, err: "may not impersonate"},
		{name: "creates a token of an administrator", run: "sed 's/name: eve}/name: mine}/; s/eve/mo/; s/viewers/system:masters/' token.yaml | " + mo + "create -f -", exit: 1, err: "may not impersonate"},
		{name: "calls himself somebody else", run: mo + "--as=tako:admin get nodes", exit: 1, err: "[Ff]orbidden"},
	}
}

// customOperations are about a kind that somebody brought.
func customOperations() []operation {
	return []operation{
		{name: "define", run: "kubectl create -f widgets.yaml && kubectl wait --for=condition=Established --timeout=20s crd/widgets.example.org", out: "condition met"},
		{name: "listed", run: "kubectl api-resources --api-group=example.org", out: `widgets +wi +example.org/v1 +true +Widget`, wait: true},
		{name: "create", run: "kubectl create -f widget.yaml", out: "widget.example.org/one created", wait: true},
		{name: "table", run: "kubectl get wi", out: `NAME +REPLICAS.*\none +1`},
		{name: "explain", run: "kubectl explain widgets.spec", out: "What the widget should be.*color\t<string>", wait: true},
		{name: "wrong value", run: `kubectl patch widget one --type=merge -p '{"spec":{"color":"blue"}}'`, exit: 1, err: `Unsupported value: "blue"`},
		{name: "unknown field", run: "sed s/color/colour/ widget.yaml | kubectl apply -f -", exit: 1, err: `unknown field "spec.colour"`},
		{name: "server-side apply", run: "kubectl apply --server-side --force-conflicts -f widget.yaml", out: "serverside-applied"},
		{name: "scale", run: "kubectl scale --replicas=3 widget/one && kubectl get wi one -o jsonpath={.spec.replicas}", out: "scaled\n3$"},
		{name: "scale on a condition", run: "kubectl scale --current-replicas=2 --replicas=4 widget/one", exit: 1, err: "Expected replicas to be 2, was 3"},
		{name: "status isolation", run: `kubectl patch widget one --type=merge -p '{"status":{"replicas":9}}' -o yaml`, none: "replicas: 9"},
		{name: "owned by a config", run: `u=$(kubectl create configmap owner-of-widget -o jsonpath={.metadata.uid}) && kubectl patch widget one --type=merge -p '{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner-of-widget","uid":"'$u'"}]}}' >/dev/null && kubectl delete configmap owner-of-widget && kubectl wait --for=delete widget/one --timeout=30s`, out: "deleted"},
		{name: "removed with its definition", run: "kubectl create -f widget.yaml && kubectl delete crd widgets.example.org --timeout=30s && kubectl get widgets", exit: 1, err: "could not find the requested resource|doesn't have a resource type"},
	}
}

func namespaceOperations() []operation {
	return []operation{
		{name: "create", run: "kubectl create namespace stage", out: "namespace/stage created"},
		{name: "get", run: "kubectl get ns stage", out: `stage +Active`},
		{name: "label by itself", run: "kubectl get ns -l kubernetes.io/metadata.name=stage -o name", out: "namespace/stage"},
		{name: "same names in two", run: "kubectl create -n stage -f web.yaml && kubectl get nc -A --no-headers", out: `default +web .*stage +web `},
		{name: "describe", run: "kubectl describe ns stage", out: `Status: +Active`},
		{name: "delete", run: "kubectl delete ns stage --wait=false && kubectl get ns stage --ignore-not-found", out: `namespace "stage" deleted`},
		{name: "nothing new in one that goes", run: "kubectl create ns leaving >/dev/null && kubectl patch ns leaving -p '{\"metadata\":{\"finalizers\":[\"example.org/x\"]}}' >/dev/null && kubectl delete ns leaving --wait=false >/dev/null && kubectl create -n leaving -f web.yaml", exit: 1, err: "being terminated|Terminating|Forbidden"},
		{name: "the default one stays", run: "kubectl delete ns default", exit: 1, err: "cannot be deleted"},
		{name: "deleted with what is in it", run: "kubectl wait --for=delete ns/stage --timeout=30s && kubectl get nc -n stage -o name", out: "^$"},
	}
}

func deleteOperations() []operation {
	const owner = `kubectl create configmap owner -o jsonpath='{.metadata.uid}' >uid && printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","finalizers":[%s],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"%s","blockOwnerDeletion":true}]}}' "$F" "$(cat uid)" | kubectl create -f - && `
	const gone = `kubectl wait --for=delete configmap/owned --timeout=30s`
	return []operation{
		{name: "dry run", run: "kubectl delete nc web --dry-run=server && kubectl get nc web -o name", out: `deleted \(server dry run\)\nnodeconfig`},
		{name: "by file", run: "kubectl delete -f web.yaml", out: `"web" deleted`},
		{name: "what is not there", run: "kubectl delete nc web", exit: 1, err: "NotFound"},
		{name: "what is not there, ignored", run: "kubectl delete nc web --ignore-not-found", out: "^$"},
		{name: "finalizer holds", run: `kubectl create configmap held >/dev/null && kubectl patch configmap held -p '{"metadata":{"finalizers":["example.org/hold"]}}' >/dev/null && kubectl delete configmap held --wait=false && kubectl get configmap held -o yaml`, out: "deletionTimestamp.*example.org/hold"},
		{name: "no new finalizer then", run: `kubectl patch configmap held -p '{"metadata":{"finalizers":["example.org/hold","example.org/more"]}}'`, exit: 1, err: "no new finalizers can be added"},
		{name: "finalizer gone", run: `kubectl patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}' && kubectl wait --for=delete configmap/held --timeout=50s && kubectl get configmap held --ignore-not-found`, none: "held +0"},
		{name: "by selector", run: "kubectl delete configmaps -l set=one", out: `"kept" deleted\nconfigmap "pruned" deleted`},
		{name: "by field", run: "kubectl delete events --field-selector=involvedObject.name=web", out: `"web.1" deleted`},
		{name: "collection", run: "kubectl create ns many >/dev/null; for i in 1 2 3; do kubectl create configmap -n many c$i >/dev/null; done; kubectl delete --raw /api/v1/namespaces/many/configmaps && kubectl get configmaps -n many -o name", out: `"kind":"ConfigMapList"`, none: "configmap/c"},
		{name: "all of a kind", run: "kubectl delete nodes --all", out: `"web-1" deleted`},
		{name: "wrong precondition", run: `kubectl create configmap pre >/dev/null; kubectl delete --raw /api/v1/namespaces/default/configmaps/pre -f - <<-E
			{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"other"}}
			E`, exit: 1, err: "Conflict"},
		{name: "orphan", run: "F=; " + owner + "kubectl delete configmap owner --cascade=orphan && kubectl get configmap owned -o jsonpath='{.metadata.name}{.metadata.ownerReferences}' && kubectl delete configmap owned", out: "owned", none: "ownerReferences|uid"},
		{name: "background", run: "F=; " + owner + "kubectl delete configmap owner --cascade=background && " + gone},
		{name: "foreground", run: `F='"example.org/hold"'; ` + owner + `kubectl delete configmap owner --cascade=foreground --wait=false && kubectl get configmap owner -o jsonpath={.metadata.finalizers} && kubectl wait --for=jsonpath='{.metadata.deletionTimestamp}' configmap/owned && kubectl patch configmap owned --type=merge -p '{"metadata":{"finalizers":null}}' && kubectl wait --for=delete configmap/owner --timeout=30s`, out: `foregroundDeletion`},
	}
}

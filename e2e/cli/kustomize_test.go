//go:build e2e

package cli

import "testing"

// dev and prod build an overlay and apply it as the set shop of its namespace.
const (
	dev  = "kubectl kustomize kustomize/overlays/dev | TAKO_NAMESPACE=dev-shop tako apply -f - --set shop --prune"
	prod = "kubectl kustomize kustomize/overlays/prod | TAKO_NAMESPACE=prod-shop tako apply -f - --set shop --prune"
	// everything is all that a prune could touch, with what every write of an object changes.
	everything = "tako get namespaces,configmaps,nodeconfigs,clusterroles -A -o yaml"
)

// TestKustomize: what kustomize builds of a base and two overlays is applied and pruned, and nothing else is touched.
func TestKustomize(t *testing.T) {
	p := newPerson(t, true)
	p.play(t, firstSteps())
	p.play(t, changes())
	p.play(t, refusals())
	p.play(t, endings())
}

func firstSteps() []step {
	return []step{
		{name: "dry run", run: dev + " --dry-run=server", errs: "not checked by the server: its namespace is declared in the same run", out: `
namespace/dev-shop created (dry run)
clusterrole.rbac.authorization.k8s.io/dev-reader created (dry run)
configmap/dev-motd-HASH created (dry run)
nodeconfig.tako.dev/dev-extra created (dry run)
nodeconfig.tako.dev/dev-web created (dry run)
`},
		{name: "nothing was changed", run: "tako get namespaces dev-shop", exit: 7, errs: "TK1108"},
		{name: "apply dev", run: dev, out: `
namespace/dev-shop created
clusterrole.rbac.authorization.k8s.io/dev-reader created
configmap/dev-motd-HASH created
nodeconfig.tako.dev/dev-extra created
nodeconfig.tako.dev/dev-web created
`},
		{name: "apply prod", run: prod, out: `
namespace/prod-shop created
clusterrole.rbac.authorization.k8s.io/prod-reader created
configmap/prod-motd-HASH created
nodeconfig.tako.dev/prod-extra created
nodeconfig.tako.dev/prod-web created
`},
		{name: "JSON6902", run: "tako get nc dev-web -n dev-shop -o jsonpath='{.spec.resources[*].name} {.spec.resources[1].file.content}'", out: "nginx site log listen 8080;\n"},
		{name: "strategic merge by name", run: "tako get nc prod-web -n prod-shop -o jsonpath='{.spec.priority} {.spec.resources[0].file} {.spec.resources[1].name}'",
			out: `7 {"content":"listen 443;\n","mode":"0644","path":"/etc/nginx/conf.d/site.conf"} nginx` + "\n"},
		{name: "apply again", run: dev, out: `
namespace/dev-shop unchanged
clusterrole.rbac.authorization.k8s.io/dev-reader unchanged
configmap/dev-motd-HASH unchanged
nodeconfig.tako.dev/dev-extra unchanged
nodeconfig.tako.dev/dev-web unchanged
`},
		{name: "no difference", run: "kubectl kustomize kustomize/overlays/dev | TAKO_NAMESPACE=dev-shop tako diff -f - --set shop --prune"},
	}
}

func changes() []step {
	return []step{
		{name: "others make something", run: "kubectl create configmap theirs -n dev-shop --from-literal=a=b && kubectl create configmap copied -n dev-shop && " +
			"kubectl label configmap copied -n dev-shop tako.dev/set=dev-shop.shop", out: "configmap/theirs created\nconfigmap/copied created\nconfigmap/copied labeled\n"},
		{name: "change the generator", run: "sed -i s/motd=welcome/motd=hello/ kustomize/base/kustomization.yaml"},
		{name: "dry run says what goes", run: dev + " --dry-run=server | grep motd", out: "configmap/dev-motd-HASH created (dry run)\nconfigmap/dev-motd-HASH deleted (dry run)\n"},
		{name: "the difference too", run: "kubectl kustomize kustomize/overlays/dev | TAKO_NAMESPACE=dev-shop tako diff -f - --set shop --prune | grep motd:", exit: 1,
			out: "+  motd: hello\n-  motd: welcome\n"},
		{name: "the old one goes", run: dev, out: `
namespace/dev-shop unchanged
clusterrole.rbac.authorization.k8s.io/dev-reader unchanged
configmap/dev-motd-HASH created
nodeconfig.tako.dev/dev-extra unchanged
nodeconfig.tako.dev/dev-web unchanged
configmap/dev-motd-HASH deleted
`},
		{name: "what is not of the set stays", run: "tako get configmaps -A -o name", out: "configmap/copied\nconfigmap/dev-motd-HASH\nconfigmap/theirs\nconfigmap/prod-motd-HASH\n"},
		{name: "remove a document, and the last one of a kind", run: "sed -i 's/ extra.yaml, reader.yaml/ /' kustomize/base/kustomization.yaml && " + dev, out: `
namespace/dev-shop unchanged
configmap/dev-motd-HASH unchanged
nodeconfig.tako.dev/dev-web unchanged
nodeconfig.tako.dev/dev-extra deleted
clusterrole.rbac.authorization.k8s.io/dev-reader deleted
`},
		{name: "the other overlay is another set", run: "tako get nodeconfigs,clusterroles -n prod-shop -l stage=prod -o name", out: `
nodeconfig.tako.dev/prod-extra
nodeconfig.tako.dev/prod-web
clusterrole.rbac.authorization.k8s.io/prod-reader
`},
		{name: "a namespace that holds something stays", run: "sed -i 's/namespace.yaml, //' kustomize/base/kustomization.yaml && " + dev,
			errs: "warning: namespace/dev-shop is not declared any more and stays: configmap/copied in namespace dev-shop would go with it",
			out:  "configmap/dev-motd-HASH unchanged\nnodeconfig.tako.dev/dev-web unchanged\n"},
	}
}

// refusals change nothing, as the last of them proves.
func refusals() []step {
	return []step{
		{name: "remember everything", run: everything + " > before"},
		{name: "a broken document", run: `sed 's/"0644"/"0999"/' kustomize/base/web.yaml | tako apply -f - -f kustomize/base/reader.yaml --set shop -n shop --prune`, exit: 2,
			errs: `error\[TK0\d+\]: .*<stdin>:\d+:\d+`},
		{name: "a build that failed", run: "kubectl kustomize kustomize/nowhere 2>/dev/null | tako apply -f - --set shop -n dev-shop --prune", exit: 2, errs: "TK0408.*no document"},
		{name: "the wrong namespace", run: "kubectl kustomize kustomize/overlays/prod | tako apply -f - --set shop -n dev-shop --prune", exit: 2,
			errs: `the document says namespace "prod-shop", the command line "dev-shop"`},
		{name: "the wrong overlay", run: "kubectl kustomize kustomize/overlays/prod | TAKO_NAMESPACE=dev-shop tako apply -f - --set shop --prune", exit: 6,
			errs: `it is of set "prod-shop.shop", and would be of set "dev-shop.shop"`},
		{name: "nothing of the set", run: "tako apply -f kustomize/base/extra.yaml -f kustomize/base/namespace.yaml --set shop -n dev-shop --prune", exit: 2, errs: `says namespace "shop"`},
		{name: "nothing of the set, in its namespace", run: "TAKO_NAMESPACE=dev-shop tako apply -f kustomize/base/extra.yaml -f kustomize/base/namespace.yaml --set shop --prune", exit: 6,
			errs: "TK1104.*nothing that it has is declared.*--prune-all"},
		{name: "what others made", run: "kubectl get configmap theirs -n dev-shop -o yaml | tako apply -f - --set shop -n dev-shop --prune", exit: 6, errs: "it was made by others"},
		{name: "nothing was changed", run: everything + " | cmp - before"},
	}
}

func endings() []step {
	return []step{
		{name: "all of it is meant", run: "TAKO_NAMESPACE=dev-shop tako apply -f kustomize/base/extra.yaml -f kustomize/base/namespace.yaml --set shop --prune --prune-all",
			errs: "namespace/dev-shop is not declared any more and stays", out: `
namespace/shop created
nodeconfig.tako.dev/extra created
nodeconfig.tako.dev/dev-web deleted
configmap/dev-motd-HASH deleted
`},
		{name: "others go, and the namespace can", run: "kubectl delete configmaps theirs copied -n dev-shop", out: "configmap \"theirs\" deleted\nconfigmap \"copied\" deleted\n"},
		{name: "it does", run: "TAKO_NAMESPACE=dev-shop tako apply -f kustomize/base/extra.yaml -f kustomize/base/namespace.yaml --set shop --prune", out: `
namespace/shop unchanged
nodeconfig.tako.dev/extra unchanged
namespace/dev-shop deleted
`},
		{name: "and is gone", run: "tako wait namespace/dev-shop --for=delete --timeout=4m", errs: "namespace/dev-shop: delete reached"},
	}
}

// TestKubectlPrunes: both ways of kubectl to prune work with our kinds.
func TestKubectlPrunes(t *testing.T) {
	p := newPerson(t, true)
	const list = "kubectl get nodeconfigs,clusternodeconfigs,configmaps -o name -l set=k"
	const applySet = "KUBECTL_APPLYSET=true kubectl apply --prune --applyset=configmaps/parent -n default -f applyset/"
	const selector = "kubectl apply --prune -l set=k --prune-allowlist=tako.dev/v1alpha1/NodeConfig --prune-allowlist=tako.dev/v1alpha1/ClusterNodeConfig -f applyset/"
	all := "nodeconfig.tako.dev/goes\nclusternodeconfig.tako.dev/cgoes\nconfigmap/stays\n"
	p.play(t, []step{
		{name: "a set of kubectl", run: applySet + "first.yaml >/dev/null && " + list, out: all},
		{name: "prune it", run: applySet + "second.yaml | sort", // in no order of its own
			out: "clusternodeconfig.tako.dev/cgoes pruned\nconfigmap/stays unchanged\nnodeconfig.tako.dev/goes pruned\n"},
		{name: "server-side", run: applySet + "first.yaml --server-side --force-conflicts >/dev/null && " + list, out: all},
		{name: "prune it again", run: applySet + "second.yaml --server-side --force-conflicts >/dev/null && " + list, out: "configmap/stays\n"},
		{name: "what a selector finds", run: "kubectl delete configmap stays >/dev/null && kubectl apply -f applyset/first.yaml >/dev/null && " + list, out: all},
		{name: "prune what a selector finds", run: selector + "second.yaml | sort", errs: ".*",
			out: "clusternodeconfig.tako.dev/cgoes pruned\nconfigmap/stays unchanged\nnodeconfig.tako.dev/goes pruned\n"},
		{name: "only what was meant is left", run: list, out: "configmap/stays\n"},
	})
}

#!/bin/sh
# Writes all generated files: deep copies, model names and OpenAPI definitions of the API's types, and what go:generate lines ask
# for. A kind that the server serves stands below, or the server stops at start with "cannot find model definition".
set -eu
cd "$(dirname "$0")/.."

tool() {
	go tool -modfile=tools/pinned/go.mod "$@"
}

# Packages whose types are ours; the others' are in the module cache, and have their model names.
ours='tako.dev/tako/declare tako.dev/tako/declare/workload tako.dev/tako/api/v1alpha1'

# Import path, then the kinds that are served; none stands for every type of the package.
served='
tako.dev/tako/declare
tako.dev/tako/declare/workload
tako.dev/tako/api/v1alpha1
k8s.io/api/core/v1 Namespace NamespaceList ConfigMap ConfigMapList Secret SecretList Event EventList
k8s.io/api/coordination/v1 Lease LeaseList
k8s.io/api/rbac/v1 Role RoleList RoleBinding RoleBindingList ClusterRole ClusterRoleList ClusterRoleBinding ClusterRoleBindingList
k8s.io/api/authentication/v1 SelfSubjectReview TokenReview
k8s.io/api/authorization/v1 SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview LocalSubjectAccessReview
k8s.io/api/autoscaling/v1 Scale
k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 CustomResourceDefinition CustomResourceDefinitionList
k8s.io/apimachinery/pkg/apis/meta/v1
k8s.io/apimachinery/pkg/api/resource
k8s.io/apimachinery/pkg/runtime
k8s.io/apimachinery/pkg/util/intstr
k8s.io/apimachinery/pkg/version
'

packages=$(printf '%s' "$served" | awk 'NF { print $1 }')
roots=$(printf '%s' "$served" | awk 'NF == 1 { print $1 } { for (i = 2; i <= NF; i++) print $1 "." $i }')
theirs=$(printf '%s' "$packages" | grep -v '^tako\.dev/' | paste -sd , -)

tool deepcopy-gen --output-file zz_generated.deepcopy.go $ours

# One run sees all packages: a definition refers to another by the name that the other's package has for it. The report lists
# names that break Kubernetes' conventions; those of Kubernetes itself do.
report=$(mktemp)
trap 'rm -f "$report"' EXIT
definitions=internal/apiserver/openapi
tool openapi-gen --output-model-name-file zz_generated.model_name.go --readonly-pkg "$theirs" \
	--output-dir $definitions --output-pkg tako.dev/tako/$definitions --output-file zz_generated.openapi.go \
	--report-filename "$report" $packages
if grep ',tako\.dev/' "$report" >&2; then
	echo "generate: these break Kubernetes' conventions for API types" >&2
	exit 1
fi
go run ./tools/openapi -file $definitions/zz_generated.openapi.go $roots

go generate ./...

package kustomize

import (
	"encoding/json"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/openapi"

	"tako.dev/tako/declare"
)

// clusterKinds are those of our kinds that stand in no namespace. What a kustomization does with its namespace is left to the library,
// which has to know them for that: a kind that it does not know it takes for one in a namespace.
func clusterKinds() []string {
	return []string{declare.KindClusterNodeConfig, "ClusterRevision", "Node", "Assignment", "Token"}
}

// teach has the library know our kinds, and nothing of what an earlier kustomization has taught it: its knowledge is global.
func teach() error {
	if openapi.GetSchemaVersion() != openapi.DefaultOpenAPI {
		openapi.ResetOpenAPI()
	}
	group, version, _ := strings.Cut(declare.APIVersion, "/")
	paths := map[string]any{}
	for _, kind := range clusterKinds() {
		// A path without {namespace} is what says that there is none.
		paths["/apis/"+declare.APIVersion+"/"+strings.ToLower(kind)] = map[string]any{
			"get": map[string]any{"x-kubernetes-group-version-kind": map[string]string{"group": group, "version": version, "kind": kind}},
		}
	}
	schema, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return err
	}
	return openapi.AddSchema(schema)
}

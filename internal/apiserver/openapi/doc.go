// Package openapi is the OpenAPI definitions of every kind that the server serves: ours, those of Kubernetes that stand beside them,
// and what they refer to. All of it is generated (tools/generate.sh, where the kinds are listed) from the doc comments and tags of
// the Go types. It owns no goroutine and keeps no state: GetOpenAPIDefinitions builds the map anew at each call.
package openapi

// Package v1alpha1 is the API group tako.dev in version v1alpha1: Kubernetes envelopes (metadata, status, conditions, lists)
// around what package declare defines. A field of a host resource is defined there and only there; what an envelope adds is
// defined here. The package owns no goroutine and does no I/O.
//
// Nothing is defaulted into an object: what is stored holds only what was declared, and the default of a field is applied
// where the field is read. So a later default changes nothing that is stored.
//
// Each kind has a function that returns the mistakes of an object as []declare.Fault, with the path of the field and the
// words and codes that the reader of files uses: the same mistake reads the same from every program.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.v1alpha1
// +groupName=tako.dev
package v1alpha1

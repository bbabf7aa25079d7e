// Package registry is the kinds that the server serves, and how each is stored.
//
// A Kind says everything about one kind: names, columns, validation, what happens before it is written. Storage makes of it
// what the API library serves. The Go types are registered in their version and once more as the library's internal version,
// so that nothing is ever converted (Scheme). Every object is JSON in etcd, under /tako/GROUP/RESOURCE/NAMESPACE/NAME.
package registry

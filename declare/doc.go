// Package declare is what users declare, in plain Go: the kinds, their resources, defaults, claims, validation and the
// strict reader of declaration files. It is the one definition of every field; the API wraps these types in Kubernetes
// envelopes and the agent acts on them. It does no I/O but ReadFiles and Load, owns no goroutine, and imports the standard
// library, the YAML parser and internal/reason only.
//
// The way of a declaration: Read (bytes to typed values, every mistake of a file at once, with line and column) ->
// Validate (values to []Fault) -> Claim (what a resource is about) -> the catalog, which picks one winner per claim.
// Load does the first two for files and directories. On the host, Expr.Eval decides `when`, and Resource.Expanded fills
// in what differs from host to host.
package declare

// Package documents reads what a person hands to the command line: files, directories and standard input, of one or
// several YAML or JSON documents each, of any kind that a server may know.
//
// A document of tako's own configuration kinds is read by package declare, strictly, exactly as an agent would read it, and a
// workload by its package below that, so that a mistake is found before anything is sent. Any other document is read as Kubernetes tools read it; whether it is
// right is for the server to say. Either way a field that the server names is found again in the file:
//
//	Read   -> []Document, []declare.Fault   every mistake of every file at once
//	Sort   -> the order of creation: what others stand in or refer to comes first
//	Place  -> file, line and column of a field path in the words of the server
//
// The package owns no goroutine and does no I/O but reading the files it is given.
package documents

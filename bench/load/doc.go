// Package load starts tako servers, the built program as a process, and puts load on them as many clients do: it creates, lists
// and watches objects, and tells how long that took.
//
// Forge serves a repository to them, as forges do, and counts what it is asked.
//
// A Server has one goroutine that waits for the process and one that reads what it says; both end with Stop or Kill. A
// Forge has one that serves, which ends with Stop. What a function starts has ended when it returns. Requests go to HTTP directly,
// because a client library's work is not the server's.
package load

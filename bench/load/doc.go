// Package load starts tako servers, the built program as a process, and puts load on them as many clients do: it creates, lists
// and watches objects, and tells how long that took.
//
// A Server has one goroutine that waits for the process and one that reads what it says; both end with Stop or Kill. What a
// function starts has ended when it returns. Requests go to HTTP directly, because a client library's work is not the server's.
package load

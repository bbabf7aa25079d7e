// Package audit writes down who asked for what and what he got: one line of JSON a request, without bodies, in a file that
// only the server's user can read.
package audit

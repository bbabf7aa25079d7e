// Package endpoints writes down which ready instances there are, for programs that do not ask the DNS: a document of JSON, the same as a
// table that a shell reads, and environment variables that a task is started with.
//
// The files are of the moment, and replaced as a whole when what they say changes, and only then; a program that watches one is told of
// nothing else. What they have is bounded, and each service says how many instances there are that are not listed. Environment variables are of
// the moment at which the task starts.
package endpoints

// Package content stores bytes by the digest of what they are: old contents of managed files, texts that a check refused.
// Content that is stored twice takes its place once.
//
// A store is a directory:
//
//	a/bb...       one object; a and bb... are its digest in hexadecimal
//	tmp/          what is being written; emptied by Open
//	corrupt/      objects whose content did not match their name any more, for a person to look at
//
// An object is written to tmp, made durable, renamed to its place, and its directory made durable; so it is whole or not
// there. Every read verifies it. Trim, which the owner of what is needed calls, takes away what has become old, and sooner where
// the quota gets short. The directory belongs to one process; within it a Store may be used from several
// goroutines. The package owns no goroutine.
package content

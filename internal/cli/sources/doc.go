// Package sources is the commands about Sources: what they are at, what a commit would change, and where an object is from.
//
//	diff   tree of a commit -> render, as the server does -> plan, as the server does -> text or Markdown
//	trace  object -> Source -> commit -> author -> file and line, and who else owns its fields
//	steer  reconcile, suspend and resume: small changes of the Source itself
//
// The commit is fetched by the git program of whoever asks, with that person's credentials, into a directory that is removed again;
// what is in it is then read as the server reads it. It owns no goroutine.
package sources

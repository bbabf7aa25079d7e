// Package repository carries out where package managers get packages from: sources of apt, repositories of dnf. Each is a file, and may
// have another one with its keys.
//
//	check:   a hash over the stat of its files, of those of others beside it and of the lists is as it was -> recognised
//	         otherwise read them: is another file about the same repository? is anything fetched?
//	apply:   look again; not as it was checked -> ConcurrentEdit
//	         another file says otherwise -> an error, because then the package manager would refuse to do anything
//	         write the files to /run/tako-repository, and have the package manager fetch that repository alone
//	         only when that has gone well: the key, then the file, to their places, through package durable
//	remove:  the file, the keys unless another file names them, what was fetched unless another file names its place
//
// So a repository that does not answer, or that is signed by somebody else, never gets into the configuration, where it would fail every
// other update, and what was fetched before stays as it is. A run that is killed in between leaves lists that the package manager removes by
// itself, or a key that nobody names; the next one begins anew.
//
// dnf fetches by itself what is old or missing, so that for it only the files count. In a sandbox there are files only.
//
// The package owns no goroutine.
package repository

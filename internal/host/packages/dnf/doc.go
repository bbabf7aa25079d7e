// Package dnf is the back end for the package manager of Fedora and its relatives: dnf 4, above rpm with a database of SQLite.
//
// What is installed is read from rpm's own database without rpm: nothing runs, nothing is written, and while the files of the database are as
// they were, a look costs two stats. Of a package's header only the beginning is read, of the database only its pages, and those that are
// in its write-ahead log from there.
//
// Everything else is dnf's own to decide. Its library is asked by a script (driver.py) that answers in JSON; what its commands print is for
// people, and changes:
//
//	offers   what was fetched has of packages; nothing is fetched or written
//	update   fetch what the repositories have now
//	try      resolve a transaction, and say what it would do
//	change   resolve it again, download, check signatures by the keys of the repositories, and carry it out
//
// A transaction outlives the agent: see command.Tool, Lasting.
//
// Packages are held by the plugin versionlock of dnf, whose file has a line for each. Without it, holding is refused.
//
// The package owns no goroutine.
package dnf

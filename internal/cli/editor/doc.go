// Package editor takes one object through a person's editor: get, open, save, and open again with the reasons on top while the
// server refuses it. The file is for its owner only, because there may be secrets in it. The editor is a process that Run waits
// for; the package owns no goroutine.
package editor

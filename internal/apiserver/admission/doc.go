// Package admission refuses what is well formed and allowed, and must not be all the same: objects in a namespace that is not
// there or is being deleted, rights that their giver does not have, and definitions of kinds that are the server's own.
package admission

// Package admission refuses what is well formed and allowed, and must not be all the same: objects in a namespace that is not
// there or is being deleted, and rights that their giver does not have.
package admission

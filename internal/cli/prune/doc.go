// Package prune keeps sets: what is applied together under one name, so that what is not declared any more can be found and
// deleted, and nothing else.
//
// A set is the label Label with NAMESPACE.NAME as its value: the namespace of the command line and the name that --set gives.
// So two people who take the same name in two namespaces have two sets. The label alone proves nothing, because anybody can
// copy it: an object is of a set when this command line owns the label, as the server's field owners say. The server is the
// only memory; there is no inventory that could be lost.
//
// What is of a set comes into it by apply alone, and apply is refused (Set.Fault) for an object of another set and for one
// that others made, unless their owner is overruled. What goes is decided before anything is changed (Set.Leftovers):
//
//	members   = objects of the set, of every kind that the server serves: a kind may be gone from the files altogether
//	leftovers = members - declared - what another object controls - namespaces and kinds that hold what others made
//
// A set of which nothing would be left is refused, because the files are then more likely those of something else; a
// generated name that changes with its content (kustomize) counts as the same object. The package owns no goroutine.
package prune

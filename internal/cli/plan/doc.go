// Package plan is what applying documents would do, as the server says, and the doing of it. Diff, apply and its dry run all
// make the same plan, so what one shows is what another does:
//
//	place   each document: kind and namespace, without asking about the object
//	ask     what there is, and what there would be (a dry run of server-side apply), several at a time
//	refuse  with every mistake of every document, before anything is changed
//
// What a document needs that comes with another one (its kind, its namespace) cannot be asked about yet: such a change is
// Unchecked until its turn comes. Goroutines: Make asks in an errgroup that it waits for.
package plan

// Package presence is the one home of what is heard of hosts. All of it is soft: a server that begins has heard nobody, and knows all
// within a heartbeat. What is stored are the conditions of a Node when one of them changes, and the highest state that its host has
// taken up, from which it is seen that a host went back in time.
//
//	watches, heartbeats, reports -> node.Life;   event or time -> node.Decide -> conditions
//	Node objects                 -> who there is, and what was stored
//	reader of a Node             <- Decorate;   assignments <- Of, Changes;   people <- Events
//	store                        <- conditions that changed: at once; a higher mark alone: some seconds later, with what came meanwhile
//
// Opened, Closed, Asked and Heard note what happened and return. One goroutine, of Run, decides about what was noted and about what time
// changes, which a heap of wake times tells. Others write to the store, and follow the Nodes; Run owns all, and ends with its context.
//
// Ready is that the agent answers, as it is of a Node in Kubernetes; whether everything is as declared there is told by the counts and
// the verdict beside it, and for all nodes together by the Ready of a config.
//
// A host that says something else each time is heard, and shown as it is; others are told, and the store and people, at a bounded pace (calm.go).
//
// Memory for a node is that of its last report, which package wire bounds: some two KiB as a rule, and a quarter for each instance that it has.
package presence

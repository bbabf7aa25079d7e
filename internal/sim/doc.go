// Package sim is the whole way of a change in one process: the store, three servers, two relays, fifty hosts, and the people who declare and sign. The
// clock, the network and the disks are virtual, and a seed says everything that happens. It does no I/O, starts no goroutine and reads no clock. The
// package has nothing but tests.
//
// It drives what decides: catalog and trust sign and verify, transfer/core is the machine of each host and transfer/relay/core that of a relay, agent/core
// and converge make a graph of a state and converge it. What stands around them in the product does I/O, and is modelled here, each in a file:
//
//	store, server   etcd with its watches; a view that is behind or lacks something; heads that follow from it (controllers/heads)
//	relay, liar     the stream of a relay, what it keeps (transfer/relay); what somebody makes of one who has taken it over
//	agent           one watch, one request, durable effects (transfer/client)
//	held, disk      heads, lists and layers in files (agent/held, layerstore); a disk that loses and tears what was not synced, and flips bits
//	host, work      active state, ledger, trials; operations on a host that drifts (agent)
//	expiry          what a host leaves out because its TTL is over (agent, agent/load), and what it has to by the words of the specification
//	people, faults  what people do, and what goes wrong
//	check, truth    the invariants, and what they are measured by
//
// A world lives so:
//
//	for some minutes: draw what goes wrong, and what people do; after each event check A1, A2, A3, T2 and T3 of whoever it was about
//	heal: nothing goes wrong any more, people give every host something newest
//	within healTime: every host is there, or says with a code why not (T1); nothing that was owed is forgotten (A3)
//	after that: nobody asks for anything (T3)
//
// What is checked:
//
//	A1  the mark of a host never goes back, over crashes and torn writes; what is handed over was signed for this host, or ordered by an operator
//	    whose key and statement count, and is on the disk as its root says; an older state comes back only after deaths of its own
//	A2  the active state is one that was found right before: of each claim what the highest priority wants of what has not
//	    expired, and no more deleted than may be; nothing is active for longer after its TTL than it takes to write that down
//	A3  who comes after something that was changed is in the ledger until it was told; what has left the declarations leaves the host
//	T1  see above
//	T2  servers and relays know as many watches as there are hosts, whatever hosts do
//	T3  a pause after each failure, no request for what was refused, no more than so many in a minute, no death of one state for ever
//
// A machine is told a time that does not go back while it runs, so a clock that is set back is what the next run finds. What is not here: trials
// with a fallback, peers and places, secrets, bundles, joining, certificates, rollouts (fleet/rollout has a simulation of
// its own).
package sim

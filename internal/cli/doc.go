// Package cli is the command line tako: each command reads its flags, asks the server, and shows the answer. What is worth
// a test of its own lives below:
//
//	what is asked   settings finds the server, selection reads which objects are meant, documents reads files
//	asking          remote speaks to the server, follow goes along with changes over its restarts, await judges conditions
//	changing        plan says what applying would do and does it, prune keeps sets, editor runs a person's editor
//	showing         output, describe and schema write, mask keeps secrets out of it, failure says what went wrong
//
// Three rules hold for every command. Data goes to standard output, everything else to standard error, so that a pipe gets
// data only. Every request and every wait has a deadline, except a watch that a person has asked for. A command returns its
// failure as an error and prints none itself; Run prints it once and turns it into the exit code.
//
// Goroutines: a command may ask several things of the server at once, in an errgroup that it waits for. Nothing outlives Run.
package cli

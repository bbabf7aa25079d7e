// Package instances keeps the instances of workloads of one host: what the host's own layer names is run, kept running as its template says, told
// of, and ended. Decisions are made in core; this package is its shell: records on disk, runtimes, probes, ports, directories.
//
//	STATE/instances/UID/record          what core must know again; written before what follows from it is done
//	STATE/instances/UID/volumes/NAME    temporary volumes; they go with the instance
//	STATE/instances/UID/has/NAME        that a volume with data was there when the instance began
//	STATE/volumes/NAMESPACE/WORKLOAD/SLOT/NAME    volumes with data; they stay
//	STATE/runtimes/NAME                 what a runtime keeps
//
// A Keeper that has nothing to keep costs a goroutine that sleeps: runtimes are opened when the first instance comes, or has been left by an
// earlier run. Otherwise it sleeps until something is told to it, or something is due: nothing is polled.
//
// Goroutines: Run's own is the only one that steps the Machine. It starts one for each runtime, which tells of attempts; one for each task that
// something is being done about, in order; and one for each open question of a probe, of which there is one for each probe of a task. When Run
// returns all are gone; what the runtimes run goes on.
package instances

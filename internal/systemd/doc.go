// Package systemd is the one connection to the system bus: what units are (Bus.Unit), what happens to them (Bus.Run and its
// events), and the few things that are done to them (Start, Stop, Restart, Enable, ...). Nothing else in the tree talks to
// systemd.
//
// Goroutines. Bus.Run owns the connection and the loop that hands out events; the D-Bus library adds one reader per
// connection, which ends when Run closes it. Calls run on their caller's goroutine.
//
// Algorithm of Run:
//
//	forever:
//	    dial, authenticate, ask the bus for the wanted signals, Manager.Subscribe
//	    emit Resync                       # subscribe, then check, then trust events
//	    until the connection is lost:
//	        wait for a signal
//	        systemd re-executed or reloaded: subscribe again, emit Resync
//	        otherwise: emit what is pending, once per unit
//	    wait 0.5 to 30 s with full jitter
//
// What is asked of the bus. An idle agent must stay asleep while unrelated units change, so the bus daemon does the
// filtering: two match rules per unit of interest (PropertiesChanged by object path, JobRemoved by unit name) as long as
// there are at most 64 units, and one rule for all units beyond, filtered here. UnitNew and UnitRemoved are deliberately not
// asked for: systemd sends both whenever somebody looks at a stopped unit, so looking because of them would go on for
// ever; a unit cannot change its state without a job or a property change. Jobs of units outside the set are asked for only
// while somebody waits for one.
package systemd

// Package path proves the way from a declaration to a fleet of hosts: a server and three agents on real hosts in two
// environments, driven by the command line as people drive it, with real cuts, kills and reboots.
//
// Booting takes most of the time, so the scenarios of a test share a fleet and follow one another; each leaves it as the next one needs it.
// Tests have hosts of their own, and run side by side. They wait for states, never for a time.
package path

// Package systemdtest is the suite that tells whether a systemd behaves as internal/systemd relies on: Conformance runs
// against the real one in a host, and against anything that takes its place. It owns the goroutine of each Bus it runs
// and ends it with the test.
package systemdtest

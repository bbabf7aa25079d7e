// Package host boots real hosts for tests: systemd as pid 1, an own disk, an own address, and a signed Debian package
// repository as the only thing beyond them that they can reach.
//
// A Lab is one network with its hosts. Its parts are chosen so that nothing outlives the test process, not even when that
// is killed with SIGKILL:
//
//   - The network is an anonymous network namespace with a bridge in it. One goroutine, locked to its operating system
//     thread, lives in that namespace for as long as the lab; everything that must happen inside is handed to it. When the
//     thread is gone and the last host with it, the kernel removes bridge and links. Every lab uses the same addresses.
//   - A host is systemd-nspawn as first process of a PID namespace and a mount namespace of its own. That first process is
//     told by the kernel to die with the lab's thread, and takes everything below it along: there is no process and no
//     mount to clean up.
//   - A host's disk is a copy of the shared root, so that what tests are about, in /etc and /var, is on a file system like
//     any other. Only /usr, nineteen twentieths of the root, is an overlay over the shared one.
//   - A host has control groups of its own, because two systemds in one group would take one another's processes for
//     their own. Groups and the lab's directory do stay behind after a SIGKILL. The lab is locked by its owner, so the
//     next NewLab tells a living lab from a dead one and removes the latter.
//
// The shared root and the packages of the repository are built once per recipe, under a lock, into the cache directory
// ($TAKO_TEST_CACHE, default /var/cache/tako-test), and never written again.
//
// Goroutines: one per lab (the network's thread), one per lab for the repository's HTTP server, one per running host that
// waits for it to end, one per Process. Lab's cleanup ends and awaits all of them.
package host

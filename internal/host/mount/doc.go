// Package mount carries out file systems that are mounted and areas that are swapped to: in the kernel now, and in /etc/fstab for each boot.
//
//	check:  nothing was told since it was found as declared (poll(2) on the kernel's list, the stat of fstab) -> recognised
//	        otherwise look: read the list and fstab, find out what the source is, ask systemd whether it has read fstab
//	apply:  look again; not as it was checked -> ConcurrentEdit
//	        to have it: the kernel first (mount, remount, swapon), so that what it refuses does not stop the next boot; then fstab
//	        to have it not: fstab first, then the kernel, which may refuse because it is in use
//	        one daemon-reload for all lines that have changed, then look again
//
// What is in two places may be stopped between them: each is right by itself, and the next check finds what is left.
//
// Mounting is mount(8)'s and not a unit's, although systemd makes one of each line: the programs for network file systems are found that way,
// its words say what is wrong, it works without systemd, and systemd takes note of every mount by itself. What systemd must be told is that
// fstab has changed, because it unmounts by what it has read.
//
// Of fstab, only the lines of the declared path are touched; all others stay byte for byte. What is mounted is taken away only if it is what is
// declared or what fstab says; never lazily, never by force. No device is ever formatted.
//
// The package owns no goroutine.
package mount

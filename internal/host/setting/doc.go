// Package setting carries out the settings of a host: parameters and modules of the kernel, the host's name, the entries of /etc/hosts,
// the time zone and the language. Each is a Type of its own; they share their form:
//
//	check:  a hash over the stat of each file and over what the kernel says is as it was when the setting was found as declared -> recognised
//	        otherwise look (read the files, ask the kernel; nothing is run) and compare
//	apply:  look again; not as it was checked -> ConcurrentEdit
//	        the kernel first, so that what it refuses is not there after the next boot either; then the files, through package durable
//	        look again: what is still not as declared is an error
//
// A setting that is in several places (the kernel, a file for the next boot) may be stopped between any two of them: each is right by itself,
// and the next check finds what is left. There is nothing to note in between.
//
// In a file that others write too, only what is declared is touched, line by line; everything else stays byte for byte. What others do
// after us in the order of such files (sysctl.d(5)) is told, and not fought.
//
// The package owns no goroutine.
package setting

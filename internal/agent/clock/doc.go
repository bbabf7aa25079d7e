// Package clock follows the wall clock of the host: what it shows and in which zone, and when it shows a time.
//
// Timers of Go count time that has passed, and not what clocks show: whoever sets a clock, or lets the host sleep, is not noticed by them.
// An Alarm is one of the kernel, timerfd_create(2), which is cancelled when clocks are set or the host wakes up. Its Run owns the one
// goroutine of the package.
package clock

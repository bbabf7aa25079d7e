// Package until is flags that say until when: how long something lasts, or the time at which it ends.
//
// The package owns no goroutine.
package until

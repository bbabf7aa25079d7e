// Package body looks at what requests carry before anybody decodes it. It reads as the decoder reads, holds no more than a few
// bytes, and has no goroutine of its own.
package body

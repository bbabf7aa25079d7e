// Package body looks at what requests carry before anybody decodes it: whether it is text, and whether that text can be what it
// should be. It reads as the decoder reads, and holds no more than a few bytes, but for Secrets and ConfigMaps, which it holds whole
// and bounded. It has no goroutine of its own.
package body

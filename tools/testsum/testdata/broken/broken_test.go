// Package broken does not build.
package broken

import "testing"

func TestBroken(t *testing.T) { nowhere() }

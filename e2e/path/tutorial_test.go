//go:build e2e

package path

import (
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/rig"
)

// TestTutorial runs every command of docs/tutorial.md, in one shell, as a reader does.
func TestTutorial(t *testing.T) {
	t.Parallel()
	out := rig.Tutorial(t, filepath.Join("..", "..", "docs", "tutorial.md"), rig.Programs(t))
	for _, want := range []string{"hello of web-1\n", "hello of web-2\n", "kept by tako\n", "nothing needs attention", "Halted", "Repaired (drift)"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
}

package source

import (
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/rig"
)

// TestTutorial runs every command of docs/gitops.md.
func TestTutorial(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs the built programs, which -short leaves out")
	}
	out := rig.Tutorial(t, filepath.Join("..", "..", "docs", "gitops.md"), rig.Programs(t))
	for _, want := range []string{"kept by a commit\n", "kept by a pull request\n", "base/motd.yaml", "Ann Example <ann@example.com>", "TK0412", "stays applied", "hello of web-1"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	if testing.Verbose() {
		t.Log(out)
	}
}

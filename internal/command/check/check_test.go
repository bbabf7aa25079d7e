package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestRun(t *testing.T) {
	content := filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(content, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx         context.Context
		command     string
		private     bool
		code        reason.Code
		says, hints string
	}{
		"accepted":               {command: "grep -q secret {}"},
		"rejected":               {command: "cat {} /nosuch", code: reason.CheckRejected, says: "secret"},
		"private":                {command: "cat {} /nosuch", private: true, code: reason.CheckRejected, hints: "only the owner may read"},
		"not there":              {command: "nosuch-check {}", code: reason.CheckNotRun, hints: "install nosuch-check"},
		"not there, and private": {command: "nosuch-check {}", private: true, code: reason.CheckNotRun, hints: "install nosuch-check"},
		"interrupted":            {ctx: ended, command: "sleep 60", code: reason.Interrupted, hints: "was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.ctx == nil {
				row.ctx = t.Context()
			}
			err := Run(row.ctx, Question{Command: strings.Fields(row.command), Path: "/etc/x", Content: content, Private: row.private})
			if row.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := reason.Of(err)
			if !reason.Is(err, row.code) || !strings.Contains(e.Evidence, row.says) || !strings.Contains(e.Hint, row.hints) || e.Doing != "check the new content of /etc/x" {
				t.Errorf("%+v, want %v", e, row.code)
			}
			if row.private && strings.Contains(e.Error()+e.Evidence+e.Hint, "secret") {
				t.Errorf("it tells what is private: %+v", e)
			}
		})
	}
}

func TestShown(t *testing.T) {
	if got := Shown([]string{"visudo", "-cf", "{}"}); got != "visudo -cf {}" {
		t.Error(got)
	}
}

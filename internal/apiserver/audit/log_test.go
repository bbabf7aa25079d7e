package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// TestLog: what nobody knows whom asks for does not drive out what those did who are known, and no line gets long.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	event := func(name, uri string) *auditinternal.Event {
		return &auditinternal.Event{
			Level: auditinternal.LevelMetadata, Stage: auditinternal.StageResponseComplete, RequestURI: uri, User: authentication.UserInfo{Username: name},
		}
	}
	long := event("ann", "/api/"+strings.Repeat("x", 900<<10))
	if !l.Backend().ProcessEvents(event("ann", "/api"), event("", "/secret"), long) {
		t.Error("something was not written")
	}
	if len(long.RequestURI) < 900<<10 {
		t.Error("the event itself was changed")
	}
	for name, test := range map[string]struct {
		lines int
		words string
	}{knownName: {2, "ann"}, unknownName: {1, "/secret"}} {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(b), "\n") != test.lines || !strings.Contains(string(b), test.words) || len(b) > 4<<10 {
			t.Errorf("%s has %d bytes, want %d lines and %q", name, len(b), test.lines, test.words)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

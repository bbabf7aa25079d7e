package git

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// A fetch that is killed at any moment leaves a cache that the next one completes, and nothing half-written.
func TestKilledInTheMiddle(t *testing.T) {
	o := newOrigin(t)
	files := map[string]string{}
	for i := range 400 {
		files[fmt.Sprintf("f%03d", i)] = fmt.Sprint(i, "first")
	}
	o.commit(files)
	server := httptest.NewServer(&served{next: backend(o)})
	defer server.Close()
	remote := Remote{URL: server.URL + "/repo.git", PlainHTTP: true}
	g := newGit(t, Limits{})
	r := g.Repository("k")
	cut := 0
	for i := range 30 {
		files["f007"] = fmt.Sprint("changed ", i)
		id := o.commit(map[string]string{"f007": files["f007"]})
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
		_, err := r.Fetch(ctx, remote, Ref{Name: "refs/heads/main", ID: id}, []string{"f007", "f008"})
		cancel()
		if err != nil {
			cut++
			if !reason.Is(err, reason.Interrupted) {
				t.Errorf("cut off after %d ms: %v", i*5, err)
			}
		}
		if i%3 != 0 {
			continue
		}
		if _, err := r.Fetch(t.Context(), remote, Ref{Name: "refs/heads/main", ID: id}, []string{"f007", "f008"}); err != nil {
			t.Fatalf("after one that was cut off: %v: %s", err, reason.Of(err).Evidence)
		}
		if got := filesOf(t, r, id); got != files["f007"] {
			t.Errorf("f007 is %q, want %q", got, files["f007"])
		}
		if left, _ := filepath.Glob(filepath.Join(r.dir, "objects/pack/tmp_*")); len(left) > 0 {
			t.Errorf("half-written packs are left: %v", left)
		}
	}
	if cut == 0 {
		t.Error("no fetch was cut off")
	}
	wantNoneWith(t, "GIT_CONFIG_GLOBAL="+configPath, g.dir)
}

func filesOf(t *testing.T, r *Repository, id ID) string {
	t.Helper()
	return files(t, r, id, "f007", "f008")["f007"]
}

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/agent/book"
	"tako.dev/tako/internal/agent/left"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

// opened is a book in a state directory.
func opened(t *testing.T, dir string, onLine func(Line)) (*book.Book, *store.Store) {
	t.Helper()
	st, err := store.Open(dir, time.Now())
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return book.New(st, onLine), st
}

func TestLinesAreKeptInTheHistory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var shown []Line
	b, st := opened(t, dir, func(l Line) { shown = append(shown, l) })
	full := report.ProblemOf(&reason.Error{Code: reason.DiskFull, Doing: "write /a", Evidence: "df"})
	for _, c := range []struct {
		line  Line
		cause converge.Cause
		want  store.Happening
	}{
		{Line{Resource: Resource{Outcome: reason.Repaired, Detail: reason.Drift}, Changes: []string{"mode"}, Writer: "uid 0", Note: "broke a hard link", Took: 1500 * time.Microsecond}, converge.CauseTouched,
			store.Happening{Outcome: "repaired", Detail: "drift", Code: "TK0520", Cause: "event", Changes: []string{"mode"}, Writer: "uid 0", Message: "broke a hard link", Took: 1500}},
		{Line{Resource: Resource{Outcome: reason.Repaired, Detail: reason.Change}}, converge.CauseDesired,
			store.Happening{Outcome: "repaired", Detail: "change", Code: "TK0521", Cause: "declaration"}},
		{Line{Resource: Resource{Outcome: reason.Failed, Problem: full}, Note: "note"}, converge.CauseRetry,
			store.Happening{Outcome: "failed", Code: "TK0502", Cause: "retry", Message: full.Message, Evidence: "df"}},
		{Line{Resource: Resource{Outcome: reason.Repaired, Detail: reason.Change, Removal: "delete"}}, converge.CauseOrder,
			store.Happening{Outcome: "repaired", Detail: "change", Code: "TK0521", Cause: "order", Message: "not declared any more, delete"}},
		{Line{Resource: Resource{Outcome: reason.Kept}}, converge.CauseExamined, store.Happening{Outcome: "kept", Cause: "audit"}},
	} {
		c.line.At, c.line.Resource.Title, c.line.Resource.Claim = time.Now(), "file/a", "path:/a"
		c.line.Cause = report.CauseName(c.cause)
		b.Tell(c.line)
		h, err := st.History(store.Asked{Subject: "file/a", Limit: 1})
		must(t, err)
		c.want.Title, c.want.Claim, c.want.At = "file/a", "path:/a", h[0].At
		if c.want.Code == "TK0502" {
			c.want.Code = reason.DiskFull.String()
		}
		if fmt.Sprintf("%+v", h[0]) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("kept %+v\nwant %+v", h[0], c.want)
		}
	}
	if troubles := b.Troubles(time.Now()); len(shown) != 5 || len(troubles) != 0 {
		t.Errorf("%d lines shown, troubles %v", len(shown), troubles)
	}
}

// TestFullStateDirectoryIsTold: what cannot be written down is told and shown all the same, and later is written again.
func TestFullStateDirectoryIsTold(t *testing.T) {
	dir := disktest.Mounted(t, "size=256k")
	var shown []Line
	b, st := opened(t, dir, func(l Line) { shown = append(shown, l) })
	fill(t, filepath.Join(dir, "ballast"))
	// The page that is written already may have room for some lines yet.
	for range 100 {
		b.Tell(Line{At: time.Now(), Resource: Resource{Title: "file/a", Claim: "path:/a", Outcome: reason.Kept}})
	}
	b.Save(&Report{Node: "web-1"})
	troubles := b.Troubles(time.Now())
	if len(shown) != 100 || len(troubles) == 0 || len(troubles) > 2 {
		t.Fatalf("%d lines shown, troubles %v", len(shown), troubles)
	}
	for _, e := range troubles {
		if e.Code != reason.StateUnwritable || !errors.Is(e, unix.ENOSPC) {
			t.Errorf("told as %v", e)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "ballast")))
	b.Tell(Line{At: time.Now(), Resource: Resource{Title: "file/b", Claim: "path:/b", Outcome: reason.Kept}})
	b.Save(&Report{Node: "web-1"})
	if h, err := st.History(store.Asked{Subject: "file/b"}); err != nil || len(h) != 1 {
		t.Errorf("with room again: %+v, %v", h, err)
	}
	if r, err := left.Report(dir); err != nil || r == nil || r.Node != "web-1" {
		t.Errorf("the report with room again: %+v, %v", r, err)
	}
}

// TestReportOfAnotherVersionOrDamaged: what is on disk is never taken for more than it is.
func TestReportOfAnotherVersionOrDamaged(t *testing.T) {
	write := func(data string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			st, err := store.Open(dir, time.Now())
			must(t, err)
			must(t, errors.Join(st.SaveReport([]byte(data)), st.Close()))
		}
	}
	raw := func(data string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			write(`{"node":"web-1"}`)(t, dir)
			must(t, os.WriteFile(filepath.Join(dir, "report"), []byte(data), 0o600))
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		node    string
		code    reason.Code
	}{
		"none":              {prepare: func(*testing.T, string) {}, code: reason.AgentNotRunning},
		"good":              {prepare: write(`{"node":"web-1"}`), node: "web-1"},
		"with a newer part": {prepare: write(`{"node":"web-1","weather":"fine","totals":{"sunny":1}}`), node: "web-1"},
		"an older one":      {prepare: write(`{"node":"web-1","counts":{}}`), node: "web-1"},
		"not a report":      {prepare: write(`[1,2,3]`), code: reason.StateCorrupt},
		"half a report":     {prepare: write(`{"node":"web`), code: reason.StateCorrupt},
		"truncated":         {prepare: raw("tako"), code: reason.StateCorrupt},
		"garbage":           {prepare: raw(strings.Repeat("\x00\xff", 100)), code: reason.StateCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			c.prepare(t, dir)
			r, running, err := local.StatusOf(t.Context(), dir, false)
			if running || c.code == 0 && (err != nil || r.Node != c.node) || c.code != 0 && !reason.Is(err, c.code) {
				t.Errorf("report %+v, %v; want %q, %v", r, err, c.node, c.code)
			}
		})
	}
}

// TestEventsDoNotFloodTheHistory: of a resource that somebody changes all the time so much is told in an hour and no more; what else happens to it, and
// what happens to others, is told.
func TestEventsDoNotFloodTheHistory(t *testing.T) {
	var shown []Line
	b, _ := opened(t, filepath.Join(t.TempDir(), "state"), func(l Line) { shown = append(shown, l) })
	at := time.Now()
	tell := func(title string, cause converge.Cause, times int) (told int) {
		before := len(shown)
		for range times {
			at = at.Add(time.Second)
			b.Tell(Line{At: at, Resource: Resource{Title: title, Outcome: reason.Failed}, Cause: report.CauseName(cause)})
		}
		return len(shown) - before
	}
	if n := tell("file/his", converge.CauseTouched, 1000); n != 30 {
		t.Errorf("of 1000 events %d are told", n)
	}
	if last := shown[len(shown)-1].Note; !strings.Contains(last, "30 times") {
		t.Errorf("the last one says %q", last)
	}
	if n := tell("file/other", converge.CauseTouched, 10) + tell("file/his", converge.CauseRetry, 10) + tell("file/his", converge.CauseTouched, 10); n != 20 {
		t.Errorf("of 30 others %d are told", n)
	}
	at = at.Add(time.Hour)
	if n := tell("file/his", converge.CauseTouched, 2); n != 2 || shown[len(shown)-2].Note != "980 changes before this one were not told" || shown[len(shown)-1].Note != "" {
		t.Errorf("an hour later %d of 2 are told: %q, %q", n, shown[len(shown)-2].Note, shown[len(shown)-1].Note)
	}
}

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// opened is a book in a state directory.
func opened(t *testing.T, dir string, onLine func(Line)) *book {
	t.Helper()
	st, err := store.Open(dir, time.Now())
	must(t, err)
	t.Cleanup(func() { st.Close() })
	b := newBook(st, &Options{OnLine: onLine})
	t.Cleanup(func() { b.rest.Stop() })
	return b
}

func TestTroublesAreBoundedAndPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		for i := range 2 * troublesMax {
			b.note("try", &reason.Error{Code: reason.DiskFull, Doing: fmt.Sprint("write ", i)})
		}
		if len(b.troubles) != troublesMax || b.troubles[0].err.Doing != fmt.Sprint("write ", troublesMax) {
			t.Errorf("%d troubles, the oldest is %v", len(b.troubles), b.troubles[0].err)
		}
		time.Sleep(troubleTime / 2)
		again := b.note("try", &reason.Error{Code: reason.DiskFull, Doing: fmt.Sprint("write ", 2*troublesMax-2)})
		if len(b.troubles) != troublesMax || b.troubles[troublesMax-1].err != again {
			t.Errorf("one that came again is not the newest: %v", b.troubles[troublesMax-1].err)
		}
		time.Sleep(troubleTime/2 + time.Second)
		b.note("try", &reason.Error{Code: reason.PermissionDenied, Doing: "write"})
		if len(b.troubles) != 2 || b.troubles[0].err != again {
			t.Errorf("those that are over stay: %d", len(b.troubles))
		}
	})
}

func TestTroubleWithoutWordsSaysWhatWasDone(t *testing.T) {
	b := &book{}
	for _, err := range []error{errors.New("out of ink"), &reason.Error{Code: reason.DiskFull, Cause: errors.New("out of ink")}} {
		e := b.note("save the report", err)
		if e.Doing != "save the report" || !strings.Contains(e.Error(), "out of ink") {
			t.Errorf("%v became %q: %v", err, e.Doing, e)
		}
	}
}

func TestLinesAreKeptInTheHistory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var shown []Line
	b := opened(t, dir, func(l Line) { shown = append(shown, l) })
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
		c.line.Cause = causeNames[c.cause]
		b.tell(c.line)
		h, err := b.store.History(store.Asked{Subject: "file/a", Limit: 1})
		must(t, err)
		c.want.Title, c.want.Claim, c.want.At = "file/a", "path:/a", h[0].At
		if c.want.Code == "TK0502" {
			c.want.Code = reason.DiskFull.String()
		}
		if fmt.Sprintf("%+v", h[0]) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("kept %+v\nwant %+v", h[0], c.want)
		}
	}
	if len(shown) != 5 || len(b.troubles) != 0 {
		t.Errorf("%d lines shown, troubles %v", len(shown), b.troubles)
	}
}

// TestEveryCauseHasAName: a cause that is added to the engine must not end the agent.
func TestEveryCauseHasAName(t *testing.T) {
	for c := range converge.CauseDesired + 1 {
		if causeNames[c] == "" {
			t.Errorf("cause %d has no name", c)
		}
	}
}

// TestFullStateDirectoryIsTold: what cannot be written down is told and shown all the same, and later is written again.
func TestFullStateDirectoryIsTold(t *testing.T) {
	dir := disktest.Mounted(t, "size=256k")
	var shown []Line
	b := opened(t, dir, func(l Line) { shown = append(shown, l) })
	fill(t, filepath.Join(dir, "ballast"))
	// The page that is written already may have room for some lines yet.
	for range 100 {
		b.tell(Line{At: time.Now(), Resource: Resource{Title: "file/a", Claim: "path:/a", Outcome: reason.Kept}})
	}
	b.save(&Report{Node: "web-1"})
	if len(shown) != 100 || len(b.troubles) == 0 || len(b.troubles) > 2 {
		t.Fatalf("%d lines shown, troubles %v", len(shown), b.troubles)
	}
	for _, tr := range b.troubles {
		if tr.err.Code != reason.StateUnwritable || !errors.Is(tr.err, unix.ENOSPC) {
			t.Errorf("told as %v", tr.err)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "ballast")))
	b.tell(Line{At: time.Now(), Resource: Resource{Title: "file/b", Claim: "path:/b", Outcome: reason.Kept}})
	b.save(&Report{Node: "web-1"})
	if h, err := b.store.History(store.Asked{Subject: "file/b"}); err != nil || len(h) != 1 {
		t.Errorf("with room again: %+v, %v", h, err)
	}
	if r, _, err := lastReport(dir); err != nil || r == nil || r.Node != "web-1" {
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
			r, running, err := StatusOf(t.Context(), dir, false)
			if running || c.code == 0 && (err != nil || r.Node != c.node) || c.code != 0 && !reason.Is(err, c.code) {
				t.Errorf("report %+v, %v; want %q, %v", r, err, c.node, c.code)
			}
		})
	}
}

func TestChangesAreBounded(t *testing.T) {
	var list []host.Change
	for i := range changesMax + 3 {
		list = append(list, host.Change{Field: "mode", From: fmt.Sprint(i), To: "0644"})
	}
	got := changes(list)
	if len(got) != changesMax+1 || got[0] != "mode 0 -> 0644" || got[changesMax] != "and 3 more" {
		t.Errorf("%q", got)
	}
	if got := changes(list[:changesMax]); len(got) != changesMax || slices.Contains(got, "and 0 more") {
		t.Errorf("%q", got)
	}
}

func TestDescribe(t *testing.T) {
	for want, c := range map[string]host.Change{
		"created":           {To: "created"},
		"mode 0644":         {Field: "mode", To: "0644"},
		"mode 0600 -> 0644": {Field: "mode", From: "0600", To: "0644"},
		"absent -> file":    {From: "absent", To: "file"},
	} {
		if got := Describe(c); got != want {
			t.Errorf("%+v is described as %q, want %q", c, got, want)
		}
	}
}

package reason

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The table is searched by bisection, so it must be sorted; a row must fit what the code is about.
func TestTable(t *testing.T) {
	rows := All()
	for i, r := range rows {
		if i > 0 && rows[i-1].Code >= r.Code {
			t.Errorf("%s stands after %s", r.Code, rows[i-1].Code)
		}
		if got, ok := Lookup(r.Code); !ok || got != r {
			t.Errorf("%s is not found", r.Code)
		}
		if r.Title == "" || r.Title != strings.TrimSpace(r.Title) || strings.HasSuffix(r.Title, ".") {
			t.Errorf("%s: title %q: a few words without a full stop", r.Code, r.Title)
		}
		if r.Outcome == Failed && r.Detail == "" || r.Outcome == Deferred && r.Detail == "" {
			t.Errorf("%s: %s says nothing about how", r.Code, r.Outcome)
		}
		if r.Outcome == Failed && r.Exit == ExitOK {
			t.Errorf("%s: a program that ends with a failure exits 0", r.Code)
		}
	}
}

func TestPages(t *testing.T) {
	for _, r := range All() {
		page, err := Page(r.Code)
		if err != nil {
			t.Errorf("%s has no page: %v", r.Code, err)
			continue
		}
		if want := "# " + r.Code.String() + ": " + r.Title + "\n"; !strings.HasPrefix(page, want) {
			t.Errorf("the page of %s begins %.60q, want %q", r.Code, page, want)
		}
	}
	files, err := fs.Glob(pages, "pages/*")
	if err != nil || len(files) != len(All()) {
		t.Errorf("%d pages for %d codes (%v)", len(files), len(All()), err)
	}
}

func TestOutcomeText(t *testing.T) {
	for o := Unknown; o <= NotApplicable; o++ {
		text, err := o.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Outcome
		if err := back.UnmarshalText(text); err != nil || back != o {
			t.Errorf("%s came back as %s (%v)", o, back, err)
		}
		if o != Unknown && o.Glyph() == Unknown.Glyph() {
			t.Errorf("%s has the glyph of what is unknown", o)
		}
	}
	if _, err := ParseOutcome("good"); err == nil {
		t.Error("an unknown outcome was taken")
	}
	if _, err := Outcome(99).MarshalText(); err == nil {
		t.Error("an outcome outside the set was written")
	}
	var zero Outcome
	if zero.Converged() {
		t.Error("a status that nobody has written counts as converged")
	}
}

func TestOf(t *testing.T) {
	coded := &Error{Code: DiskFull, Doing: "write file /x", Cause: fs.ErrInvalid}
	wrapped := fmt.Errorf("outer: %w", coded)
	if Of(wrapped) != coded || !Is(wrapped, DiskFull) || Is(wrapped, ReadOnlyFS) || !errors.Is(wrapped, fs.ErrInvalid) {
		t.Error("the code inside an error was not found, or its cause was lost")
	}
	if Of(nil) != nil {
		t.Error("no error has become one")
	}
	if e := Of(fs.ErrExist); e.Code != InternalFault || !errors.Is(e, fs.ErrExist) {
		t.Errorf("an error without a code came back as %+v", e)
	}
	if got, want := coded.Error(), "write file /x: no space left on the device: invalid argument"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if row := (&Error{Code: 9999}).Entry(); row.Code != InternalFault {
		t.Errorf("a code outside the set has the row of %s", row.Code)
	}
}

func TestClip(t *testing.T) {
	long := strings.Repeat("a", 2*evidenceMax) + "the end\n\n"
	if got := Clip([]byte(long)); !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "the end") || len(got) > evidenceMax+len("…") {
		t.Errorf("a long output was clipped to %d bytes, ending %q", len(got), got[len(got)-10:])
	}
	if got := Clip([]byte("a\x1b[31mb\x00\xff\u009bc")); strings.ContainsAny(got, "\x1b\x00\u009b") || !utf8.ValidString(got) {
		t.Errorf("control characters came through: %q", got)
	}
}

func FuzzParseCode(f *testing.F) {
	for _, s := range []string{"TK0412", "tk0412", "TK9999", "TK", "", "TK+412"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCode(s)
		if err != nil {
			if !Is(err, UnknownCode) {
				t.Errorf("%q: error without a code: %v", s, err)
			}
			return
		}
		if !strings.EqualFold(c.String(), s) || !slices.ContainsFunc(All(), func(e Entry) bool { return e.Code == c }) {
			t.Errorf("%q was read as %s", s, c)
		}
	})
}

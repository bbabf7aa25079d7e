package declare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// faultsShownMax bounds what Faults prints: a screenful. The rest is counted.
const faultsShownMax = 20

// Fault is one mistake in a declaration: what is wrong, where, and how to put it right. Line and Column count from 1 and
// are 0 while the place is not known; Path is the field, for example spec.resources[3].file.mode.
type Fault struct {
	Code    reason.Code `json:"code"`
	File    string      `json:"file,omitempty"`
	Line    int         `json:"line,omitempty"`
	Column  int         `json:"column,omitempty"`
	Path    string      `json:"path,omitempty"`
	Message string      `json:"message"`           // lower case, one line, without the place
	Hint    string      `json:"hint,omitempty"`    // what to do; may be empty
	Related []Place     `json:"related,omitempty"` // other places that belong to the mistake, for example the first use of a name
}

// Place is a place in a declaration file.
type Place struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	Note   string `json:"note,omitempty"` // what is there: "first used here"
}

// String is FILE:LINE:COLUMN as editors understand it, or as much of it as is known.
func (p Place) String() string {
	switch {
	case p.File == "" && p.Line == 0:
		return p.Path
	case p.Line == 0:
		return p.File
	case p.File == "":
		return fmt.Sprintf("%d:%d", p.Line, p.Column)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Place returns where the fault is.
func (f Fault) Place() Place {
	return Place{File: f.File, Line: f.Line, Column: f.Column, Path: f.Path}
}

// String is the fault on one line: place, code, message, hint.
func (f Fault) String() string {
	s := fmt.Sprintf("%s: %s", f.Code, f.Message)
	if place := f.Place().String(); place != "" {
		s = place + ": " + s
	}
	if f.Hint != "" {
		s += "; " + f.Hint
	}
	return s
}

// Faults are all the mistakes of one reading, as an error. It is never empty where it is returned as an error.
type Faults []Fault

// Error lists the first faults, one a line, and counts the rest.
func (fs Faults) Error() string {
	var b strings.Builder
	for i, f := range fs {
		if i == faultsShownMax {
			fmt.Fprintf(&b, "\n%d more", len(fs)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// As lets errors.As find a *reason.Error, that of the first fault, so that faults have an exit code as every error has.
func (fs Faults) As(target any) bool {
	t, ok := target.(**reason.Error)
	if !ok || len(fs) == 0 {
		return false
	}
	doing := "read the declaration"
	if place := fs[0].Place().String(); place != "" {
		doing = "read " + place
	}
	*t = &reason.Error{Code: fs[0].Code, Doing: doing, Cause: errors.New(fs[0].Message), Hint: fs[0].Hint}
	return true
}

// SortFaults orders faults by file, place, code and path, and drops exact repetitions. It works in place.
func SortFaults(faults []Fault) []Fault {
	slices.SortStableFunc(faults, compareFaults)
	return slices.CompactFunc(faults, func(a, b Fault) bool { return compareFaults(a, b) == 0 && a.Message == b.Message })
}

func compareFaults(a, b Fault) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Column, b.Column),
		cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Path, b.Path),
	)
}

package casetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Result is what became of a case, or of one function of it.
type Result string

// The results. Missing is for a case that was wanted and that no function was bound to.
const (
	Pass    Result = "pass"
	Fail    Result = "fail"
	Skip    Result = "skip"
	Missing Result = "missing"
)

// Row is what one run of one test function says about its case.
type Row struct {
	Area    string `json:"area"`
	Number  int    `json:"number"`
	Package string `json:"package"` // import path
	Func    string `json:"func"`
	Result  Result `json:"result"`
	Checks  int    `json:"checks"`
}

// rowsSuffix ends the names of files of rows, one JSON object a line.
const rowsSuffix = ".rows"

// record adds the row of a case that is over. Test processes share the directory, so each has a file of its own.
func (c *Case) record(area string, number int) {
	dir := os.Getenv("TAKO_CASES")
	if dir == "" {
		return
	}
	row := Row{Area: area, Number: number, Package: testedPackage(), Func: c.t.Name(), Result: c.result(), Checks: int(c.checks.Load())}
	name := fmt.Sprintf("%s-%d%s", strings.ReplaceAll(row.Package, "/", "-"), os.Getpid(), rowsSuffix)
	if err := appendRow(filepath.Join(dir, name), row); err != nil {
		c.t.Errorf("record the case: %v", err)
	}
}

func (c *Case) result() Result {
	switch {
	case c.t.Failed():
		return Fail
	case c.skipped.Load():
		return Skip
	}
	return Pass
}

func appendRow(path string, row Row) error {
	line, err := json.Marshal(row)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// testedPackage is the import path of the package whose test binary this is.
func testedPackage() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return strings.TrimSuffix(build.Path, ".test")
}

// ReadRows reads what a run of tests left in a directory, ordered by area, number, package and function.
func ReadRows(dir string) ([]Row, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+rowsSuffix))
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, name := range files {
		more, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("read rows of %s: %w", name, err)
		}
		rows = append(rows, more...)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Number, b.Number),
			cmp.Compare(a.Package, b.Package), cmp.Compare(a.Func, b.Func))
	})
	return rows, nil
}

func readFile(name string) ([]Row, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []Row
	for dec := json.NewDecoder(f); ; {
		var row Row
		switch err := dec.Decode(&row); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, err
		}
		rows = append(rows, row)
	}
}

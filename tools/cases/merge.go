package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/internal/casetest"
)

// Case is one case with all test functions that are bound to it: an element of cases.json.
type Case struct {
	Area      string          `json:"area"`
	Number    int             `json:"number"`
	Result    casetest.Result `json:"result"`
	Checks    int             `json:"checks"`
	Functions []Function      `json:"functions"`
}

// Function is one test function's part in a case; of several runs the worst counts.
type Function struct {
	Package string          `json:"package"`
	Name    string          `json:"name"`
	Result  casetest.Result `json:"result"`
	Checks  int             `json:"checks"`
}

type key struct {
	area   string
	number int
}

// rangeMax bounds one range of -want: no list of cases is nearly as long.
const rangeMax = 10_000

// parseWant reads "agent:1-17,19 content:2": areas separated by blanks, each with numbers and ranges.
func parseWant(s string) ([]key, error) {
	var keys []key
	for _, field := range strings.Fields(s) {
		area, list, ok := strings.Cut(field, ":")
		if !ok || area == "" {
			return nil, fmt.Errorf("-want %q: wanted AREA:NUMBERS, as in agent:1-17,19", field)
		}
		for _, part := range strings.Split(list, ",") {
			first, last, ok := parseRange(part)
			if !ok {
				return nil, fmt.Errorf("-want %q: %q is no number from 1 and no range", field, part)
			}
			for n := first; n <= last; n++ {
				keys = append(keys, key{area, n})
			}
		}
	}
	return keys, nil
}

func parseRange(s string) (first, last int, ok bool) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	return first, last, err1 == nil && err2 == nil && 0 < first && first <= last && last-first < rangeMax
}

// merge makes one Case of all rows with its area and number, adds what was wanted and has no row as missing, and orders them.
func merge(rows []casetest.Row, wanted []key) []Case {
	byKey := map[key]*Case{}
	at := func(k key) *Case {
		if byKey[k] == nil {
			byKey[k] = &Case{Area: k.area, Number: k.number, Result: casetest.Missing, Functions: []Function{}}
		}
		return byKey[k]
	}
	for _, k := range wanted {
		at(k)
	}
	for _, row := range rows {
		at(key{row.Area, row.Number}).add(row)
	}
	cases := make([]Case, 0, len(byKey))
	for _, c := range byKey {
		cases = append(cases, *c)
	}
	slices.SortFunc(cases, func(a, b Case) int { return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Number, b.Number)) })
	return cases
}

func (c *Case) add(row casetest.Row) {
	if !slices.Contains(fromBest(), row.Result) {
		row.Result = casetest.Fail // a word that is not known is no pass
	}
	c.Result = worse(c.Result, row.Result)
	c.Checks += row.Checks
	for i := range c.Functions {
		if f := &c.Functions[i]; f.Package == row.Package && f.Name == row.Func {
			f.Result = worse(f.Result, row.Result)
			f.Checks = min(f.Checks, row.Checks)
			return
		}
	}
	c.Functions = append(c.Functions, Function{row.Package, row.Func, row.Result, row.Checks})
}

// fromBest orders the results.
func fromBest() []casetest.Result {
	return []casetest.Result{casetest.Missing, casetest.Pass, casetest.Skip, casetest.Fail}
}

func worse(a, b casetest.Result) casetest.Result {
	order := fromBest()
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// judge says in a line for each case that was not done why it was not.
func judge(cases []Case, allowSkips bool) []string {
	var faults []string
	for _, c := range cases {
		name := fmt.Sprintf("case %s %d", c.Area, c.Number)
		switch {
		case c.Result == casetest.Missing:
			faults = append(faults, name+" is missing: no test recorded it; its test function must begin with casetest.Start(t)")
		case c.Result == casetest.Fail:
			faults = append(faults, name+" failed: "+c.names(casetest.Fail))
		case c.Result == casetest.Skip && !allowSkips:
			faults = append(faults, name+" was skipped, though what tests need is here: "+c.names(casetest.Skip))
		case c.Result == casetest.Pass && c.idle() != "":
			faults = append(faults, name+" checked nothing in "+c.idle())
		}
	}
	return faults
}

func (c *Case) names(r casetest.Result) string {
	var names []string
	for _, f := range c.Functions {
		if f.Result == r {
			names = append(names, f.Package+"."+f.Name)
		}
	}
	return strings.Join(names, ", ")
}

// idle names a function that checked nothing.
func (c *Case) idle() string {
	for _, f := range c.Functions {
		if f.Checks == 0 {
			return f.Package + "." + f.Name
		}
	}
	return ""
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// verdict is what a bar says of a measurement.
type verdict string

const (
	met       verdict = "ok"
	short     verdict = "SHORT"
	unknown   verdict = "NOT MEASURED"
	noVerdict verdict = "-" // there is no bar
)

// judge compares a measurement with its bar.
func judge(ok bool) verdict {
	if ok {
		return met
	}
	return short
}

// line is one line of the table.
type line struct {
	what, measured, bar string
	verdict             verdict
}

type table struct {
	lines []line
	said  io.Writer // each line, as soon as it is known; nil: nowhere
}

func (t *table) add(what, measured, bar string, v verdict) {
	t.lines = append(t.lines, line{what, measured, bar, v})
	if t.said != nil {
		fmt.Fprintf(t.said, "bench:   %s: %s\n", what, measured)
	}
}

// skip adds a line that says loudly why there is no number.
func (t *table) skip(what, bar string, why error) {
	t.add(what, why.Error(), bar, unknown)
}

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "what\tmeasured\tbar\tverdict")
	missed := 0
	for _, l := range t.lines {
		if l.verdict == short {
			missed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", l.what, l.measured, l.bar, l.verdict)
	}
	tw.Flush()
	fmt.Fprintf(w, "\n%d lines, %d bars missed\n", len(t.lines), missed)
}

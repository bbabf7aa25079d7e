package present

import (
	"io"
	"math"
	"strings"
)

// Table is rows of cells under a header, in aligned columns. A terminal gets lines cut to its width; anywhere else, as in less(1),
// nothing is cut, and awk(1) finds the same columns.
type Table struct {
	Header []string
	rows   []row
}

// row keeps what a cell says apart from its colour, so that colour takes no width.
type row []Cell

// Cell is a text with a colour.
type Cell struct {
	text  string
	color sgr
}

// PlainCell is a cell without colour. Control characters are escaped when it is written.
func PlainCell(text string) Cell { return Cell{text: text} }

// Add appends a row of plain cells.
func (t *Table) Add(cells ...string) {
	r := make(row, len(cells))
	for i, c := range cells {
		r[i] = PlainCell(c)
	}
	t.rows = append(t.rows, r)
}

// AddCells appends a row.
func (t *Table) AddCells(cells ...Cell) { t.rows = append(t.rows, row(cells)) }

// Write writes the table. The header is left out when there is none.
func (t *Table) Write(w io.Writer, style Style) error {
	rows := t.rows
	if len(t.Header) > 0 {
		header := make(row, len(t.Header))
		for i, h := range t.Header {
			header[i] = Cell{text: h, color: dim}
		}
		rows = append([]row{header}, rows...)
	}
	var b strings.Builder
	widths := columnWidths(rows)
	for _, r := range rows {
		r.write(&b, widths, style)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func columnWidths(rows []row) []int {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(Escape(c.text)))
		}
	}
	return widths
}

// columnGap is the space between columns.
const columnGap = 2

func (r row) write(b *strings.Builder, widths []int, style Style) {
	left := style.Width
	if left == 0 {
		left = math.MaxInt
	}
	pending := 0 // spaces before the next text, so that no line ends with any
	for i, c := range r {
		text := Escape(c.text)
		if left-pending <= 0 {
			break
		}
		text = truncate(text, left-pending)
		if text != "" {
			b.WriteString(strings.Repeat(" ", pending) + style.paint(c.color, text))
			left -= pending + Width(text)
			pending = 0
		}
		pending += widths[i] - min(Width(text), widths[i]) + columnGap
	}
	b.WriteByte('\n')
}

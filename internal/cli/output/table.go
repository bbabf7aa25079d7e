package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// Tables collects the chunks of a list and writes them as one table, because a column is as wide as its widest cell.
type Tables struct {
	title   []string // not written yet
	options TableOptions
	columns []metav1.TableColumnDefinition
	rows    [][]string // not written yet
	shown   int        // how many were ever added
}

// TableOptions say what a table shows beside the columns of the server.
type TableOptions struct {
	Wide      bool // columns of lesser weight too
	Namespace bool // a first column with the namespace
	Labels    bool // a last column with the labels
	NoHeader  bool
	Prefix    string // before each name, KIND/ where tables of several kinds follow one another
}

// NewTables returns an empty table.
func NewTables(options TableOptions) *Tables { return &Tables{options: options} }

// Add appends rows. The columns are those of the first table that has any.
func (t *Tables) Add(part remote.Table) {
	if t.columns == nil && part.Columns != nil {
		t.columns = part.Columns
		if !t.options.NoHeader {
			t.title = t.header()
		}
	}
	for _, row := range part.Rows {
		t.rows = append(t.rows, t.cells(row))
		t.shown++
	}
}

// Mark adds a word behind the row that was added last.
func (t *Tables) Mark(word string) {
	if last := len(t.rows) - 1; last >= 0 {
		t.rows[last] = append(t.rows[last], word)
	}
}

// Rows is how many rows were added in all.
func (t *Tables) Rows() int { return t.shown }

// Write writes the table, and begins a new one without a header: what a watch tells stands under the list.
func (t *Tables) Write(w io.Writer, style present.Style) error {
	table := present.Table{Header: t.title}
	for _, row := range t.rows {
		table.Add(row...)
	}
	t.title, t.rows = nil, nil
	return table.Write(w, style)
}

func (t *Tables) header() []string {
	var names []string
	if t.options.Namespace {
		names = append(names, "NAMESPACE")
	}
	for _, c := range t.columns {
		if t.shows(c) {
			names = append(names, strings.ToUpper(c.Name))
		}
	}
	if t.options.Labels {
		names = append(names, "LABELS")
	}
	return names
}

func (t *Tables) shows(c metav1.TableColumnDefinition) bool { return c.Priority == 0 || t.options.Wide }

func (t *Tables) cells(row remote.Row) []string {
	var cells []string
	if t.options.Namespace {
		cells = append(cells, row.Object.GetNamespace())
	}
	for i, c := range t.columns {
		if t.shows(c) && i < len(row.Cells) {
			text := cell(row.Cells[i])
			if c.Format == "name" {
				text = t.options.Prefix + text
			}
			cells = append(cells, text)
		}
	}
	if t.options.Labels {
		cells = append(cells, Labels(row.Object.GetLabels()))
	}
	return cells
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" || v == "<none>" {
			return "-" // every cell says something, so that awk counts columns
		}
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// Labels writes labels as key=value, sorted, with commas between.
func Labels(labels map[string]string) string {
	if len(labels) == 0 {
		return "-"
	}
	return metav1.FormatLabelSelector(metav1.SetAsLabelSelector(labels))
}

// Age is how long ago a time was, as in a column; "-" for a time that is not known.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return present.Duration(max(now.Sub(t), 0))
}

package registry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// table shows objects as rows.
type table struct{ columns []Column }

// tableOf puts the name before a kind's columns and the age behind them.
func tableOf(k *Kind) table {
	columns := []Column{{Name: "Name", Type: "string", Format: "name", Description: "name of the object", Value: func(obj runtime.Object) any { return metadata(obj).GetName() }}}
	columns = append(columns, k.Columns...)
	return table{columns: append(columns, Column{Name: "Age", Type: "string", Description: "time since the object was created", Value: age})}
}

func age(obj runtime.Object) any { return since(metadata(obj).GetCreationTimestamp()) }

// since is how long ago something was, as kubectl shows it.
func since(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// ConvertToTable makes the table of an object or a list.
func (t table) ConvertToTable(_ context.Context, obj runtime.Object, options runtime.Object) (*metav1.Table, error) {
	var out metav1.Table
	row := func(o runtime.Object) error {
		cells := make([]any, len(t.columns))
		for i, c := range t.columns {
			cells[i] = c.Value(o)
		}
		out.Rows = append(out.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: o}})
		return nil
	}
	if meta.IsListType(obj) {
		if err := meta.EachListItem(obj, row); err != nil {
			return nil, err
		}
	} else if err := row(obj); err != nil {
		return nil, err
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		out.ResourceVersion, out.Continue, out.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		out.ResourceVersion = one.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); ok && o.NoHeaders {
		return &out, nil
	}
	for _, c := range t.columns {
		d := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description}
		if c.Wide {
			d.Priority = 1
		}
		out.ColumnDefinitions = append(out.ColumnDefinitions, d)
	}
	return &out, nil
}

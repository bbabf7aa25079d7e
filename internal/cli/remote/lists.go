package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// chunk is how many objects one request of a list asks for: that of kubectl, some megabytes at most of usual objects.
const chunk = 500

// forgottenMax is how often a list goes on after the server has forgotten how it began, which takes minutes each time.
const forgottenMax = 10

// Query says which objects of a kind are meant.
type Query struct {
	Kind      Kind
	Namespace string // empty is all
	Labels    string // label selector
	Fields    string // field selector
	Name      string // one object only
}

func (q Query) apply(request *rest.Request) *rest.Request {
	fields := q.Fields
	if q.Name != "" {
		fields = "metadata.name=" + q.Name
	}
	if q.Labels != "" {
		request = request.Param("labelSelector", q.Labels)
	}
	if fields != "" {
		request = request.Param("fieldSelector", fields)
	}
	return request
}

// List calls f with each object, and returns the resource version from which a watch goes on. The list comes in chunks; when
// the server forgets in the middle how it began, the rest comes as it is now. An error of f ends it.
func (s *Server) List(ctx context.Context, query Query, f func(*unstructured.Unstructured) error) (resourceVersion string, err error) {
	return s.pages(ctx, query, "application/json", func(page []byte) (metav1.ListMeta, error) {
		var list struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(page, &list); err != nil {
			return metav1.ListMeta{}, fmt.Errorf("read the list of %s: %w", query.Kind.Resource, err)
		}
		for _, item := range list.Items {
			object, err := decode(item)
			if err != nil {
				return metav1.ListMeta{}, err
			}
			if object.GetKind() == "" { // items of a list of a built-in kind do not say what they are
				object.SetGroupVersionKind(query.Kind.GroupVersionKind)
			}
			if err := f(object); err != nil {
				return metav1.ListMeta{}, err
			}
		}
		return list.Metadata, nil
	})
}

// tableType asks for the server's own columns, with each object whole beside its row only where that is asked for.
const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// Table is a part of a list, as the server shows it.
type Table struct {
	Columns []metav1.TableColumnDefinition
	Rows    []Row
}

// Row is an object in a table. Object holds its metadata.
type Row struct {
	Cells  []any
	Object *unstructured.Unstructured
}

// Tables calls f with each chunk of a list as the server shows it, and returns what List returns.
func (s *Server) Tables(ctx context.Context, query Query, f func(Table) error) (resourceVersion string, err error) {
	return s.pages(ctx, query, tableType, func(page []byte) (metav1.ListMeta, error) {
		table, meta, err := readTable(page)
		if err != nil {
			return metav1.ListMeta{}, fmt.Errorf("read the table of %s: %w", query.Kind.Resource, err)
		}
		return meta, f(table)
	})
}

// Table returns one object as the server shows it.
func (s *Server) Table(ctx context.Context, ref Ref) (Table, error) {
	return within(ctx, s, func(ctx context.Context) (Table, error) {
		text, err := send(ctx, s.client.Get().AbsPath(ref.path()...).SetHeader("Accept", tableType))
		if err != nil {
			return Table{}, err
		}
		table, _, err := readTable(text)
		if err != nil {
			return Table{}, fmt.Errorf("read the table of %s: %w", ref, err)
		}
		return table, nil
	})
}

func readTable(text []byte) (Table, metav1.ListMeta, error) {
	var wire struct {
		Kind     string                         `json:"kind"`
		Metadata metav1.ListMeta                `json:"metadata"`
		Columns  []metav1.TableColumnDefinition `json:"columnDefinitions"`
		Rows     []struct {
			Cells  []any           `json:"cells"`
			Object json.RawMessage `json:"object"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return Table{}, metav1.ListMeta{}, err
	}
	if wire.Kind != "Table" {
		return Table{}, metav1.ListMeta{}, fmt.Errorf("the server answered with a %s and no table", wire.Kind)
	}
	table := Table{Columns: wire.Columns}
	for _, r := range wire.Rows {
		object, err := decode(r.Object)
		if err != nil {
			return Table{}, metav1.ListMeta{}, err
		}
		table.Rows = append(table.Rows, Row{Cells: r.Cells, Object: object})
	}
	return table, wire.Metadata, nil
}

// pages gets a list chunk by chunk.
func (s *Server) pages(ctx context.Context, query Query, accept string, f func(page []byte) (metav1.ListMeta, error)) (string, error) {
	var next string
	forgotten := 0
	for {
		request := query.apply(s.client.Get().AbsPath(collection(query.Kind, query.Namespace)...)).
			SetHeader("Accept", accept).Param("limit", strconv.Itoa(chunk))
		if next != "" {
			request = request.Param("continue", next)
		}
		page, err := within(ctx, s, func(ctx context.Context) ([]byte, error) { return send(ctx, request) })
		if next != "" && forgotten < forgottenMax && apierrors.IsResourceExpired(err) {
			forgotten++
			// The server says where to go on, with the objects as they are now.
			if token := continueOf(err); token != "" && token != next {
				next = token
				continue
			}
		}
		if err != nil {
			return "", err
		}
		meta, err := f(page)
		if err != nil {
			return "", err
		}
		if next = meta.Continue; next == "" {
			return meta.ResourceVersion, nil
		}
	}
}

// EventType is what has happened to an object.
type EventType string

// The types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// event is one of a watch as it comes.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// ErrExpired is the end of a watch whose place the server does not remember: list again.
var ErrExpired = apierrors.NewResourceExpired("the watch is too old")

// Watch calls f with each change after a resource version until f returns an error, the context ends or the server ends the
// watch, as it does now and then: it returns the version from which to go on then, and a nil error. The error is that
// of f, of the context, ErrExpired, or of the server.
func (s *Server) Watch(ctx context.Context, query Query, from string, f func(EventType, *unstructured.Unstructured) error) (string, error) {
	return s.watch(ctx, query, from, "application/json", func(t EventType, text []byte) (string, error) {
		object, err := decode(text)
		if err != nil {
			return "", err
		}
		return object.GetResourceVersion(), f(t, object)
	})
}

// WatchTables is Watch with each object as a table of one row.
func (s *Server) WatchTables(ctx context.Context, query Query, from string, f func(EventType, Table) error) (string, error) {
	return s.watch(ctx, query, from, tableType, func(t EventType, text []byte) (string, error) {
		table, meta, err := readTable(text)
		if err != nil {
			return "", fmt.Errorf("read a change of %s: %w", query.Kind.Resource, err)
		}
		version := meta.ResourceVersion
		if len(table.Rows) > 0 && version == "" {
			version = table.Rows[0].Object.GetResourceVersion()
		}
		return version, f(t, table)
	})
}

func (s *Server) watch(ctx context.Context, query Query, from, accept string, f func(EventType, []byte) (string, error)) (string, error) {
	stream, err := query.apply(s.client.Get().AbsPath(collection(query.Kind, query.Namespace)...)).SetHeader("Accept", accept).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", from).Stream(ctx)
	if err != nil {
		return from, expired(err)
	}
	defer stream.Close()
	decoder := json.NewDecoder(stream)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return from, ctx.Err()
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return from, nil
			}
			return from, fmt.Errorf("watch %s: %w", query.Kind.Resource, err)
		}
		switch e.Type {
		case "ERROR":
			return from, watchError(e.Object)
		case "BOOKMARK":
			if version := bookmark(e.Object); version != "" {
				from = version
			}
			continue
		}
		version, err := f(EventType(e.Type), e.Object)
		if version != "" {
			from = version
		}
		if err != nil {
			return from, err
		}
	}
}

// bookmark is the version that a bookmark says. It comes as an object with nothing but metadata, or as a table with one.
func bookmark(text []byte) string {
	var b struct {
		Metadata metav1.ListMeta `json:"metadata"`
		Rows     []struct {
			Object struct {
				Metadata metav1.ListMeta `json:"metadata"`
			} `json:"object"`
		} `json:"rows"`
	}
	if json.Unmarshal(text, &b) != nil {
		return ""
	}
	if b.Metadata.ResourceVersion == "" && len(b.Rows) > 0 {
		return b.Rows[0].Object.Metadata.ResourceVersion
	}
	return b.Metadata.ResourceVersion
}

func watchError(text []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("read why the watch ended: %w", err)
	}
	return expired(&apierrors.StatusError{ErrStatus: status})
}

func expired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ErrExpired
	}
	return err
}

// continueOf is the token that the answer to an expired one carries.
func continueOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

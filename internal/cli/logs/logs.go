// Package logs is what `tako logs` does about instances: it reads what they have printed. Each host is asked for that of its own; what comes is merged by time.
//
// Goroutines: Round starts one for each host that it asks, a few at once, and waits for them.
package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/present"
)

const (
	// atOnce is how many hosts are asked at once: what a server gives to one person.
	atOnce = 8
	// sourcesMax is how many tasks are read together: more lines than anybody follows.
	sourcesMax = 64
	// timeForm is how the time of a line is shown, in the time zone of who looks.
	timeForm = "2006-01-02 15:04:05"
)

// Source is a task of an instance, and the host that it is on.
type Source struct {
	Node, Namespace, Instance string
	Task                      string // empty: its only one
}

// Subject is what the host knows it by.
func (s Source) Subject() string {
	subject := "instance/" + s.Namespace + "/" + s.Instance
	if s.Task != "" {
		subject += "/" + s.Task
	}
	return subject
}

// Line is a line that a task has printed.
type Line struct {
	Instance string    `json:"instance"`
	Task     string    `json:"task"`
	At       time.Time `json:"at"`
	Stream   string    `json:"stream"` // stdout or stderr
	Text     string    `json:"text"`
}

// Shown is a line for a person. With whose it begins with who has printed it.
func (l *Line) Shown(whose bool) string {
	text := l.At.Local().Format(timeForm) + "  " + present.Escape(l.Text)
	if whose {
		text = present.Escape(l.Instance) + "  " + text
	}
	return text
}

// Failure is why a task could not be read.
type Failure struct {
	Source
	Err error
}

// Asked is what is wanted of a source.
type Asked struct {
	Lines    int    // at most, the newest
	Since    string // nothing older: how long ago, or a time; empty: however old
	Previous bool   // of the attempt before the newest one
}

// Ask asks the host of a source, and writes its answer. It may be called from several goroutines.
type Ask func(ctx context.Context, s Source, a Asked, w io.Writer) error

// Reader reads what instances have printed, each line once. It belongs to one goroutine.
type Reader struct {
	Ask   Ask
	Asked Asked // about what is read first

	newest map[Source]time.Time
	failed map[Source]bool
}

// Round reads what is there and was not read before, in order of time. Of a source that fails again nothing is said again.
func (r *Reader) Round(ctx context.Context, sources []Source) (lines []Line, failures []Failure) {
	if r.newest == nil {
		r.newest, r.failed = map[Source]time.Time{}, map[Source]bool{}
	}
	found, errs := make([][]Line, len(sources)), make([]error, len(sources))
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, s := range sources {
		asked := r.Asked
		if at, known := r.newest[s]; known {
			asked.Since = at.UTC().Format(time.RFC3339)
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			var said bytes.Buffer
			if errs[i] = r.Ask(ctx, s, asked, &said); errs[i] == nil {
				found[i], errs[i] = decode(&said)
			}
		})
	}
	all.Wait()
	maps.DeleteFunc(r.newest, func(s Source, _ time.Time) bool { return !slices.Contains(sources, s) })
	for i, s := range sources {
		if errs[i] != nil {
			if !r.failed[s] {
				failures = append(failures, Failure{s, errs[i]})
			}
			r.failed[s] = true
			continue
		}
		r.failed[s] = false
		// A host tells times by the second.
		after := r.newest[s]
		for _, l := range found[i] {
			if l.At.After(after) {
				l.Instance = s.Instance
				lines = append(lines, l)
				r.newest[s] = l.At
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	return lines, failures
}

// decode reads the answer of a host: a JSON object a line, oldest first.
func decode(answer io.Reader) (lines []Line, err error) {
	in := json.NewDecoder(answer)
	for {
		var l Line
		err := in.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, fmt.Errorf("read the answer of the host: %w", err)
		case l.At.IsZero():
			return nil, errors.New("read the answer of the host: a line has no time; bring tako-agent there up to date")
		}
		l.Text = strings.TrimRight(l.Text, "\r\n")
		lines = append(lines, l)
	}
}

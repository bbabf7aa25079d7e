package workloads

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"
)

// traceKept is how many lines are kept for whoever looks at a failure.
const traceKept = 200

// trace is what has happened, a line each. Two runs of one seed have the same lines.
type trace struct {
	hash hash.Hash
	to   io.Writer // nil: nobody
	last []string  // a ring
	next int
	line []byte
}

func newTrace(to io.Writer) trace {
	return trace{hash: sha256.New(), to: to, last: make([]string, 0, traceKept)}
}

func (t *trace) add(at time.Duration, format string, args ...any) {
	t.line = fmt.Appendf(t.line[:0], "%12.6f ", at.Seconds())
	t.line = append(fmt.Appendf(t.line, format, args...), '\n')
	_, _ = t.hash.Write(t.line) // never fails
	if t.to != nil {
		_, _ = t.to.Write(t.line) // whoever reads it sees that it ends
	}
	line := string(t.line[:len(t.line)-1])
	if len(t.last) < traceKept {
		t.last = append(t.last, line)
		return
	}
	t.last[t.next] = line
	t.next = (t.next + 1) % traceKept
}

func (t *trace) sum() string { return hex.EncodeToString(t.hash.Sum(nil)) }

// lines are the last ones, in order.
func (t *trace) lines() []string {
	return append(append([]string(nil), t.last[t.next:]...), t.last[:t.next]...)
}

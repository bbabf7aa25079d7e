package audit

import (
	"errors"
	"io"
	"path/filepath"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/log"
)

// Files of a log, below its directory.
const (
	knownName   = "audit.log"
	unknownName = "audit-unknown.log"
)

// uriMax is how much of what was asked for is kept, in bytes: more than any address of an object has.
const uriMax = 1 << 10

// Log is the audit log of a server: one file for those who are known, and a smaller one for requests of nobody knows whom, which
// anybody can make as many of as he likes.
type Log struct{ known, unknown *file }

// Open opens a log for appending, and makes it.
func Open(dir string) (*Log, error) {
	// With what is kept half a GiB, and 32 MiB.
	known, err := openFile(filepath.Join(dir, knownName), bounds{size: 64 << 20, kept: 7})
	if err != nil {
		return nil, err
	}
	unknown, err := openFile(filepath.Join(dir, unknownName), bounds{size: 16 << 20, kept: 1})
	if err != nil {
		return nil, errors.Join(err, known.Close())
	}
	return &Log{known: known, unknown: unknown}, nil
}

// Close closes the log.
func (l *Log) Close() error { return errors.Join(l.known.Close(), l.unknown.Close()) }

// Backend writes one line for each request that ended.
func (l *Log) Backend() audit.Backend {
	lines := func(out io.Writer) audit.Backend {
		return log.NewBackend(out, log.FormatJson, auditv1.SchemeGroupVersion)
	}
	return backend{Backend: lines(l.known), unknown: lines(l.unknown)}
}

// backend tells the requests of those who are known from the others.
type backend struct {
	audit.Backend
	unknown audit.Backend
}

// ProcessEvents writes lines.
func (b backend) ProcessEvents(events ...*auditinternal.Event) bool {
	all := true
	for _, e := range events {
		if len(e.RequestURI) > uriMax {
			short := *e
			short.RequestURI = e.RequestURI[:uriMax] + "..."
			e = &short
		}
		to := b.Backend
		if e.User.Username == "" {
			to = b.unknown
		}
		all = to.ProcessEvents(e) && all
	}
	return all
}

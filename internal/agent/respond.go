package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/observe"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// linesDefault and linesMax bound the lines of an answer.
	linesDefault = 100
	linesMax     = 10_000
	// agentUnit is what the agent runs as.
	agentUnit = "tako-agent.service"
)

// Usage is what the agent takes of its host.
type Usage struct {
	RSS        uint64    `json:"rssBytes"`
	Anonymous  uint64    `json:"anonymousBytes"` // of RSS: what is not a file's
	CPU        float64   `json:"cpuSeconds"`
	Goroutines int       `json:"goroutines"`
	Watches    int       `json:"watches"`
	Resources  int       `json:"resources"`
	Since      time.Time `json:"since"`
	Version    string    `json:"version"`
}

// version is of this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// respond answers a question of a person. It changes nothing. Who asks bounds what it takes.
func (l *loop) respond(ctx context.Context, q wire.Question, w io.Writer) error {
	lines := int(q.Lines)
	if lines == 0 {
		lines = linesDefault
	}
	lines = min(lines, linesMax)
	since := time.Time{}
	if q.Since > 0 {
		since = time.Unix(q.Since, 0)
	}
	switch q.What {
	case wire.AskHistory:
		return l.respondHistory(w, q.Subject, lines, since)
	case wire.AskEvidence:
		a, err := l.evidence(ctx, q.Subject)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(a)
	case wire.AskLogs:
		return l.respondLogs(ctx, w, q.Subject, lines, since)
	case wire.AskUsage:
		u, err := ask(ctx, l, func() (Usage, error) { return l.usage(), nil })
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(u)
	}
	return &reason.Error{Code: reason.AnswerRefused, Doing: fmt.Sprintf("answer %.64q", q.What), Cause: errors.New("this agent knows no such question"), Hint: "bring tako-agent on this host up to date"}
}

// evidence explains a resource, and looks at it again outside the loop.
func (l *loop) evidence(ctx context.Context, subject string) (*Answer, error) {
	var d host.Declared
	var t host.Type
	a, err := ask(ctx, l, func() (*Answer, error) {
		a, err := l.why(subject)
		if found := l.find(subject); err == nil && len(found) == 1 {
			p := l.parts[found[0]]
			if p.res != nil && p.removal == nil && p.claim.Kind == declare.ClaimPath {
				d, t = l.declaredAs(p, declare.Resource{}), l.opts.Types[p.kind]
			}
		}
		return a, err
	})
	if err != nil || t == nil {
		return a, err
	}
	if a.Differs, err = observe.Resource(ctx, t, d, l.book.clean); err != nil {
		a.Unlooked = l.book.clean(observe.Problem(err))
	}
	return a, nil
}

// respondHistory writes what happened, the newest first, one JSON object a line.
func (l *loop) respondHistory(w io.Writer, subject string, lines int, since time.Time) error {
	list, err := l.store.History(subject, lines)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	for _, h := range list {
		if h.At.Before(since) {
			break
		}
		if err := out.Encode(h); err != nil {
			return err
		}
	}
	return nil
}

// respondLogs writes what a unit has logged, as journalctl does in JSON. Only units that this host's catalog is about are shown, and the
// agent itself; that one's history stands for its log where there is no journal.
func (l *loop) respondLogs(ctx context.Context, w io.Writer, unit string, lines int, since time.Time) error {
	own := unit == "" || unit == agentUnit || unit == strings.TrimSuffix(agentUnit, ".service")
	if !own {
		managed, err := ask(ctx, l, func() (string, error) { return l.manages(unit), nil })
		if err != nil {
			return err
		}
		if managed == "" {
			return &reason.Error{Code: reason.AnswerRefused, Doing: "read the log of " + unit, Cause: errors.New("no config that this host has declares it"),
				Hint: "declare the unit as a service, or look on the host itself"}
		}
		unit = managed
	} else {
		unit = agentUnit
	}
	journalctl, err := exec.LookPath("journalctl")
	switch {
	case (err != nil || l.opts.Bus == nil) && own:
		return l.respondHistory(w, "", lines, since)
	case err != nil || l.opts.Bus == nil:
		return &reason.Error{Code: reason.AnswerRefused, Doing: "read the log of " + unit, Cause: errors.New("there is no journal on this host")}
	}
	args := []string{"--unit=" + unit, "--lines=" + strconv.Itoa(lines), "--output=json", "--no-pager", "--quiet"}
	if !since.IsZero() {
		args = append(args, "--since=@"+strconv.FormatInt(since.Unix(), 10))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, journalctl, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "run journalctl", Cause: err}
	}
	err = observe.Journal(w, pipe, l.book.clean)
	cancel()
	_ = cmd.Wait() // killed, or done; what it wrote is what counts
	return err
}

// manages returns the unit of that name that the host is to have, with its suffix; empty where there is none.
func (l *loop) manages(unit string) string {
	for _, p := range l.parts {
		if p.removal == nil && p.claim.Kind == declare.ClaimUnit && (p.claim.ID == unit || p.claim.ID == unit+".service") {
			return p.claim.ID
		}
	}
	return ""
}

func (l *loop) usage() Usage {
	watches, _ := l.subs.Counts()
	u := Usage{Goroutines: runtime.NumGoroutine(), Watches: watches, Resources: len(l.parts), Since: l.book.totals.Since, Version: version()}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		u.RSS, u.Anonymous = kilobytes(string(text), "VmRSS:"), kilobytes(string(text), "RssAnon:")
	}
	return u
}

// kilobytes reads a line of proc(5)'s status, as bytes.
func kilobytes(status, name string) uint64 {
	_, rest, _ := strings.Cut(status, "\n"+name)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

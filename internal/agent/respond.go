package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/chart"
	"tako.dev/tako/internal/agent/instances"
	"tako.dev/tako/internal/agent/observe"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/agent/usage"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// linesDefault and linesMax bound the lines of an answer.
	linesDefault = 100
	linesMax     = 10_000
	// agentUnit is what the agent runs as.
	agentUnit = "tako-agent.service"
)

// respond answers a question of a person. It changes nothing. Who asks bounds what it takes.
func (l *loop) respond(ctx context.Context, q wire.Question, w io.Writer) error {
	lines := int(q.Lines)
	if lines == 0 {
		lines = linesDefault
	}
	lines = min(lines, linesMax)
	since, until := moment(q.Since), moment(q.Until)
	switch q.What {
	case wire.AskHistory:
		return l.respondHistory(w, store.Asked{Subject: q.Subject, Since: since, Until: until, Limit: lines})
	case wire.AskEvidence:
		a, err := l.evidence(ctx, q.Subject)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(a)
	case wire.AskLogs:
		return l.respondLogs(ctx, w, &q, lines, since)
	case wire.AskUsage:
		u, err := ask(ctx, l, func() (usage.Usage, error) { return l.usage(), nil })
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(u)
	case wire.AskGraph:
		g, err := ask(ctx, l, func() (*relations.Graph, error) { return l.graph(q.Subject, int(q.Lines)) })
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(g)
	}
	return &reason.Error{Code: reason.AnswerRefused, Doing: fmt.Sprintf("answer %.64q", q.What), Cause: errors.New("this agent knows no such question"), Hint: "bring tako-agent on this host up to date"}
}

// evidence explains a resource, and looks at it again outside the loop.
func (l *loop) evidence(ctx context.Context, subject string) (*Answer, error) {
	if a, is, err := l.instance(ctx, subject); is {
		return a, err
	}
	var d host.Declared
	var t host.Type
	a, err := ask(ctx, l, func() (*Answer, error) {
		a, err := l.why(subject)
		if found := l.find(subject); err == nil && len(found) == 1 {
			p := l.parts[found[0]]
			if p.res != nil && p.removal == nil && p.kind != declare.TypeExec { // whose guards are programs
				d, t = l.declaredAs(p, declare.Resource{}), l.opts.Types[p.kind]
			}
		}
		return a, err
	})
	if err != nil || t == nil {
		return a, err
	}
	if a.Differs, err = observe.Resource(ctx, t, d, l.book.Clean); err != nil {
		a.Unlooked = l.book.Clean(observe.Problem(err))
	}
	return a, nil
}

// moment is a time of a question; zero where none is said.
func moment(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// respondHistory writes what happened, the newest first, one JSON object a line, as much of it as an answer has room for.
func (l *loop) respondHistory(w io.Writer, what store.Asked) error {
	what.Bytes = wire.HistoryMax
	list, err := l.store.History(what)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	for _, h := range list {
		if err := out.Encode(h); err != nil {
			return err
		}
	}
	return nil
}

// respondLogs writes what a unit has logged, as journalctl does in JSON. Only units that this host's catalog is about are shown, and the
// agent itself; that one's history stands for its log where there is no journal.
func (l *loop) respondLogs(ctx context.Context, w io.Writer, q *wire.Question, lines int, since time.Time) error {
	unit := q.Subject
	if name, is := strings.CutPrefix(unit, instances.Subject); is && l.joined != nil {
		return l.joined.instances.Logs(ctx, w, name, q.Previous, lines, since)
	}
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
	if l.opts.Bus != nil {
		if there, err := observe.Logs(ctx, w, observe.Log{Unit: unit, Lines: lines, Since: since}, l.book.Clean); there {
			return err
		}
	}
	if own {
		return l.respondHistory(w, store.Asked{Since: since, Limit: lines})
	}
	return &reason.Error{Code: reason.AnswerRefused, Doing: "read the log of " + unit, Cause: errors.New("there is no journal on this host")}
}

// manages returns the unit of that name that the host is to have, with its suffix; empty where there is none.
func (l *loop) manages(unit string) string {
	for _, p := range l.parts {
		if p.removal == nil && p.claim().Kind == declare.ClaimUnit && (p.claim().ID == unit || p.claim().ID == unit+".service") {
			return p.claim().ID
		}
	}
	return ""
}

// usage is what the agent takes of its host.
func (l *loop) usage() usage.Usage {
	u := usage.Now()
	u.Watches, _ = l.subs.Counts()
	u.Resources, u.Since = len(l.parts), l.book.Totals.Since
	return u
}

// graph tells of the order of the resources: of all, or of those around a subject. At most limit are told of; 0 is as many as make sense.
func (l *loop) graph(subject string, limit int) (*relations.Graph, error) {
	var about []converge.ID
	if subject != "" {
		if about = l.find(subject); len(about) == 0 {
			return nil, report.Unknown(subject)
		}
	}
	g := chart.Of(l.engine.Graph(), about, limit, func(id converge.ID) relations.Resource {
		p, st := l.parts[id], l.engine.Status(id)
		return relations.Resource{Claim: string(p.Key()), Title: p.title(), Config: p.config, Outcome: st.Outcome.String(), Detail: string(st.Detail)}
	})
	g.Node = l.opts.NodeName
	return g, nil
}

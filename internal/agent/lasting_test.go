package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// refusedStates counts how often a state could not be taken on.
type refusedStates struct {
	slog.Handler
	times *atomic.Int32
}

func (r refusedStates) Enabled(context.Context, slog.Level) bool { return true }

func (r refusedStates) Handle(_ context.Context, rec slog.Record) error {
	if rec.Message == "hand a state over" {
		r.times.Add(1)
	}
	return nil
}

// TestFailureIsNoDeath: a state that could not be taken on, however often, has killed nobody, and is taken on when it can be.
func TestFailureIsNoDeath(t *testing.T) {
	s, c := joinedSite(t)
	var times atomic.Int32
	s.opts.Log = slog.New(refusedStates{slog.DiscardHandler, &times})
	s.watch()
	active := s.opts.StateDir + "/active" // nothing takes the place of a directory that is not empty
	must(t, os.MkdirAll(active+"/in the way", 0o700))
	m := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	s.until("it has failed often enough", func(*Report) bool { return times.Load() >= 3 })
	must(t, os.RemoveAll(active))
	r := c.until("it is judged", func(r *wire.Report) bool {
		return r.Verdict.Version == m.Version && r.Verdict.Type != wire.Pending && r.Verdict.Code != reason.StateUnwritable
	})
	if r.Verdict.Type != wire.Applied {
		t.Errorf("%+v", r.Verdict)
	}
	s.holds("a", "text of a")
}

// TestUnreadFacts: what could not be found out of the host once is no refusal any more when it can be.
func TestUnreadFacts(t *testing.T) {
	full := &reason.Error{Code: reason.SystemCallFailed, Doing: "list network interfaces", Cause: errors.New("too many open files")}
	refused := func(codes ...reason.Code) func(*Report) bool {
		return func(r *Report) bool {
			have := ""
			for _, p := range r.Refused {
				have += p.Code.String()
			}
			return r.Settled && have == fmt.Sprint(codes)[1:len(fmt.Sprint(codes))-1] && r.Converged == (len(codes) == 0)
		}
	}
	alone := newSite(t)
	alone.declare("a")
	joined, c := joinedSite(t)
	for name, s := range map[string]*site{"alone": alone, "joined": joined} {
		t.Run(name, func(t *testing.T) {
			facts := &toldFacts{changed: make(chan struct{})}
			s.opts.Facts = facts
			s.watch()
			if s == joined {
				c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"))), wire.Applied)
			}
			s.until("it is converged", refused())
			facts.fail(full)
			s.until("it is told", refused(reason.SystemCallFailed))
			facts.fail(nil)
			s.until("it is over", refused())
		})
	}
}

// secretFile is a file with a secret, and the key for it as the host gets it.
func (c *centre) secretFile(keys *trust.Keys, value string) (items []catalog.Item, key catalog.OwnKey) {
	c.t.Helper()
	id, data := keys.Delivery().DataKey("uid-of-secret", "password", []byte(value))
	wrapped, err := trust.SealKey(c.sealing, trust.Envelope{Cluster: c.id, NodeUID: nodeUID, KeyID: id}, data)
	must(c.t, err)
	source := &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}
	items, err = catalog.CompileWith([]declare.Resource{{Name: "s", File: &declare.File{Path: "/s", ContentFrom: source}}, fileOf("a")},
		func(*declare.Resource) (catalog.Content, error) {
			return catalog.Content{Sealed: &catalog.Sealed{Key: id, Text: data.SealText(id, []byte(value))}}, nil
		})
	must(c.t, err)
	return items, catalog.OwnKey{ID: id, Sealed: wrapped}
}

// TestSecretOfTheStateBefore: what somebody has said of a secret is told without it also when the host has another one by now.
func TestSecretOfTheStateBefore(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	keys, err := trust.NewKeys(c.id, time.Now())
	must(t, err)
	const first, second = "correct horse battery staple", "another horse"
	s.files.fail("apply /a", &reason.Error{Code: reason.OwnerNeedsRoot, Doing: "write /a", Cause: errors.New("after " + first), Evidence: "near " + first, Hint: "not " + first})
	for _, value := range []string{first, second} {
		items, key := c.secretFile(keys, value)
		m := c.assign(nil, c.shelve("NodeConfig/web", 5, items), c.own(catalog.Own{Keys: []catalog.OwnKey{key}}))
		told := fmt.Sprintf("%+v", c.settles(m, wire.Partial))
		s.holds("s", value)
		r := s.until("a has failed", func(r *Report) bool { return resource(r, "file/a").Outcome == reason.Failed })
		told += fmt.Sprintf("%+v", resource(r, "file/a").Problem)
		if strings.Contains(told, first) || !strings.Contains(told, "near [secret]") {
			t.Errorf("with %q as the secret: %s", value, told)
		}
	}
}

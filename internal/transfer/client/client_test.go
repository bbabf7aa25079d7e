package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func TestStateComesOver(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one", "two", "three", "four", "five")
		s.start()
		pass(5 * time.Second)
		s.wantVersions(7)
		if first := s.reports[0]; first.Server != "tako.test:6444" {
			t.Errorf("the report that opens the watch goes to %q", first.Server)
		}
		if r := s.last(); r.Have.Version != 7 || r.Enforced.Version != 7 || r.Session.ID != "s" || r.Trust != 1 || r.Server != "tako.test:6444" {
			t.Errorf("it reports %+v", r)
		}
		s.publish(9, "one", "two", "changed", "four", "five")
		pass(5 * time.Second)
		s.wantVersions(7, 9)
		if r := s.last(); r.Enforced.Version != 9 {
			t.Errorf("it reports %+v", r)
		}
	})
}

// A list that comes along with its head is not asked for; one that is not the head's is of no use, and does no harm.
func TestListComesAlong(t *testing.T) {
	for _, c := range []struct {
		along func(*server) []byte
		calls int
	}{
		{func(s *server) []byte { return s.list }, 0},
		{func(*server) []byte { return []byte("another") }, 2},
	} {
		play(t, func(t *testing.T, s *scene) {
			s.along = func() []byte { return c.along(s.server) }
			s.publish(7, "one", "two")
			s.start()
			pass(5 * time.Second)
			s.publish(9, "one", "two", "three")
			pass(5 * time.Second)
			s.wantVersions(7, 9)
			if n := s.count(wire.PathNodes); n != c.calls {
				t.Errorf("%d calls for lists, want %d", n, c.calls)
			}
		})
	}
}

func TestRestartFetchesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one", "two")
		s.start()
		pass(5 * time.Second)
		s.halt()
		fetched := s.count(wire.PathSync) + s.count(wire.PathNodes)
		s.start()
		pass(5 * time.Minute)
		s.wantVersions(7, 7)
		if again := s.count(wire.PathSync) + s.count(wire.PathNodes); again != fetched {
			t.Errorf("%d calls fetch what is there", again-fetched)
		}
	})
}

// A host that the server asks answers each heartbeat, and a change at once; it is quiet otherwise.
func TestReports(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		before := s.count(wire.PathStatus)
		pass(10 * time.Minute)
		if n := s.count(wire.PathStatus) - before; n < 12 || n > 15 {
			t.Errorf("%d reports in ten minutes of 13 heartbeats", n)
		}
		before = s.count(wire.PathStatus)
		for range 100 {
			s.host.changed <- struct{}{}
			pass(10 * time.Millisecond)
		}
		if n := s.count(wire.PathStatus) - before; n < 4 || n > 7 {
			t.Errorf("%d reports in a second of a hundred changes", n)
		}
		var last uint64
		for _, r := range s.reports {
			if r.Number <= last {
				t.Fatalf("report %d comes after report %d", r.Number, last)
			}
			last = r.Number
		}
	})
}

// TestSilenceIsBounded: whatever a server asks for, a host to which nothing happens reports within ten minutes, and within one what was refused.
func TestSilenceIsBounded(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.set(func() { s.silence = math.MaxUint32 })
		s.start()
		pass(5 * time.Second)
		reports := func(of time.Duration) int {
			before := s.count(wire.PathStatus)
			pass(of)
			return s.count(wire.PathStatus) - before
		}
		if n := reports(time.Hour); n < 5 || n > 7 {
			t.Errorf("%d reports in an hour in which it is asked for silence", n)
		}
		s.set(func() {
			s.refusal = &reason.Error{Code: reason.TransferBusy, Doing: "take a report", After: 40 * 24 * time.Hour}
		})
		s.host.changed <- struct{}{}
		if n := reports(10 * time.Minute); n < 9 || n > 12 {
			t.Errorf("%d reports in ten minutes in which each is refused, and one is due", n)
		}
		s.set(func() { s.refusal = nil })
		if n := reports(2 * time.Minute); n != 1 {
			t.Errorf("%d reports once they are taken", n)
		}
	})
}

// TestUsageIsReported: a host whose instances are measured reports as often as the server wants, but no more often than a bound, and no more when
// nobody waits for it.
func TestUsageIsReported(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		in := func(every uint32, least, most int) {
			t.Helper()
			s.set(func() { s.usageEvery = every })
			s.host.changed <- struct{}{}
			pass(20 * time.Second) // until what was asked for before has passed
			before := s.count(wire.PathStatus)
			pass(5 * time.Minute)
			if n := s.count(wire.PathStatus) - before; n < least || n > most {
				t.Errorf("%d reports in five minutes, asked for every %d s; want %d to %d", n, every, least, most)
			}
		}
		in(15, 19, 30)
		in(1, 55, 70)
		in(0, 5, 9)
	})
}

// What a host has done does not wait because a report has just gone that nobody was waiting for.
func TestReportAfterLazyOne(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		before := s.count(wire.PathStatus)
		for range 120_000 { // until the server asks by a heartbeat
			if pass(time.Millisecond); s.count(wire.PathStatus) > before {
				break
			}
		}
		s.host.changed <- struct{}{}
		pass(10 * time.Millisecond)
		if n := s.count(wire.PathStatus) - before; n != 2 {
			t.Errorf("%d reports after a heartbeat and a change of the host", n)
		}
	})
}

// What a host has reached is reported, also before the machine was told that it was taken.
func TestReportOfWhatWasReachedAtOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.host.takes = time.Minute
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		if r := s.last(); r.Enforced.Version != 7 || r.Verdict.Type != wire.Applied || r.Verdict.Version != 7 {
			t.Errorf("it reports %+v", r)
		}
		s.publish(8, "two")
		pass(5 * time.Second)
		if r := s.last(); r.Enforced.Version != 7 || r.Verdict.Type != wire.Applied {
			t.Errorf("while it takes the first state it reports %+v", r)
		}
	})
}

// The watch is given up when nothing comes over it, though its connection does not break.
func TestTransferCase2_BlackHole(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		s.swallow()
		s.publish(8, "two")
		pass(time.Minute)
		c.Equal(s.host.versions(), []uint64{7}, "what came through the hole")
		pass(30 * time.Second)
		c.Equal(s.host.versions(), []uint64{7, 8}, "what came when the connection has answered nothing, after a pause")
	})
}

func TestWatchGoesOnWhenTold(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.set(func() { s.again = true })
		s.start()
		pass(5 * time.Second)
		for v := range uint64(20) {
			s.publish(v+1, "one")
			pass(10 * time.Second)
		}
		if n := s.count(wire.PathWatch); n != 21 {
			t.Errorf("%d watches were opened for 20 hints", n)
		}
		if got := s.host.versions(); len(got) != 20 {
			t.Errorf("the host was handed versions %v", got)
		}
	})
}

// A server that refuses, or ends each watch at once, is not asked in a loop.
func TestRefusedWatch(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.set(func() { s.refuse = &reason.Error{Code: reason.IdentityGone, Doing: "recognize a host"} })
		s.start()
		pass(time.Hour)
		if n := s.count(wire.PathWatch); n < 60 || n > 200 {
			t.Errorf("%d watches in an hour of refusals", n)
		}
		s.set(func() {
			s.refuse = &reason.Error{Code: reason.RollbackSuspected, Doing: "judge the mark", After: 10 * time.Second}
		})
		s.publish(7, "one")
		pass(time.Minute)
		s.set(func() { s.refuse = nil })
		pass(90 * time.Second)
		s.wantVersions(7)
		if !strings.Contains(s.log.String(), "TK") && !strings.Contains(s.log.String(), "not this node any more") {
			t.Error("nothing is said about it")
		}
	})
}

func TestTransferCase35_ReportLost(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		s.set(func() { s.deaf = true })
		s.publish(8, "two")
		pass(20 * time.Second)
		c.Equal(s.last().Enforced.Version, uint64(7), "what the server knows while reports are lost")
		s.set(func() { s.deaf = false })
		pass(time.Minute)
		c.Equal(s.last().Enforced.Version, uint64(8), "what the next report says, without any change")
	})
}

// A server takes the highest number: what is said in a later one is never older.
func TestTransferCase36_ReportsInOrder(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.start()
		for v := range uint64(30) {
			s.publish(v+1, fmt.Sprint("body ", v))
			pass(time.Duration(v) * 20 * time.Millisecond)
		}
		pass(time.Minute)
		var number, have, enforced uint64
		for _, r := range s.reports {
			c.Check(r.Number > number && r.Have.Version >= have && r.Enforced.Version >= enforced, "report %d says %d, %d after %d said %d, %d", r.Number, r.Have.Version, r.Enforced.Version, number, have, enforced)
			number, have, enforced = r.Number, r.Have.Version, r.Enforced.Version
		}
		c.Equal(enforced, uint64(30), "the last one")
	})
}

// A watch that misses heads gives rise to one other watch, and one fetch.
func TestTransferCase55_Gap(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		watches, fetches := s.count(wire.PathWatch), s.count(wire.PathSync)
		s.set(func() { s.cut = true })
		for v := range uint64(10) {
			s.publish(8+v, "one", fmt.Sprint("two ", v))
		}
		pass(time.Millisecond)
		s.set(func() { s.cut = false })
		pass(10 * time.Minute)
		c.Equal(s.count(wire.PathWatch)-watches, 1, "watches because of a gap")
		c.Equal(s.count(wire.PathSync)-fetches, 1, "fetches because of a gap")
		c.Equal(s.host.versions(), []uint64{7, 17}, "versions that were handed over")
	})
}

// What a host says of a file with a strange name, and at length, does not cost the report.
func TestReportIsReadable(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		long := "a" + strings.Repeat("ä", wire.MessageMax)
		s.host.problems = []wire.Resource{{Title: "File /etc/\xff", Message: "\xff" + long}}
		s.host.configs = []wire.ConfigReport{{ID: "NodeConfig/x/web", Message: long}}
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		r := s.last()
		if err := r.Validate(); err != nil || r.Enforced.Version != 7 || len(r.Problems) != 1 || len(r.Configs[0].Message) < wire.MessageMax-4 {
			t.Errorf("the server reads %+v (%v)", r, err)
		}
	})
}

func TestQuestions(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.host.answer = func(ctx context.Context, q wire.Question, w io.Writer) error {
			switch q.What {
			case wire.AskHistory:
				_, err := io.WriteString(w, strings.Repeat("line\n", 10_000))
				return err
			case "all of it":
				for {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return err
					}
				}
			case wire.AskLogs:
				return &reason.Error{Code: reason.ResourceUnknown, Doing: "read the log of " + q.Subject}
			case wire.AskEvidence:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s.start()
		pass(5 * time.Second)
		ask := func(id uint64, what string) {
			s.set(func() { s.ask = &wire.Question{ID: id, What: what, Subject: "nginx.service", Seconds: 20} })
			s.publish(10+id, "one")
			pass(5 * time.Second)
		}
		ask(1, wire.AskHistory)
		if got := s.answers["id=1"]; got != strings.Repeat("line\n", 10_000) {
			t.Errorf("the answer has %d bytes", len(got))
		}
		ask(2, wire.AskLogs)
		var p wire.Problem
		if err := wire.Decode([]byte(s.answers["id=2&refused=1"]), &p); err != nil || p.Code != reason.ResourceUnknown.String() {
			t.Errorf("the refusal is %+v (%v); answers: %v", p, err, s.answers)
		}
		ask(3, wire.AskUsage)
		if _, answered := s.answers["id=3"]; !answered {
			t.Error("an empty answer is not sent")
		}
		ask(5, "all of it")
		if got := len(s.answers["id=5"]); got > wire.AnswerMax {
			t.Errorf("an answer of %d bytes is sent", got)
		}
		ask(4, wire.AskEvidence)
		pass(time.Minute)
		if got, answered := s.answers["id=4"]; answered && got != "" {
			t.Errorf("an answer that never came is %q", got)
		}
	})
}

// Whoever has no certificate of a server of the cluster is told nothing.
func TestStranger(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		credential, err := newCluster(t).ca.IssueServer(trust.ServerRequest{DNSNames: []string{"tako.test"}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, cert := range []tls.Certificate{credential.TLS(), s.identity.cert} { // of another cluster; of a host of this one
			s.set(func() { s.certs = cert })
			s.publish(7, "one")
			s.start()
			pass(time.Hour)
			s.halt()
		}
		for path, n := range s.calls {
			if path != wire.PathTrust {
				t.Errorf("%s was called %d times", path, n)
			}
		}
		if n := s.calls[wire.PathTrust]; n == 0 || n > 400 {
			t.Errorf("trust documents were asked for %d times in two hours", n)
		}
	})
}

func TestRenewal(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(4 * 24 * time.Hour)
		if s.identity.renewed != 0 {
			t.Errorf("renewed %d times after 4 of 7 days", s.identity.renewed)
		}
		pass(24 * time.Hour)
		if s.identity.renewed != 1 {
			t.Errorf("renewed %d times after 5 of 7 days", s.identity.renewed)
		}
		if s.expired > 0 {
			t.Errorf("%d calls were made with an expired certificate", s.expired)
		}
		s.set(func() { clear(s.serials) })
		pass(10 * time.Minute)
		cert, err := s.identity.Certificate()
		if err != nil || len(s.serials) != 1 || s.serials[cert.Leaf.SerialNumber.String()] == 0 {
			t.Errorf("after the renewal calls are made with %v, the certificate is %s (%v)", s.serials, cert.Leaf.SerialNumber, err)
		}
		s.halt()
		pass(30 * 24 * time.Hour)
		s.start()
		pass(10 * time.Minute)
		if s.identity.renewed != 2 {
			t.Errorf("renewed %d times after a month of being off", s.identity.renewed)
		}
		s.publish(8, "two")
		pass(10 * time.Second)
		if got := s.host.versions(); got[len(got)-1] != 8 {
			t.Errorf("the host was handed versions %v", got)
		}
	})
}

// A host that was off while the authority and the heads key were replaced walks the documents.
func TestTrustIsExtended(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		s.halt()
		ca, err := trust.NewCA(s.cluster.id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		heads := trust.NewSigningKey()
		now := time.Now()
		next, err := s.cluster.chain.Next(now, trust.SetCAs(string(ca.CertificatePEM())), trust.Revoke(s.cluster.heads.Public().ID()), trust.SetKey(trust.RoleHeads, heads.Public(), now.Add(24*time.Hour)))
		if err == nil {
			next, err = next.Sign(s.cluster.root)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.cluster.chain, err = s.cluster.chain.Extend([]trust.Signed{next}); err != nil {
			t.Fatal(err)
		}
		s.cluster.ca, s.cluster.heads = ca, heads
		credential, err := ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, now)
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.certs = credential.TLS() })
		s.publish(8, "two")
		s.start()
		pass(2 * time.Minute)
		if n := s.identity.Trust().Current().Number; n != 2 {
			t.Errorf("the host trusts number %d", n)
		}
		if log := s.log.String(); strings.Contains(log, "do not believe") {
			t.Errorf("what it was not told of yet is a forgery: %s", log)
		}
		if got := s.host.versions(); got[len(got)-1] != 8 {
			t.Errorf("the host was handed versions %v", got)
		}
	})
}

func (s *scene) joining(line trust.JoinLine) client.Joining {
	return client.Joining{Line: line, Name: "web-9", Host: trust.NewHostKey(), Sealing: trust.NewSealingKey(), Built: time.Now(), Dial: s.dial}
}

func (s *scene) line() trust.JoinLine {
	return trust.JoinLine{Address: "tako.test:6444", Trust: s.cluster.chain.Pin(), Token: trust.NewToken(trust.TokenJoin)}
}

func TestJoin(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		j := s.joining(s.line())
		c, err := client.Join(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != "web-9" || len(s.joins) != 1 || s.joins[0].Token != j.Line.Token.Reveal() {
			t.Errorf("joined as %s; the server saw %d requests", c.Name, len(s.joins))
		}
	})
}

// The token goes to nobody who is not of the cluster of the join line.
func TestJoinElsewhere(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		line := s.line()
		line.Trust[rand.IntN(len(line.Trust))]++
		_, err := client.Join(t.Context(), s.joining(line))
		if !reason.Is(err, reason.WrongCluster) || reason.Of(err).Hint == "" {
			t.Errorf("with a wrong hash: %v", err)
		}
		// Who has the documents of the cluster, which are public, has no certificate of its authority.
		other := newCluster(t)
		credential, err := other.ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.certs = credential.TLS() })
		if _, err := client.Join(t.Context(), s.joining(s.line())); !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("with the certificate of another authority: %v", err)
		}
		// Nor has a host one that is for a server.
		stolen := s.identity.cert
		s.set(func() { s.certs = stolen })
		if _, err := client.Join(t.Context(), s.joining(s.line())); !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("with the certificate of a host: %v", err)
		}
		if len(s.joins) > 0 {
			t.Errorf("the token was sent %d times", len(s.joins))
		}
	})
}

func TestJoinNobody(t *testing.T) {
	j := client.Joining{Name: "web-9", Host: trust.NewHostKey(), Sealing: trust.NewSealingKey(), Line: trust.JoinLine{Address: "127.0.0.1:1", Token: trust.NewToken(trust.TokenJoin)}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := client.Join(ctx, j); !reason.Is(err, reason.ServerUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with nobody listening: %v", err)
	}
}

package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// reportPause is the shortest between two reports of what the host has done: what changes faster is told together.
	reportPause = 200 * time.Millisecond
	// quietMax is the longest that a server may ask a host not to report for to which nothing happens.
	quietMax = 10 * time.Minute
	// lazyPause is how long a report waits that nobody on this host is waiting for: what it says is most often followed by more, such as that
	// a state is there by that it is reached. When all hosts get one at once that takes a quarter of a second.
	lazyPause = 250 * time.Millisecond
	// usageEveryMin is the shortest that a server may have a host report by the clock alone: a sample of it costs both sides work.
	usageEveryMin = 5 * time.Second
	// echoPause is how long after a report the next one goes whose echo somebody waits for: what answers on the way to the server that leads says what
	// that one has said before, and asks it once a second.
	echoPause = 2 * time.Second
	// replyMax is above a wire.StatusReply.
	replyMax = 1 << 10
)

// reports puts reports together. Each is the whole state.
type reports struct {
	host    Host
	session wire.Session
	links   *Links
	lazy    chan struct{} // something when a report is due that is in no hurry

	mu     sync.Mutex // guards what follows
	status core.Status
	number uint64
	server *server       // with which the watch is open; nil when none is
	moved  chan struct{} // closed when that is another one
}

func newReports(host Host, session wire.Session, links *Links) *reports {
	return &reports{host: host, session: session, links: links, lazy: make(chan struct{}, 1), moved: make(chan struct{})}
}

func (r *reports) set(s core.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = s
}

// stale tells whether the head that was accepted last has expired.
func (r *reports) stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.Stale
}

// watched notes with which server the watch is open, nil for none.
func (r *reports) watched(s *server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != s {
		r.server = s
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// where is with which server the watch is open, nil for none, and a channel that is closed when that is another one.
func (r *reports) where() (*server, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server, r.moved
}

func (r *reports) to() *server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

// next is the report of this moment to a server. Numbers ascend in the order in which reports are made.
func (r *reports) next(to *server) wire.Report {
	report := r.host.Report()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	s := r.status
	report.Session, report.Number = r.session, r.number
	report.Have, report.Refused, report.Stale, report.Trust = s.Have, s.Refused, s.Stale, s.Trust
	report.Statements = s.Statements
	if v := &report.Verdict; v.Epoch == s.Have.Epoch && v.Version == s.Have.Version {
		v.Root = s.Have.Root // which statements change at the host is told apart from that
	}
	if p := r.links.State().Peers; p != nil && p.From != "" {
		report.FromPeer, report.FromPeerAt = wire.Name(p.From), p.At.Unix()
	}
	report.At, report.Server = time.Now().UnixMilli(), wire.Name(to.address)
	if s.Open && !decided(&report.Verdict, &s.Verdict) {
		report.Verdict = s.Verdict
	}
	readable(&report)
	return report
}

// decided tells whether the host has its own verdict already on what is on its way to it here: the state was handed over, and it was
// faster than the answer to that.
func decided(host, here *wire.Verdict) bool {
	return here.Type == wire.Pending && host.Type != wire.Pending && host.Epoch == here.Epoch && host.Version == here.Version && host.Root == here.Root
}

// readable bounds the texts of a report that come from the host, and makes them what can be read: one that cannot would cost the whole
// report. What the host has given stays as it is.
func readable(r *wire.Report) {
	r.Verdict.Message = wire.Text(r.Verdict.Message)
	r.Instances = wire.FitInstances(slices.Clone(r.Instances))
	r.Configs, r.Problems = slices.Clone(r.Configs), slices.Clone(r.Problems)
	for i := range r.Configs {
		r.Configs[i].Message = wire.Text(r.Configs[i].Message)
	}
	for i := range r.Problems {
		p := &r.Problems[i]
		p.Message, p.Title = wire.Text(p.Message), strings.ToValidUTF8(p.Title, "\uFFFD")
	}
	if r.Host == nil {
		return
	}
	// What a host is called, and what its files and disks say of it, is any bytes.
	h := *r.Host
	h.Version, h.Facts = wire.Name(h.Version), make(map[string]string, len(r.Host.Facts))
	for name, value := range r.Host.Facts {
		h.Facts[name] = wire.Fact(value)
	}
	h.Disks, h.Interfaces = slices.Clone(h.Disks), slices.Clone(h.Interfaces)
	for i := range h.Disks {
		d := &h.Disks[i]
		d.Name, d.Model = wire.Name(d.Name), wire.Name(d.Model)
	}
	for i := range h.Interfaces {
		n := &h.Interfaces[i]
		n.Name, n.MAC = wire.Name(n.Name), wire.Name(n.MAC)
	}
	r.Host = &h
}

// report sends a report when the host has changed, and when the server asks, over the connection of the watch. While there is no watch
// nothing is sent: the next one begins with a report.
func (c *Client) report(ctx context.Context, random *rand.Rand) {
	var backoff core.Backoff
	var due, last, hasty, quiet time.Time // due is zero when nothing is to be sent; hasty is of the last report that the host wanted
	var measured time.Time                // when what instances take is to be told; zero: nobody waits for it
	wanted, cloned := false, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if at := earliest(due, measured); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.opts.Host.Changed():
			// A lazy report that has just gone keeps nobody waiting.
			due, wanted = latest(time.Now(), hasty.Add(reportPause)), true
			continue
		case <-c.reports.lazy:
			if at := latest(time.Now().Add(lazyPause), last.Add(reportPause), quiet); due.IsZero() {
				due = at
			}
			continue
		case <-timer.C:
		}
		due, measured = time.Time{}, time.Time{}
		to := c.reports.to()
		if to == nil {
			continue
		}
		report := c.reports.next(to)
		reply, err := c.sendReport(ctx, to, report)
		last = time.Now()
		if wanted {
			hasty, wanted = last, err != nil
		}
		if err != nil {
			c.opts.Log.Debug("send a report", "err", err)
			due = last.Add(max(backoff.Next(random), PauseOf(err)))
			continue
		}
		backoff.Reset()
		if reply.Echo != 0 {
			c.opts.Heard(reply.Echo)
		}
		if reply.Echo != report.Echo && c.opts.Hungry() {
			due = last.Add(echoPause)
		}
		quiet = last.Add(min(time.Duration(reply.RetryAfter)*time.Second, quietMax))
		if reply.UsageEvery > 0 {
			measured = last.Add(max(time.Duration(reply.UsageEvery)*time.Second, usageEveryMin))
		}
		if reply.Cloned && !cloned {
			c.opts.Log.Error("somebody else has the identity of this host", "hint", "one of two machines is a copy of the other: join one of them anew")
		}
		cloned = reply.Cloned
	}
}

func (c *Client) sendReport(ctx context.Context, to *server, report wire.Report) (wire.StatusReply, error) {
	var reply wire.StatusReply
	err := to.exchange(ctx, wire.PathStatus, report, replyMax, &reply)
	return reply, err
}

// earliest is the first of two times; the zero time is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest is the last of some times.
func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

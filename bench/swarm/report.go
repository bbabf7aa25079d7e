package swarm

import (
	"fmt"
	"math/rand/v2"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// As in package client.
const (
	reportPause = 200 * time.Millisecond
	lazyPause   = 250 * time.Millisecond
)

// reporter says when a host reports, as package client does it.
type reporter struct {
	number uint64
	due    time.Time // zero: nothing is to be sent
	last   time.Time
	hasty  time.Time // the last report that the host wanted
	quiet  time.Time
	wanted bool // the host wants the next one
	sent   bool // one is on its way
	urgent bool // that the host wanted
	fails  core.Backoff
}

// changed is when the host has something to tell.
func (r *reporter) changed(now time.Time) {
	r.due, r.wanted = latest(now, r.hasty.Add(reportPause)), true
}

// lazy is when it would do no harm to report.
func (r *reporter) lazy(now time.Time) {
	if r.due.IsZero() {
		r.due = latest(now.Add(lazyPause), r.last.Add(reportPause), r.quiet)
	}
}

// dueAt is when to report; zero: not by itself.
func (r *reporter) dueAt() time.Time {
	if r.sent {
		return time.Time{}
	}
	return r.due
}

// take reports whether to send one now. Without a watch nothing is sent: the next one begins with a report.
func (r *reporter) take(now time.Time, watching bool) bool {
	if r.sent || r.due.IsZero() || r.due.After(now) {
		return false
	}
	r.due = time.Time{}
	if watching {
		r.sent, r.urgent, r.wanted = true, r.wanted, false
	}
	return watching
}

func (r *reporter) answered(now time.Time, after time.Duration) {
	r.ended(now)
	r.fails.Reset()
	r.quiet = now.Add(after)
}

func (r *reporter) failed(now time.Time, after time.Duration, random *rand.Rand) {
	r.ended(now)
	r.wanted = r.wanted || r.urgent
	r.due = now.Add(max(r.fails.Next(random), after))
}

func (r *reporter) ended(now time.Time) {
	r.sent, r.last = false, now
	if r.urgent {
		r.hasty = now
	}
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// next is the report of this moment: that all that the host has acted on is as declared.
func (h *host) next() wire.Report {
	h.report.number++
	m, s := h.state.Mark, h.machine.Status()
	r := wire.Report{
		Session: wire.Session{ID: h.node.UID, Start: 1}, Number: h.report.number, At: time.Now().UnixMilli(),
		Have: s.Have, Refused: s.Refused, Stale: s.Stale, Trust: s.Trust,
		Enforced: m, Verdict: wire.Verdict{Epoch: m.Epoch, Version: m.Version, Root: m.Root},
		Usage: &wire.Usage{CPU: 1234, RSS: 18 << 20, Anonymous: 5 << 20}, Offers: &offers, Instances: h.runs,
	}
	done := h.acts.IsZero() && m.Version > 0
	if done {
		r.Verdict.Type, r.Verdict.Since = wire.Applied, h.since.UnixMilli()
		r.Counts.Kept = uint32(len(h.state.List))
	}
	for _, l := range h.state.List {
		if l.ID != wire.OwnLayer {
			r.Configs = append(r.Configs, wire.ConfigReport{ID: l.ID, Converged: done, Settled: done})
		}
	}
	if v := &s.Verdict; s.Open && !(v.Type == wire.Pending && done && v.Epoch == m.Epoch && v.Version == m.Version && v.Root == m.Root) {
		r.Verdict = *v
	}
	if h.report.number == 1 {
		r.Host = h.describe()
	}
	return r
}

// offers is what each host has for instances: what the bars of the scheduler are about.
var offers = wire.Offers{CPU: 4000, Memory: 32 << 30, Disk: 64 << 30, Arch: "amd64", Runtimes: []string{string(workload.Process)}}

// describe is what a host says of itself once in a session: as much as a small server with two disks and an address has to say.
func (h *host) describe() *wire.Host {
	address := h.from.String()
	facts := map[string]string{
		"facts.hostname": h.node.Name, "facts.fqdn": h.node.Name + ".bench.example", "facts.arch": "amd64", "facts.os.id": "debian", "facts.os.family": "debian",
		"facts.os.version": "13", "facts.os.codename": "trixie", "facts.os.name": "Debian GNU/Linux 13 (trixie)", "facts.kernel.name": "Linux",
		"facts.kernel.release": "6.12.0-amd64", "facts.network.primary.interface": "eth0", "facts.network.primary.address": address,
		"facts.network.addresses": `["` + address + `"]`, "facts.network.interfaces": `["eth0","lo"]`, "facts.boot.id": h.node.UID,
		"facts.cpu.count": "4", "facts.cpu.model": "a simulated processor", "facts.memory.bytes": "34359738368", "facts.systemd.version": "257",
		"facts.timezone": "Etc/UTC", "facts.packages.manager": "apt", "facts.virtualization": "kvm", "facts.disks": `["sda","sdb"]`,
	}
	return &wire.Host{
		Version: "bench", Facts: facts, CPUs: 4, Memory: uint64(offers.Memory),
		Disks:      []wire.Disk{{Name: "sda", Bytes: 64 << 30, Model: "simulated"}, {Name: "sdb", Bytes: 512 << 30, Model: "simulated"}},
		Interfaces: []wire.Interface{{Name: "eth0", MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", h.random.IntN(256), h.random.IntN(256), h.random.IntN(256)), Addresses: []string{address}}},
	}
}

package election

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Server is a server of the cluster, as the others reach it.
type Server struct {
	// ID is that of its data directory.
	ID string `json:"id"`
	// API is HOST:PORT where people are served.
	API string `json:"api"`
	// Transfer is HOST:PORT where hosts are served.
	Transfer string `json:"transfer"`
}

// Holder is who leads.
type Holder struct {
	Server
	Lease clientv3.LeaseID
	// Term is the revision at which it began to lead: each term has a higher one. 0: nobody leads.
	Term int64
}

// lease is that of this server.
type lease struct {
	id      clientv3.LeaseID // 0: it has none
	renewed time.Time        // when the renewal was asked for that came through last
}

// state is what a server knows of the election. Its methods do no I/O, and are told the time.
//
//  1. It leads only under a lease of its own, and not after that has ended by its own clock.
//  2. It leads only in the term that it has seen to be the newest.
type state struct {
	self   Server
	length time.Duration // of a lease

	lease lease
	// known says that the keys were read; leader is who they say leads.
	known  bool
	leader Holder
	// before is the term in which an earlier process of this data directory has led, if it had not ended when this one began: that
	// process is gone, because the directory belongs to one at a time.
	before int64
	// term is the one in which this server leads; 0: it does not.
	term int64
	// retry is before when not to ask for what has failed.
	retry time.Time
}

// action is what to do next.
type action uint8

// The actions.
const (
	wait     action = iota // until something is heard, or the time comes
	obtain                 // get a lease, and tell of this server under it
	renew                  // renew the lease
	campaign               // become the leader, in the place of the one of the term that is known
	lead                   // begin to lead
	resign                 // stop to lead
)

// renewals is how often a lease is renewed in its length: two may be lost before it ends.
const renewals = 4

// until is when the lease has ended by this server's clock.
func (s *state) until() time.Time { return s.lease.renewed.Add(s.length) }

// next says what to do now, and until when to wait where that is to wait; the zero time is until something is heard.
func (s *state) next(now time.Time) (action, time.Time) {
	ended := s.lease.id == 0 || !now.Before(s.until())
	if s.term != 0 && (ended || s.leader.Term != s.term) {
		return resign, time.Time{}
	}
	if now.Before(s.retry) {
		at := s.retry
		if s.term != 0 && s.until().Before(at) {
			at = s.until()
		}
		return wait, at
	}
	renewal := s.lease.renewed.Add(s.length / renewals)
	switch {
	case ended:
		return obtain, time.Time{}
	case !now.Before(renewal):
		return renew, time.Time{}
	case s.term == 0 && s.mine():
		return lead, time.Time{}
	case s.known && (s.leader.Term == 0 || s.leader.Term == s.before):
		return campaign, time.Time{}
	}
	return wait, renewal
}

// mine says whether this process is the leader that the keys name.
func (s *state) mine() bool {
	return s.leader.Term != 0 && s.leader.ID == s.self.ID && s.leader.Lease == s.lease.id
}

// saw notes who leads, as the keys say.
func (s *state) saw(leader Holder) {
	if !s.known && leader.ID == s.self.ID {
		s.before = leader.Term
	}
	s.known, s.leader = true, leader
}

// obtained notes a lease that was asked for at a moment.
func (s *state) obtained(id clientv3.LeaseID, asked time.Time) {
	s.lease, s.retry = lease{id: id, renewed: asked}, time.Time{}
}

// kept notes that the lease was renewed.
func (s *state) kept(asked time.Time) { s.lease.renewed, s.retry = asked, time.Time{} }

// lost notes that there is no such lease any more.
func (s *state) lost() { s.lease = lease{} }

// failed notes that the store has not done what it was asked for.
func (s *state) failed(now time.Time) { s.retry = now.Add(s.length / renewals / 2) }

// led notes that this server leads now; left that it does not any more.
func (s *state) led() { s.term = s.leader.Term }

func (s *state) left() { s.term = 0 }

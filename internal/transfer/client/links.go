package client

import (
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// cutOffAfter is how long a host may be without a server until that is worth a person's attention: a server that is replaced, or a
// network that is repaired, is back by then, and so is the host with its longest pause of a minute.
const cutOffAfter = 5 * time.Minute

// Link is how a host stands to its servers, for people.
type Link struct {
	// Connected is that a server has taken the host's watch.
	Connected bool `json:"connected"`
	// ConnectedSince is when Connected became what it is: at the earliest when this run began.
	ConnectedSince time.Time `json:"connectedSince,omitzero"`
	// Trouble is why there is no connection; nil where there is one, or was none tried yet.
	Trouble *Trouble `json:"trouble,omitempty"`
	// Peers is how it stands to the other hosts that it asks while there is no connection; nil where it has asked none.
	Peers *PeerState `json:"peers,omitempty"`
}

// Trouble is what came in place of a watch: what a server has answered, or that none did.
type Trouble struct {
	Code    reason.Code `json:"code"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
	Since   time.Time   `json:"since"` // the first time in a row
}

// CutOff says why nothing new reaches the host, and since when; nil while a server is connected, or may soon be again.
func (l Link) CutOff(now time.Time) *Trouble {
	t := l.Trouble
	if l.Connected || t == nil {
		return nil
	}
	if row, known := reason.Lookup(t.Code); known && row.Exit == reason.ExitNotAllowed {
		return t // it will not change by itself
	}
	if now.Sub(l.ConnectedSince) < cutOffAfter {
		return nil
	}
	long := *t
	long.Since = l.ConnectedSince
	return &long
}

// silent is how long there has been no server.
func (l Link) silent(now time.Time) time.Duration {
	if l.Connected {
		return 0
	}
	return now.Sub(l.ConnectedSince)
}

// Links follows how a host stands to its servers. The zero value is that of a host that has not begun. Its methods may be called from
// several goroutines.
type Links struct {
	mu     sync.Mutex // guards what follows
	link   Link
	status core.Status
}

// State is how the host stands now.
func (k *Links) State() Link {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.link
}

// Stuck is the verdict on a newer state that could not be fetched, with what may help; it is Pending where there is none.
func (k *Links) Stuck() (v wire.Verdict, hint string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.status.Stuck {
		return wire.Verdict{}, ""
	}
	switch k.status.Verdict.Code {
	case reason.DiskFull, reason.StateUnwritable:
		hint = "the agent's state directory has to be writable, with room on its file system; then it goes on by itself"
	case reason.TransferWrong:
		hint = "it is tried again by itself; if it goes on, whatever answers at the server's address is broken or lies: see the log of the server"
	case reason.LaterVersion:
		hint = "install a tako-agent that is as new as the server"
	}
	return k.status.Verdict, hint
}

// Statements are those that are in force or were refused, and those on their way.
func (k *Links) Statements() (told, coming []wire.Statement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status.Statements, k.status.Coming
}

func (k *Links) set(s core.Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status = s
}

// peers notes how the host stands to its peers.
func (k *Links) peers(s PeerState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.link.Peers = &s
}

func (k *Links) began() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.link = Link{ConnectedSince: time.Now()}
}

// opened notes that a server has taken a watch.
func (k *Links) opened() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.link.Connected {
		k.link = Link{Connected: true, ConnectedSince: time.Now(), Peers: k.link.Peers}
	}
}

// lost notes why a watch could not be opened, or has broken. One that ends because the server says so is followed by another one, and is
// no loss.
func (k *Links) lost(e *reason.Error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := Trouble{Code: e.Code, Message: e.Error(), Hint: e.Hint, Since: now}
	if was := k.link.Trouble; was != nil && was.Code == t.Code {
		t.Since = was.Since
	}
	if k.link.Connected {
		k.link = Link{ConnectedSince: now, Peers: k.link.Peers}
	}
	k.link.Trouble = &t
}

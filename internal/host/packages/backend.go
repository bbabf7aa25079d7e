package packages

import (
	"context"
	"errors"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Backend is a package manager: what differs between apt and dnf, and nothing else. What a declaration means, when to act, how one bad
// package is found among many, and how often lists are fetched is the Type's.
//
// Methods other than Change may run beside each other; Change runs alone. Errors are *reason.Error with a Code, a Cause, Evidence and a
// Hint; their Doing is empty, the Type fills it in. PackageLock carries Holder and After; what the context ended is Interrupted or
// OperationTimeout, which Ended makes.
type Backend interface {
	Lister
	// Here returns nil when this host has the package manager; otherwise what is missing.
	Here() error
	// Ways says what it is called, what tells of changes, and what it can do. It is always the same.
	Ways() Ways
	// Compare orders two versions as the package manager does: negative, 0 or positive. It is pure.
	Compare(a, b string) int
	// Look reads what is installed: Entries[i] belongs to names[i]. It writes nothing and runs nothing that could. With fresh it reads
	// anew, otherwise only if a stat says that something has changed.
	Look(names []string, fresh bool) (Snapshot, error)
	// Try simulates a transaction, without a trace. Change carries it out: what it reports as done is durable, and it goes on to its end
	// when the context ends. An error does not say that nothing was done: the Type looks.
	Try(ctx context.Context, x Transaction) (Outlook, error)
	Change(ctx context.Context, x Transaction) error
}

// Lister is what a package manager knows of repositories: the lists that lie on this host.
type Lister interface {
	// Lists tells one state of what Offers reads from another. It costs a few stats.
	Lists() (Lists, error)
	// Offers asks what the lists have of packages, by what lies on this host: it fetches nothing, and writes nothing. A name that no list
	// has may be left out.
	Offers(ctx context.Context, names []string) (map[string]Offer, error)
	// Update fetches the lists anew.
	Update(ctx context.Context) error
}

// Repairer is a Backend whose database may be left half-way by somebody who was cut off.
type Repairer interface {
	// Repair finishes what it can. The Type looks at what came of it, and shows the error where that was nothing.
	Repair(ctx context.Context) error
}

// Holder is a Backend that can keep packages as they are, whoever asks.
type Holder interface {
	// Hold marks packages to stay as they are, or takes the mark away. It changes nothing else of them.
	Hold(ctx context.Context, names []string, held bool) error
}

// Purger is a Backend whose packages leave configuration behind that can be removed by itself.
type Purger interface {
	// Purge removes what packages that are Leftover have left.
	Purge(ctx context.Context, names []string) error
}

// Answerer is a Backend whose packages ask questions when they are installed.
type Answerer interface {
	// Answer notes answers for a package: lines of owner, question, type and value, which may be secret.
	Answer(ctx context.Context, name, answers string) error
}

// Ended is the error of what its context has ended.
func Ended(err error) *reason.Error {
	code := reason.Interrupted
	if errors.Is(err, context.DeadlineExceeded) {
		code = reason.OperationTimeout
	}
	return &reason.Error{Code: code, Cause: err}
}

// Ways says how a package manager is dealt with.
type Ways struct {
	Name string // "apt"
	// Installed and Lists tell when Look, and Offers, may have another answer.
	Installed, Lists []host.Watch
	Conffiles        bool // it can be told whose configuration files count
	// What a person does, for hints: Unhold and Finish are followed by a package's name; Sources is where repositories are listed.
	Unhold, Finish, Sources string
}

// State is how far a package is installed.
type State uint8

// The states.
const (
	Absent     State = iota
	Leftover         // nothing but configuration of it is there
	Unfinished       // something went wrong half-way; Entry.Word says what
	Present
)

// Entry is what the database says of one package. The zero Entry is of one that it does not know.
type Entry struct {
	State   State
	Word    string // with Unfinished: the package manager's own word for it
	Version string // of what is there, Unfinished or Present
	Held    bool   // it is marked to stay as it is
}

// Gone reports whether nothing of the package but configuration is there.
func (e Entry) Gone() bool { return e.State == Absent || e.State == Leftover }

// Snapshot is what the database says at one moment.
type Snapshot struct {
	Entries []Entry
	Held    []string // all packages that are marked to stay as they are, asked for or not, sorted
	// Unfinished says that there is something for Repair, asked for or not.
	Unfinished bool
	// Interrupted says that somebody was cut off, or is at work, so that the database does not say all. Nothing new is begun.
	Interrupted bool
	Holder      string // with fresh: who holds its lock, "pid 812 (apt-get)"; empty for nobody
}

// Lists is a state of the lists: the fields differ when something else may come of them.
type Lists struct {
	Sources string // the repositories and preferences that are configured
	Fetched string // what was fetched of them
}

// Offer is what the lists have of one package.
type Offer struct {
	Candidate string   // what an installation without a version would take, or what is installed if that counts more; empty for nothing
	Versions  []string // what can be had from a repository, newest first
}

// Transaction is what is done at once.
type Transaction struct {
	Steps []Step
	// Downgrade allows that a version goes back, Held that a package changes which is marked to stay as it is.
	Downgrade, Held bool
	Ways            Choices
}

// Step is what becomes of one package.
type Step struct {
	Name    string
	Remove  bool
	Version string // to install; empty for the candidate
}

// Choices are what holds for a whole transaction. The zero value is as the host is configured, and configuration files that somebody has
// changed stay.
type Choices struct {
	Recommends Recommends
	// Replace takes the package's own configuration files where somebody has changed them, and brings back those that are missing.
	Replace bool
}

// Recommends says whether what a package recommends comes with it.
type Recommends uint8

// The answers.
const (
	RecommendsAsConfigured Recommends = iota
	RecommendsWanted
	RecommendsLeft
)

// Outlook is what a transaction would do.
type Outlook struct {
	Removes []string // names, also of what goes with others
	Changes []Move
}

// Move is a package that would be installed, or get another version.
type Move struct {
	Name     string
	From, To string // versions; From is empty for what is new
}

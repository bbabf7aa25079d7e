package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/instances"
	"tako.dev/tako/internal/agent/naming"
	"tako.dev/tako/internal/agent/subscribe"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
)

// Options say what an agent keeps, where, and with what.
type Options struct {
	Files     []string          // declaration files and directories; none of a host that has joined a cluster
	Joined    bool              // what is desired comes from the servers of a cluster; NodeName and Labels do not count then
	Peers     string            // where other hosts of the cluster ask this one, HOST:PORT; empty: it neither answers nor asks them
	Names     naming.Where      // where names are answered on this host; of a host that has joined
	StateDir  string            // where its state lives, a path of the host
	NodeName  string            // $(node.name)
	Labels    map[string]string // node.labels
	Root      *disk.Root        // where the paths of resources begin
	Types     map[declare.ResourceType]host.Type
	Bus       subscribe.Units // nil where there is no systemd
	Facts     Facts
	Instances instances.Means  // of a host that has joined
	Objects   *content.Objects // that it fetches; nil: none
	// Watch keeps the host converged until the context ends; without it Run ends when nothing is left to do.
	Watch bool
	// Now lets windows not count until everything that can be done at the start is done.
	Now bool
	// Audit is the interval of the audit; 0 means never. An audit looks at everything, paced, and proves that the events
	// missed nothing.
	Audit time.Duration
	// Log gets what the transfer has to say; nil is for nobody.
	Log *slog.Logger
	// OnKept is called from the loop, until it returns nil, when this program has shown that it keeps the host: what is declared is enforced, and a server has
	// taken its watch where the host has joined. It must not block for long.
	OnKept func() error
	// OnLine is called from the loop for each thing that a person who watches should see. It must not block for long.
	OnLine func(Line)
	// OnEnd is called once with all resources when a run is over.
	OnEnd func(*Report)
}

// Facts is what a host observes of itself.
type Facts interface {
	// Collect reads all facts now. What is refused, as *reason.Error, is not among them: a person has to mend something.
	Collect() (fact func(name string) (any, bool), refused []error, err error)
	// Watch blocks and calls sink when a fact may have changed, until the context ends. What it cannot watch, or not any more, it tells trouble, and tries
	// again by itself. Both may be called from several goroutines.
	Watch(ctx context.Context, sink func(), trouble func(error))
}

func (o *Options) validate() error {
	switch {
	case o.StateDir == "":
		return errors.New("agent options: no state directory")
	case o.Root == nil || len(o.Types) == 0 || o.Facts == nil:
		return errors.New("agent options: no root, no resource types or no facts")
	case o.Joined && (len(o.Files) > 0 || !o.Watch):
		return errors.New("agent options: a host that has joined has no declaration files, and is kept for good")
	case o.Audit < 0:
		return errors.New("agent options: the audit's interval is negative")
	}
	return nil
}

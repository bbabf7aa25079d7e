package assign

import (
	"cmp"
	"time"

	"tako.dev/tako/declare"
)

// Target is what a config has, or is to have, on a node. Package rollout has the same type, which converts to this one.
type Target struct {
	Revision string // name; empty: nothing
	Priority int
	Root     string // of the layer that the revision compiles to: another one where a value that it takes from elsewhere is another one
}

// Row is one layer of a node.
type Row struct {
	Priority int
	Config   string // ID of the config, as catalog.ConfigName says
	Revision string // name
	Root     string // of its layer
}

// compareRows is the order of a catalog: the highest priority first, then by config.
func compareRows(a, b Row) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Config, b.Config))
}

func (r Row) id() RevisionID { return RevisionID{r.Config, r.Revision, r.Root} }

func (r Row) target() Target { return Target{r.Revision, r.Priority, r.Root} }

// RevisionID tells what all configs want apart: the name of a revision is one among those of its config, and the root says which values
// it takes from elsewhere.
type RevisionID struct{ Config, Name, Root string }

// Node is a node with what is assigned to it now, in any order.
type Node struct {
	Name        string
	Environment string // namespace of the configs that are for it; empty: none
	Labels      map[string]string
	Assigned    []Row
}

// Config is a config that is not being deleted. It is known by its ID: one that was deleted and made again goes on with the rows
// of the first, so that hosts do not lose in between what both declare.
type Config struct {
	ID        string // as catalog.ConfigName says
	Kind      string
	Namespace string // empty for a ClusterNodeConfig
	Created   time.Time
	Selector  declare.Selector
	Newest    Target // what every selected node is to have in the end
	Proven    Target // what a node that is new may get before that; empty: nothing. It only matters for what is refused
	// Release is what the rollout lets go on now, by node, where that is not what is assigned there.
	Release map[string]Target
}

// Selects reports whether a config is for a node: by its labels, and a NodeConfig by the environment too.
func (c *Config) Selects(n *Node) bool {
	if c.Kind != declare.KindClusterNodeConfig && (n.Environment == "" || n.Environment != c.Namespace) {
		return false
	}
	return c.Selector.Matches(n.Labels)
}

// View is everything that the decision depends on. Nodes have different names, and configs different IDs.
type View struct {
	Nodes   []Node
	Configs []Config
	// Revisions holds every revision that Newest, Proven, Release or Assigned names.
	Revisions map[RevisionID]*Revision
}

// Decision is what is to be on the nodes, and what people are told.
type Decision struct {
	Rows    map[string][]Row // by node, of every node; in the order of a catalog
	Refused []Refusal        // in the order of nodes and configs
	// Together are targets that are not refused and go to a node only with one another, once all of them are let go on there: what one
	// wants collides with what another has. The config that was made first chooses the node; the others have theirs here while it is let
	// go on there, and are refused before.
	Together []Together
	Told     map[string]Told // by config, of those that have something to be told
	// Unknown are revisions that are needed and not in the view. One that is assigned stays, and nothing new of its priority goes
	// to its node, because nobody knows what it claims; any other is not assigned.
	Unknown []RevisionID
}

// Refusal says that a config wants something on a node that is kept out there. A config that has nothing there has one for each of its
// targets that is kept out, whichever its rollout would let go on: so what is refused does not depend on what was tried.
type Refusal struct {
	Node, Config string
	Target       Target
	Why          Why
}

// Together is a target that waits on a node for those of other configs.
type Together struct {
	Node, Config string
	Target       Target
}

// Why is a reason to keep something out.
type Why string

// The reasons.
const (
	Conflicting Why = "Conflict"      // it collides with what is on the node, or is to come there
	Later       Why = "Later"         // it collides with what is on the node, which something else is to take the place of
	Crowded     Why = "TooManyLayers" // the node has as many layers as it can
)

// Told is what people are told about one config.
type Told struct {
	Conflicts []Conflict // at most ConflictsMax, by the other config
	More      int        // conflicts that are not among them
	Crowded   Places     // where it has no room
}

// The bounds of what is told: a list is for a person to begin with, and the count says how much there is.
const (
	ConflictsMax = 16 // ours: whoever meets more configs than that has one mistake and not sixteen
	PlacesMax    = 10 // ours
)

// Places are nodes.
type Places struct {
	Nodes []string // names, the first PlacesMax in the order of the alphabet
	Count int      // of all
}

// Conflict is what one config is told about another that it collides with.
type Conflict struct {
	Other         string // ID of the other config
	Revision      string // of this config
	OtherRevision string
	Priority      int           // of both
	Claim         declare.Claim // the first of what both claim and want different things of; zero: it is not known
	Claims        int           // how many there are
	Difference    Difference    // about that claim
	InPlace       bool          // Revision is on these nodes and stays; otherwise it is kept out there
	Places        Places
}

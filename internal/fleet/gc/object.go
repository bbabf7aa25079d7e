package gc

import "fmt"

// UID tells apart all objects that ever were.
type UID string

// GroupKind is a kind, whatever the version that it is read in.
type GroupKind struct{ Group, Kind string }

// String is KIND.GROUP, and KIND alone in the core group.
func (k GroupKind) String() string {
	if k.Group == "" {
		return k.Kind
	}
	return k.Kind + "." + k.Group
}

// Identity says which object is meant.
type Identity struct {
	UID       UID
	Kind      GroupKind
	Namespace string // empty: of the cluster
	Name      string
}

// String is KIND NAMESPACE/NAME, for people.
func (i Identity) String() string {
	if i.Namespace == "" {
		return i.Kind.String() + " " + i.Name
	}
	return i.Kind.String() + " " + i.Namespace + "/" + i.Name
}

// Reference is an owner reference. It has no namespace: an owner is in the namespace of its dependent, or of the cluster.
type Reference struct {
	UID        UID
	APIVersion string // as it stands in the object: a live read uses it
	Kind       GroupKind
	Name       string
	Blocks     bool // blockOwnerDeletion: deletion of the owner in the foreground waits for this dependent
}

// Object is what garbage collection knows of an object.
type Object struct {
	Identity
	Version  string // resource version: a decision is for this one
	Owners   []Reference
	Deleting bool // it has a deletion time
	// Foreground and Orphan say that the object has the finalizer of that name.
	Foreground bool
	Orphan     bool
}

// The finalizers of garbage collection, as metav1 names them.
const (
	FinalizerForeground = "foregroundDeletion"
	FinalizerOrphan     = "orphan"
)

// waiting: it goes when the dependents that block it are gone.
func (o *Object) waiting() bool { return o.Deleting && o.Foreground }

// orphaning: it goes when no dependent refers to it.
func (o *Object) orphaning() bool { return o.Deleting && o.Orphan }

// Lookup is a question for a live read: is there an object with this UID at this place?
type Lookup struct {
	UID        UID
	APIVersion string
	Kind       GroupKind
	Namespace  string // of the dependent; without meaning where the kind is of the cluster
	Name       string
}

// Verdict is the answer to a Lookup.
type Verdict uint8

// The verdicts. The zero value is that nobody has asked.
const (
	Unasked    Verdict = iota
	Asked              // on its way; Decide asks once only
	Lives              // it is there, and was not observed yet
	Absent             // it is not there, nor in another namespace: a UID never comes back
	Elsewhere          // it is there, in another namespace, or where the dependent may not refer to
	Unreadable         // the read did not work, or nothing serves that kind
)

var verdictNames = [...]string{"unasked", "asked", "lives", "absent", "elsewhere", "unreadable"}

// String is the verdict in words.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Action is what a Decision wants done.
type Action uint8

// The actions.
const (
	Delete          Action = iota + 1 // delete the object: precondition UID and Version, with Propagation
	RemoveFinalizer                   // remove Finalizer from the object
	DropOwners                        // remove the owner references with the UIDs of Owners
	Unblock                           // set blockOwnerDeletion to false in all owner references
	Verify                            // answer Lookup by a live read
	Report                            // tell people, in an event on the object, what Why says
)

var actionNames = [...]string{"", "delete", "removeFinalizer", "dropOwners", "unblock", "verify", "report"}

// String is the action's name.
func (a Action) String() string {
	if int(a) < len(actionNames) && a > 0 {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Propagation is how a deletion reaches dependents.
type Propagation string

// The propagation policies, as metav1 names them.
const (
	Background Propagation = "Background"
	Foreground Propagation = "Foreground"
	Orphan     Propagation = "Orphan"
)

// Decision is one thing to do about an object. All but Verify and Report carry the precondition that the object has still the
// UID of Object and the resource version Version; where it has not, doing nothing is right: the newer version will be observed.
type Decision struct {
	Do          Action
	Object      Identity
	Version     string
	Propagation Propagation // of Delete
	Finalizer   string      // of RemoveFinalizer
	Owners      []UID       // of DropOwners
	Lookup      Lookup      // of Verify
	Why         string      // for logs and events; no secret can be in it
}

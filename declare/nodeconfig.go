package declare

// APIVersion is the group and version that this package reads.
const APIVersion = "tako.dev/v1alpha1"

// Kinds of declarations that carry host resources.
const (
	KindNodeConfig        = "NodeConfig"        // priority 0-999, nodes of its namespace's environment
	KindClusterNodeConfig = "ClusterNodeConfig" // priority 1000-1999, all nodes
)

// Limits of a declaration. Sources: model.md, transfer.md (Bounds).
const (
	ResourcesMax     = 100_000 // acting resources on one node
	BodyBytesMax     = 1 << 20 // one resource, encoded
	ClaimBytesMax    = 4 << 10 // one claim
	DocumentBytesMax = 64 << 20
	PathBytesMax     = 4096   // PATH_MAX, limits.h
	NameBytesMax     = 253    // RFC 1123 subdomain, as Kubernetes names
	LabelsMax        = 256    // labels of a config, or in matchLabels of a selector: ours, far above what anybody can keep in mind
	ExpressionsMax   = 256    // conditions of a selector: ours, the same
	ValuesMax        = 1000   // values of a condition: ours; who lists more hosts gives them a label
	WavesMax         = 256    // ours: a rollout goes through them one after the other
	ReferencesMax    = 10_000 // names in require, and in notify, of one resource: ours, a tenth of all resources
	ArgumentsMax     = 1000   // of a check command: ours, far below what execve(2) takes
)

// NodeConfig declares resources that the matching hosts must have. ClusterNodeConfig has the same form; Kind tells them
// apart.
type NodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   Metadata       `json:"metadata"`
	Spec       NodeConfigSpec `json:"spec"`
}

// Metadata names a declaration. Alone, without a server, namespace is kept for display and has no effect.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeConfigSpec is the body of a NodeConfig.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type NodeConfigSpec struct {
	// Selector picks nodes by their labels; empty picks all of the config's scope. Alone it has no effect.
	// +optional
	Selector Selector `json:"selector,omitzero"`
	// Priority decides between configs that claim one thing: the higher wins whole. Default 100 (ClusterNodeConfig: 1100).
	Priority *int `json:"priority,omitempty"`
	// Rollout paces the way of a new revision over the nodes. Alone it has no effect.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
	// Resources are what a node must have; names are unique in the config.
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	Resources []Resource `json:"resources" patchStrategy:"merge" patchMergeKey:"name"`
}

// Selector picks nodes by labels; both parts must hold.
//
// +structType=atomic
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Selector struct {
	// MatchLabels are labels that a node must have, with these values. Default none.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are conditions that must all hold. Default none.
	// +listType=atomic
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is one condition on one label key.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type SelectorRequirement struct {
	// Key is the label's key.
	Key string `json:"key"`
	// Operator is In, NotIn, Exists or DoesNotExist.
	Operator SelectorOperator `json:"operator"`
	// Values are what In and NotIn compare the label's value with, at least one; the other operators take none.
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// SelectorOperator is In, NotIn, Exists or DoesNotExist, with the meaning that Kubernetes gives them.
//
// +enum
type SelectorOperator string

// The selector operators.
const (
	OpIn           SelectorOperator = "In"
	OpNotIn        SelectorOperator = "NotIn"
	OpExists       SelectorOperator = "Exists"
	OpDoesNotExist SelectorOperator = "DoesNotExist"
)

// Rollout paces a new revision over nodes.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Rollout struct {
	// MaxUnavailable is how many nodes may be on the way at once: a number or a percentage ("10%"). Default "10%", at least 1.
	MaxUnavailable IntOrPercent `json:"maxUnavailable,omitempty"`
	// Pause stops the rollout where it is.
	Pause bool `json:"pause,omitempty"`
	// HaltOnFailed is how many failed nodes halt the rollout. Default 1.
	HaltOnFailed *int `json:"haltOnFailed,omitempty"`
	// Waves are selectors of nodes that go first, in order; the rest follows.
	// +listType=atomic
	Waves []Selector `json:"waves,omitempty"`
	// Try makes every host that gets a new revision go back to the one before after that time, unless the field has gone by then:
	// "20s", "10m", one second to a day. Left out, a new revision stays.
	Try string `json:"try,omitempty"`
}

// IntOrPercent is a whole number ("3") or a percentage ("10%"). In YAML it may stand as a number.
type IntOrPercent string

// Resource is one thing that a host must have. Exactly one of the type fields is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Resource struct {
	// Name is unique in the config: a letter or digit, then letters, digits and any of ._-+@: up to 253 bytes. It is what
	// require and notify name, and what merges when two parties apply to one config.
	Name string `json:"name"`

	// File makes the resource a file.
	File *File `json:"file,omitempty"`
	// Directory makes the resource a directory.
	Directory *Directory `json:"directory,omitempty"`
	// Symlink makes the resource a link.
	Symlink *Symlink `json:"symlink,omitempty"`
	// Package makes the resource a package.
	Package *Package `json:"package,omitempty"`
	// Service makes the resource a unit.
	Service *Service `json:"service,omitempty"`

	// Require names resources of this config that must be converged first. While one is not, this one is blocked.
	// +listType=atomic
	Require []string `json:"require,omitempty"`
	// Notify names resources of this config to tell when this one has changed: a service restarts or reloads. It also
	// orders: the notified one waits until this one has settled; unlike require it goes on when this one failed.
	// +listType=atomic
	Notify []string `json:"notify,omitempty"`
	// When is a condition over facts and labels; while it is false the resource is notApplicable. Empty is true.
	When string `json:"when,omitempty"`
	// Expand fills $(name) in the resource's strings on the host; $$( stands for a literal $(.
	Expand bool `json:"expand,omitempty"`
	// OnRemove says what happens when the resource leaves the declaration. Default keep; of a file with a content
	// from a Secret, delete.
	OnRemove OnRemove `json:"onRemove,omitempty"`
}

// OnRemove says what becomes of a resource that is not declared any more.
//
// +enum
type OnRemove string

// The answers to a removal.
const (
	// OnRemoveKeep leaves it as it is, unmanaged.
	OnRemoveKeep OnRemove = "keep"
	// OnRemoveRestore puts back what was there before tako first changed it.
	OnRemoveRestore OnRemove = "restore"
	// OnRemoveDelete removes it.
	OnRemoveDelete OnRemove = "delete"
)

// File is a regular file with given content.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type File struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Content is the whole content, UTF-8. Default empty.
	Content string `json:"content,omitempty"`
	// ContentFrom takes the content from a Secret or a ConfigMap instead. Alone, without a server, there is nothing to take it from.
	ContentFrom *ContentSource `json:"contentFrom,omitempty"`
	// Owner is a user's name or number. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is a group's name or number. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Mode is octal text. Default "0644", and "0600" with content from a Secret. A file that only its owner may read (no bit of
	// 0077 set) is private: its content appears in no diff, log or history.
	Mode Mode `json:"mode,omitempty"`
	// Check is a command, without a shell, that must accept the new content before it replaces the old. {} in its arguments is the
	// path of the new content; one argument must hold it.
	// +listType=atomic
	Check []string `json:"check,omitempty"`
	// Force allows to replace something of another type at Path; a directory only when it is empty.
	Force bool `json:"force,omitempty"`
	// InPlace writes into the existing inode instead of replacing it: for a bind-mounted single file, which cannot be
	// replaced. A reader may then see a torn file.
	InPlace bool `json:"inPlace,omitempty"`
}

// ContentSource is where the content of a file comes from. Exactly one of the fields is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type ContentSource struct {
	// Secret makes the content a value of a Secret. The file is private then, whatever its mode says, and nothing is expanded in it.
	Secret *KeySelector `json:"secret,omitempty"`
	// ConfigMap makes the content a value of a ConfigMap.
	ConfigMap *KeySelector `json:"configMap,omitempty"`
}

// KeySelector picks one value.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type KeySelector struct {
	// Namespace is that of the object. Only in a ClusterNodeConfig, and required there: a NodeConfig takes from its own.
	Namespace string `json:"namespace,omitempty"`
	// Name is the object's name.
	Name string `json:"name"`
	// Key is the value's key in the object's data.
	Key string `json:"key"`
}

// Directory is a directory itself, not its content.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Directory struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Owner is a user's name or number. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is a group's name or number. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Mode is octal text. Default "0755".
	Mode Mode `json:"mode,omitempty"`
	// Force allows to replace something of another type at Path.
	Force bool `json:"force,omitempty"`
}

// Symlink is a symbolic link.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Symlink struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Target is what the link holds, absolute or relative; it need not exist.
	Target string `json:"target"`
	// Owner is the name or number of the user whose the link is. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is the name or number of the link's group. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Force allows to replace something of another type at Path; a directory only when it is empty.
	Force bool `json:"force,omitempty"`
}

// Package is a package of the host's package manager.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Package struct {
	// Package is its name for the package manager. Default the resource's name.
	Package string `json:"package,omitempty"`
	// State is present (the default) or absent.
	State PackageState `json:"state,omitempty"`
	// Version pins one exact version; empty takes any. Only with state present.
	Version string `json:"version,omitempty"`
}

// PackageState is whether a package is wanted.
//
// +enum
type PackageState string

// The package states.
const (
	PackagePresent PackageState = "present"
	PackageAbsent  PackageState = "absent"
)

// Service is a systemd unit's run state.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Service struct {
	// Unit is the unit's full name. Default the resource's name, with .service where it has no unit suffix.
	Unit string `json:"unit,omitempty"`
	// State is running (the default) or stopped.
	State ServiceState `json:"state,omitempty"`
	// Enabled says whether it starts at boot; left out, that is not managed.
	Enabled *bool `json:"enabled,omitempty"`
	// OnNotify is what a notification does: restart (the default) or reload (restarts where the unit cannot reload).
	OnNotify OnNotify `json:"onNotify,omitempty"`
}

// ServiceState is whether a unit runs.
//
// +enum
type ServiceState string

// The service states.
const (
	ServiceRunning ServiceState = "running"
	ServiceStopped ServiceState = "stopped"
)

// OnNotify is what a service does when it is notified.
//
// +enum
type OnNotify string

// The answers to a notification.
const (
	NotifyRestart OnNotify = "restart"
	NotifyReload  OnNotify = "reload"
)

// Mode is a file mode in octal text, "0644" or "644"; empty means the type's default.
type Mode string

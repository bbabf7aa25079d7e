package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Source is a Git repository whose content is what should be applied: what a commit declares is applied, and what it declares no
// more is deleted.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Source struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the source. Documents that say no namespace are of the source's.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says where the repository is, and how it is applied.
	Spec SourceSpec `json:"spec"`
	// Status is what became of it; it is written by tako alone.
	// +optional
	Status SourceStatus `json:"status,omitzero"`
}

// SourceList is a list of Sources.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SourceList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the list's resource version and, of a list in chunks, where the next one begins.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the sources.
	Items []Source `json:"items"`
}

// SourceSpec says where a repository is, and how it is applied.
type SourceSpec struct {
	// URL is where the repository is: https://, ssh:// (or user@host:path), or file:// where the server allows it. It holds no
	// credentials.
	URL string `json:"url"`
	// Ref says which commit. Default the newest of the repository's default branch.
	// +optional
	Ref SourceRef `json:"ref,omitzero"`
	// Path is the directory that is applied, from the root of the repository. Default the root.
	Path string `json:"path,omitempty"`
	// Interval is how often the repository is asked for its newest commit, give or take a tenth. Default 5m, 10s to 24h. A webhook makes it
	// known at once.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Credentials is the name of a Secret in the same namespace: username and password, or token, for https; identity and known_hosts
	// for ssh; ca.crt for an authority of one's own.
	Credentials string `json:"credentials,omitempty"`
	// Verify refuses commits that nobody trusted has signed. Default none is refused.
	// +optional
	Verify *SourceVerify `json:"verify,omitempty"`
	// Webhook lets a forge say that there is something new. Default none.
	// +optional
	Webhook *SourceWebhook `json:"webhook,omitempty"`
	// Submodules fetches what submodules below the path hold, from where the repository itself is: the same protocol, server and
	// credentials. Default false: a submodule there is refused.
	Submodules bool `json:"submodules,omitempty"`
	// Ignore are patterns as in .gitignore: what they match is not read. At most 100.
	// +listType=atomic
	Ignore []string `json:"ignore,omitempty"`
	// Prune deletes what the source has applied and declares no more. Default true.
	Prune *bool `json:"prune,omitempty"`
	// AllowEmpty takes a commit that declares nothing for meant. Default false: it is refused, and nothing is deleted.
	AllowEmpty bool `json:"allowEmpty,omitempty"`
	// OnRemove says what becomes of what the source has applied when the source is deleted: Keep leaves it, Delete deletes it first.
	// Default Keep.
	OnRemove SourceRemoval `json:"onRemove,omitempty"`
	// Drift says what becomes of what others change in the fields that the source declares. Default Revert.
	Drift SourceDrift `json:"drift,omitempty"`
	// Wait holds back Ready, and the sources that depend on this one, until what was applied is well. Default only until it is applied.
	// +optional
	Wait *SourceWait `json:"wait,omitempty"`
	// DependsOn are sources that must be Ready before this one is applied. At most 20.
	// +listType=atomic
	DependsOn []SourceReference `json:"dependsOn,omitempty"`
	// Suspend stops the source until a time, or until it is taken away. What was applied stays.
	// +optional
	Suspend *SourceSuspension `json:"suspend,omitempty"`
	// Report tells the forge what became of a commit. Default nobody is told.
	// +optional
	Report *SourceReport `json:"report,omitempty"`
}

// SourceRef says which commit is meant; at most one of its fields is given.
type SourceRef struct {
	// Branch means its newest commit.
	Branch string `json:"branch,omitempty"`
	// Tag means the commit that it names.
	Tag string `json:"tag,omitempty"`
	// Semver is a range, such as >=1.2.0 <2: it means the highest version among the tags that is in it.
	Semver string `json:"semver,omitempty"`
	// Commit is 40 hexadecimal digits (64 in a repository of SHA-256).
	Commit string `json:"commit,omitempty"`
}

// SourceVerify says whose signature a commit needs.
type SourceVerify struct {
	// Mode is what must be signed: Commit, or Tag (of a ref that is a tag or a range). Default Commit.
	Mode SourceVerifyMode `json:"mode,omitempty"`
	// Keys is the name of a ConfigMap in the same namespace: each value is an OpenPGP public key, or ssh public keys, a line each.
	Keys string `json:"keys"`
}

// SourceVerifyMode is what must be signed.
type SourceVerifyMode string

// What can be signed.
const (
	SourceVerifyCommit SourceVerifyMode = "Commit"
	SourceVerifyTag    SourceVerifyMode = "Tag"
)

// SourceWebhook says which forge calls, and how it proves that it is the one.
type SourceWebhook struct {
	// Type is GitHub, GitLab, Gitea or Generic.
	Type SourceForge `json:"type"`
	// Secret is the name of a Secret in the same namespace; its key token is what both sides know.
	Secret string `json:"secret"`
}

// SourceForge is a program that keeps repositories.
type SourceForge string

// The forges whose calls are understood.
const (
	SourceForgeGitHub  SourceForge = "GitHub"
	SourceForgeGitLab  SourceForge = "GitLab"
	SourceForgeGitea   SourceForge = "Gitea"
	SourceForgeGeneric SourceForge = "Generic"
)

// SourceRemoval says what becomes of objects whose source is deleted.
type SourceRemoval string

// What can become of them.
const (
	SourceRemovalKeep   SourceRemoval = "Keep"   // they stay, and are nobody's any more
	SourceRemovalDelete SourceRemoval = "Delete" // they are deleted, and then the source is
)

// SourceFinalizer is on every source with onRemove: Delete, until what it has applied is deleted.
const SourceFinalizer = "tako.dev/source"

// SourceDrift says what becomes of what others change.
type SourceDrift string

// What can become of it.
const (
	SourceDriftRevert SourceDrift = "Revert" // it is put back
	SourceDriftReport SourceDrift = "Report" // it is told, and stays until the next commit
)

// SourceWait says what is waited for.
type SourceWait struct {
	// Timeout is how long it may take. Default 10m, 1s to 24h.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// SourceReference names a source.
type SourceReference struct {
	// Name is its name.
	Name string `json:"name"`
	// Namespace is its namespace. Default that of the one that refers to it.
	Namespace string `json:"namespace,omitempty"`
}

// SourceSuspension says why a source is stopped, by whom and until when.
type SourceSuspension struct {
	// Reason is for whoever finds it.
	Reason string `json:"reason"`
	// Owner is who stopped it.
	Owner string `json:"owner"`
	// Until is when it ends by itself.
	Until metav1.Time `json:"until"`
}

// SourceReport says where the forge is told what became of a commit.
type SourceReport struct {
	// Type is GitHub, GitLab or Gitea: the form of its API.
	Type SourceForge `json:"type"`
	// API is the address of the API, such as https://api.github.com. Default what the type and the URL of the repository lead to.
	API string `json:"api,omitempty"`
	// Secret is the name of a Secret in the same namespace; its key token may write statuses of commits.
	Secret string `json:"secret"`
}

// SourceStatus is what became of a source.
type SourceStatus struct {
	// ObservedGeneration is the metadata.generation that the rest is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// HandledRequest is the value of the annotation tako.dev/reconcile that was acted upon last.
	HandledRequest string `json:"handledRequest,omitempty"`
	// Seen is the newest commit. While it is not the applied one, it is refused, or on its way.
	Seen *SourceCommit `json:"seen,omitempty"`
	// Applied is the last commit that is applied whole: what there is.
	Applied *SourceCommit `json:"applied,omitempty"`
	// Objects counts what is declared by the applied commit.
	Objects int32 `json:"objects,omitempty"`
	// Hosts counts the hosts that the applied configs are for. Left out while there is none.
	Hosts *SourceHosts `json:"hosts,omitempty"`
	// Faults say what is wrong with the seen commit, by file and line: at most 20.
	// +listType=atomic
	Faults []SourceFault `json:"faults,omitempty"`
	// MoreFaults counts those that are left out.
	MoreFaults int32 `json:"moreFaults,omitempty"`
	// Drifted are objects that others have changed and that are not put back: at most 20.
	// +listType=atomic
	Drifted []SourceObject `json:"drifted,omitempty"`
	// Left are objects that the source has applied and declares no more, and that stay, with why: at most 20.
	// +listType=atomic
	Left []SourceObject `json:"left,omitempty"`
	// Conditions are Ready, Reconciling, Stalled and Suspended, each with a reason and words for a person.
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// ConditionSuspended is True while a source is suspended. It is absent otherwise.
const ConditionSuspended = "Suspended"

// The reasons of a source's condition Ready, beside those of package schedule: Suspended and DependencyNotReady.
const (
	SourceApplied         = "Applied"         // what is committed is applied
	SourceCommitRefused   = "CommitRefused"   // the newest commit has mistakes, or nobody trusted has signed it
	SourceNotReached      = "NotReached"      // the repository cannot be read
	SourceNotApplied      = "NotApplied"      // the API has something against it, or does not answer
	SourceNotAllowed      = "NotAllowed"      // the source has not the rights that it needs
	SourceNotWell         = "NotWell"         // it is applied, and is not well
	SourceProgressing     = "Progressing"     // it is applied, and becomes well perhaps
	SourceDependencyCycle = "DependencyCycle" // sources wait for one another
	SourceRemoving        = "Removing"        // it is deleted, and what it has applied is deleted first
)

// SourceCommit is a commit of the repository.
type SourceCommit struct {
	// ID is its whole hash.
	ID string `json:"id"`
	// Ref is the branch or tag that led to it.
	Ref string `json:"ref,omitempty"`
	// Author is the name and address of who wrote it.
	Author string `json:"author,omitempty"`
	// Subject is the first line of what was said about it.
	Subject string `json:"subject,omitempty"`
	// Signer is whose signature was verified. Empty where none was asked for.
	Signer string `json:"signer,omitempty"`
	// Committed is when it was made, by the clock of who made it.
	Committed *metav1.Time `json:"committed,omitempty"`
	// Since is when it came to be the seen one, or the applied one.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// SourceHosts counts hosts.
type SourceHosts struct {
	// Commit is the applied commit that the counts are about. Empty while the server has not yet found out for which hosts each of its
	// configs is.
	Commit string `json:"commit,omitempty"`
	// Selected are those that the configs are for.
	Selected int32 `json:"selected"`
	// Converged are those of them that are as the configs declare.
	Converged int32 `json:"converged"`
}

// SourceFault is one thing that is wrong with a commit.
type SourceFault struct {
	// File is the path from the root of the repository.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 is the whole file.
	Line int32 `json:"line,omitempty"`
	// Column counts from 1; 0 is the whole line.
	Column int32 `json:"column,omitempty"`
	// Code is such as TK0412.
	Code string `json:"code,omitempty"`
	// Message says what is wrong, and how to mend it.
	Message string `json:"message"`
}

// SourceObject names an object.
type SourceObject struct {
	// APIVersion is its group and version.
	APIVersion string `json:"apiVersion"`
	// Kind is its kind.
	Kind string `json:"kind"`
	// Namespace is empty for a kind that stands in none.
	Namespace string `json:"namespace,omitempty"`
	// Name is its name.
	Name string `json:"name"`
	// Message says what is about it.
	Message string `json:"message,omitempty"`
}

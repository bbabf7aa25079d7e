package declare

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
	// User makes the resource a user.
	User *User `json:"user,omitempty"`
	// Group makes the resource a group.
	Group *Group `json:"group,omitempty"`
	// AuthorizedKeys makes the resource the ssh keys with which a user may log in.
	AuthorizedKeys *AuthorizedKeys `json:"authorizedKeys,omitempty"`
	// Exec makes the resource a command.
	Exec *Exec `json:"exec,omitempty"`
	// Endpoint makes the resource a service of somebody else that this host needs.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Unit makes the resource a unit file.
	Unit *Unit `json:"unit,omitempty"`
	// Timer makes the resource a timer.
	Timer *Timer `json:"timer,omitempty"`
	// Edit makes the resource a part of a text file.
	Edit *Edit `json:"edit,omitempty"`
	// Sysctl makes the resource a parameter of the kernel.
	Sysctl *Sysctl `json:"sysctl,omitempty"`
	// KernelModule makes the resource a module of the kernel.
	KernelModule *KernelModule `json:"kernelModule,omitempty"`
	// Hostname makes the resource the host's name.
	Hostname *Hostname `json:"hostname,omitempty"`
	// HostEntry makes the resource an entry of /etc/hosts.
	HostEntry *HostEntry `json:"hostEntry,omitempty"`
	// Timezone makes the resource the host's time zone.
	Timezone *Timezone `json:"timezone,omitempty"`
	// Locale makes the resource the host's language.
	Locale *Locale `json:"locale,omitempty"`
	// Mount makes the resource a mounted file system.
	Mount *Mount `json:"mount,omitempty"`
	// Swap makes the resource something that is swapped to.
	Swap *Swap `json:"swap,omitempty"`
	// Repository makes the resource a repository of packages.
	Repository *Repository `json:"repository,omitempty"`
	// Fragment makes the resource a piece of a file.
	Fragment *Fragment `json:"fragment,omitempty"`
	// Sudoers makes the resource rules of sudo.
	Sudoers *Sudoers `json:"sudoers,omitempty"`
	// Archive makes the resource a directory that an archive is unpacked into.
	Archive *Archive `json:"archive,omitempty"`
	// Agent makes the resource the program of the agent itself.
	Agent *Agent `json:"agent,omitempty"`
	// Data makes the resource a value that is delivered and not acted upon.
	Data *Data `json:"data,omitempty"`

	// Require names resources of this config that must be converged first. While one is not, this one is blocked.
	// +listType=atomic
	Require []string `json:"require,omitempty"`
	// Notify names resources of this config to tell when this one has changed: a service restarts or reloads. It also
	// orders: the notified one waits until this one has settled; unlike require it goes on when this one failed.
	// +listType=atomic
	Notify []string `json:"notify,omitempty"`
	// Before names resources of this config that come after this one as if they required it.
	// +listType=atomic
	Before []string `json:"before,omitempty"`
	// Subscribe names resources of this config that tell this one when they have changed, as if they notified it.
	// +listType=atomic
	Subscribe []string `json:"subscribe,omitempty"`
	// OnFailure names resources of this config that are for the case that this one has failed. While it has not, nothing is wanted of
	// them: they are notApplicable, and stay as they are.
	// +listType=atomic
	OnFailure []string `json:"onFailure,omitempty"`
	// When is a condition over facts and labels; while it is false the resource is notApplicable. Empty is true.
	When string `json:"when,omitempty"`
	// Expand fills $(name) in the resource's strings on the host; $$( stands for a literal $(.
	Expand bool `json:"expand,omitempty"`
	// Drift says what becomes of it when others change it: revert (the default) or observe. Left out, what the config says.
	Drift Drift `json:"drift,omitempty"`
	// Ignore names fields that are as declared when the resource is made, and anybody's afterwards: they are not compared any more.
	// +listType=atomic
	Ignore []string `json:"ignore,omitempty"`
	// Windows are when things may be done to it that WindowFor names. Left out, those of the config.
	// +listType=atomic
	Windows []Window `json:"windows,omitempty"`
	// WindowFor says what waits for the windows: restarts (notifications), changes (everything) or nothing. Left out, what the config says.
	WindowFor WindowFor `json:"windowFor,omitempty"`
	// OnRemove says what happens when the resource leaves the declaration. Default keep; of a file with a content
	// from a Secret, delete.
	OnRemove OnRemove `json:"onRemove,omitempty"`
	// TTL is how long a host that belongs to a cluster keeps the resource without a sign of life from the servers, in whole minutes from 2h
	// to 8760h: "6h". After that it is as if it had left the declaration, until they are heard again. Left out, for ever.
	TTL string `json:"ttl,omitempty"`
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

// Drift says what becomes of a resource that others have changed.
//
// +enum
type Drift string

// The answers to drift.
const (
	// DriftRevert puts it back.
	DriftRevert Drift = "revert"
	// DriftObserve tells it, and leaves it as it is. What the declaration changes is applied all the same.
	DriftObserve Drift = "observe"
)

// ResourceType is the name of a resource's type field.
type ResourceType string

// The resource types.
const (
	TypeFile           ResourceType = "file"
	TypeDirectory      ResourceType = "directory"
	TypeSymlink        ResourceType = "symlink"
	TypePackage        ResourceType = "package"
	TypeService        ResourceType = "service"
	TypeUser           ResourceType = "user"
	TypeGroup          ResourceType = "group"
	TypeAuthorizedKeys ResourceType = "authorizedKeys"
	TypeExec           ResourceType = "exec"
	TypeEndpoint       ResourceType = "endpoint"
	TypeUnit           ResourceType = "unit"
	TypeTimer          ResourceType = "timer"
	TypeEdit           ResourceType = "edit"
	TypeSysctl         ResourceType = "sysctl"
	TypeKernelModule   ResourceType = "kernelModule"
	TypeHostname       ResourceType = "hostname"
	TypeHostEntry      ResourceType = "hostEntry"
	TypeTimezone       ResourceType = "timezone"
	TypeLocale         ResourceType = "locale"
	TypeMount          ResourceType = "mount"
	TypeSwap           ResourceType = "swap"
	TypeRepository     ResourceType = "repository"
	TypeFragment       ResourceType = "fragment"
	TypeSudoers        ResourceType = "sudoers"
	TypeArchive        ResourceType = "archive"
	TypeAgent          ResourceType = "agent"
	TypeData           ResourceType = "data"
)

// body is what the value of a type field knows of itself. Its fields' names begin with the type's: "file.path".
type body interface {
	// claim returns what a resource of that name with this body is about.
	claim(name string) Claim
	// claimField is the field that makes the claim, for a message; Place falls back to what is there.
	claimField() string
	// texts lists the strings that expand fills, which are all that can make a body large; fields of the claim are never among them.
	texts() []expandableText
	validate(v *validator)
}

// sequenced is a body whose order follows from what it is.
type sequenced interface{ autoEdges(claim Claim) []AutoEdge }

// notified is a body that can be notified.
type notified interface{ notified() }

func isNotified(b body) bool {
	_, ok := b.(notified)
	return ok
}

// permanent is a body that cannot always be deleted: it says why not, or "".
type permanent interface{ permanent() (message, hint string) }

// expandableText is one string of a resource that expand may fill.
type expandableText struct {
	field string // below the resource, "file.content"
	text  *string
}

// typeField is one of the type fields of Resource.
type typeField struct {
	name ResourceType
	body func(*Resource) body // nil when it is not set
}

// typeFields are all of them, in the order in which they are documented.
var typeFields = []typeField{
	{TypeFile, func(r *Resource) body { return given(r.File) }},
	{TypeDirectory, func(r *Resource) body { return given(r.Directory) }},
	{TypeSymlink, func(r *Resource) body { return given(r.Symlink) }},
	{TypePackage, func(r *Resource) body { return given(r.Package) }},
	{TypeService, func(r *Resource) body { return given(r.Service) }},
	{TypeUser, func(r *Resource) body { return given(r.User) }},
	{TypeGroup, func(r *Resource) body { return given(r.Group) }},
	{TypeAuthorizedKeys, func(r *Resource) body { return given(r.AuthorizedKeys) }},
	{TypeExec, func(r *Resource) body { return given(r.Exec) }},
	{TypeEndpoint, func(r *Resource) body { return given(r.Endpoint) }},
	{TypeUnit, func(r *Resource) body { return given(r.Unit) }},
	{TypeTimer, func(r *Resource) body { return given(r.Timer) }},
	{TypeEdit, func(r *Resource) body { return given(r.Edit) }},
	{TypeSysctl, func(r *Resource) body { return given(r.Sysctl) }},
	{TypeKernelModule, func(r *Resource) body { return given(r.KernelModule) }},
	{TypeHostname, func(r *Resource) body { return given(r.Hostname) }},
	{TypeHostEntry, func(r *Resource) body { return given(r.HostEntry) }},
	{TypeTimezone, func(r *Resource) body { return given(r.Timezone) }},
	{TypeLocale, func(r *Resource) body { return given(r.Locale) }},
	{TypeMount, func(r *Resource) body { return given(r.Mount) }},
	{TypeSwap, func(r *Resource) body { return given(r.Swap) }},
	{TypeRepository, func(r *Resource) body { return given(r.Repository) }},
	{TypeFragment, func(r *Resource) body { return given(r.Fragment) }},
	{TypeSudoers, func(r *Resource) body { return given(r.Sudoers) }},
	{TypeArchive, func(r *Resource) body { return given(r.Archive) }},
	{TypeAgent, func(r *Resource) body { return given(r.Agent) }},
	{TypeData, func(r *Resource) body { return given(r.Data) }},
}

// given makes no body of a field that is not set.
func given[T any, P interface {
	*T
	body
}](field P) body {
	if field == nil {
		return nil
	}
	return field
}

// ResourceTypes returns the names of all resource types, in the order in which they are documented.
func ResourceTypes() []ResourceType {
	names := make([]ResourceType, len(typeFields))
	for i, f := range typeFields {
		names[i] = f.name
	}
	return names
}

// typed returns the first type field that is set. Validation has refused a resource with none or several.
func (r *Resource) typed() (ResourceType, body) {
	for _, f := range typeFields {
		if b := f.body(r); b != nil {
			return f.name, b
		}
	}
	return "", nil
}

// Type returns which type field is set; empty if none is.
func (r *Resource) Type() ResourceType {
	name, _ := r.typed()
	return name
}

// Title is how people see the resource: TYPE/NAME, and TYPE/KEY of data that has no name.
func (r *Resource) Title() string {
	if r.Data != nil && r.Name == "" {
		return string(TypeData) + "/" + r.Data.Key
	}
	return string(r.Type()) + "/" + r.Name
}

// Claim returns what the resource is about. The resource must have passed Validate.
func (r *Resource) Claim() Claim {
	if _, b := r.typed(); b != nil {
		return b.claim(r.Name)
	}
	return Claim{}
}

func (r *Resource) claimField() string {
	if _, b := r.typed(); b != nil {
		return b.claimField()
	}
	return ""
}

func (r *Resource) texts() []expandableText {
	if _, b := r.typed(); b != nil {
		return b.texts()
	}
	return nil
}

// textBytes is the size of the resource's texts.
func (r *Resource) textBytes() int {
	n := len(r.Name) + len(r.When) + len(r.Claim().ID)
	for _, list := range r.references() {
		for _, s := range *list.names {
			n += len(s)
		}
	}
	for _, t := range r.texts() {
		n += len(*t.text)
	}
	return n
}

// OnRemoveOrDefault returns what happens when the resource leaves the declaration. When nothing is declared that is keep; a file whose
// content is a value of a Secret is deleted, because who is not given a secret any more is not to go on having it.
func (r *Resource) OnRemoveOrDefault() OnRemove {
	switch {
	case r.OnRemove != "":
		return r.OnRemove
	case r.File != nil && r.FromSecret():
		return OnRemoveDelete
	}
	return OnRemoveKeep
}

// Expanded returns the resource as this host must have it: a copy with its expansions filled in where it has expand. The
// claim never changes, so what a resource is about is the same on every host.
func (r *Resource) Expanded(lookup Lookup) (Resource, error) {
	if !r.Expand {
		return *r, nil
	}
	out := r.DeepCopy()
	for _, t := range out.texts() {
		filled, err := Expand(*t.text, lookup)
		if err != nil {
			return Resource{}, expandError(r, t.field, err)
		}
		*t.text = filled
	}
	return *out, nil
}

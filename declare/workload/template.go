package workload

import "tako.dev/tako/declare"

// Template is what each instance runs: tasks that are started and ended together, on one node. A change of labels, shutdownDelay,
// terminationGrace, restart, probes and the text of ports restarts nothing; one of anything else does. It has at most 1 MiB.
type Template struct {
	// Labels are what affinities of other workloads, and questions of people, pick instances by. At most 64.
	Labels map[string]string `json:"labels,omitempty"`
	// Runtime is what runs the tasks: Systemd, Process or OCI. Default OCI where a task has an image, Systemd otherwise. All tasks of a
	// template have one.
	Runtime Runtime `json:"runtime,omitempty"`
	// Tasks are what runs: 1 to 16. The instance is ready when all are.
	// +listType=map
	// +listMapKey=name
	Tasks []Task `json:"tasks"`
	// Volumes are directories that tasks mount. At most 32.
	// +listType=map
	// +listMapKey=name
	Volumes []Volume `json:"volumes,omitempty"`
	// Network is Host (the default) or Own: whether tasks share the host's network, or those of an instance have one of their own together. Own
	// needs runtime OCI.
	Network Network `json:"network,omitempty"`
	// ShutdownDelay is how long an instance that is ready goes on serving after it was withdrawn, before its tasks get their stop signal: "5s", up to
	// 1h. Whoever has its name from before is served still. Default 0: at once.
	ShutdownDelay string `json:"shutdownDelay,omitempty"`
	// TerminationGrace is how long tasks have to end after their stop signal: "30s", up to 24h. Default 30s.
	TerminationGrace string `json:"terminationGrace,omitempty"`
	// Restart says when a task that has ended is started again on its node.
	Restart Restart `json:"restart,omitzero"`
}

// Runtime is what runs tasks.
//
// +enum
type Runtime string

// The runtimes.
const (
	// Systemd runs tasks as transient units of the host's systemd.
	Systemd Runtime = "Systemd"
	// Process runs tasks below a supervisor of the agent's own, also without root and without systemd.
	Process Runtime = "Process"
	// OCI runs tasks in containers by runc.
	OCI Runtime = "OCI"
)

// Network is which network tasks have.
//
// +enum
type Network string

// Which network tasks have.
const (
	HostNetwork Network = "Host"
	OwnNetwork  Network = "Own"
)

// Restart says when a task that has ended is started again, and how fast. The first time too there is a pause.
type Restart struct {
	// Policy is Always (the default, and the only one, for mode Replicated and PerNode), OnFailure or Never (the default for mode Job, where
	// another instance is tried).
	Policy RestartPolicy `json:"policy,omitempty"`
	// Backoff is the first pause: "1s", 100 ms to 1 h. Default 1s. Each pause is twice the one before.
	Backoff string `json:"backoff,omitempty"`
	// BackoffMax is the longest pause: "5m", up to 24h, and not less than backoff. Default 5m, or backoff.
	BackoffMax string `json:"backoffMax,omitempty"`
	// ResetAfter is for how long a task must have run well to begin again with the first pause: "10m", 1 second to 24h.
	// Default 10m.
	ResetAfter string `json:"resetAfter,omitempty"`
}

// RestartPolicy is when a task that has ended is started again.
//
// +enum
type RestartPolicy string

// When a task that has ended is started again.
const (
	RestartAlways    RestartPolicy = "Always"
	RestartOnFailure RestartPolicy = "OnFailure"
	RestartNever     RestartPolicy = "Never"
)

// Task is one process of an instance, with what it starts.
type Task struct {
	// Name is unique in the template: a name of DNS, up to 63 signs.
	Name string `json:"name"`
	// Image is what the task's files are. Left out, they are the host's.
	Image *Image `json:"image,omitempty"`
	// Command is the program, and arguments that always stand first. Without an image it begins with an absolute path; with one, left out, it
	// is what the image says. $(NAME) is a variable of the task, but of no Secret, because arguments can be read by everybody on the host.
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args are arguments behind the command; with an image, in place of its own.
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// WorkingDirectory is where the program starts, an absolute path. Default what the image says, or /.
	WorkingDirectory string `json:"workingDirectory,omitempty"`
	// User is who runs it: a name, or a number. Default what the image says; without one, a user of its own that has nothing else. Root is
	// written out.
	User string `json:"user,omitempty"`
	// Env are environment variables. At most 256, with 64 KiB together. In a value, $(NAME) is that of a variable further up, or of a port;
	// $$( is a literal $(.
	// +listType=map
	// +listMapKey=name
	Env []EnvVar `json:"env,omitempty"`
	// Ports are what it listens on. At most 64.
	// +listType=map
	// +listMapKey=name
	Ports []Port `json:"ports,omitempty"`
	// Resources are what it needs, and what it may take.
	Resources Resources `json:"resources,omitzero"`
	// Mounts are where it sees volumes. At most 64.
	// +listType=map
	// +listMapKey=path
	Mounts []Mount `json:"mounts,omitempty"`
	// Files are configuration files that it sees. At most 64. A change of their content is one of the template.
	// +listType=map
	// +listMapKey=path
	Files []File `json:"files,omitempty"`
	// Startup says when it has started: until then the other two are not asked.
	Startup *Probe `json:"startup,omitempty"`
	// Readiness says when it can be used. Left out, it can when it has started.
	Readiness *Probe `json:"readiness,omitempty"`
	// Liveness says when it has to be started again. Left out, when it has ended.
	Liveness *Probe `json:"liveness,omitempty"`
	// StopSignal asks it to end: SIGTERM (the default), SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 or SIGWINCH.
	StopSignal string `json:"stopSignal,omitempty"`
	// Writable makes the root of the image writable; what is written goes with the task. Default false. Only with an image.
	Writable bool `json:"writable,omitempty"`
}

// Objects are the objects that the template's tasks are run from.
func (t *Template) Objects() []*declare.ObjectReference {
	var objects []*declare.ObjectReference
	for i := range t.Tasks {
		if image := t.Tasks[i].Image; image != nil && image.Object != nil {
			objects = append(objects, image.Object)
		}
	}
	return objects
}

// Image is the file system of a task. Exactly one of the fields is set.
type Image struct {
	// Object is an archive of an OCI image layout, as `tako content put` stores it on the servers.
	Object *declare.ObjectReference `json:"object,omitempty"`
	// Path is a directory on the host with an OCI image layout. Nobody but root and the agent's user may be able to change it.
	Path string `json:"path,omitempty"`
}

// Name is what the image is called where it matters only whether two are the same: the digest of its archive, or its path.
func (i *Image) Name() string {
	if i.Object != nil {
		return i.Object.Digest
	}
	return i.Path
}

// EnvVar is one environment variable. At most one of value and valueFrom is set.
type EnvVar struct {
	// Name is the variable's: letters, digits and _, not a digit first.
	Name string `json:"name"`
	// Value is its text. Default empty.
	Value string `json:"value,omitempty"`
	// ValueFrom is where its text comes from.
	ValueFrom *EnvSource `json:"valueFrom,omitempty"`
}

// EnvSource is where the text of a variable comes from. Exactly one of the fields is set.
type EnvSource struct {
	// Secret takes a value of a Secret of the namespace.
	Secret *declare.KeySelector `json:"secret,omitempty"`
	// ConfigMap takes a value of a ConfigMap of the namespace.
	ConfigMap *declare.KeySelector `json:"configMap,omitempty"`
	// Field takes what is known of the instance: instance.name, instance.index, workload.name, workload.namespace, node.name,
	// node.address, node.labels['KEY'], ports['NAME'], resources.cpu, resources.memory.
	Field string `json:"field,omitempty"`
}

// Port is something that a task listens on.
type Port struct {
	// Name is unique in the template: up to 15 signs of a-z, 0-9 and -, with a letter, as RFC 6335 wants names of services.
	Name string `json:"name"`
	// Protocol is TCP (the default) or UDP.
	Protocol Protocol `json:"protocol,omitempty"`
	// Port is the number, 1 to 65535, which no other port of the instance has. Left out, each instance gets a free one of its node. The program
	// learns it by its environment: PORT_NAME, in capitals with _ for -. In a network of its own it is the instance's number, which no other
	// instance takes away; others find it at a free one of the node, which names tell.
	Port int32 `json:"port,omitempty"`
	// Text are keys and values that those who browse for the service learn (RFC 6763, TXT). At most 16, with 400 bytes together. The key
	// txtvers is tako's.
	Text map[string]string `json:"text,omitempty"`
}

// Protocol is what is spoken below a port.
//
// +enum
type Protocol string

// What is spoken below a port.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// Resources are what a task needs, and what it may take.
type Resources struct {
	// Requests are what is kept for it: a node takes no more instances than it has for their requests. Default nothing.
	Requests Amounts `json:"requests,omitzero"`
	// Limits are what it may take at most. Default no limit; at least the requests.
	Limits Amounts `json:"limits,omitzero"`
	// Devices are pieces of hardware that nobody else has meanwhile, such as GPUs. At most 16. They need runtime OCI.
	// +listType=map
	// +listMapKey=name
	Devices []Device `json:"devices,omitempty"`
}

// Amounts are how much of what a node has in numbers.
type Amounts struct {
	// CPU is in processors: "2", "500m" for half of one, up to a million.
	CPU declare.Quantity `json:"cpu,omitempty"`
	// Memory is in bytes: "512Mi", up to 64Pi.
	Memory declare.Quantity `json:"memory,omitempty"`
	// Disk is in bytes of what the instance writes on its node: "10Gi", up to 64Pi.
	Disk declare.Quantity `json:"disk,omitempty"`
	// Processes is how many processes and threads there may be: 1 to 4,194,304. Only in limits. Default 4096.
	Processes *int32 `json:"processes,omitempty"`
}

// Device is a number of pieces of one kind of hardware.
type Device struct {
	// Name is the kind, as the Container Device Interface has it on nodes: "nvidia.com/gpu".
	Name string `json:"name"`
	// Count is how many: 1 to 64, default 1.
	Count *int32 `json:"count,omitempty"`
}

// Volume is a directory that tasks mount. Exactly one of the fields beside the name is set.
type Volume struct {
	// Name is unique in the template.
	Name string `json:"name"`
	// Temporary is empty at first, and goes with the instance.
	Temporary *TemporaryVolume `json:"temporary,omitempty"`
	// Host is a directory that the node must have. Only nodes that have it take the instance.
	Host *HostVolume `json:"host,omitempty"`
	// Data is a directory that stays on its node when the instance goes, and draws its successor there.
	Data *DataVolume `json:"data,omitempty"`
}

// TemporaryVolume is empty at first, and goes with the instance.
type TemporaryVolume struct {
	// InMemory keeps it in memory, where it counts as what the instance takes. Default false.
	InMemory bool `json:"inMemory,omitempty"`
	// Size is the most that it holds: "1Gi". Required in memory.
	Size declare.Quantity `json:"size,omitempty"`
}

// HostVolume is a directory of the node.
type HostVolume struct {
	// Path is absolute.
	Path string `json:"path"`
}

// DataVolume is a directory that stays on its node.
type DataVolume struct {
	// Size is what it needs there: "100Gi".
	Size declare.Quantity `json:"size,omitempty"`
	// Stick says whether an instance waits for the node that has its data (Must, the default), or only had better go there (Prefer).
	Stick Stick `json:"stick,omitempty"`
}

// Stick is whether an instance waits for the node that has its data.
//
// +enum
type Stick string

// Whether an instance waits for the node that has its data.
const (
	MustStick   Stick = "Must"
	PreferStick Stick = "Prefer"
)

// Mount is where a task sees a volume.
type Mount struct {
	// Volume is its name.
	Volume string `json:"volume"`
	// Path is where: absolute, and unique in the task.
	Path string `json:"path"`
	// ReadOnly lets the task write nothing there. Default false.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// File is a configuration file that a task sees. Exactly one of content, secret and configMap is set.
type File struct {
	// Path is where: absolute, and unique in the task.
	Path string `json:"path"`
	// Content is its text.
	Content string `json:"content,omitempty"`
	// Secret makes the text a value of a Secret of the namespace. It is in memory only.
	Secret *declare.KeySelector `json:"secret,omitempty"`
	// ConfigMap makes the text a value of a ConfigMap of the namespace.
	ConfigMap *declare.KeySelector `json:"configMap,omitempty"`
	// Mode is who may read it, in octal digits: "0444". Default 0444; 0400 of a Secret.
	Mode declare.Mode `json:"mode,omitempty"`
}

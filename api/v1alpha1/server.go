package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Server is one server of the control plane, as it stands at the moment. It is named by the ID of its data directory, and is read only: it is made when
// somebody asks, and nothing of it is stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Server struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the server.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Status is how it stands.
	Status ServerStatus `json:"status"`
}

// ServerList is a list of Servers.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ServerList struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata is that of a list that is not stored: without a resource version.
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the servers, by name.
	Items []Server `json:"items"`
}

// ServerStatus is how a server stands. Of one that does not answer only its addresses and Message are known.
type ServerStatus struct {
	// Address is where people and programs reach it, HOST:PORT.
	Address string `json:"address"`
	// TransferAddress is where hosts reach it, HOST:PORT.
	TransferAddress string `json:"transferAddress"`
	// Role is what it is among the servers.
	Role ServerRole `json:"role"`
	// Since is since when it has that role. Left out where that is not known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Term is that of the leader, as this server knows it: a higher one is a later one. Left out where there is no leader, or only one server.
	Term int64 `json:"term,omitempty"`
	// Version is that of its program.
	Version string `json:"version,omitempty"`
	// Revision is that of the newest change in etcd that what it signs for hosts takes in.
	Revision uint64 `json:"revision,omitempty"`
	// Fresh says that it has proven within half a minute that etcd has nothing newer: otherwise it signs nothing new.
	Fresh bool `json:"fresh,omitempty"`
	// Hosts is how many hosts are connected to it, those through relays too.
	Hosts int32 `json:"hosts,omitempty"`
	// Message says why nothing else is known. Left out where it answers.
	Message string `json:"message,omitempty"`
}

// ServerRole is what a server is among the servers.
type ServerRole string

// The roles.
const (
	// ServerLeader decides, and has what hosts say.
	ServerLeader ServerRole = "Leader"
	// ServerFollower serves people and hosts, and tells the leader what hosts say.
	ServerFollower ServerRole = "Follower"
	// ServerUnknown does not answer.
	ServerUnknown ServerRole = "Unknown"
)

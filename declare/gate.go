package declare

import "cmp"

// Gate is a number that must be within bounds before a new revision goes further. A number out of bounds fails the rollout. While there is no
// number, nothing goes on. What has worked before needs no gate.
//
// In the rollout of a Workload it is looked at from when a step of a canary, the green half, or all that was to come is available, until the step's
// pause, or monitor, is over, and once after that; the first revision of all needs none. In that of a NodeConfig it is looked at from when the first
// node works with the new revision until the end, and once after the pause of each wave, and after monitor.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Gate struct {
	// Name is unique in the list.
	Name string `json:"name"`
	// Prometheus is what is measured.
	Prometheus PrometheusQuery `json:"prometheus"`
	// Min is the least that is good, counted in thousandths: "0.995". Min, max or both are set.
	Min *Quantity `json:"min,omitempty"`
	// Max is the most that is good, counted in thousandths: "0.05", "250".
	Max *Quantity `json:"max,omitempty"`
}

// PrometheusQuery is a question to a Prometheus.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type PrometheusQuery struct {
	// Server is the name of the Prometheus that is asked, as tako's server was started with it (--prometheus NAME=URL). Default "default".
	Server string `json:"server,omitempty"`
	// Query is PromQL; its answer is one number.
	Query string `json:"query"`
	// Auth is what is proved with who asks. Default nothing. It is sent over https, and over http only to the server's own machine.
	Auth *PrometheusAuth `json:"auth,omitempty"`
	// CA is by what its certificate is known, with https. Default the authorities that the server's machine knows.
	CA *PrometheusCA `json:"ca,omitempty"`
}

// ServerOrDefault returns the name of the Prometheus that is asked: "default" when nothing is declared.
func (q *PrometheusQuery) ServerOrDefault() string { return cmp.Or(q.Server, "default") }

// PrometheusAuth is what is proved with who asks: token, or username and password. All are of Secrets in the namespace of what is rolled out, or
// scaled; a ClusterNodeConfig names the namespace.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type PrometheusAuth struct {
	// Token is sent as a bearer token.
	Token *KeySelector `json:"token,omitempty"`
	// Username goes with password.
	Username *KeySelector `json:"username,omitempty"`
	// Password goes with username.
	Password *KeySelector `json:"password,omitempty"`
}

// PrometheusCA is where authorities are, PEM. Exactly one of them is set; it is where the credentials would be.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type PrometheusCA struct {
	// Secret is a value of a Secret.
	Secret *KeySelector `json:"secret,omitempty"`
	// ConfigMap is a value of a ConfigMap.
	ConfigMap *KeySelector `json:"configMap,omitempty"`
}

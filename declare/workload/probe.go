package workload

// Probe is a question that is put to a task again and again. Exactly one of http, tcp, exec and grpc is set.
type Probe struct {
	// HTTP asks by a request: 200 to 399 is yes.
	HTTP *HTTPProbe `json:"http,omitempty"`
	// TCP opens a connection: that it can is yes.
	TCP *TCPProbe `json:"tcp,omitempty"`
	// Exec runs a program beside the task: exit code 0 is yes.
	Exec *ExecProbe `json:"exec,omitempty"`
	// GRPC asks grpc.health.v1.Health: SERVING is yes.
	GRPC *GRPCProbe `json:"grpc,omitempty"`
	// Delay is from the start to the first question: "0s", up to 1h. Default 0s.
	Delay string `json:"delay,omitempty"`
	// Period is from one question to the next: "10s", 100 ms to 1 h. Default 1s for startup, 10s otherwise.
	Period string `json:"period,omitempty"`
	// Timeout is how long an answer may take: "1s", up to 5 min. Default 1s.
	Timeout string `json:"timeout,omitempty"`
	// SuccessThreshold is how many yes in a row make it so: 1 to 100. Default 1.
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is how many no in a row end it: 1 to 10,000. Default 3; of startup 60.
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// HTTPProbe is a request. Redirects are not followed.
type HTTPProbe struct {
	// Port is the name of a port of the task.
	Port string `json:"port"`
	// Path is what is asked for. Default /.
	Path string `json:"path,omitempty"`
	// Host is the name that is asked for. Default the node's address.
	Host string `json:"host,omitempty"`
	// Scheme is http (the default) or https, whose certificate is not looked at.
	Scheme string `json:"scheme,omitempty"`
}

// TCPProbe is a connection.
type TCPProbe struct {
	// Port is the name of a port of the task.
	Port string `json:"port"`
}

// ExecProbe is a program that runs beside the task: as its user, with its files and its environment.
type ExecProbe struct {
	// Command is the program, an absolute path, and its arguments.
	// +listType=atomic
	Command []string `json:"command"`
}

// GRPCProbe is a question to grpc.health.v1.Health.
type GRPCProbe struct {
	// Port is the name of a port of the task.
	Port string `json:"port"`
	// Service is what is asked about. Default the server as a whole.
	Service string `json:"service,omitempty"`
}

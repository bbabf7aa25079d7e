package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/reason"
)

// DefaultListen is where the API is served: on this machine only, until somebody decides otherwise.
const DefaultListen = "127.0.0.1:6443"

// quotaMin has room for what a server keeps for itself, and for a few objects of the largest size: with less it could not even
// delete anything.
const quotaMin = 8 << 20

// Options say how the server runs.
type Options struct {
	DataDir string // where everything is; made with mode 0700
	Listen  string // HOST:PORT; default DefaultListen; port 0 takes a free one
	// TransferListen is where hosts are served, HOST:PORT; default the host and the port after those of Listen, or a free port where
	// that takes one.
	TransferListen string
	Names          []string // further DNS names and addresses that clients and hosts know the server by
	DNS            []string // where names of workloads are answered, ADDRESS:PORT, by UDP and TCP; default nowhere
	// Etcd is a cluster that others run. Without endpoints the server runs a member of its own in DataDir.
	Etcd etcd.Connection
	// QuotaBytes bounds the database of the server's own etcd; default 2 GiB, at least quotaMin.
	QuotaBytes int64
	// SourceDirs are directories of this machine below which Sources may take repositories (file://); default none.
	SourceDirs []string
	// Prometheus are those that workloads may be scaled by: their addresses by the names that workloads know them by; default none.
	Prometheus map[string]string
	// Kustomize is the program with its arguments that builds kustomizations, as package kustomize says; default none: they are refused.
	Kustomize []string
	Log       *slog.Logger // default: nowhere
	// OnReady is called once, when the server answers, with its URL and the path of the administrator's kubeconfig.
	OnReady func(url, kubeconfig string)
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.TransferListen == "" {
		o.TransferListen = besides(o.Listen)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnReady == nil {
		o.OnReady = func(string, string) {}
	}
	return o
}

func (o Options) validate() error {
	const doing = "start the server"
	if !filepath.IsAbs(o.DataDir) {
		return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: errors.New("the data directory is not an absolute path"), Hint: "see --data-dir"}
	}
	if err := checkListen(o.Listen); err != nil {
		return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("--listen %q: %w", o.Listen, err), Hint: "it looks like 127.0.0.1:6443, or :6443 for all addresses of this machine"}
	}
	if err := checkListen(o.TransferListen); err != nil {
		return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("--transfer-listen %q: %w", o.TransferListen, err), Hint: "it looks like 127.0.0.1:6444, or :6444 for all addresses of this machine"}
	}
	if _, err := dnsAddresses(o.DNS); err != nil {
		return err
	}
	if o.QuotaBytes != 0 && o.QuotaBytes < quotaMin {
		return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("--quota-bytes %d: at least %d", o.QuotaBytes, quotaMin), Hint: "2147483648 (2 GiB) is the default"}
	}
	if _, err := measures.NewPrometheus(o.Prometheus, nil); err != nil {
		return err
	}
	return o.Etcd.Validate()
}

// checkListen wants HOST:PORT, of which HOST may be missing.
func checkListen(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port, 0 to 65535", port)
	}
	return nil
}

// besides is the address right after another: the same host, the next port. What is no address stays as it is, to be refused.
func besides(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return listen
	}
	return net.JoinHostPort(host, strconv.FormatUint(n+1, 10))
}

package settings

import (
	"encoding/pem"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tako.dev/tako/internal/cli/failure"
)

// Flags are the flags that choose a server; empty means not given.
type Flags struct {
	Kubeconfig string
	Context    string
	Namespace  string
}

// Target is where commands go.
type Target struct {
	Config    *rest.Config
	Namespace string
	// Name says for messages which server this is and where that was said.
	Name string
}

// Resolve finds the server, the credentials and the namespace. It reads files and asks nobody.
func Resolve(flags Flags, getenv func(string) string) (*Target, error) {
	directory := Directory(getenv)
	target, err := resolveServer(flags, getenv, directory)
	if err != nil {
		return nil, err
	}
	for _, namespace := range []string{flags.Namespace, getenv("TAKO_NAMESPACE"), target.Namespace, "default"} {
		if namespace != "" {
			target.Namespace = namespace
			return target, nil
		}
	}
	return target, nil
}

func resolveServer(flags Flags, getenv func(string) string, directory string) (*Target, error) {
	if flags.Kubeconfig != "" {
		return fromKubeconfig(flags.Kubeconfig, flags.Context)
	}
	contexts, err := ReadContexts(directory)
	if err != nil {
		return nil, err
	}
	name := flags.Context
	if name == "" {
		name = getenv("TAKO_CONTEXT")
	}
	if name == "" && getenv("KUBECONFIG") != "" {
		return fromKubeconfig(getenv("KUBECONFIG"), "")
	}
	if name == "" {
		name = contexts.Current
	}
	if name == "" {
		return nil, failure.Usage("find the server", "no server is configured",
			"write --kubeconfig DIR/admin.kubeconfig, where DIR is the data directory of `tako server`, or set KUBECONFIG to it; `tako help config` shows how to name servers")
	}
	context, ok := contexts.Contexts[name]
	if !ok && getenv("KUBECONFIG") != "" {
		return fromKubeconfig(getenv("KUBECONFIG"), name)
	}
	if !ok {
		return nil, unknownContext(name, slices.Sorted(maps.Keys(contexts.Contexts)), filepath.Join(directory, "contexts.yaml"))
	}
	return context.target(name, directory)
}

func unknownContext(name string, known []string, where string) error {
	hint := "there is none yet; `tako help config` shows how to write one"
	if len(known) > 0 {
		hint = "there are: " + strings.Join(known, ", ")
	}
	return failure.NotFound(fmt.Sprintf("find context %q", name), where+" has no such context", hint)
}

// target makes a context what a client needs.
func (c Context) target(name, directory string) (*Target, error) {
	doing := fmt.Sprintf("use context %q", name)
	usage := func(words, hint string) error {
		return failure.Usage(doing, words, hint)
	}
	absolute := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(directory, path)
	}
	if c.Kubeconfig != "" {
		if c.Server != "" {
			return nil, usage("it has a kubeconfig and a server", "keep one of them")
		}
		target, err := fromKubeconfig(absolute(c.Kubeconfig), c.KubeContext)
		if err == nil && c.Namespace != "" {
			target.Namespace = c.Namespace
		}
		return target, err
	}
	if !strings.HasPrefix(c.Server, "https://") {
		return nil, usage("it has no server that begins with https://", "write server: https://HOST:PORT, or kubeconfig: PATH")
	}
	if c.CertificateAuthority == "" && c.CertificateAuthorityData == "" {
		return nil, usage("it has no certificate authority", "write certificateAuthority: PATH; it is certificate-authority-data of the server's admin.kubeconfig")
	}
	config := &rest.Config{Host: c.Server, BearerToken: c.Token, BearerTokenFile: absolute(c.TokenFile),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: absolute(c.CertificateAuthority), CAData: []byte(c.CertificateAuthorityData),
			CertFile: absolute(c.ClientCertificate), CertData: []byte(c.ClientCertificateData),
			KeyFile: absolute(c.ClientKey), KeyData: []byte(c.ClientKeyData),
		}}
	for field, text := range map[string]string{"certificateAuthorityData": c.CertificateAuthorityData,
		"clientCertificateData": c.ClientCertificateData, "clientKeyData": c.ClientKeyData} {
		if block, _ := pem.Decode([]byte(text)); text != "" && block == nil {
			return nil, usage(field+" is not PEM", "it begins with -----BEGIN")
		}
	}
	return &Target{Config: config, Namespace: c.Namespace, Name: fmt.Sprintf("%s (context %s)", c.Server, name)}, nil
}

// fromKubeconfig reads kubeconfig files, several of them with colons between as KUBECONFIG may hold.
func fromKubeconfig(paths, context string) (*Target, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(paths), WarnIfAllMissing: false}
	if len(rules.Precedence) == 1 {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: paths} // a missing one is an error
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context, ClusterInfo: clientcmdapi.Cluster{}})
	if raw, err := loader.RawConfig(); err == nil && context != "" && raw.Contexts[context] == nil {
		return nil, unknownContext(context, slices.Sorted(maps.Keys(raw.Contexts)), "kubeconfig "+paths)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, failure.Usage("read kubeconfig "+paths, err.Error(), "`tako server --data-dir DIR` writes DIR/admin.kubeconfig, which its user may read")
	}
	namespace, explicit, err := loader.Namespace()
	if err != nil || !explicit && namespace == "default" {
		namespace = ""
	}
	return &Target{Config: config, Namespace: namespace, Name: fmt.Sprintf("%s (kubeconfig %s)", config.Host, paths)}, nil
}

package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/reason"
)

// Contexts is contexts.yaml: the servers that a person works with.
type Contexts struct {
	// Current is the name of the context that is used when nothing else is said.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts,omitempty"`
}

// Context is one server and who one is there: a reference to a kubeconfig, or a server with a certificate authority and
// either a token or a client certificate. Paths are relative to the directory of contexts.yaml.
type Context struct {
	// Kubeconfig is the path of a kubeconfig file; KubeContext names a context in it, empty is its current one.
	Kubeconfig  string `json:"kubeconfig,omitempty"`
	KubeContext string `json:"kubeContext,omitempty"`

	// Server is the address of the API, https://HOST:PORT.
	Server string `json:"server,omitempty"`
	// CertificateAuthority is the path of a PEM file, CertificateAuthorityData the PEM text itself.
	CertificateAuthority     string `json:"certificateAuthority,omitempty"`
	CertificateAuthorityData string `json:"certificateAuthorityData,omitempty"`
	// Token is a bearer token, TokenFile the path of a file that holds one.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// ClientCertificate and ClientKey are paths of PEM files, the other two the PEM texts.
	ClientCertificate     string `json:"clientCertificate,omitempty"`
	ClientKey             string `json:"clientKey,omitempty"`
	ClientCertificateData string `json:"clientCertificateData,omitempty"`
	ClientKeyData         string `json:"clientKeyData,omitempty"`

	// Namespace is the one that is meant when none is said. Default "default", or that of the kubeconfig.
	Namespace string `json:"namespace,omitempty"`
}

// Prefs is prefs.yaml.
type Prefs struct {
	// Color is auto, always or never. Default auto.
	Color string `json:"color,omitempty"`
	// Editor is the command that `tako edit` runs, with arguments. $VISUAL and $EDITOR win over it. Default vi.
	Editor string `json:"editor,omitempty"`
}

// fileBytesMax bounds a settings file: some thousand contexts with certificates.
const fileBytesMax = 4 << 20

// Directory returns where the settings are: $XDG_CONFIG_HOME/tako, or ~/.config/tako.
func Directory(getenv func(string) string) string {
	if base := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tako")
	}
	return filepath.Join(getenv("HOME"), ".config/tako")
}

// StateDirectory is where the command line keeps what is no setting: $XDG_STATE_HOME/tako, or ~/.local/state/tako.
func StateDirectory(getenv func(string) string) string {
	if base := getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tako")
	}
	return filepath.Join(getenv("HOME"), ".local/state/tako")
}

// ReadContexts reads contexts.yaml of a directory; a missing file is empty. A file with credentials that others may read
// is refused, because whoever read it meanwhile may act as its owner.
func ReadContexts(directory string) (*Contexts, error) {
	var c Contexts
	name := filepath.Join(directory, "contexts.yaml")
	mode, err := readYAML(name, &c)
	if err != nil {
		return nil, err
	}
	if mode.Perm()&0o077 != 0 && slices.ContainsFunc(values(c.Contexts), Context.holdsSecret) {
		return nil, &reason.Error{Code: reason.PermissionDenied, Doing: "use " + name,
			Cause: fmt.Errorf("it holds credentials and has mode %04o", mode.Perm()), Hint: "chmod 600 " + name}
	}
	return &c, nil
}

func values(m map[string]Context) []Context {
	list := make([]Context, 0, len(m))
	for _, c := range m {
		list = append(list, c)
	}
	return list
}

func (c Context) holdsSecret() bool { return c.Token != "" || c.ClientKeyData != "" }

// ReadPrefs reads prefs.yaml of a directory; a missing file is empty.
func ReadPrefs(directory string) (*Prefs, error) {
	var p Prefs
	_, err := readYAML(filepath.Join(directory, "prefs.yaml"), &p)
	return &p, err
}

// readYAML reads a file strictly and returns its mode; a missing file leaves the value as it is. Its errors quote nothing
// of the file but names of fields.
func readYAML(name string, into any) (fs.FileMode, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, &reason.Error{Code: reason.PermissionDenied, Doing: "read the settings", Cause: err}
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return 0, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the settings", Cause: err}
	}
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return 0, &reason.Error{Code: reason.InputOutput, Doing: "read the settings", Cause: err}
	}
	if len(text) > fileBytesMax {
		return 0, &reason.Error{Code: reason.DocumentTooLarge, Doing: "read " + name, Cause: fmt.Errorf("it has more than %d bytes", fileBytesMax)}
	}
	if err := decode(text, into); err != nil {
		return 0, &reason.Error{Code: reason.MalformedYAML, Doing: "read " + name, Cause: err, Hint: "`tako help config` shows what stands there"}
	}
	return stat.Mode(), nil
}

// decode reads the text of a settings file. Its errors quote nothing of it but names of fields.
func decode(text []byte, into any) error {
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return errors.New(safeWords(err))
	}
	return nil
}

// safeWords keeps of a YAML error what cannot be a credential: the first line, unless it quotes a value.
func safeWords(err error) string {
	words, _, _ := strings.Cut(err.Error(), "\n")
	words = strings.TrimPrefix(strings.TrimPrefix(words, "error converting YAML to JSON: "), "error unmarshaling JSON: while decoding JSON: ")
	if strings.Contains(words, "unknown field") || strings.HasPrefix(words, "yaml: line ") && !strings.Contains(words, "`") {
		const most = 200 // bytes; a field that anybody would write has a tenth
		return strings.ToValidUTF8(words[:min(len(words), most)], "")
	}
	return "it is not of the form that it must have"
}

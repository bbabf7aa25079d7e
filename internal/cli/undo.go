package cli

import (
	"bytes"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// saveBefore writes what objects were before they were changed into one file that `tako apply` reads, for its owner only
// because there may be secrets in it. It returns the name of the file; "" when no object was there before.
func saveBefore(changes []*change, getenv func(string) string) (string, error) {
	var text bytes.Buffer
	for _, c := range changes {
		if c.before == nil {
			continue
		}
		document, err := yaml.Marshal(declared(c.before).Object)
		if err != nil {
			return "", err
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	if text.Len() == 0 {
		return "", nil
	}
	directory := stateDirectory(getenv)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(directory, "before-*.yaml") // mode 0600
	if err != nil {
		return "", err
	}
	if _, err := file.Write(text.Bytes()); err != nil {
		_ = file.Close() // the write has failed already
		return "", err
	}
	return file.Name(), file.Close()
}

// stateDirectory is where the command line keeps what is no setting: $XDG_STATE_HOME/tako, or ~/.local/state/tako.
func stateDirectory(getenv func(string) string) string {
	if base := getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tako")
	}
	return filepath.Join(getenv("HOME"), ".local/state/tako")
}

// declared is of an object what a person declares: not what the server adds, and not the status.
func declared(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := map[string]any{}
	for key, value := range object.Object {
		if key != "metadata" && key != "status" {
			out[key] = value
		}
	}
	metadata := map[string]any{}
	for _, key := range []string{"name", "namespace", "labels", "annotations"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", key); ok {
			metadata[key] = value
		}
	}
	out["metadata"] = metadata
	return (&unstructured.Unstructured{Object: out}).DeepCopy()
}

package plan

import (
	"bytes"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/cli/output"
)

// saveBefore writes what objects were before they were changed into one file of a directory that `tako apply` reads, for its
// owner only because there may be secrets in it. It returns the name of the file; "" when no object was there before.
func saveBefore(changes []*Change, directory string) (string, error) {
	var text bytes.Buffer
	for _, c := range changes {
		if c.Before == nil {
			continue
		}
		document, err := yaml.Marshal(output.Declared(c.Before).Object)
		if err != nil {
			return "", err
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	if text.Len() == 0 {
		return "", nil
	}
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

// shellWord writes a text so that a shell reads it as one word. Names of users may be anything.
func shellWord(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:@/+=~") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

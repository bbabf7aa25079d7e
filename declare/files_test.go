package declare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/internal/reason"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func named(name string) string {
	return strings.Replace(header, "name: web", "name: "+name, 1) + "  resources: []\n"
}

func TestReadFilesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"b.yaml": named("b"), "a.yml": named("a"), "sub/c.yaml": named("c"),
		"d.json":       `{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "d"}, "spec": {"resources": []}}`,
		".hidden.yaml": "[", ".git/x.yaml": "[", "a.yml~": "[", "#b.yaml": "[", ".#b.yaml": "[", "b.yaml.swp": "[", "README.md": "[", "b.yaml.orig": "[",
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	writeFiles(t, outside, map[string]string{"e": named("e")})
	for link, target := range map[string]string{"e.yaml": filepath.Join(outside, "e"), "loop": dir} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, linked); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, dir + "/", linked} {
		documents, faults := ReadFiles([]string{path, path})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		var names []string
		for _, d := range documents {
			names = append(names, d.Config.Metadata.Name)
		}
		if got := strings.Join(names, " "); got != "a b d e c" {
			t.Errorf("%s holds %s", path, got)
		}
	}
}

func TestReadFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a.yaml": named("a")})
	if err := os.Symlink("nothing", filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	documents, faults := ReadFiles([]string{dir, filepath.Join(dir, "c.yaml"), "/dev/null"})
	if len(documents) != 1 || len(faults) != 3 {
		t.Fatalf("%d documents, %v", len(documents), faults)
	}
	for _, f := range faults {
		if f.Code != reason.DeclarationUnread || f.File == "" || strings.Contains(f.Message, dir) {
			t.Errorf("got %v", f)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a.yaml": named("a"), "b.yaml": named("b") + "---\n" + named("a")})
	_, err := Load([]string{dir})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Code != reason.DuplicateDeclaration ||
		!strings.HasSuffix(faults[0].Place().String(), "b.yaml:11:9") || !strings.HasSuffix(faults[0].Related[0].String(), "a.yaml:4:9") {
		t.Errorf("two of one name: %v", err)
	}
	if _, err := Load([]string{t.TempDir()}); !reason.Is(err, reason.NothingDeclared) {
		t.Errorf("an empty directory: %v", err)
	}
	documents, err := Load([]string{filepath.Join(dir, "a.yaml")})
	if err != nil || len(documents) != 1 {
		t.Errorf("a good file: %d documents, %v", len(documents), err)
	}
}

package kustomize

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// surroundings is a child that says what it has got of whoever started it.
func surroundings() int {
	var r request
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		return 1
	}
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return 1
	}
	var open []string
	for _, d := range descriptors {
		if to, err := os.Readlink(d); err == nil {
			open = append(open, to)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return 1
	}
	answer := []Built{{Failure: fmt.Sprintf("environment %q, directory %s, open %v", os.Environ(), dir, open)}}
	if json.NewEncoder(os.Stdout).Encode(answer) != nil {
		return 1
	}
	return 0
}

// TestSurroundings: the child has nothing of the server's environment, and none of its files and sockets.
func TestSurroundings(t *testing.T) {
	t.Setenv("KUSTOMIZE_PLUGIN_HOME", "/tmp")
	t.Setenv("LD_PRELOAD_OF_THIS_TEST", "x")
	p, err := New(Options{Command: []string{os.Args[0], "surroundings"}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "of-the-server"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	built, err := p.Build(t.Context(), &Tree{Roots: []string{"."}})
	if err != nil || !strings.HasPrefix(built[0].Failure, "environment [], directory /, open [pipe:") || strings.Contains(built[0].Failure, file.Name()) {
		t.Errorf("%v (%v)", built, err)
	}
}

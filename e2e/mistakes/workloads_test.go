//go:build e2e

package mistakes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/present"
)

const (
	// workloadsOfPresent are the documents of workloads whose words internal/present shows.
	workloadsOfPresent = "../../internal/present/testdata/workloads"
	// identicalWorkloadsMin is how many mistakes of workloads must have the same words from both.
	identicalWorkloadsMin = 12
)

// differencesInWorkloads lists the documents of which kubectl tells other words, by name.
func differencesInWorkloads() map[string]difference {
	return map[string]difference{
		"bare-number":    {why: bareNumber, kubectl: "read number or percentage -1: wrong type: write a number or percentage in quotes"},
		"misspelt-field": {why: strict, kubectl: `unknown field "spec.replcias"`},
	}
}

// TestMistakesInWorkloadsHaveTheSameWords makes every mistake with tako, which finds it in the file, and with kubectl, which is told of it by
// the server. A host gets no workloads from files: the words to compare with are those of the package that declares them.
func TestMistakesInWorkloadsHaveTheSameWords(t *testing.T) {
	s := start(t)
	files, err := filepath.Glob(filepath.Join(workloadsOfPresent, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents in %s: %v", workloadsOfPresent, err)
	}
	differ, identical := differencesInWorkloads(), 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want, differs := differ[name]
			delete(differ, name)
			words, faults := wordsOfWorkload(t, file)
			ofTako := s.run(t, s.tako, "apply", "-f", file, "--kubeconfig", s.kubeconfig)
			ofKubectl := s.run(t, s.kubectl, "apply", "-f", file, "--kubeconfig", s.kubeconfig, "--cache-dir", s.cache)
			checkTako(t, ofTako, said{words, int(present.ExitOf(faults))}, want)
			checkKubectl(t, ofKubectl, faults, want)
			if !differs {
				identical++ // or the test has failed
			}
		})
	}
	for name := range differ {
		t.Errorf("no document %s", name)
	}
	t.Logf("%d mistakes in workloads, %d of them in identical words from kubectl and tako", len(files), identical)
	if !t.Failed() && identical < identicalWorkloadsMin {
		t.Errorf("%d mistakes are told in identical words, want at least %d", identical, identicalWorkloadsMin)
	}
}

// wordsOfWorkload is what a person is to see of a document's mistakes.
func wordsOfWorkload(t *testing.T, file string) (string, []declare.Fault) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, _, faults := workload.Read(file, text)
	var b strings.Builder
	if err := present.Faults(&b, faults, os.ReadFile, present.Style{}); err != nil || len(faults) == 0 {
		t.Fatalf("%v, %d mistakes", err, len(faults))
	}
	return b.String(), faults
}

package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/run"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// device is one of a file, with nodes that each host has.
func device(name string, nodes ...string) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf(`{"path":%q}`, n))
	}
	return fmt.Sprintf(`{"name":%q,"containerEdits":{"deviceNodes":[%s]}}`, name, strings.Join(list, ","))
}

func file1(kind, common string, devices ...string) string {
	return fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":%q,"devices":[%s],"containerEdits":{%s}}`, kind, strings.Join(devices, ","), common)
}

// A file like that of a vendor: devices by number and by UUID, and all together.
func TestRead(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	common := `"deviceNodes":[{"path":"/dev/full"},{"path":"/dev/null"}],"env":["VISIBLE=void"],"mounts":[{"hostPath":"/usr/lib","containerPath":"/usr/lib","options":["ro","bind"]}],"hooks":[{"hookName":"createContainer","path":"/x"}]`
	write(t, filepath.Join(first, "a.json"), file1("v.example/gpu", common, device("all", "/dev/null", "/dev/zero", "/dev/random"), device("GPU-1", "/dev/zero"), device("10", "/dev/random"), device("1", "/dev/zero"), device("0", "/dev/null"),
		device("3", "/dev/no-such")))
	write(t, filepath.Join(first, "b.json"), "{")
	write(t, filepath.Join(second, "c.json"), file1("v.example/nic", "", device("x", "/dev/full")))
	got, err := Read([]string{first, second, "/no/such"})
	if err == nil || !strings.Contains(err.Error(), "b.json") {
		t.Errorf("of a broken file it says %v", err)
	}
	var names []string
	for _, p := range got["v.example/gpu"] {
		names = append(names, p.Name)
	}
	if strings.Join(names, " ") != "0 1 10" || len(got["v.example/nic"]) != 1 {
		t.Fatalf("pieces are %v of %+v", names, got)
	}
	p := got["v.example/gpu"][1]
	if !slices.Equal(p.Devices, []string{"/dev/zero", "/dev/full", "/dev/null"}) || !slices.Equal(p.Env, []string{"VISIBLE=void"}) ||
		!slices.Equal(p.Mounts, []run.Mount{{Source: "/usr/lib", Path: "/usr/lib", ReadOnly: true}}) {
		t.Errorf("of one a task is given %+v", p)
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{
		"", "{}", `{"cdiVersion":"0.6.0","kind":"gpu"}`, `{"kind":"a.b/c"}`, file1("a.b/c d", ""), file1("a.b/c", "", device("")), file1("a.b/c", "", device("a b")),
		file1("a.b/c", "", device("x", "dev/null")), file1("a.b/c", "", device("x", "/dev/../etc")), file1("a.b/c", `"env":["=x"]`, device("x")),
		file1("a.b/c", `"mounts":[{"hostPath":"/a","containerPath":"b"}]`, device("x")), file1("a.b/c", `"deviceNodes":[{"path":"/dev/a","hostPath":"/dev/b"}]`, device("x")),
		file1("a.b/c", `"env":[`+strings.Repeat(`"A=b",`, 64)+`"A=b"]`, device("x")), strings.Repeat(" ", fileMax+1),
	} {
		if _, _, err := parse([]byte(text)); err == nil {
			t.Errorf("it is taken: %.100s", text)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(file1("v.example/gpu", `"env":["A=b"]`, device("0", "/dev/null"), device("all", "/dev/null", "/dev/zero"))))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, pieces, err := parse(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, p := range distinct(pieces) {
			for _, n := range p.own {
				if seen[n] || !filepath.IsAbs(n) {
					t.Errorf("the node %q is of two devices, or none", n)
				}
				seen[n] = true
			}
		}
	})
}

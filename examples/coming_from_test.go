package examples

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
)

const comingFrom = "../docs/coming-from.md"

var (
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	hereBlock  = regexp.MustCompile("(?s)\nHere:\n\n```yaml\n(.*?)```")
	keyOfField = regexp.MustCompile(`^([a-zA-Z]+): `)
	bareCell   = regexp.MustCompile(`(?:[^|\\]|\\.)+`)
)

// shown is one declaration of the page.
type shown struct {
	place     string
	resources string            // in YAML, a list
	files     map[string]string // what the host has besides, by path
}

// TestComingFrom takes what docs/coming-from.md shows of this program as declarations, and converges in a sandbox what can be there.
func TestComingFrom(t *testing.T) {
	text, err := os.ReadFile(comingFrom)
	if err != nil {
		t.Fatal(err)
	}
	agent := host.AgentBinary(t)
	found := shownBy(t, string(text))
	converged := map[declare.ResourceType]bool{}
	named := map[declare.ResourceType]bool{}
	for _, s := range found {
		t.Run(s.place, func(t *testing.T) {
			declaration := declaration([]byte(filledIn(t, s.resources)))
			read, faults := declare.Read(s.place, declaration)
			for i := range read {
				faults = append(faults, read[i].Validate()...)
			}
			if len(faults) > 0 || len(read) != 1 {
				t.Fatalf("%s\n%d documents, %v", declaration, len(read), declare.Faults(faults))
			}
			for _, r := range read[0].Config.Spec.Resources {
				named[r.Type()] = true
			}
			for _, typ := range convergeShown(t, agent, declaration, s.files) {
				converged[typ] = true
			}
		})
	}
	for _, typ := range declare.ResourceTypes() {
		if !named[typ] && typ != "data" { // Hiera and group_vars are read by the server there: nothing of them is comparable
			t.Errorf("the page shows nothing of the type %s", typ)
		}
	}
	want := []declare.ResourceType{"archive", "authorizedKeys", "directory", "edit", "file", "fragment", "hostEntry", "repository", "symlink", "timezone", "unit"}
	if got := slices.Sorted(maps.Keys(converged)); !slices.Equal(got, want) {
		t.Errorf("of these types something has converged: %v, want %v", got, want)
	}
}

// shownBy are the declarations of the page: the blocks that are headed by "Here:", and what tables have in the rows of tako.
func shownBy(t *testing.T, text string) []shown {
	t.Helper()
	var all []shown
	for i, b := range hereBlock.FindAllStringSubmatch(text, -1) {
		all = append(all, shown{place: fmt.Sprintf("block %d", i+1), resources: b[1]})
	}
	columns := 0
	for i, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		cells := bareCell.FindAllString(line, -1)
		if columns == 0 {
			columns = len(cells)
		}
		if len(cells) != columns {
			t.Errorf("line %d has %d cells in a table of %d", i+1, len(cells), columns)
		}
		if strings.HasPrefix(strings.TrimSpace(cells[0]), "tako") {
			all = append(all, ofCell(t, i+1, strings.ReplaceAll(cells[1], `\|`, "|"))...)
		}
	}
	return all
}

// ofCell takes the code of a cell. A field of a resource is of the one before it, or of a file where there is none; two types with "and"
// between them are of one config; and `KEY: VALUE` in `/PATH` is a file that the host has.
func ofCell(t *testing.T, line int, cell string) []shown {
	t.Helper()
	var all []shown
	files := map[string]string{}
	for _, at := range codeSpan.FindAllStringSubmatchIndex(cell, -1) {
		code, before, after := cell[at[2]:at[3]], cell[:at[0]], cell[at[1]:]
		key := keyOfField.FindStringSubmatch(code)
		if key == nil || strings.HasPrefix(code, "tako") {
			continue
		}
		if path, ok := strings.CutPrefix(after, " in `/"); ok {
			path, _, _ = strings.Cut(path, "`")
			files[path] = code + "\n"
			continue
		}
		isType := slices.Contains(declare.ResourceTypes(), declare.ResourceType(key[1]))
		switch {
		case isType && strings.HasSuffix(before, " and ") && len(all) > 0:
			all[len(all)-1].resources += "- name: shown-too\n  " + code + "\n"
		case isType:
			all = append(all, shown{resources: "- name: shown\n  " + code + "\n"})
		case len(all) > 0:
			all[len(all)-1].resources += "  " + code + "\n"
		case key[1] == "windows": // for the restarts of something
			all = append(all, shown{resources: "- name: shown\n  service: {}\n  " + code + "\n"})
		default:
			all = append(all, shown{resources: "- name: shown\n  file: {path: /etc/shown}\n  " + code + "\n"})
		}
	}
	for i := range all {
		all[i].place, all[i].files = fmt.Sprintf("line %d, %d", line, i+1), files
	}
	return all
}

// filledIn puts something that is right where the page leaves out what is long.
func filledIn(t *testing.T, resources string) string {
	t.Helper()
	repositories, err := os.ReadFile("repositories/repositories.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var key strings.Builder
	_, rest, _ := strings.Cut(string(repositories), "-----BEGIN PGP PUBLIC KEY BLOCK-----")
	body, _, ok := strings.Cut(rest, "-----END PGP PUBLIC KEY BLOCK-----")
	if !ok {
		t.Fatal("there is no key in the example of repositories")
	}
	for line := range strings.Lines("-----BEGIN PGP PUBLIC KEY BLOCK-----" + body + "-----END PGP PUBLIC KEY BLOCK-----\n") {
		key.WriteString(strings.TrimSpace(line) + "\n")
	}
	filled := strings.NewReplacer(
		`"$y$..."`, `"$6$ohu0Lae4$3Zq0sJ5yYkXxN2H8mQvVb1cWf6tRrPpLlKkJjHhGgFfDdSsAaQqWwEeRrTtYyUuIiOoPpAaSsDdFfGgHhJjKk1"`,
		`AAAA...`, `AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g`,
		`key: "..."`, `key: `+strconv.Quote(key.String()),
		`baseURL: [...]`, `baseURL: [https://rpm.example.com/]`,
		`sha256:...`, `sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
		`sizeBytes: ...`, `sizeBytes: 4`,
	).Replace(resources)
	if strings.Contains(filled, "unit: {") {
		filled = strings.ReplaceAll(filled, `content: "..."`, `content: "[Service]\nNice=1\n"`)
	}
	return filled
}

// notThere are the codes of what a sandbox cannot have: acts on the host itself, objects of a server, another host that answers, and a check.
var notThere = []string{"TK0534", "TK0661", "TK0695", "TK0696"}

// convergeShown converges one declaration in a sandbox of its own, and returns the types of which everything is as declared then.
func convergeShown(t *testing.T, agent string, declaration []byte, files map[string]string) []declare.ResourceType {
	t.Helper()
	root := sandboxOf(t, files)
	file := filepath.Join(t.TempDir(), "shown.yaml")
	if err := os.WriteFile(file, declaration, 0o644); err != nil {
		t.Fatal(err)
	}
	types, whole := outcomes(t, agent, "converge", "-f", file, "--root", root, "-o", "json")
	if whole {
		run(t, agent, "converge", "-f", file, "--root", root, "--diff") // exits with 1 where there is a difference
	}
	return types
}

// outcomes runs the agent, and says which types are as declared, and whether all are. Anything but what a sandbox cannot have is a fault.
func outcomes(t *testing.T, agent string, args ...string) (types []declare.ResourceType, whole bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	var complaints bytes.Buffer
	command := exec.CommandContext(ctx, agent, args...)
	command.Stderr = &complaints
	out, err := command.Output() // it fails where a resource does, which the report says
	var report struct {
		Resources []struct {
			Title, Outcome string
			Problem        *struct{ Code, Message string }
		}
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil || len(report.Resources) == 0 {
		t.Fatalf("%v, %v: %s\n%s", err, jsonErr, out, &complaints)
	}
	whole = true
	for _, r := range report.Resources {
		typ, _, _ := strings.Cut(r.Title, "/")
		switch {
		case r.Outcome == "repaired" || r.Outcome == "kept":
			types = append(types, declare.ResourceType(typ))
		case r.Problem != nil && slices.Contains(notThere, r.Problem.Code):
			whole = false
		default:
			whole = false
			t.Errorf("%s is %s: %+v", r.Title, r.Outcome, r.Problem)
		}
	}
	return types, whole
}

// sandboxOf is a root with what the page takes for granted: the accounts, which are all the caller's, files to edit, and an archive.
func sandboxOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	account := fmt.Sprintf(":x:%d:%d:", os.Getuid(), os.Getgid())
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	for _, step := range []error{
		archive.WriteHeader(&tar.Header{Name: "grafana/bin", Mode: 0o755, Size: 5}),
		func() error { _, err := archive.Write([]byte("true\n")); return err }(), archive.Close(), zip.Close(),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	there := map[string]string{
		"etc/passwd":             "root:x:0:0::/root:/bin/sh\nwww-data" + account + ":/var/www:/bin/sh\nweb" + account + ":/:/bin/sh\nalice" + account + ":/home/alice:/bin/sh\n",
		"etc/group":              "root:x:0:\nwww-data:x:" + strconv.Itoa(os.Getgid()) + ":\n",
		"etc/login.defs":         "#UMASK 022\n",
		"etc/hosts":              "127.0.0.1 localhost\n",
		"etc/app.ini":            "[s]\nk = w\n",
		"etc/app.yaml":           "server:\n  port: 80\n",
		"srv/grafana.tar.gz":     packed.String(),
		"home/alice/.profile":    "",
		"etc/nginx/x":            "",
		"srv/web/index.html":     "",
		"etc/chrony/chrony.keys": "",
		"opt/app/1.4.2/app":      "",
		"etc/apt/sources.list":   "",
		"usr/local/bin/x":        "",
	}
	maps.Copy(there, files)
	for name, content := range there {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

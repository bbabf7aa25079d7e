package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// header begins a declaration, up to its resources.
const header = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: site
spec:
  resources:
`

// good is a resource that must not be made while others of its declaration are refused.
const good = `    - name: good
      file: {path: /good, content: "made\n"}
`

// TestBadInput gives the agent declarations that it must refuse as a whole, with place, code and cure.
func TestBadInput(t *testing.T) {
	many := strings.Builder{}
	for i := range declare.ResourcesMax + 1 {
		fmt.Fprintf(&many, "    - {name: r%d, directory: {path: /d%d}}\n", i, i)
	}
	for _, bad := range []struct {
		name string
		text string
		exit reason.Exit
		want []string // in this order on standard error
	}{
		{"malformed YAML", header + good + "    - name: [x\n", reason.ExitUsage, []string{"error[TK0401]", "site.yaml:9:"}},
		{"a tab", header + good + "\t- name: x\n", reason.ExitUsage, []string{"error[TK0401]", "site.yaml:9:"}},
		{"not YAML at all", "\x00\x01\x02", reason.ExitUsage, []string{"error[TK04", "site.yaml:"}},
		{"empty", "", reason.ExitUsage, []string{"error[TK0408]"}},
		{"unknown field", header + good + "    - name: x\n      file: {path: /x, contnet: a}\n", reason.ExitUsage,
			[]string{"error[TK0412]", "contnet", "site.yaml:10:24", "^^^^^^^", `help: did you mean "content"?`}},
		{"wrong type", header + good + "    - name: x\n      file: {path: [/x]}\n", reason.ExitUsage, []string{"error[TK0411]", "site.yaml:10:20"}},
		{"all errors at once", header + good + "    - name: x\n      file: {pth: /x}\n    - name: y\n      file: {path: y}\n", reason.ExitUsage,
			[]string{"site.yaml:10:", "site.yaml:12:"}},
		{"anchor", header + good + "    - &a {name: x, file: {path: /x}}\n", reason.ExitUsage, []string{"error[TK0403]", "site.yaml:9:7"}},
		{"alias", header + good + "    - *a\n", reason.ExitUsage, []string{"error[TK040", "site.yaml:9:"}},
		{"merge key", header + good + "    - name: x\n      <<: {file: {path: /x}}\n", reason.ExitUsage, []string{"error[TK0403]", "site.yaml:10:"}},
		{"key twice", header + good + "    - name: x\n      name: y\n      file: {path: /x}\n", reason.ExitUsage, []string{"error[TK0404]", "site.yaml:10:"}},
		{"two resources with one claim", header + good + "    - name: x\n      symlink: {path: /good, target: x}\n", reason.ExitUsage,
			[]string{"error[TK0421]", "/good", "site.yaml:"}},
		{"one name twice", header + good + "    - name: good\n      file: {path: /x}\n", reason.ExitUsage, []string{"error[TK0420]", "good", "site.yaml:9:"}},
		{"dangling require", header + good + "    - name: x\n      file: {path: /x}\n      require: [goood]\n", reason.ExitUsage,
			[]string{"error[TK0422]", "goood", "site.yaml:11:17", "help:", "good"}},
		{"cycle", header + good + "    - {name: a, file: {path: /a}, require: [b]}\n    - {name: b, file: {path: /b}, require: [c]}\n    - {name: c, file: {path: /c}, require: [a]}\n",
			reason.ExitUsage, []string{"error[TK0424]", "site.yaml:"}},
		{"path that climbs", header + good + "    - {name: x, file: {path: /x/../../etc/passwd}}\n", reason.ExitUsage, []string{"error[TK0414]", "site.yaml:9:"}},
		{"no type", header + good + "    - {name: x}\n", reason.ExitUsage, []string{"error[TK0416]", "site.yaml:9:"}},
		{"unknown kind", strings.Replace(header+good, "NodeConfig", "NodeConfg", 1), reason.ExitUsage, []string{"error[TK0405]", "site.yaml:2:7", "help:", "NodeConfig"}},
		{"unknown fact", header + good + "    - {name: x, when: facts.os.nmae == 'debian', file: {path: /x}}\n", reason.ExitUsage, []string{"error[TK0427]", "site.yaml:9:", "help:"}},
		{"100,001 resources", header + many.String(), reason.ExitUsage, []string{"error[TK0425]"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			s := newSandbox(t)
			s.must(os.WriteFile(s.path("/there"), []byte("as it was\n"), 0o640))
			s.write(filepath.Join(s.conf, "site.yaml"), bad.text)
			s.refused(t, bad.exit, bad.want)
		})
	}
}

// refused converges and previews, which must end with an exit code and words, and change nothing.
func (s *sandbox) refused(t *testing.T, exit reason.Exit, want []string) {
	t.Helper()
	before := tree(t, s.root)
	flags := []string{"--once", "--diff", "--watch"}
	if info, err := os.Stat(filepath.Join(s.conf, "site.yaml")); err == nil && info.Size() > 1<<20 {
		flags = flags[:1] // it takes seconds to read
	}
	for _, flag := range flags {
		out := s.run("converge", "-f", s.conf, flag)
		if out.code != int(exit) {
			t.Errorf("%s: exit code %d, want %d", flag, out.code, exit)
		}
		rest := out.stderr
		for _, words := range want {
			_, after, found := strings.Cut(rest, words)
			if !found {
				t.Errorf("%s: standard error lacks %q, here or in this order:\n%.3000s", flag, words, out.stderr)
				break
			}
			rest = after
		}
		if unsafe := unsafeIn(out.stderr); unsafe != "" {
			t.Errorf("%s: unsafe on standard error: %s", flag, unsafe)
		}
		if out.stdout != "" {
			t.Errorf("%s: refused, but it says:\n%.1000s", flag, out.stdout)
		}
		after := tree(t, s.root)
		if fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: the tree was %.1000v and is %.1000v", flag, before, after)
		}
	}
}

// TestBadInputOfTwoConfigs gives the agent two configs that want different things of one file.
func TestBadInputOfTwoConfigs(t *testing.T) {
	s := newSandbox(t)
	s.declareAs("left", file("motd", "/motd", "left\n"), file("good", "/good", "made\n"))
	s.declareAs("right", file("motd", "/motd", "right\n"))
	s.refused(t, reason.ExitConflict, []string{"error[TK0426]", "/motd", "right.yaml:1:", "left.yaml:1:", "help:"})
}

// TestBadCycle wants the way round a cycle, with the reason of each step.
func TestBadCycle(t *testing.T) {
	s := newSandbox(t)
	s.write(filepath.Join(s.conf, "site.yaml"), header+`    - {name: a, file: {path: /a}, require: [b]}
    - {name: b, file: {path: /b}, require: [c]}
    - {name: c, file: {path: /c}, require: [a]}
`)
	out := s.once().stderr
	for _, words := range []string{"file/a", "file/b", "file/c", "require", "site.yaml:7:", "site.yaml:8:", "site.yaml:9:"} {
		if !strings.Contains(out, words) {
			t.Errorf("the cycle is told without %q:\n%s", words, out)
		}
	}
}

// TestBadHost converges on hosts that do not let the agent: what can be done is done, and the rest fails with code and cure.
func TestBadHost(t *testing.T) {
	for _, bad := range []struct {
		name  string
		begin func(s *sandbox) []declare.Resource
		exit  int
		want  []string // on standard output
	}{
		{"target in the way", func(s *sandbox) []declare.Resource {
			s.must(os.MkdirAll(s.path("/bad/theirs"), 0o755))
			return []declare.Resource{file("bad", "/bad", "declared\n")}
		}, 1, []string{"Failed (denied)", "file/bad", "TK0503", "a directory is there", "force: true"}},
		{"no permission", func(s *sandbox) []declare.Resource {
			s.asNobody()
			s.must(os.MkdirAll(s.path("/bad"), 0o755))
			return []declare.Resource{file("bad", "/bad/file", "declared\n")}
		}, 1, []string{"Failed (denied)", "file/bad", "TK0501", "permission denied"}},
		{"owner without root", func(s *sandbox) []declare.Resource {
			s.asNobody()
			bad := file("bad", "/bad", "declared\n")
			bad.File.Owner = "root"
			return []declare.Resource{bad}
		}, 1, []string{"Failed (denied)", "file/bad", "TK0513"}},
		{"read-only file system", func(s *sandbox) []declare.Resource {
			mount(s, s.path("/bad"), "64k")
			remount(s, s.path("/bad"), unix.MS_RDONLY, "")
			return []declare.Resource{file("bad", "/bad/file", "declared\n")}
		}, 1, []string{"Failed (error)", "file/bad", "TK0506", "read-only file system"}},
		{"no systemd", func(s *sandbox) []declare.Resource {
			return []declare.Resource{{Name: "bad", Service: &declare.Service{}}}
		}, 1, []string{"Failed (unsupported)", "service/bad", "TK0534"}},
		{"no package manager", func(s *sandbox) []declare.Resource {
			return []declare.Resource{{Name: "bad", Package: &declare.Package{}}}
		}, 1, []string{"Failed (unsupported)", "package/bad", "TK0534"}},
		{"unknown owner", func(s *sandbox) []declare.Resource {
			needsRoot(s)
			bad := file("bad", "/bad", "declared\n")
			bad.File.Owner = "nobody-of-this-name"
			return []declare.Resource{bad}
		}, 1, []string{"Failed (invalid)", "file/bad", "TK0512", "nobody-of-this-name"}},
		{"symlink out of the tree", func(s *sandbox) []declare.Resource {
			needsRoot(s)
			s.must(os.Mkdir(s.path("/home"), 0o755))
			s.must(os.Chown(s.path("/home"), nobody, nobody))
			s.must(os.Symlink("/", s.path("/home/bad")))
			s.must(os.Lchown(s.path("/home/bad"), nobody, nobody))
			return []declare.Resource{file("bad", "/home/bad/planted", "declared\n")}
		}, 1, []string{"Failed (denied)", "file/bad", "TK0502"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			s := newSandbox(t)
			resources := bad.begin(s)
			before := tree(t, s.root)
			dependent := file("dependent", "/dependent", "declared\n")
			dependent.Require = []string{"bad"}
			s.declare(append(resources, dependent, file("good", "/good", "made\n"))...)
			out := s.once()
			if out.code != bad.exit {
				t.Errorf("exit code %d, want %d", out.code, bad.exit)
			}
			for _, words := range append(bad.want, "Blocked", "file/dependent", "TK0530", "help:") {
				if !strings.Contains(out.stdout, words) {
					t.Errorf("standard output lacks %q:\n%v", words, out)
				}
			}
			if s.read("/good") != "made\n" {
				t.Errorf("the rest does not go on: %q", s.read("/good"))
			}
			after := tree(t, s.root)
			delete(after, "/good")
			delete(after, "") // the directory, whose entries changed
			delete(before, "")
			if fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("beside what could be made, the tree was %v and is %v", before, after)
			}
		})
	}
}

// TestCureIsTriedAtOnce wants a person who converges once, after a cure, not to wait for the end of a back-off.
func TestCureIsTriedAtOnce(t *testing.T) {
	s := newSandbox(t)
	s.must(os.Mkdir(s.path("/bad"), 0o755))
	s.declare(file("bad", "/bad", "declared\n"))
	for range 4 { // by then the back-off is several seconds
		if out := s.once(); out.code != 1 || !strings.Contains(out.stdout, reason.TypeInTheWay.String()) {
			t.Fatalf("with something in the way: %v", out)
		}
	}
	s.must(os.Remove(s.path("/bad")))
	if out := s.once(); out.code != 0 || s.read("/bad") != "declared\n" {
		t.Errorf("after the cure: %q, %v", s.read("/bad"), out)
	}
}

package file_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// privateVariable tells the test binary that /etc is its own.
const privateVariable = "TAKO_FILE_TEST_PRIVATE"

// privateEtc makes a copy of /etc for this mount namespace only, and becomes the test.
const privateEtc = `set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
cp -a /etc/passwd /etc/group /etc/nsswitch.conf "$1/"
mkdir -m 0750 "$1/sudoers.d"
mount --bind "$1" /etc
shift
exec "$@"`

// apart runs the test that calls it once more with an /etc of its own, and reports whether this is that run.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(privateVariable) != "" {
		return true
	}
	needsRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", privateEtc, "sh", t.TempDir(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), privateVariable+"=1", "TAKO_CASES=") // the case is recorded once, outside
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("needs permission to create namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a namespace: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in a namespace:\n%s", out)
	}
	return false
}

const sudoersPath = "/etc/sudoers.d/deploy"

func rules(lines ...string) declare.Resource {
	return declare.Resource{Name: "deploy", Sudoers: &declare.Sudoers{Rules: lines}}
}

func TestSudoers(t *testing.T) {
	if !apart(t) {
		return
	}
	g := newGround(t)
	good := rules("deploy ALL=(root) NOPASSWD: /usr/bin/systemctl restart app", "%adm ALL=(ALL) ALL")
	t.Run("without visudo", func(t *testing.T) {
		if _, err := exec.LookPath("visudo"); err == nil {
			t.Skip("needs a host without visudo")
		}
		res := g.converge(g.bind(good))
		if e := reason.Of(res.Err); e.Code != reason.CheckNotRun || !strings.Contains(e.Hint, "visudo") || look(t, sudoersPath).kind != "absent" {
			t.Errorf("%v, hint %q", res.Err, e.Hint)
		}
	})
	t.Run("with visudo", func(t *testing.T) {
		if _, err := exec.LookPath("visudo"); err != nil {
			t.Skip("needs visudo")
		}
		asFile := declare.Resource{File: good.Sudoers.AsFile(sudoersPath)}
		hosttest.Run(t, hosttest.Subject{
			Type: g.Type, Declared: []host.Declared{declared(good)}, Remembers: true, Gone: []any{sight{kind: "absent"}},
			Observe: func(t testing.TB, _ int) any { return look(t, sudoersPath) },
			Difference: func(_ int, before, after any) []host.Change {
				return difference(asFile, false)(before.(sight), after.(sight))
			},
			Snapshot: func(t testing.TB) string { return hosttest.Tree(t, "/etc") },
			Disturb:  func(t testing.TB) { disturb(t, sudoersPath) },
			Situations: []hosttest.Situation{
				{Name: "nothing there", Arrange: func(testing.TB) { g.must(os.RemoveAll(sudoersPath)) }},
				{Name: "wrong there", Arrange: func(testing.TB) {
					g.must(os.RemoveAll(sudoersPath))
					g.must(os.WriteFile(sudoersPath, []byte("evil ALL=(ALL) NOPASSWD: ALL\n"), 0o644))
					g.must(os.Chown(sudoersPath, nobody, nobody))
				}},
			},
		})
		g.made(g.bind(good))
		before := look(t, sudoersPath)
		res := g.converge(g.bind(rules("deploy ALL=(root NOPASSWD: ALL")))
		if code(res.Err) != reason.CheckRejected || !strings.Contains(reason.Of(res.Err).Evidence, "syntax error") || look(t, sudoersPath) != before {
			t.Errorf("rules that are none: %v, %q, %+v", res.Err, reason.Of(res.Err).Evidence, look(t, sudoersPath))
		}
		if before.mode != "0440" || before.owner != "root" {
			t.Errorf("made %+v", before)
		}
	})
	t.Run("filled in", func(t *testing.T) {
		if _, err := g.Bind(t.Context(), declared(rules("x ALL=ALL\ny ALL=ALL"))); code(err) != reason.InvalidValue {
			t.Errorf("a rule of two lines: %v", err)
		}
	})
}

func TestSudoersInSandbox(t *testing.T) {
	_, err := newType(t, t.TempDir(), nil).Bind(t.Context(), declared(rules("x ALL=ALL")))
	if code(err) != reason.UnsupportedInRoot || !strings.Contains(reason.Of(err).Hint, "visudo") {
		t.Errorf("%v", err)
	}
}

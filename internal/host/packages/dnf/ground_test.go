package dnf

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

// insideVariable tells the test binary that it runs where nothing of this machine's own rpm is.
const insideVariable = "TAKO_DNF_TEST_INSIDE"

// apart runs the test that calls it once more in a mount namespace of its own, in which root's home, with the database that Debian's rpm keeps
// there, is empty; and reports whether this is that run. Outside the test is over with it.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range []string{"dnf-3", "rpm", "rpmbuild", "createrepo_c"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-ec",
		`mount -t tmpfs -o mode=0755 tmpfs /root; mkdir /root/tmp; export TMPDIR=/root/tmp; exec "$@"`, "sh", exe, "-test.run="+name, "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"=1", "TAKO_CASES=", "HOME=/root") // the case is recorded once, outside
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("needs permission to create namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in a namespace: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in a namespace:\n%s", out)
	}
	return false
}

// rpm is a small package, written by a test.
type rpm struct {
	name, version string // version is [EPOCH:]VERSION-RELEASE
	requires      string
	more          string // further parts of the spec
	files         int
}

// lab is an install root with a repository.
type lab struct {
	testing.TB
	root, repo string
	url        string
	back       *Dnf
	typ        *packages.Type

	mu   sync.Mutex
	gone bool // the repository answers with 404
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{TB: t, root: t.TempDir(), repo: t.TempDir()}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.url = "http://" + listener.Addr().String() + "/"
	srv := &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(listener) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
	})
	l.put("etc/yum.repos.d/lab.repo", "[lab]\nname=lab\nbaseurl="+l.url+"\ngpgcheck=0\nretries=1\n")
	l.put("etc/dnf/dnf.conf", "[main]\n")
	l.again()
	return l
}

// again makes a new Type, as a new agent has.
func (l *lab) again() {
	l.back = New(Options{InstallRoot: l.root})
	l.typ = packages.New(packages.Options{Backends: []packages.Backend{l.back}})
}

func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	gone := l.gone
	l.mu.Unlock()
	if gone {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	r.Header.Del("If-Modified-Since")
	http.FileServer(http.Dir(l.repo)).ServeHTTP(w, r)
}

func (l *lab) put(p, text string) {
	l.Helper()
	p = filepath.Join(l.root, p)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

// publish builds packages and adds them to the repository.
func (l *lab) publish(all ...rpm) {
	l.Helper()
	for _, p := range all {
		l.build(p)
	}
	run(l, "createrepo_c", "-q", l.repo)
}

func (l *lab) build(p rpm) {
	l.Helper()
	top := l.TempDir()
	epoch, version, release := split(p.version)
	text := fmt.Sprintf("Name: %s\nEpoch: %s\nVersion: %s\nRelease: %s\nSummary: x\nLicense: x\nBuildArch: noarch\n", p.name, epoch, version, release)
	if p.requires != "" {
		text += "Requires: " + p.requires + "\n"
	}
	text += "%description\nx\n" + p.more + "\n"
	if p.files > 0 {
		text += fmt.Sprintf("%%install\nmkdir -p %%{buildroot}/opt/%s\nfor i in $(seq %d); do echo $i >%%{buildroot}/opt/%s/a-file-with-a-long-name-$i; done\n%%files\n/opt/%s\n", p.name, p.files, p.name, p.name)
	} else {
		text += "%files\n"
	}
	spec := filepath.Join(top, "x.spec")
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	run(l, "rpmbuild", "-bb", "--quiet", "--define", "_topdir "+top, "--define", "_rpmdir "+l.repo, "--define", "_build_id_links none", spec)
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// installedVersion is what rpm itself says, "" for none.
func (l *lab) installedVersion(name string) string {
	l.Helper()
	for line := range strings.Lines(run(l, "rpm", "--root", l.root, "-qa", "--qf", `%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n`)) {
		if n, v, _ := strings.Cut(strings.TrimSpace(line), " "); n == name {
			return strings.TrimPrefix(v, "0:")
		}
	}
	return ""
}

// apply makes packages as declared, in one transaction; results[i] belongs to ps[i].
func (l *lab) apply(ps ...declare.Package) []host.Result {
	l.Helper()
	results := make([]host.Result, len(ps))
	rs := make([]host.Resource, len(ps))
	for i := range ps {
		var err error
		if rs[i], err = l.typ.Bind(l.Context(), host.Declared{Title: "package/" + ps[i].Package, Resource: declare.Resource{Package: &ps[i]}}); err != nil {
			l.Fatal(err)
		}
	}
	var plans []host.Plan
	var at []int
	for i, p := range l.typ.Check(l.Context(), rs, host.Shallow) {
		if results[i].Err = p.Err; !p.Empty() && p.Err == nil {
			plans, at = append(plans, p), append(at, i)
		}
	}
	for k, r := range l.typ.Apply(l.Context(), plans) {
		results[at[k]] = r
	}
	return results
}

func (l *lab) made(ps ...declare.Package) {
	l.Helper()
	for i, r := range l.apply(ps...) {
		if r.Err != nil || !r.Changed {
			l.Errorf("%s: changed %t: %s", ps[i].Package, r.Changed, told(r.Err))
		}
	}
}

func (l *lab) refused(p declare.Package, code reason.Code, words ...string) {
	l.Helper()
	r := l.apply(p)[0]
	if !reason.Is(r.Err, code) {
		l.Errorf("%s: %s, want %v", p.Package, told(r.Err), code)
	}
	for _, w := range words {
		if !strings.Contains(told(r.Err), w) {
			l.Errorf("%s: no %q in %s", p.Package, w, told(r.Err))
		}
	}
}

// told is all that a person is shown of an error.
func told(err error) string {
	e := reason.Of(err)
	if e == nil {
		return "no error"
	}
	return e.Code.String() + " " + e.Error() + " | " + e.Hint + " | " + e.Holder + " | " + e.Evidence
}

func present(name string) declare.Package { return declare.Package{Package: name} }

func pinned(name, version string) declare.Package {
	return declare.Package{Package: name, Version: version}
}

func absent(name string) declare.Package {
	return declare.Package{Package: name, State: declare.PackageAbsent}
}

package host

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	repositoryPort = ":80"
	// keyPath is where hosts have the public key of their repository.
	keyPath = "/etc/apt/keyrings/lab.asc"
	// headerTimeout bounds how long a connection may stay silent; hosts are one bridge away.
	headerTimeout = 10 * time.Second
)

// Repository is a lab's Debian package repository: signed with a key of its own, served on the bridge. It has nginx, hello,
// tree, sl and strace with all they need, and what a test adds.
type Repository struct {
	dir     string // the folder that is served, a flat repository
	keyring string // GnuPG's home, with the throw-away key
	server  *http.Server
	serving sync.WaitGroup
}

// Deb is a small package, written by a test.
type Deb struct {
	Name    string
	Version string
	Fields  map[string]string // further control fields, such as Depends
	Files   map[string]string // absolute path to content; what begins with "#!" is executable
	Scripts map[string]string // maintainer scripts: preinst, postinst, prerm, postrm, config
	// Conffiles are those of Files that dpkg treats as configuration.
	Conffiles []string
}

// openRepository makes the key, links the packages, signs the index and starts to serve.
func openRepository(ctx context.Context, labDir string, packages string, net *network) (*Repository, error) {
	r := &Repository{dir: filepath.Join(labDir, "repository"), keyring: filepath.Join(labDir, "keyring")}
	for _, dir := range []string{r.dir, r.keyring} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := r.fill(packages); err != nil {
		return nil, err
	}
	if _, err := r.gpg(ctx, "--quick-generate-key", "--passphrase", "", "lab", "ed25519", "sign", "never"); err != nil {
		return nil, err
	}
	if err := r.publish(ctx); err != nil {
		return nil, err
	}
	listener, err := net.listen(bridgeAddress + repositoryPort)
	if err != nil {
		return nil, err
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: headerTimeout}
	// Serve returns when close closes the server, always with an error that says just that.
	r.serving.Go(func() { _ = r.server.Serve(listener) })
	return r, nil
}

// ServeHTTP answers hosts. It always sends the file, also when asked for one that is newer than a time: times are in whole
// seconds, and two indices of one second would be taken for the same.
func (r *Repository) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	request.Header.Del("If-Modified-Since")
	http.FileServer(http.Dir(r.dir)).ServeHTTP(w, request)
}

// fill links the packages of the cache into the folder.
func (r *Repository) fill(packages string) error {
	files, err := filepath.Glob(filepath.Join(packages, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Symlink(file, filepath.Join(r.dir, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// close stops serving.
func (r *Repository) close() error {
	err := r.server.Close()
	r.serving.Wait()
	return err
}

// sourceLine is the hosts' only line in sources.list.
func (r *Repository) sourceLine() string {
	return "deb [signed-by=" + keyPath + "] http://" + bridgeAddress + "/ ./\n"
}

// publicKey returns the key in the form that apt reads.
func (r *Repository) publicKey(ctx context.Context) ([]byte, error) {
	return r.gpg(ctx, "--armor", "--export")
}

// publish writes and signs the index of what is in the folder.
func (r *Repository) publish(ctx context.Context) error {
	index, err := r.ftparchive(ctx, "packages", ".")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "Packages"), index, 0o644); err != nil {
		return err
	}
	// Left over from the last time, these would be listed in the new release.
	for _, old := range []string{"Release", "InRelease"} {
		if err := os.RemoveAll(filepath.Join(r.dir, old)); err != nil {
			return err
		}
	}
	release, err := r.ftparchive(ctx, "-o", "APT::FTPArchive::Release::Origin=lab", "-o", "APT::FTPArchive::Release::Suite="+debianSuite,
		"-o", "APT::FTPArchive::Release::Patterns=Packages", "release", ".")
	if err != nil {
		return err
	}
	unsigned := filepath.Join(r.keyring, "Release")
	if err := os.WriteFile(unsigned, release, 0o600); err != nil {
		return err
	}
	_, err = r.gpg(ctx, "--yes", "--clearsign", "--output", filepath.Join(r.dir, "InRelease"), unsigned)
	return err
}

// Add builds the package, adds it to the repository and signs the index again. Hosts see it after their next
// apt-get update.
func (r *Repository) Add(t testing.TB, deb Deb) {
	t.Helper()
	build := t.TempDir()
	if err := deb.write(build); err != nil {
		t.Fatalf("write package %s: %v", deb.Name, err)
	}
	file := filepath.Join(r.dir, fmt.Sprintf("%s_%s_%s.deb", deb.Name, deb.Version, runtime.GOARCH))
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "-Znone", "--build", build, file).CombinedOutput()
	if err != nil {
		t.Fatalf("build package %s: %v: %s", deb.Name, err, out)
	}
	if err := r.publish(t.Context()); err != nil {
		t.Fatalf("publish package %s: %v", deb.Name, err)
	}
}

// write lays the package out as dpkg-deb wants it.
func (d Deb) write(dir string) error {
	files := map[string]string{"DEBIAN/control": d.control()}
	maps.Copy(files, d.Files)
	for name, script := range d.Scripts {
		files["DEBIAN/"+name] = script
	}
	if len(d.Conffiles) > 0 {
		files["DEBIAN/conffiles"] = strings.Join(d.Conffiles, "\n") + "\n"
	}
	for path, content := range files {
		if err := writeFile(filepath.Join(dir, path), content); err != nil {
			return err
		}
	}
	return nil
}

// control is the package's description in the form of deb-control(5).
func (d Deb) control() string {
	fields := map[string]string{
		"Package": d.Name, "Version": d.Version, "Architecture": runtime.GOARCH,
		"Maintainer": "lab <lab@localhost>", "Description": "a package of a test",
	}
	maps.Copy(fields, d.Fields)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&text, "%s: %s\n", name, fields[name])
	}
	return text.String()
}

// ftparchive runs apt-ftparchive in the folder.
func (r *Repository) ftparchive(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-ftparchive", args...)
	cmd.Dir = r.dir
	return output(cmd)
}

// gpg runs GnuPG with the throw-away key's home. GnuPG starts an agent in the background, which would stay for ever; in a
// PID namespace it ends with the command.
func (r *Repository) gpg(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "gpg", append([]string{"--homedir", r.keyring, "--batch", "--quiet"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	return output(cmd)
}

// output runs a command and returns what it prints; the error carries what it said on standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lastLines(stderr.String(), 10))
	}
	return out, nil
}

// writeFile writes a file with its parents; what begins with "#!" is executable.
func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	return os.WriteFile(path, []byte(content), mode)
}

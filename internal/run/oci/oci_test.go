package oci_test

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci"
	"tako.dev/tako/internal/run/oci/image/imagetest"
	"tako.dev/tako/internal/run/runtest"
)

// The test binary is its own shim.
const shimArgument = "mind-a-container"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == shimArgument {
		syscall.Exit(oci.Serve()) // not os.Exit, before which the race detector sleeps for a second
	}
	runtest.Main(m, open)
}

func open(dir string) (run.Runtime, func() error, error) {
	return openWith(dir, []string{"/proc/self/exe", shimArgument})
}

func openWith(dir string, shim []string) (run.Runtime, func() error, error) {
	rt, err := oci.New(oci.Options{Dir: dir, Images: dir + "-images", Networks: dir + "-networks", Shim: shim})
	if err != nil {
		return nil, nil, err
	}
	return rt, rt.Close, nil
}

// needRunc skips, loudly, what needs a container.
func needRunc(t *testing.T) {
	t.Helper()
	rt, done, err := open(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
	if why, lacks := rt.Capabilities().Lacks[run.Images]; lacks {
		t.Skip("needs root and runc: " + why)
	}
}

// small is an image with nothing in it but what leads to the host's /usr, which is shown in it.
func small(t *testing.T, config map[string]any) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	files := []imagetest.File{
		imagetest.Dir("usr"), imagetest.Dir("etc"), imagetest.Dir("tmp"),
		imagetest.Plain("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nweb:x:1234:1235::/:/bin/sh\n"),
		imagetest.Plain("etc/group", "root:x:0:\nmore:x:1300:web,nobody\nnogroup:x:65534:\n"),
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Stat("/" + name); err == nil {
			files = append(files, imagetest.Link(name, "usr/"+name))
		}
	}
	// What would be of the host.
	files = append(files, imagetest.File{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 254}})
	imagetest.Image{Layers: [][]imagetest.File{files}, Packing: "gzip", Config: config}.Write(t, dir)
	return dir
}

// dressed gives tasks an image, and directories of the host in it.
func dressed(layout string) func(*run.Task, []string) {
	return func(t *run.Task, directories []string) {
		t.Image = layout
		for _, d := range directories {
			t.Mounts = append(t.Mounts, run.Mount{Source: d, Path: d})
		}
	}
}

func subject(t *testing.T) runtest.Subject {
	t.Helper()
	needRunc(t)
	t.Cleanup(func() { nothingLeft(t, fmt.Sprintf("tako-i-%d", os.Getpid())) })
	return runtest.Subject{
		Open: open, Clean: []string{"attempts", "status", "users"}, User: "nobody", UID: 65534, Dress: dressed(small(t, nil)),
	}
}

// nothingLeft looks for what containers are made of beside processes and files, which the suite looks for.
func nothingLeft(t *testing.T, name string) {
	t.Helper()
	if left := groups(t, name); len(left) > 0 {
		t.Errorf("cgroups are left: %q", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), "/attempts/") {
		t.Errorf("mounts of attempts are seen on the host (%v):\n%s", err, mounts)
	}
}

func TestSuite(t *testing.T) { runtest.Run(t, subject(t)) }

func TestWorkloadCase62_KilledWhileItStartsAContainer(t *testing.T) {
	runtest.KilledWhileItStarts(t, casetest.Start(t), subject(t))
}

func TestShimIsKilled(t *testing.T) { runtest.ShimKilled(t, subject(t)) }

func TestShimIsKilledAnywhere(t *testing.T) {
	runtest.ShimKilledAnywhere(t, subject(t), shimArgument, openWith)
}

package instances

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci"
	"tako.dev/tako/internal/run/oci/image/imagetest"
	"tako.dev/tako/internal/transfer/wire"
)

// newContainerRig is a rig whose host can run containers.
func newContainerRig(t *testing.T) *rig {
	t.Helper()
	if why := oci.Unfit(); why != "" {
		t.Skip("needs containers: " + why)
	}
	r := newRig(t)
	r.openObjects()
	return r
}

// openObjects is what an agent does when it begins.
func (r *rig) openObjects() {
	r.t.Helper()
	objects, err := content.OpenObjects(filepath.Join(r.dir, "objects"), content.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.objects = objects
}

// layout writes an image that has nothing but links into the host's /usr, which is shown to its tasks, and what says that it is an image.
func layout(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	files := []imagetest.File{imagetest.Dir("usr"), imagetest.Dir("etc"), imagetest.Plain("etc/of-image", "of the image\n")}
	for _, name := range []string{"bin", "lib", "lib64"} {
		files = append(files, imagetest.Link(name, "usr/"+name))
	}
	imagetest.Image{Layers: [][]imagetest.File{files}, Packing: "gzip", Config: map[string]any{"Env": []string{"FROM=image"}, "WorkingDir": "/etc"}}.Write(t, dir)
	return dir
}

// contained is a task in an image, with the host's /usr.
func contained(i workload.Image, script string) (func(*catalog.Instance, *catalog.Template), workload.Task) {
	usr := func(_ *catalog.Instance, tpl *catalog.Template) {
		tpl.Spec.Runtime = workload.OCI
		tpl.Spec.Volumes = []workload.Volume{{Name: "usr", Host: &workload.HostVolume{Path: "/usr"}}}
	}
	return usr, workload.Task{Name: "main", Image: &i, Command: []string{"/bin/sh", "-c", script}, Mounts: []workload.Mount{{Volume: "usr", Path: "/usr", ReadOnly: true}}}
}

// gone ends everything, and looks for what containers leave behind.
func (r *rig) gone() {
	r.t.Helper()
	r.wanted.Instances, r.wanted.Templates = nil, nil
	r.keeper.Want(r.wanted)
	r.until("nothing is told any more", func(told []wire.Instance) bool { return len(told) == 0 })
	r.until("no attempt is left", func([]wire.Instance) bool {
		left, err := os.ReadDir(filepath.Join(r.dir, "runtimes/oci/attempts"))
		uses, useErr := os.ReadDir(filepath.Join(r.dir, "runtimes/images/uses"))
		return err == nil && useErr == nil && len(left) == 0 && len(uses) == 0
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), r.dir) {
		r.t.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
}

func TestImageOfAPath(t *testing.T) {
	r := newContainerRig(t)
	r.wanted.Offers.Directories = []string{"/usr"}
	r.start()
	if o := r.keeper.Offers(func(string) (declare.Value, bool) { return declare.Value{}, false }, nil); !slices.Contains(o.Runtimes, "OCI") {
		t.Errorf("a host with runc offers %v", o.Runtimes)
	}
	where := filepath.Join(t.TempDir(), "later")
	change, web := contained(workload.Image{Path: where}, "cat of-image; echo $FROM; exec sleep 1000")
	web.Readiness = &workload.Probe{Exec: &workload.ExecProbe{Command: []string{"test", "-e", "/etc/of-image"}}, Period: "100ms", Timeout: "20s"}
	uid := r.add(change, web)
	r.until("it is said that there is no image, and tried again", func([]wire.Instance) bool {
		n := r.one(uid)
		return n.Code == reason.TaskNotStarted && strings.Contains(n.Message, where) && n.Restarts > 0 && n.Phase == wire.InstanceStarting
	})
	if err := os.Mkdir(where, 0o755); err != nil {
		t.Fatal(err)
	}
	r.until("it is said that the image is damaged, and tried again", func([]wire.Instance) bool { return r.one(uid).Code == reason.ImageRefused })
	if err := os.Remove(where); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(layout(t), where); err != nil {
		t.Fatal(err)
	}
	r.is(uid, wire.InstanceRunning, true)
	r.end(uid)
	r.is(uid, wire.InstanceDone, false)
	r.gone()
}

// bring does what a fetcher does: it brings one object that is asked for.
func (r *rig) bring(file string) {
	r.t.Helper()
	var w content.Wanted
	r.until("somebody asks for the image", func([]wire.Instance) bool {
		if list := r.objects.Wanted(); len(list) == 1 {
			w = list[0]
		}
		return w.Size > 0
	})
	if w.Claim != "template:shop/web-r1" {
		r.t.Errorf("it is asked for by what %q names", w.Claim)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	part, _, err := r.objects.Part(w.Digest)
	if err == nil {
		_, err = part.Write(text)
		err = errors.Join(err, part.Close(), r.objects.Add(context.Background(), w))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestImageByDigest(t *testing.T) {
	r := newContainerRig(t)
	r.wanted.Offers.Directories = []string{"/usr"}
	r.objects.Fetched()
	archive := filepath.Join(t.TempDir(), "image.tar")
	imagetest.Archive(t, layout(t), archive)
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := content.ParseDigest(imagetest.Digest(text))
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	change, web := contained(workload.Image{Object: &declare.ObjectReference{Digest: digest.String(), SizeBytes: int64(len(text))}}, "cat of-image; echo $FROM; exec sleep 1000")
	uid := r.add(change, web)
	r.until("it waits for the image, in words", func([]wire.Instance) bool {
		n := r.one(uid)
		return n.Code == reason.ObjectComing && n.Phase == wire.InstanceStarting && n.Restarts == 0 && strings.Contains(n.Message, digest.String())
	})
	r.objects.Failed(digest, &reason.Error{Code: reason.DiskFull, Doing: "find room"}, time.Second)
	r.until("it says why the image does not come, and tries it again", func([]wire.Instance) bool { return r.one(uid).Code == reason.DiskFull })
	r.bring(archive)
	n := r.is(uid, wire.InstanceRunning, true)
	if n.Code != 0 {
		t.Errorf("it runs, and is told as %+v", n)
	}
	if got := r.objects.Used(); !slices.Equal(got, []content.Digest{digest}) {
		t.Errorf("used are %v", got)
	}
	// What is here needs nobody: an agent that begins again starts the task anew from it.
	r.stop()
	r.openObjects()
	r.start()
	n = r.is(uid, wire.InstanceRunning, true)
	id := run.ID{Instance: uid, Task: "main", Attempt: n.Attempt}
	var rt *runtime
	r.until("the runtime is open", func([]wire.Instance) bool { // what runs is told of before that
		rt, err = ask(t.Context(), r.keeper, func() *runtime { return r.keeper.runtimes[workload.OCI] })
		return err == nil && rt != nil
	})
	if err := rt.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	r.until("it runs again", func([]wire.Instance) bool {
		is := r.one(uid)
		return is.Ready && is.Attempt == n.Attempt+1
	})
	r.gone()
	r.until("the image is not kept any more", func([]wire.Instance) bool { return len(r.objects.Used()) == 0 })
}

func TestImageEndedWhileItComes(t *testing.T) {
	r := newContainerRig(t)
	r.wanted.Offers.Directories = []string{"/usr"}
	r.objects.Fetched()
	r.start()
	change, web := contained(workload.Image{Object: &declare.ObjectReference{Digest: "sha256:" + strings.Repeat("0", 64), SizeBytes: 5}}, "true")
	uid := r.add(change, web)
	r.until("it waits", func([]wire.Instance) bool { return r.one(uid).Code == reason.ObjectComing })
	r.end(uid)
	r.is(uid, wire.InstanceDone, false)
	r.gone()
	r.until("nobody asks for it any more", func([]wire.Instance) bool { return len(r.objects.Wanted()) == 0 })
}

func TestHostWithoutRunc(t *testing.T) {
	r := newRig(t)
	options := r.options()
	options.Runtimes[1].Unfit = func() string { return "there is no runc on the host" }
	k, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if o := k.Offers(func(string) (declare.Value, bool) { return declare.Value{}, false }, nil); !slices.Equal(o.Runtimes, []string{"Process"}) {
		t.Errorf("a host without runc offers %v", o.Runtimes)
	}
	r.wanted.Offers.Runtimes = []string{"Process"}
	r.start()
	change, web := contained(workload.Image{Path: "/none"}, "true")
	uid := r.add(func(in *catalog.Instance, tpl *catalog.Template) {
		change(in, tpl)
		tpl.Spec.Volumes, tpl.Spec.Tasks[0].Mounts = nil, nil
	}, web)
	n := r.is(uid, wire.InstanceFailed, false)
	if n.Code != reason.InstanceRefused || !n.OfNode || !strings.Contains(n.Message, "has no runtime OCI") {
		t.Errorf("it is refused as %+v", n)
	}
}

// TestImagesHere: a host tells of what its templates name, and of what they have named before, as far as that is here: no more than it may, in one order.
func TestImagesHere(t *testing.T) {
	dir := t.TempDir()
	objects, err := content.OpenObjects(filepath.Join(dir, "objects"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := newImages(objects)
	of := func(all ...workload.Image) catalog.Template {
		var tpl catalog.Template
		for i := range all {
			tpl.Spec.Tasks = append(tpl.Spec.Tasks, workload.Task{Name: "t", Image: &all[i]})
		}
		return tpl
	}
	archive := []byte("an archive")
	sum := content.DigestOf(archive)
	object := workload.Image{Object: &declare.ObjectReference{Digest: sum.String(), SizeBytes: int64(len(archive))}}
	at, long := workload.Image{Path: filepath.Join(dir, "layout")}, workload.Image{Path: "/" + strings.Repeat("x", wire.ImageNameMax)}
	is := func(what string, want ...string) {
		t.Helper()
		if got := m.here(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	m.want([]catalog.Template{of(object, at), of(long, object), of()})
	is("nothing is here yet")
	if err := os.Mkdir(at.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	w := content.Wanted{Digest: sum, Size: int64(len(archive))}
	part, _, err := objects.Part(sum)
	if err == nil {
		_, err = part.Write(archive)
		err = errors.Join(err, part.Close(), objects.Add(t.Context(), w))
	}
	if err != nil {
		t.Fatal(err)
	}
	is("both are here", at.Path, sum.String())
	m.want(nil)
	is("nothing runs from them any more", at.Path, sum.String())
	if err := os.Remove(at.Path); err != nil {
		t.Fatal(err)
	}
	is("one is gone", sum.String())
	if err := os.Mkdir(at.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	var many []workload.Image
	for i := range wire.ImagesMax + 5 {
		p := filepath.Join(dir, "layout-"+string(rune('a'+i)))
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		many = append(many, workload.Image{Path: p})
	}
	m.want([]catalog.Template{of(many...)})
	if got := m.here(); len(got) != wire.ImagesMax || !slices.IsSorted(got) || slices.Contains(got, at.Path) {
		t.Errorf("%d images: %v", len(got), got)
	}
}

//go:build e2e

package workloads

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run/oci/image/imagetest"
)

const (
	// imagePath and archivePath are where the host has the image, when it has it.
	imagePath   = "/srv/debian"
	archivePath = "/srv/debian.tar"
)

// booted is a cluster of one host, which can bound what its processes take.
type booted struct {
	*cluster
	box *host.Host
}

func newBooted(t *testing.T, lab *host.Lab) *booted {
	t.Helper()
	b := &booted{cluster: newCluster(t, lab, map[string][]string{"box": nil})}
	b.box = b.boxes["box"]
	b.box.GiveControllers(t)
	return b
}

// until waits until what is said about a workload is so.
func (b *booted) until(what, name string, is func(w *v1alpha1.Workload, why string) bool) {
	b.t.Helper()
	host.Eventually(b.t, rig.InTime, name+": "+what, func() (string, bool) {
		var w v1alpha1.Workload
		if text, code := b.try("get", "-o", "json", "workload/"+name, "-n", environment); code == 0 {
			if err := json.Unmarshal([]byte(text), &w); err != nil {
				b.t.Fatal(err, text)
			}
		}
		why, _ := b.try("why", "workload/"+name, "-n", environment)
		return why, is(&w, why)
	})
}

// instance is the one instance of a workload.
func (b *booted) instance(workload string) v1alpha1.Instance {
	b.t.Helper()
	var list v1alpha1.InstanceList
	text := b.tako("get", "-o", "json", "instances", "-n", environment, "-l", v1alpha1.LabelWorkload+"="+workload)
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Items) != 1 {
		b.t.Fatalf("instances of %s: %v\n%s", workload, err, text)
	}
	return list.Items[0]
}

// pids are the processes of the box whose arguments are these.
func (b *booted) pids(args ...string) []string {
	b.t.Helper()
	r, err := b.box.Run(b.t.Context(), "sh", "-c", `for p in /proc/[0-9]*; do [ "$(tr '\0' ' ' <"$p/cmdline" 2>/dev/null)" = "$0 " ] && echo "${p#/proc/}"; done; true`, strings.Join(args, " "))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Fields(r.Stdout)
}

// debianImage makes an archive with an image that is a Debian root, which says what it runs.
func debianImage(t *testing.T, lab *host.Lab) string {
	t.Helper()
	dir := t.TempDir()
	layer := filepath.Join(dir, "layer.tar")
	lab.Archive(t, layer)
	plain, err := os.ReadFile(layer)
	if err != nil {
		t.Fatal(err)
	}
	const media = "application/vnd.oci.image."
	layout := filepath.Join(dir, "layout")
	config := imagetest.Blob(t, layout, media+"config.v1+json", imagetest.JSON(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"sleep", "4242"}, "User": "nobody"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{imagetest.Digest(plain)}},
	}))
	layers := []map[string]any{imagetest.Blob(t, layout, media+"layer.v1.tar", plain)}
	imagetest.Index(t, layout, imagetest.Blob(t, layout, media+"manifest.v1+json", imagetest.JSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": media + "manifest.v1+json", "config": config, "layers": layers})))
	archive := filepath.Join(dir, "image.tar")
	imagetest.Archive(t, layout, archive)
	return archive
}

// workloadOf declares one instance from an image.
func workloadOf(name, image, more string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: %s, namespace: %s}
spec:
  replicas: 1
  template:
    restart: {backoff: 1s, backoffMax: 4s}
    tasks:
    - {name: main, image: {%s}, %s}
`, name, environment, image, more)
}

// working is a workload whose instance does what it is to do, whatever was before.
func working(w *v1alpha1.Workload, _ string) bool {
	return w.Status.ReadyReplicas == 1 && w.Status.AvailableReplicas == 1
}

// TestImages runs an image in containers on a host that has booted.
func TestImages(t *testing.T) {
	host.ForgetGroups(t)
	lab := host.NewLab(t)
	archive := debianImage(t, lab)
	b := newBooted(t, lab)
	b.apply(workloadOf("steady", "path: "+imagePath, "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}"))

	// A host without runc takes none, and that is what is said.
	b.until("no host has runc", "steady", func(w *v1alpha1.Workload, why string) bool {
		return w.Status.PendingReplicas == 1 && strings.Contains(why, "runtime OCI") && strings.Contains(why, "install runc")
	})
	b.box.MustRun(t, "apt-get", "update")
	b.box.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "runc")

	// An image that is not there, and one that is none, is tried again.
	b.until("there is no image", "steady", func(_ *v1alpha1.Workload, why string) bool {
		return strings.Contains(why, reason.TaskNotStarted.String()) && strings.Contains(why, imagePath) && strings.Contains(why, "restart ")
	})
	b.box.CopyIn(t, archive, archivePath)
	b.box.MustRun(t, "mkdir", imagePath)
	b.until("the image is none", "steady", func(_ *v1alpha1.Workload, why string) bool {
		return strings.Contains(why, reason.ImageRefused.String()) && strings.Contains(why, "index.json")
	})
	b.box.MustRun(t, "sh", "-c", "rmdir "+imagePath+" && mkdir "+imagePath+".new && tar -xf "+archivePath+" -C "+imagePath+".new --no-same-owner && mv "+imagePath+".new "+imagePath)
	b.until("it runs", "steady", working)
	b.tellsImages(imagePath)

	b.untouched()
	b.outOfMemory(archive)
	b.deleted()
}

// tellsImages waits until the node of the box has these images, for whoever looks for a place for one more.
func (b *booted) tellsImages(want ...string) {
	b.t.Helper()
	host.Eventually(b.t, rig.InTime, "the node has the images", func() (string, bool) {
		var n v1alpha1.NodeList
		text := b.tako("get", "-o", "json", "nodes")
		if err := json.Unmarshal([]byte(text), &n); err != nil || len(n.Items) != 1 || n.Items[0].Status.Offers == nil {
			return text, false
		}
		is := n.Items[0].Status.Offers.Images
		return fmt.Sprint(is), slices.Equal(is, want)
	})
}

// untouched: whatever becomes of the agent, the container goes on.
func (b *booted) untouched() {
	b.t.Helper()
	before, restarts := b.pids("sleep", "4242"), b.instance("steady").Status.Restarts
	if len(before) != 1 {
		b.t.Fatalf("the container has the processes %v", before)
	}
	if uid := strings.TrimSpace(b.box.MustRun(b.t, "stat", "-c", "%U", "/proc/"+before[0])); uid != "nobody" {
		b.t.Errorf("it runs as %s", uid)
	}
	root := strings.TrimSpace(b.box.MustRun(b.t, "readlink", "/proc/"+before[0]+"/ns/mnt"))
	if own := strings.TrimSpace(b.box.MustRun(b.t, "readlink", "/proc/1/ns/mnt")); own == root {
		b.t.Error("it sees the mounts of the host")
	}
	for _, how := range [][]string{{"restart"}, {"kill", "--signal=KILL", "--kill-whom=main"}} {
		agent := func(property string) string {
			return strings.TrimSpace(b.box.MustRun(b.t, "systemctl", "show", "--property="+property, "--value", "tako-agent.service"))
		}
		was := agent("MainPID")
		b.box.MustRun(b.t, slices.Concat([]string{"systemctl"}, how, []string{"tako-agent.service"})...)
		host.Eventually(b.t, rig.InTime, "another agent runs", func() (string, bool) {
			state, is := agent("ActiveState"), agent("MainPID")
			return state + " with process " + is, state == "active" && is != was
		})
		b.until("it still runs", "steady", working)
		if after := b.pids("sleep", "4242"); !slices.Equal(before, after) || b.instance("steady").Status.Restarts != restarts {
			b.t.Errorf("after %s of the agent: processes %v were %v, restarts %d were %d", how[0], after, before, b.instance("steady").Status.Restarts, restarts)
		}
	}
}

// outOfMemory: what takes more than its limit is ended, and started again after pauses, and nothing else.
func (b *booted) outOfMemory(archive string) {
	b.t.Helper()
	b.ctl.CopyIn(b.t, archive, archivePath)
	object := strings.TrimSpace(b.tako("content", "put", archivePath, "-o", "json"))
	b.apply(workloadOf("greedy", "object: "+object, "command: [tail, /dev/zero], resources: {requests: {memory: 16Mi}, limits: {memory: 64Mi}}"))
	b.until("it is told why it is ended", "greedy", func(_ *v1alpha1.Workload, why string) bool {
		return strings.Contains(why, reason.TaskEnded.String()) && strings.Contains(why, "ran out of memory") && strings.Contains(why, "limit of 67108864 bytes") &&
			strings.Contains(why, "comes 4s after that")
	})
	var stored struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(object), &stored); err != nil {
		b.t.Fatal(err)
	}
	b.tellsImages(imagePath, stored.Digest)
	if in := b.instance("steady"); !in.Status.Ready || len(b.pids("sleep", "4242")) != 1 {
		b.t.Errorf("another instance was disturbed: %+v", in.Status)
	}
}

// deleted: nothing stays.
func (b *booted) deleted() {
	b.t.Helper()
	groups := "find /sys/fs/cgroup -type d"
	for _, name := range []string{"steady", "greedy"} {
		groups += " -name 'tako-" + string(b.instance(name).UID) + ".*' -o" // controllers show what others run on this machine, too
		b.tako("delete", "workload/"+name, "-n", environment)
	}
	host.Eventually(b.t, rig.InTime, "nothing is left of containers", func() (string, bool) {
		r, err := b.box.Run(b.t.Context(), "sh", "-c", `ls -A /var/lib/tako/runtimes/oci/attempts /var/lib/tako/runtimes/images/uses /var/lib/tako/instances | grep -v ':$' | grep .
			grep -l /attempts/ /proc/[0-9]*/mountinfo; `+strings.TrimSuffix(groups, "-o")+`
			cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -o -E 'mind-containe[r]|bin/run[c]|sleep 424[2]|dev/zer[o]'; true`)
		return r.Stdout + r.Stderr, err == nil && strings.TrimSpace(r.Stdout) == ""
	})
}

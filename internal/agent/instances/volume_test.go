package instances

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// TestVolumeThatDisappears: what was there is not made anew, empty, and its task is not started without it.
func TestVolumeThatDisappears(t *testing.T) {
	state := t.TempDir()
	there := filepath.Join(state, "there")
	if err := os.Mkdir(there, 0o755); err != nil {
		t.Fatal(err)
	}
	one := workload.Task{Name: "main", Mounts: []workload.Mount{{Volume: "data", Path: "/data"}, {Volume: "host", Path: "/host"}, {Volume: "scratch", Path: "/scratch"}}}
	template := &workload.Template{Tasks: []workload.Task{one}, Volumes: []workload.Volume{
		{Name: "data", Data: &workload.DataVolume{}}, {Name: "host", Host: &workload.HostVolume{Path: there}}, {Name: "scratch", Temporary: &workload.TemporaryVolume{}},
	}}
	record := &core.Record{Instance: catalog.Instance{UID: "uid-1", Namespace: "shop", Name: "db-0", Workload: "db"}}
	b := &builder{state: state, template: template, task: &template.Tasks[0], start: core.Start{ID: run.ID{Instance: "uid-1", Task: "main", Attempt: 1}, Record: record}}
	data, scratch := filepath.Join(state, "volumes/shop/db/0/data"), filepath.Join(state, "instances/uid-1/volumes/scratch")
	steps := []struct {
		what string
		do   func() error
		gone string
	}{
		{"the first time", func() error { return nil }, ""},
		{"again", func() error { return nil }, ""},
		{"without its scratch", func() error { return os.Remove(scratch) }, ""},
		{"without its data", func() error { return os.Remove(data) }, data + " was there when the instance began"},
		{"still without", func() error { return nil }, "mount volume data of instance db-0"},
		{"with data again", func() error { return os.Mkdir(data, 0o777) }, ""},
		{"without the directory of the host", func() error { return os.Remove(there) }, "the host has no directory " + there},
		{"with it again", func() error { return os.Mkdir(there, 0o755) }, ""},
		{"another instance in its place, on an empty disk", func() error { record.Instance.UID = "uid-2"; return os.Remove(data) }, ""},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		err := b.makeVolumes()
		if s.gone == "" && err != nil || s.gone != "" && (!reason.Is(err, reason.VolumeGone) || !strings.Contains(err.Error(), s.gone)) {
			t.Errorf("%s: %v", s.what, err)
		}
	}
}

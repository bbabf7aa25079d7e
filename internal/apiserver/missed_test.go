package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
)

// deaf is etcd's watches, which do not tell of some changes.
type deaf struct {
	clientv3.Watcher
	mu   sync.Mutex
	lose map[string]int64 // by the last part of the key, the revision of the last change that was lost
}

// theDeaf is between the server and its etcd.
var theDeaf = deaf{lose: map[string]int64{}}

// Watch leaves out what is lost. What is told of a revision then looks as if nothing had changed in it.
func (d *deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from, to := d.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() { // until etcd's client ends the watch, at the latest when it is closed
		defer close(to)
		for r := range from {
			r.Events = slices.DeleteFunc(r.Events, func(e *clientv3.Event) bool { return d.loses(path.Base(string(e.Kv.Key)), e.Kv.ModRevision) })
			select {
			case to <- r:
			case <-ctx.Done():
			}
		}
	}()
	return to
}

func (d *deaf) loses(name string, revision int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, loses := d.lose[name]; !loses {
		return false
	}
	d.lose[name] = revision
	return true
}

// during has the change of an object be lost that do makes, and what else somebody writes to it meanwhile. do returns the version.
func (d *deaf) during(t *testing.T, name string, do func() string) {
	t.Helper()
	d.mu.Lock()
	d.lose[name] = 0
	d.mu.Unlock()
	version, err := strconv.ParseInt(do(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	becomes(t, "the change of "+name+" is lost", func() (bool, string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.lose[name] >= version, "it is not"
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lose, name)
}

// lostEvents is what the metrics say of a resource.
func lostEvents(t *testing.T, resource string) string {
	t.Helper()
	return metricOf(t, "tako_store_lost_events_total", resource)
}

func metricOf(t *testing.T, metric, resource string) string {
	t.Helper()
	_, b := call(t, theSite.admin, http.MethodGet, "/metrics", plainJSON, nil)
	for line := range strings.Lines(string(b)) {
		if n, is := strings.CutPrefix(line, fmt.Sprintf("%s{resource=%q} ", metric, resource)); is {
			return strings.TrimSpace(n)
		}
	}
	return "nothing"
}

// TestTransferCase21_EtcdDropsAnEventOfWhatIsDeclared: what etcd's watch has not told of a ConfigMap and a NodeConfig reaches the host
// when everything is compared, though nobody writes again; it is counted by its kind, and nothing else is.
func TestTransferCase21_EtcdDropsAnEventOfWhatIsDeclared(t *testing.T) {
	c := casetest.Start(t)
	maps := client(t).CoreV1().ConfigMaps("default")
	values := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "unheard-values"}, Data: map[string]string{"k": "one"}}
	values, err := maps.Create(t.Context(), values, metav1.CreateOptions{})
	c.NoError(err, "make a ConfigMap")
	declared := config("unheard-config", "")
	declared.Spec.Selector = declare.Selector{MatchLabels: map[string]string{"of": "unheard"}}
	declared.Spec.Resources[0].File = &declare.File{Path: "/etc/unheard", ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: values.Name, Key: "k"}}}
	put := func() string {
		t.Helper()
		code, b := call(t, theSite.admin, http.MethodPatch, configs+"/unheard-config?fieldManager=test&force=true", applyYAML, declared)
		c.Check(code < 300, "declare: %d %s", code, b)
		return decode[v1alpha1.NodeConfig](t, b).ResourceVersion
	}
	put()
	m, err := join(t, joinLine(t, "unheard", v1alpha1.JoinToken{Environment: "default", Labels: map[string]string{"of": "unheard"}}), "unheard-1")
	c.NoError(err, "join")
	m.run(t)
	m.next(t, "/etc/unheard", "one")
	others := map[string]string{}
	for _, resource := range []string{"nodes.tako.dev", "assignments.tako.dev", "secrets", "clusternodeconfigs.tako.dev"} {
		others[resource] = lostEvents(t, resource)
	}

	theDeaf.during(t, values.Name, func() string {
		values.Data["k"] = "two"
		values, err = maps.Update(t.Context(), values, metav1.UpdateOptions{})
		c.NoError(err, "change the ConfigMap")
		return values.ResourceVersion
	})
	m.next(t, "/etc/unheard", "two")
	theDeaf.during(t, declared.Name, func() string {
		declared.Spec.Resources[0].File = &declare.File{Path: "/etc/unheard", Content: "three"}
		return put()
	})
	m.next(t, "/etc/unheard", "three")
	declared.Spec.Resources[0].File = &declare.File{Path: "/etc/unheard", Content: "four"}
	put()
	m.next(t, "/etc/unheard", "four") // what comes later is told
	// The NodeConfig may have been told of by the next write of its status, before anything was compared.
	n := lostEvents(t, "configmaps")
	c.Check(n != "0" && n != "nothing", "lost events of ConfigMaps: %s", n)
	for resource, before := range others {
		c.Check(before == "0" || before == "nothing", "%s lost events of %s before", before, resource)
		c.Check(lostEvents(t, resource) == "0", "%s lost events of %s", lostEvents(t, resource), resource)
		c.Check(metricOf(t, "tako_store_compared_timestamp_seconds", resource) != "nothing", "%s were never compared", resource)
	}
}

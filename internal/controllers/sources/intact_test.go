package sources_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/internal/source/origin"
)

// asked counts what is asked about config maps by themselves.
type asked struct{ dryRuns, reads atomic.Int64 }

func (a *asked) count(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		switch one := strings.Contains(req.URL.Path, "/configmaps/"); {
		case one && req.Method == http.MethodPatch && req.URL.Query().Get("dryRun") != "":
			a.dryRuns.Add(1)
		case one && req.Method == http.MethodGet:
			a.reads.Add(1)
		}
		return next.RoundTrip(req)
	})
}

// TestIntact: a server that begins again asks about no object of which the Source owns what it has written, however many there are; what
// others have changed meanwhile is found, also where they have tried to hide it; and whoever asks for a look has all of it asked about.
func TestIntact(t *testing.T) {
	const count = 20
	r := newRig(t)
	r.allow("fleet")
	files := map[string]*string{}
	for i := range count {
		name := fmt.Sprintf("c%02d", i)
		files[name+".yaml"] = configMap(name, "1")
	}
	commit := r.commit(r.work, files)
	var first asked
	r.wrap = first.count
	r.must(r.Create(t.Context(), r.source("fleet")))
	_, stop := r.keep()
	r.applied("fleet", commit)
	if d, g := first.dryRuns.Load(), first.reads.Load(); d != count || g != 0 {
		t.Errorf("%d new objects took %d dry runs and %d reads, want one dry run each", count, d, g)
	}
	stop()

	again := func(what string, want int64) (stop func()) {
		t.Helper()
		var a asked
		r.wrap = a.count
		writes, looks := r.writes.Load(), r.looks("applied")
		_, stop = r.keep()
		r.eventually(func() string { return unless(r.looks("applied") > looks, "it has not looked") })
		if d, w := a.dryRuns.Load(), r.writes.Load()-writes; d != want || w != want {
			t.Errorf("%s: %d dry runs and %d writes, want %d of each", what, d, w, want)
		}
		return stop
	}
	again("nothing has changed", 0)()

	// Each of these is another way to change what is declared while nobody looks.
	r.alter("c00", func(c *core.ConfigMap) { c.Data["key"] = "by hand" })
	r.alter("c01", func(c *core.ConfigMap) { // the digest of the fields is that of those that stay the Source's
		c.Data["key"] = "hidden"
		from := origin.Of(c.Annotations)
		from.Fields = origin.DigestOfFields([]byte(`{"f:metadata":{"f:labels":{"f:tako.dev/set":{}}}}`))
		c.Annotations[origin.Annotation] = from.String()
	})
	r.alter("c02", func(c *core.ConfigMap) { c.Annotations["theirs"] = "is nobody's business" })
	stop = again("two were changed", 2)
	for _, name := range []string{"c00", "c01"} {
		r.says(name, "1")
	}
	stop()
	again("they are as declared", 0)()

	var a asked
	r.wrap = a.count
	_, stop = r.keep()
	defer stop()
	r.request("fleet", "all of it")
	r.eventually(func() string {
		return unless(a.dryRuns.Load() == count, fmt.Sprintf("a request asks about %d of %d objects", a.dryRuns.Load(), count))
	})
}

// alter changes a config map as somebody else.
func (r *rig) alter(name string, change func(*core.ConfigMap)) {
	r.Helper()
	r.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var c core.ConfigMap
		if err := r.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &c); err != nil {
			return err
		}
		change(&c)
		return r.Update(r.Context(), &c, client.FieldOwner("somebody"))
	}))
}

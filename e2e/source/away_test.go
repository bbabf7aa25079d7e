package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestStartedWhileAway: a server that starts while the repository is away says so, and what was applied stays, is named, and is kept: what
// somebody changes in it is put back. When the repository is back a call of the forge is enough, however long it was away: an hour of that
// is in package schedule.
func TestStartedWhileAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := newRepository(t, f.repositories, "fleet")
	g := newForge(t, f.repositories, "of-the-forge")
	f.Apply(g.secret())
	f.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: hook, namespace: ops}\nstringData: {token: " + hookToken + "}\n")
	f.allow("fleet", "cluster-admin")
	first := r.commit("first", map[string]string{"a.yaml": text("a", "1"), "b.yaml": text("b", "1")})
	spec := fmt.Sprintf("{url: %q, credentials: forge, interval: 24h, webhook: {type: GitHub, secret: hook}}", g.url(r))
	f.look("fleet", spec)
	f.applies("fleet", first)

	g.stop()
	f.Server.Kill()
	f.Server.Start(t)
	f.refuses("fleet", g.address, "stays applied")
	f.is("a", "1")
	path := f.Dir + "/drift.yaml"
	must(t, writeFile(path, text("a", "by hand")))
	f.Tako("apply", "--force-conflicts", "-f", path)
	f.until("fleet", "the change is put back", func(*v1alpha1.Source) bool {
		o := f.object("configmap/a", "prod")
		return o != nil && strings.Contains(fmt.Sprint(o.Object["data"]), "text:1")
	})

	// A declaration that is changed meanwhile counts when somebody can look.
	r.git("rm", "--quiet", "b.yaml")
	second := r.commit("second", map[string]string{"a.yaml": text("a", "2")})
	f.look("fleet", strings.TrimSuffix(spec, "}")+", prune: false}")
	f.refuses("fleet", g.address, "stays applied")
	f.is("a", "1")
	g.start()
	if got := f.call(f.caller(), "ops/fleet", `{"ref": "refs/heads/main"}`, hookToken); got != http.StatusAccepted {
		t.Fatalf("a good call is answered by %d", got)
	}
	f.applies("fleet", second)
	f.is("a", "2")
	f.is("b", "1")
}

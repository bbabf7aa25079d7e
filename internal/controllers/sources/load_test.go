package sources_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
)

// TestLoad measures what the bars of a source are about, and prints it. It takes a minute, and runs where TAKO_LOAD names how many objects
// the large repository has.
func TestLoad(t *testing.T) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("TAKO_LOAD"), &n); err != nil {
		t.Skip("needs TAKO_LOAD, such as 10000")
	}
	for _, count := range []int{100, n} {
		r := newRig(t)
		r.allow("fleet")
		files := map[string]*string{}
		for i := range count {
			files[fmt.Sprintf("d%02d/f%05d.yaml", i%100, i)] = configMap(fmt.Sprintf("f%05d", i), "1")
		}
		first := r.commit(r.work, files)
		began := time.Now()
		r.must(r.Create(t.Context(), r.source("fleet")))
		kept, stop := r.keep()
		ready := func(what, commit string) *v1alpha1.Source {
			t.Helper()
			src := r.appliedIn("fleet", commit, 10*time.Minute)
			t.Logf("%d objects: %s: %s", count, what, time.Since(began).Round(time.Millisecond))
			return src
		}
		ready("first apply", first)
		for i := range count {
			if count == 100 || i == count/2 {
				files[fmt.Sprintf("d%02d/f%05d.yaml", i%100, i)] = configMap(fmt.Sprintf("f%05d", i), "2")
			}
		}
		second := r.commit(r.work, files)
		began = time.Now()
		kept.Call(r.key("fleet"))
		ready(map[bool]string{true: "webhook to all of them changed", false: "webhook to one of them changed"}[count == 100], second)
		began = time.Now()
		looks := r.looks("nothing")
		kept.Call(r.key("fleet"))
		r.eventually(func() string { return unless(r.looks("nothing") > looks, "it has not looked") })
		t.Logf("%d objects: a look that finds nothing new (with its pause of a second): %s", count, time.Since(began).Round(time.Millisecond))
		stop()
		began = time.Now()
		looks = r.looks("applied")
		r.keep()
		r.eventuallyIn(10*time.Minute, func() string { return unless(r.looks("applied") > looks, "it has not looked") })
		t.Logf("%d objects: all planned anew after a restart: %s", count, time.Since(began).Round(time.Millisecond))
	}
}

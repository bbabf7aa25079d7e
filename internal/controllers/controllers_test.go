package controllers_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/controllers"
	"tako.dev/tako/internal/reason"
)

func TestOptionsAreChecked(t *testing.T) {
	for name, options := range map[string]controllers.Options{
		"no way to the API": {},
		"negative":          {Config: restConfig(t), RevisionsKept: -1},
		"too many workers":  {Config: restConfig(t), Workers: 1000},
	} {
		if _, err := controllers.New(options); !reason.Is(err, reason.InternalFault) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who led, lost that and leads again runs the same controllers, and they begin from what is there then.
func TestRunAgain(t *testing.T) {
	r := newRig(t)
	registry := prometheus.NewRegistry()
	r.metrics = registry
	c, err := controllers.New(controllers.Options{Config: restConfig(t), Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	known := func(least float64) {
		t.Helper()
		r.eventually("the objects are known", func() string {
			if n := r.total("tako_controller_gc_objects"); n < least {
				return fmt.Sprintf("%v of %v", n, least)
			}
			return ""
		})
	}
	for i := range 50 {
		r.configMap(r.namespace, fmt.Sprint("before-", i))
	}
	stop := r.start(c)
	known(50)
	stop()
	if n := r.total("tako_controller_gc_objects"); n != 0 {
		t.Errorf("a metric is left: %v", n)
	}
	for i := range 150 {
		r.configMap(r.namespace, fmt.Sprint("after-", i))
	}
	stop = r.start(c)
	known(200)
	stop()
}

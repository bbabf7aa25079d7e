package inbox

import (
	"slices"
	"testing"
)

type thing struct{ name, state string }

func TestInbox(t *testing.T) {
	nudge := make(chan struct{}, 1)
	b := New(nudge, func(obj any) (string, *thing) {
		o := obj.(*thing)
		return o.name, o
	})
	select {
	case <-b.Ready():
		t.Fatal("it is ready before anything was listed")
	default:
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Replace([]any{&thing{"a", "1"}, &thing{"b", "1"}}, ""))
	<-b.Ready()
	<-nudge
	must(b.Update(&thing{"a", "2"}))
	must(b.Update(&thing{"a", "3"}))
	must(b.Add(&thing{"c", "1"}))
	must(b.Delete(&thing{"b", "1"}))
	<-nudge // one for all of them
	got := b.Take()
	if len(got) != 3 || got["a"].state != "3" || got["b"] != nil || got["c"].state != "1" {
		t.Errorf("%v", got)
	}
	if b.Take() != nil {
		t.Error("it is taken twice")
	}
	must(b.Replace([]any{&thing{"c", "2"}}, ""))
	got = b.Take()
	var gone []string
	for name, is := range got {
		if is == nil {
			gone = append(gone, name)
		}
	}
	if !slices.Equal(gone, []string{"a"}) || got["c"].state != "2" {
		t.Errorf("after a gap: %v, gone %v", got, gone)
	}
	if err := b.Resync(); err != nil {
		t.Error(err)
	}
}

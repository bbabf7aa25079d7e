package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func TestTroublesAreBoundedAndPass(t *testing.T) {
	var all Troubles
	now := time.Unix(1e9, 0)
	for i := range 2 * troublesMax {
		all.Happened("try", &reason.Error{Code: reason.DiskFull, Doing: fmt.Sprint("write ", i)}, now)
	}
	if list := all.List(now); len(list) != troublesMax || list[0].Doing != fmt.Sprint("write ", troublesMax) {
		t.Errorf("%d troubles, the oldest is %v", len(list), list[0])
	}
	now = now.Add(troubleTime / 2)
	again := all.Happened("try", &reason.Error{Code: reason.DiskFull, Doing: fmt.Sprint("write ", 2*troublesMax-2)}, now)
	if list := all.List(now); len(list) != troublesMax || list[troublesMax-1] != again {
		t.Errorf("one that came again is not the newest: %v", list[troublesMax-1])
	}
	now = now.Add(troubleTime/2 + time.Second)
	if list := all.List(now); len(list) != 1 || list[0] != again {
		t.Errorf("those that are over are listed: %v", list)
	}
	all.Happened("try", &reason.Error{Code: reason.PermissionDenied, Doing: "write"}, now)
	if list := all.List(now); len(list) != 2 || list[0] != again || len(all.happened) != 2 {
		t.Errorf("those that are over stay: %v", list)
	}
	all.Forget(func(e *reason.Error) bool { return e.Code == reason.DiskFull })
	if list := all.List(now); len(list) != 1 || list[0].Code != reason.PermissionDenied {
		t.Errorf("after one kind is forgotten: %v", list)
	}
}

func TestTroubleWithoutWordsSaysWhatWasDone(t *testing.T) {
	var all Troubles
	for _, err := range []error{errors.New("out of ink"), &reason.Error{Code: reason.DiskFull, Cause: errors.New("out of ink")}} {
		e := all.Happened("save the report", err, time.Now())
		if e.Doing != "save the report" || !strings.Contains(e.Error(), "out of ink") {
			t.Errorf("%v became %q: %v", err, e.Doing, e)
		}
	}
}

// TestWhatStands: it is told once, stays however long it takes, and goes when its cause does.
func TestWhatStands(t *testing.T) {
	var all Troubles
	of := func(names ...string) (errs []error) {
		for _, name := range names {
			errs = append(errs, &reason.Error{Code: reason.OwnFactsMalformed, Doing: "read " + name, Cause: errors.New("line 1")})
		}
		return errs
	}
	for _, c := range []struct {
		stand   []error
		news    string
		changed bool
	}{
		{nil, "", false},
		{of("a", "b"), "read a, read b", true},
		{of("a", "b"), "", false},
		{of("b", "c"), "read c", true},
		{of("c"), "", true},
		{nil, "", true},
		{of("c"), "read c", true},
	} {
		news, changed := all.Stand(c.stand)
		var told []string
		for _, e := range news {
			told = append(told, e.Doing)
		}
		if got := strings.Join(told, ", "); got != c.news || changed != c.changed {
			t.Errorf("%v: told %q, changed %v; want %q, %v", c.stand, got, changed, c.news, c.changed)
		}
		if list := all.List(time.Now().Add(2 * troubleTime)); len(list) != len(c.stand) {
			t.Errorf("%v: listed are %v", c.stand, list)
		}
	}
	var many []string
	for i := range standingMax + 3 {
		many = append(many, fmt.Sprintf("%02d", i))
	}
	all.Stand(of(many...))
	if list := all.List(time.Now()); len(list) != standingMax || list[standingMax-1].Doing != "read 09, and 3 more" {
		t.Errorf("of many %v are listed", list)
	}
	all.Stand(of(many[:standingMax]...))
	if list := all.List(time.Now()); len(list) != standingMax || list[standingMax-1].Doing != "read 09" {
		t.Errorf("of as many as fit %v are listed", list)
	}
}

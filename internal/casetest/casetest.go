// Package casetest makes a case count only when it checked something.
//
// A case is a situation that implementations of this kind typically get wrong, known by an area and a number. A test function
// is bound to one by its name, TestAgentCase13_KillAtAnySystemCall, and begins with Start. What it expects goes through the
// Case, which counts. When the test ends without one check it fails, and so does a sub-test (Sub) that checked nothing.
//
// Where the environment variable TAKO_CASES names a directory, every case adds a Row to the file of its process there;
// ReadRows reads them back. The package starts no goroutine and keeps no state of its own.
package casetest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// pollInterval is how often Eventually looks: short against what a person notices, long against what one look costs.
const pollInterval = 10 * time.Millisecond

var caseName = regexp.MustCompile(`^Test([A-Z][a-z]+)Case([0-9]+)_[A-Z]\w*$`)

// Case is one test function's (or one of its sub-tests') part in a case. Its methods may be called from any goroutine but
// NoError, which like testing.T.FailNow belongs to the test's own.
type Case struct {
	t       testing.TB
	parent  *Case
	checks  atomic.Int64 // of sub-tests too
	skipped atomic.Bool  // it or a sub-test
}

// Start binds the test to the case that its name tells. It comes first in the function, before anything that may skip, because
// what skips earlier leaves no row.
func Start(t testing.TB) *Case {
	t.Helper()
	area, number, err := ParseName(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	c := &Case{t: t}
	t.Cleanup(func() {
		c.end()
		c.record(area, number)
	})
	return c
}

// Sub is the case for a sub-test: what is checked there counts here too, and when the sub-test is skipped, the whole case
// was not done and counts as skipped.
func (c *Case) Sub(t testing.TB) *Case {
	sub := &Case{t: t, parent: c}
	t.Cleanup(sub.end)
	return sub
}

// Check reports a mistake in the words of format unless ok, and goes on. It returns ok.
func (c *Case) Check(ok bool, format string, args ...any) bool {
	c.t.Helper()
	c.count()
	if !ok {
		c.t.Errorf(format, args...)
	}
	return ok
}

// Equal reports a mistake unless got and want are deeply equal, and goes on. It returns whether they are.
func (c *Case) Equal(got, want any, what string) bool {
	c.t.Helper()
	ok := reflect.DeepEqual(got, want)
	return c.Check(ok, "%s:\n got %s\nwant %s", what, show(got), show(want))
}

// NoError ends the test where err is not nil. It is no check: that the ground was laid says nothing about the case.
func (c *Case) NoError(err error, what string) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// Eventually waits until look answers true, and reports a mistake with the last state seen when that has not happened within
// the given time. It is one check, and returns whether it held. Look is called from the calling goroutine only.
func (c *Case) Eventually(within time.Duration, what string, look func() (state string, ok bool)) bool {
	c.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for over := false; ; {
		state, ok := look()
		if ok {
			return c.Check(true, "")
		}
		if over {
			return c.Check(false, "%s: not within %v; last seen: %s", what, within, state)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			over = true // since the last look a machine that is busy may have done nothing for us
		}
	}
}

// ParseName takes apart the name of a test function: TestAgentCase13_KillAtAnySystemCall is of area "agent", number 13.
func ParseName(name string) (area string, number int, err error) {
	if strings.Contains(name, "/") {
		return "", 0, fmt.Errorf("%s is a sub-test: give it c.Sub(t) of the case of its function", name)
	}
	m := caseName.FindStringSubmatch(name)
	if m == nil {
		return "", 0, fmt.Errorf("%s names no case: call it like TestAgentCase13_KillAtAnySystemCall", name)
	}
	if number, err = strconv.Atoi(m[2]); err != nil || number == 0 {
		return "", 0, errors.Join(fmt.Errorf("%s: cases are numbered from 1", name), err)
	}
	return strings.ToLower(m[1]), number, nil
}

func (c *Case) count() {
	for ; c != nil; c = c.parent {
		c.checks.Add(1)
	}
}

// end settles what the test came to, when it and its sub-tests are over.
func (c *Case) end() {
	switch {
	case c.t.Skipped():
		for ; c != nil; c = c.parent {
			c.skipped.Store(true)
		}
	case !c.t.Failed() && c.checks.Load() == 0 && !c.skipped.Load():
		c.t.Errorf("%s checked nothing: what it expects must go through casetest's Check, Equal or Eventually", c.t.Name())
	}
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case error:
		return fmt.Sprintf("%T %q", v, v.Error())
	}
	return fmt.Sprintf("%T %+v", v, v)
}

// Package sample is run by the tests of casetest. Some of its tests fail: they are meant to.
package sample

import (
	"errors"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
)

func TestSampleCase01_Checks(t *testing.T) {
	c := casetest.Start(t)
	c.Check(true, "unseen")
	c.Equal([]int{1}, []int{1}, "lists")
}

func TestSampleCase02_ChecksNothing(t *testing.T) { casetest.Start(t) }

func TestSampleCase03_Skips(t *testing.T) {
	c := casetest.Start(t)
	c.Check(true, "unseen")
	t.Skip("needs a moon")
}

func TestSampleCase04_SubTestsCount(t *testing.T) {
	c := casetest.Start(t)
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Sub(t).Check(true, "unseen")
		})
	}
}

func TestSampleCase05_SubTestChecksNothing(t *testing.T) {
	c := casetest.Start(t)
	c.Check(true, "unseen")
	t.Run("empty", func(t *testing.T) { c.Sub(t) })
}

func TestSampleCase06_SubTestSkips(t *testing.T) {
	c := casetest.Start(t)
	t.Run("done", func(t *testing.T) { c.Sub(t).Check(true, "unseen") })
	t.Run("skipped", func(t *testing.T) {
		c.Sub(t)
		t.Skip("needs a moon")
	})
}

func TestSampleCase07_ErrorsAreNoChecks(t *testing.T) {
	casetest.Start(t).NoError(nil, "lay the ground")
}

func TestSampleCase08_WrongValue(t *testing.T) {
	c := casetest.Start(t)
	if c.Equal("kept", "repaired", "outcome") {
		t.Fatal("Equal held")
	}
}

func TestSampleCase09_Error(t *testing.T) {
	c := casetest.Start(t)
	c.Check(true, "unseen")
	c.NoError(errors.New("no ground"), "lay the ground")
}

func TestSampleCase10_NeverHappens(t *testing.T) {
	casetest.Start(t).Eventually(time.Millisecond, "the moon", func() (string, bool) { return "no moon", false })
}

func TestSampleCase11_Happens(t *testing.T) {
	looks := 0
	casetest.Start(t).Eventually(time.Minute, "the moon", func() (string, bool) {
		looks++
		return "no moon", looks == 3
	})
}

func TestSampleMisnamed(t *testing.T) { casetest.Start(t) }

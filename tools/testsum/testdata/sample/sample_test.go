// Package sample is run by the tests of testsum. Some of its tests fail: they are meant to.
package sample

import "testing"

func TestPasses(t *testing.T) {
	t.Log("unwanted output")
}

func TestSkips(t *testing.T) {
	if true {
		t.Skip("needs a moon")
	}
}

func TestParent(t *testing.T) {
	t.Run("passes", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short")
		}
	})
	t.Run("skips", func(t *testing.T) { t.Skip("needs a sun") })
}

func TestFails(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b", func(t *testing.T) { t.Error("this went wrong") })
}

func TestDies(t *testing.T) { panic("it dies") }

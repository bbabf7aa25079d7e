package main

import "testing"

func TestRegistryRate(t *testing.T) {
	const said = "goos: linux\nBenchmarkCreate-2   \t   21390\t     95432 ns/op\t     10478 creates/s\nPASS\n"
	if m := registryRate.FindStringSubmatch(said); m == nil || m[1] != "10478" {
		t.Errorf("%q", m)
	}
}

package oci_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/runtest"
)

func apart(t *testing.T) bool {
	t.Helper()
	needRunc(t)
	return runtest.Apart(t)
}

// networkSubject is a runtime whose networks are looked at in the end.
func networkSubject(t *testing.T) runtest.Subject {
	t.Helper()
	s := subject(t)
	s.Open = func(dir string) (run.Runtime, func() error, error) {
		rt, done, err := open(dir)
		return rt, func() error {
			err := done()
			noNetworks(t, dir, dir+"-networks")
			return err
		}, err
	}
	return s
}

// runs reports whether there is an attempt of an instance that has not ended.
func runs(t *testing.T, dir, instance string) bool {
	t.Helper()
	begun, err := filepath.Glob(filepath.Join(dir, "status", instance+".*.begun"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(begun, func(name string) bool {
		_, err := os.Lstat(strings.TrimSuffix(name, ".begun") + ".ended")
		return err != nil
	})
}

// noNetworks looks for what networks are made of, of instances of which nothing runs: for their records, and where nothing at all runs for the rest.
func noNetworks(t *testing.T, runtime, dir string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range records {
		if instance := strings.TrimSuffix(filepath.Base(name), ".json"); !runs(t, runtime, instance) {
			t.Errorf("instance %s runs no more, and its network is still noted", instance)
		}
	}
	if len(records) > 0 {
		return
	}
	for _, pattern := range []string{"*", "addresses/tako/[0-9]*"} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(left) > 0 && strings.Join(left, "") != filepath.Join(dir, "addresses") {
			t.Errorf("files of networks are left: %q (%v)", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("namespaces are pinned (%v):\n%s", err, mounts)
	}
	for _, table := range []string{"nat", "filter"} {
		rules, err := exec.CommandContext(context.WithoutCancel(t.Context()), "iptables", "-t", table, "-S").CombinedOutput()
		if err != nil || strings.Contains(string(rules), "10.213.") {
			t.Errorf("rules are left (%v):\n%s", err, rules)
		}
	}
	links, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "-o", "link").CombinedOutput()
	if err != nil || strings.Contains(string(links), "veth") {
		t.Errorf("interfaces are left (%v):\n%s", err, links)
	}
}

func TestOwnNetworks(t *testing.T) {
	if apart(t) {
		runtest.OwnNetworks(t, networkSubject(t), 20_000)
	}
}

// An agent that is killed while it makes a network leaves nothing of it that the next one does not use or take away.
func TestWorkloadCase62_KilledWhileItMakesANetwork(t *testing.T) {
	c := casetest.Start(t)
	if !apart(t) {
		c.Check(!t.Failed(), "it fails in a network of its own")
		return
	}
	s := networkSubject(t)
	s.Calls = []string{"clone", "clone3", "vfork", "fsync", "renameat"} // the others are tried without a network
	dress := s.Dress
	s.Dress = func(task *run.Task, directories []string) {
		dress(task, directories)
		task.OwnNetwork = true
		task.Ports = []run.PortMap{{Protocol: workload.TCP, Host: 20_000, Own: 80}}
	}
	runtest.KilledWhileItStarts(t, c, s)
}

package clock

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ringing runs an alarm for a test.
func ringing(t *testing.T) *Alarm {
	t.Helper()
	a, err := NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func rings(t *testing.T, a *Alarm) {
	t.Helper()
	select {
	case <-a.Rings():
	case <-time.After(time.Minute):
		t.Fatal("does not ring")
	}
}

func TestAlarm(t *testing.T) {
	a := ringing(t)
	for _, at := range []time.Time{time.Now().Add(50 * time.Millisecond), time.Now().Add(-time.Hour), time.Unix(0, 0), time.Unix(-5, 0)} {
		if err := a.Set(at); err != nil {
			t.Fatal(err)
		}
		rings(t, a)
		if now := time.Now(); now.Before(at) {
			t.Errorf("rings at %v, was set to %v", now, at)
		}
	}
}

// What was set before does not ring any more.
func TestAlarmIsSetAnew(t *testing.T) {
	var a *Alarm
	var first time.Time
	for late := true; late; late = !time.Now().Before(first) { // a machine that is busy may have let the first one ring
		a, first = ringing(t), time.Now().Add(time.Second)
		for _, at := range []time.Time{first, time.Now().Add(time.Hour)} {
			if err := a.Set(at); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-a.Rings():
		t.Error("rings")
	case <-time.After(time.Until(first) + 100*time.Millisecond):
	}
	if err := a.Set(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// The zone is what the host's file says now.
func TestZone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "localtime")
	z := Zone{path: file}
	if name := zoneOf(&z); name != "UTC" {
		t.Errorf("without a file: %s", name)
	}
	for _, c := range []struct{ name, short string }{{"Asia/Tokyo", "JST"}, {"America/Phoenix", "MST"}} {
		data, err := os.ReadFile(filepath.Join("/usr/share/zoneinfo", c.name))
		if err != nil {
			t.Skip("needs tzdata")
		}
		next := file + ".new"
		if err := os.WriteFile(next, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		if name := zoneOf(&z); name != c.short {
			t.Errorf("%s: %s", c.name, name)
		}
		if x, y := z.Now(), z.Now(); x.Location() != y.Location() {
			t.Error("the zone is another one each time")
		}
	}
	if err := os.WriteFile(file, []byte("no zone"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name := zoneOf(&z); name != "UTC" {
		t.Errorf("with nonsense: %s", name)
	}
}

func zoneOf(z *Zone) string {
	name, _ := z.Now().Zone()
	return name
}

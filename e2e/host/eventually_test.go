package host

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fatalRecorder is a test that remembers why it failed.
type fatalRecorder struct {
	testing.TB
	message string
}

func (r *fatalRecorder) Helper() {}

func (r *fatalRecorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestEventually(t *testing.T) {
	for _, test := range []struct {
		name    string
		trueAt  int // the number of the look that sees the state
		failure string
	}{
		{"at once", 1, ""},
		{"later", 30, ""},
		{"too late", 60, "wait for a state: not so after 1s; last seen: look 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := &fatalRecorder{TB: t}
				looks := 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					Eventually(recorder, time.Second, "a state", func() (string, bool) {
						looks++
						return fmt.Sprintf("look %d", looks), looks == test.trueAt
					})
				}()
				<-done
				if test.failure == "" && (recorder.message != "" || looks != test.trueAt) {
					t.Errorf("%d looks, failure %q; want %d and none", looks, recorder.message, test.trueAt)
				}
				if !strings.HasPrefix(recorder.message, test.failure) {
					t.Errorf("failure %q, want %q", recorder.message, test.failure)
				}
			})
		})
	}
}

func TestPollPause(t *testing.T) {
	for _, test := range []struct{ waited, look, want time.Duration }{
		{0, time.Millisecond, pollInterval},
		{300 * time.Millisecond, time.Millisecond, pollInterval},
		{10 * time.Second, 5 * time.Millisecond, 500 * time.Millisecond},
		{time.Second, 200 * time.Millisecond, 400 * time.Millisecond}, // two thirds of the time are not ours
		{time.Hour, time.Minute, pollMax},
	} {
		if got := pollPause(test.waited, test.look); got != test.want {
			t.Errorf("after %v, of which the last look took %v: %v, want %v", test.waited, test.look, got, test.want)
		}
	}
}

func TestIsNamespaceInit(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tsystemd\nNSpid:\t4711\t12\t1\n": true,
		"Name:\tsystemd\nNSpid:\t4711\t12\n":    false,
		"Name:\tinit\nNSpid:\t1\n":              false, // this machine's own
		"Name:\told kernel\n":                   false,
		"":                                      false,
	} {
		if got := isNamespaceInit(status); got != want {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
}

func TestDebControl(t *testing.T) {
	deb := Deb{Name: "odd", Version: "1.0", Fields: map[string]string{"Depends": "tree", "Architecture": "all"}}
	want := "Architecture: all\nDepends: tree\nDescription: a package of a test\nMaintainer: lab <lab@localhost>\nPackage: odd\nVersion: 1.0\n"
	if got := deb.control(); got != want {
		t.Errorf("control file %q, want %q", got, want)
	}
}

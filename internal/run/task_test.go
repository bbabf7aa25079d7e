package run

import (
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestID(t *testing.T) {
	id := ID{Instance: "3f0c-9", Task: "web-1", Attempt: 12}
	if back, err := ParseID(id.String()); err != nil || back != id {
		t.Errorf("%s came back as %v (%v)", id, back, err)
	}
	for _, text := range []string{"", "a.b", "a.b.0", "a.b.01", "a.b.-1", "A.b.1", "../x.b.1", "a.b.1.2", "a..1", "-a.b.1", strings.Repeat("a", 65) + ".b.1"} {
		if id, err := ParseID(text); !reason.Is(err, reason.TaskRefused) {
			t.Errorf("%q is taken for %v (%v)", text, id, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("a.b.1")
	f.Add("a.b.4294967296")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := ParseID(text); err == nil && (id.String() != text || id.Valid() != nil || strings.ContainsAny(text, "/\x00 ")) {
			t.Errorf("%q is taken for %+v", text, id)
		}
	})
}

func TestValid(t *testing.T) {
	good := func() Task {
		return Task{ID: ID{"i", "t", 1}, Command: []string{"/bin/true"}, Env: []string{"A=secret"}, Dir: "/"}
	}
	if task := good(); task.Valid() != nil {
		t.Fatal(task.Valid())
	}
	for what, spoil := range map[string]func(*Task){
		"no command": func(t *Task) { t.Command = nil }, "a relative program": func(t *Task) { t.Command = []string{"true"} },
		"a zero byte": func(t *Task) { t.Command = append(t.Command, "a\x00secret") }, "no name": func(t *Task) { t.Env = []string{"=secret"} },
		"no =": func(t *Task) { t.Env = []string{"secret"} }, "a relative directory": func(t *Task) { t.Dir = "x" },
		"a negative limit": func(t *Task) { t.Limits.Memory = -1 }, "a negative log": func(t *Task) { t.Log.Files = -1 },
		"too many arguments": func(t *Task) { t.Command = append(t.Command, make([]string, ArgsMax)...) },
		"too much":           func(t *Task) { t.Env = []string{"A=" + strings.Repeat("secret", StartBytes/6)} },
		"a relative mount":   func(t *Task) { t.Mounts = []Mount{{Source: "/a", Path: "b"}} },
		"a large file":       func(t *Task) { t.Files = []File{{Path: "/a", Content: make([]byte, FileBytes+1)}} },
		"attempt 0":          func(t *Task) { t.ID.Attempt = 0 },
	} {
		task := good()
		spoil(&task)
		if err := task.Valid(); !reason.Is(err, reason.TaskRefused) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %.200v", what, err)
		}
	}
}

func TestMoment(t *testing.T) {
	if m := Moment(1<<63 - 10).Add(100); m != 1<<63-1 {
		t.Errorf("it overflows to %d", m)
	}
	if s, err := ParseSignal("SIGTERM"); err != nil || s != 15 || s.String() != "SIGTERM" {
		t.Errorf("%v (%v)", s, err)
	}
	if _, err := ParseSignal("SIGNOTHING"); !reason.Is(err, reason.TaskRefused) {
		t.Errorf("%v", err)
	}
}

func TestTailLines(t *testing.T) {
	lines := []Line{{Text: []byte("aaaa")}, {Text: []byte("bb")}, {Text: []byte("c"), Stderr: true}}
	if got := TailLines(lines, 5); len(got) != 2 || string(got[0].Text) != "bb" {
		t.Errorf("%v", got)
	}
	if got := TailLines(lines, 0); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := string(Text(lines, false)); got != "aaaa\nbb\n" {
		t.Errorf("%q", got)
	}
}

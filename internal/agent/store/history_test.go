package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func titles(t *testing.T, s *Store, subject string, limit int) string {
	t.Helper()
	list, err := s.History(Asked{Subject: subject, Limit: limit})
	must(t, err)
	var names []string
	for _, h := range list {
		names = append(names, h.Title)
	}
	return strings.Join(names, " ")
}

func TestHistory(t *testing.T) {
	s := open(t, t.TempDir())
	first := Happening{At: noon.Add(123456789), Claim: "path:/etc/motd", Title: "file/motd", Config: "NodeConfig/base", Outcome: "repaired", Detail: "drift",
		Code: "TK0520", Message: "m", Evidence: "e\xff", Cause: "event", Writer: "vi (12)", Changes: []string{"mode 0666 -> 0644", "content"}, Took: 1500}
	must(t, s.Append(first))
	must(t, s.Append(Happening{At: noon, Claim: "unit:nginx.service", Title: "service/nginx"}))
	must(t, s.Append(Happening{At: noon.Add(-time.Hour), Claim: "package:nginx", Title: "package/nginx"}))
	for range 2 {
		for _, c := range []struct {
			subject string
			limit   int
			want    string
		}{
			{"", 0, "package/nginx service/nginx file/motd"}, {"", 2, "package/nginx service/nginx"}, {"", 9, "package/nginx service/nginx file/motd"},
			{"nginx", 0, "package/nginx service/nginx"}, {"nginx", 1, "package/nginx"}, {"nginx.service", 0, "service/nginx"},
			{"path:/etc/motd", 0, "file/motd"}, {"/etc/motd", 0, "file/motd"}, {"motd", 0, "file/motd"}, {"file/motd", 0, "file/motd"}, {"mot", 0, ""},
		} {
			if got := titles(t, s, c.subject, c.limit); got != c.want {
				t.Errorf("history of %q, %d: %q, want %q", c.subject, c.limit, got, c.want)
			}
		}
		got, err := s.History(Asked{Subject: "motd", Limit: 1})
		must(t, err)
		if !got[0].At.Equal(first.At) {
			t.Errorf("at %v, want %v", got[0].At, first.At)
		}
		got[0].At = first.At
		if !reflect.DeepEqual(got[0], first) {
			t.Errorf("got %+v, want %+v", got[0], first)
		}
		s = reopen(t, s)
	}
	checkCode(t, s.Append(Happening{Evidence: strings.Repeat("x", happeningMax)}), reason.BodyTooLarge)
}

func segmentFiles(t *testing.T, s *Store) (names []string, size int64) {
	t.Helper()
	list, err := os.ReadDir(s.history.dir)
	must(t, err)
	for _, e := range list {
		info, err := e.Info()
		must(t, err)
		names, size = append(names, e.Name()), size+info.Size()
	}
	return names, size
}

// TestHistoryIsBounded writes 20 MiB.
func TestHistoryIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	evidence := strings.Repeat("x", 32<<10)
	const total = 20 << 20 / (32 << 10)
	for i := range total {
		must(t, s.Append(Happening{At: noon, Title: fmt.Sprint("file/", i), Evidence: evidence}))
		if i%100 == 0 {
			s = reopen(t, s)
		}
	}
	names, size := segmentFiles(t, s)
	if size > historyBytesMax || size < historyBytesMax-2*segmentBytesMax {
		t.Errorf("%d bytes in %v", size, names)
	}
	list, err := s.History(Asked{})
	must(t, err)
	for i, h := range list {
		if want := fmt.Sprint("file/", total-1-i); h.Title != want {
			t.Fatalf("%d: %s, want %s", i, h.Title, want)
		}
	}
	if got := titles(t, s, "", 3); got != fmt.Sprintf("file/%d file/%d file/%d", total-1, total-2, total-3) {
		t.Errorf("the last three: %s", got)
	}
}

func TestHistoryOfAWeek(t *testing.T) {
	s := open(t, t.TempDir())
	at := noon
	for hour := range 24 * 20 {
		at = noon.Add(time.Duration(hour) * time.Hour)
		must(t, s.Append(Happening{At: at, Title: "file/x"}))
	}
	list, err := s.History(Asked{})
	must(t, err)
	oldest := at.Sub(list[len(list)-1].At)
	if oldest < historyAge || oldest > historyAge+2*segmentAge {
		t.Errorf("the oldest is %v old", oldest)
	}
	// A clock that leaps takes nothing but what is old by it, and stops nothing.
	must(t, s.Append(Happening{At: noon.AddDate(-20, 0, 0), Title: "file/past"}))
	must(t, s.Append(Happening{At: noon.AddDate(20, 0, 0), Title: "file/future"}))
	must(t, s.Append(Happening{At: noon, Title: "file/now"}))
	if got := titles(t, s, "", 2); got != "file/now file/future" {
		t.Errorf("after leaps of the clock: %s", got)
	}
}

func TestHistoryAfterDamage(t *testing.T) {
	for what, damage := range map[string]func(t *testing.T, path string, size int64){
		"torn":     func(t *testing.T, path string, size int64) { must(t, os.Truncate(path, size-3)) },
		"zeros":    func(t *testing.T, path string, size int64) { must(t, os.Truncate(path, size+100)) },
		"headless": func(t *testing.T, path string, size int64) { must(t, os.WriteFile(path, []byte("?"), 0o600)) },
		"empty":    func(t *testing.T, path string, size int64) { must(t, os.Truncate(path, 0)) },
		"a directory": func(t *testing.T, path string, size int64) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		},
		"deleted": func(t *testing.T, path string, size int64) { must(t, os.Remove(path)) },
	} {
		t.Run(what, func(t *testing.T) {
			s := open(t, t.TempDir())
			must(t, s.Append(Happening{At: noon, Title: "file/1"}))
			must(t, s.Append(Happening{At: noon, Title: "file/2"}))
			must(t, s.Close())
			path := filepath.Join(s.history.dir, segmentName(1))
			info, err := os.Stat(path)
			must(t, err)
			damage(t, path, info.Size())
			s = open(t, s.dir)
			must(t, s.Append(Happening{At: noon, Title: "file/3"}))
			must(t, s.Append(Happening{At: noon, Title: "file/4"}))
			want := map[string]string{"torn": "file/4 file/3 file/1", "zeros": "file/4 file/3 file/2 file/1"}[what]
			if want == "" {
				want = "file/4 file/3"
			}
			if got := titles(t, s, "", 0); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestHistoryDeletedWhileRunning(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.Append(Happening{At: noon, Title: "file/1"}))
	must(t, os.RemoveAll(s.history.dir))
	must(t, s.Append(Happening{At: noon, Title: "file/2"}))
	if got := titles(t, s, "", 0); got != "file/2" {
		t.Errorf("got %s", got)
	}
}

// TestHistoryAsked: what is asked for is found whatever segment it is in, also where the clock has leapt back.
func TestHistoryAsked(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 10 {
		must(t, s.Append(Happening{At: noon.Add(time.Duration(i) * time.Hour), Title: fmt.Sprint("file/", i), Message: strings.Repeat("m", 1000)}))
		if i == 4 {
			must(t, s.Append(Happening{At: noon.Add(-time.Hour), Title: "file/past"}))
			s = reopen(t, s)
		}
	}
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	for _, c := range []struct {
		asked Asked
		want  string
	}{
		{Asked{Since: at(8)}, "file/9 file/8"},
		{Asked{Until: at(0)}, "file/past file/0"},
		{Asked{Since: at(2), Until: at(4)}, "file/4 file/3 file/2"},
		{Asked{Since: at(2), Until: at(4), Limit: 2}, "file/4 file/3"},
		{Asked{Subject: "file/3", Since: at(4)}, ""},
		{Asked{Since: at(3), Bytes: 3000}, "file/9 file/8"},
		{Asked{Since: at(3), Bytes: 1}, "file/9"},
		{Asked{Since: at(3), Until: at(1)}, ""},
	} {
		list, err := s.History(c.asked)
		must(t, err)
		var names []string
		for _, h := range list {
			names = append(names, h.Title)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.asked, got, c.want)
		}
	}
}

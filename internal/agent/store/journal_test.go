package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// TestCompaction writes far more than is alive: the file stays small, and what is alive stays.
func TestCompaction(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.SetOriginal(motd, []byte("kept")))
	must(t, s.Record([]converge.Record{added(1, nginx, nginxCfg)}, noon, moment(1)))
	must(t, s.AddRemovals([]Removal{{Claim: path("/gone"), Since: noon}}))
	var largest, written int64
	for i := range 10_000 {
		size := s.journal.size
		must(t, s.Record([]converge.Record{{Kind: converge.BudgetSpent, Target: motd, Budget: converge.Budget{Attempts: i}}}, noon, moment(2)))
		largest = max(largest, s.journal.size)
		written += max(s.journal.size-size, 0)
	}
	if largest > 2*journalMin || written < 2*journalMin {
		t.Errorf("%d bytes written, the file had up to %d", written, largest)
	}
	for range 2 {
		checkPending(t, s, 1)
		original, _ := s.Original(motd)
		_, budgets := s.Resume(noon)
		if string(original) != "kept" || budgets[motd].Attempts != 9_999 || len(pendingRemovals(t, s)) != 1 {
			t.Errorf("original %q, budgets %v, removals %v", original, budgets, pendingRemovals(t, s))
		}
		s = reopen(t, s)
	}
}

// TestJournalThatIsAlive is not written anew as long as most of it counts.
func TestJournalThatIsAlive(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 10 {
		before := s.journal.info
		must(t, s.SetOriginal(converge.Key(fmt.Sprintf("path:/%d", i)), bytes.Repeat([]byte{byte(i)}, journalMin/4)))
		if !os.SameFile(before, s.journal.info) {
			t.Errorf("it was written anew after %d originals", i+1)
		}
	}
}

// TestDamageInTheMiddle loses one frame of a journal and nothing behind it.
func TestDamageInTheMiddle(t *testing.T) {
	s := open(t, t.TempDir())
	var starts []int64
	for seq := range uint64(4) {
		starts = append(starts, s.journal.size)
		must(t, s.Record([]converge.Record{added(seq, nginx, nginxCfg)}, noon, moment(seq)))
	}
	_, err := s.journal.file.WriteAt([]byte{0xff}, starts[1]+frameHead+3)
	must(t, err)
	s = reopen(t, s)
	checkPending(t, s, 0, 2, 3)
	if len(s.Troubles()) != 1 || !strings.Contains(s.Troubles()[0].Error(), "damaged frames: 1") {
		t.Errorf("troubles %v", s.Troubles())
	}
}

// TestSetAsideLeavesTheJournal: a crash before a good one replaces it must not lose it.
func TestSetAsideLeavesTheJournal(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{journalName, activeName} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		kept, err := setAside(dir, name, name == journalName, noon)
		must(t, err)
		b, err := os.ReadFile(kept)
		if string(b) != name || err != nil {
			t.Errorf("%s was set aside as %q, %v", name, b, err)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != (name == journalName) {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

func TestFrames(t *testing.T) {
	for _, payload := range []string{"", "x", strings.Repeat("long", 10_000)} {
		frame := appendRaw(nil, []byte(payload))
		if got, rest, ok := cutFrame(frame); !ok || string(got) != payload || len(rest) > 0 {
			t.Errorf("a frame of %d bytes reads as %d bytes, %v", len(payload), len(got), ok)
		}
		if got, rest, ok := cutFrame(append(frame, 7)); !ok || string(got) != payload || string(rest) != "\x07" {
			t.Errorf("a frame of %d bytes and a byte more reads as %d and %d bytes, %v", len(payload), len(got), len(rest), ok)
		}
		if _, _, ok := cutFrame(frame[:len(frame)-1]); ok {
			t.Error("a frame without its last byte is taken for a frame")
		}
	}
	file := append(header(journalName), make([]byte, 64)...)
	taken := 0
	err := scanFile(bytes.NewReader(file), int64(len(file)), journalName, func([]byte, int64) error {
		taken++
		return nil
	})
	if want := (damage{0, 64, int64(len(file))}); taken > 0 || err != want {
		t.Errorf("zeros: %d frames, %v, want %v", taken, err, want)
	}
}

func TestSince(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.Record([]converge.Record{added(1, nginx, nginxCfg), added(2, nginx, motd), added(3, motd, nginxCfg)}, noon, moment(100)))
	must(t, s.Confirm(nginxCfg, moment(200)))
	must(t, s.Confirm(nginxCfg, moment(900))) // of a later change that notifies nobody
	must(t, s.Confirm("path:/stranger", moment(900)))
	for _, c := range []struct {
		target converge.Key
		upto   uint64
		want   host.Stamp
	}{
		{nginx, 0, host.Stamp{}}, {nginx, 1, moment(200)}, {nginx, 2, moment(200)}, {motd, 9, moment(200)}, {"path:/stranger", 9, host.Stamp{}},
	} {
		if got := s.Since(c.target, c.upto); got != c.want {
			t.Errorf("since(%s, %d) = %v, want %v", c.target, c.upto, got, c.want)
		}
	}
	must(t, s.Record([]converge.Record{cleared(1, nginx)}, noon, moment(300)))
	if got := s.Since(nginx, 2); got != moment(100) {
		t.Errorf("what was never confirmed counts from %v", got)
	}
	must(t, s.Close())

	s = openOn(t, s.dir, moment(5000))
	if got := s.Since(nginx, 2); got != moment(5000) {
		t.Errorf("what a crash left unconfirmed counts from %v, want the start", got)
	}
	must(t, s.Confirm(motd, moment(5500)))
	must(t, s.Close())
	s = openOn(t, s.dir, moment(6000))
	if got := s.Since(nginx, 2); got != moment(5000) {
		t.Errorf("after another start it counts from %v, want the first", got)
	}
	must(t, s.Record([]converge.Record{added(4, nginx, nginxCfg)}, noon, moment(6100)))
	must(t, s.Close())

	second := func(usec uint64) host.Stamp { return host.Stamp{Boot: "second", USec: usec} }
	s = openOn(t, s.dir, second(10))
	if got := s.Since(nginx, 4); got.Boot != "first" {
		t.Errorf("in a later boot it counts from %v, want a moment of the first", got)
	}
	must(t, s.Record([]converge.Record{added(5, nginx, nginxCfg)}, noon, second(20)))
	must(t, s.Confirm(nginxCfg, second(30)))
	if got := s.Since(nginx, 5); got != second(30) {
		t.Errorf("with a change in this boot it counts from %v", got)
	}
	checkPending(t, s, 2, 3, 4, 5)
}

func TestBudgetsOverTime(t *testing.T) {
	s := open(t, t.TempDir())
	failure := &reason.Error{Code: reason.CheckRejected, Doing: "check /etc/motd", Cause: errors.New("line 3"), Hint: "mend it", Evidence: "bad\n"}
	spent := converge.Budget{Digest: converge.Digest{5}, Attempts: 3, Holds: 1, Wait: time.Minute, Failure: failure, Since: noon.Add(-time.Hour)}
	must(t, s.Record([]converge.Record{{Kind: converge.BudgetSpent, Target: motd, Budget: spent}}, noon, moment(1)))
	for _, c := range []struct{ elapsed, want time.Duration }{
		{0, time.Minute}, {20 * time.Second, 40 * time.Second}, {time.Minute, 0}, {20 * 365 * 24 * time.Hour, 0}, {-20 * 365 * 24 * time.Hour, time.Minute},
	} {
		_, budgets := s.Resume(noon.Add(c.elapsed))
		want := spent
		want.Failure = &reason.Error{Code: failure.Code, Doing: failure.Doing} // the words of others may be a secret
		want.Wait = c.want
		got := budgets[motd]
		if !got.Since.Equal(want.Since) || !reflect.DeepEqual(got.Failure, want.Failure) {
			t.Errorf("after %v: failed with %#v since %v", c.elapsed, got.Failure, got.Since)
		}
		got.Failure, got.Since = want.Failure, want.Since
		if got != want {
			t.Errorf("after %v: %+v, want %+v", c.elapsed, got, want)
		}
	}
}

func removalIDs(t testing.TB, s *Store) string {
	t.Helper()
	var ids []string
	for _, r := range pendingRemovals(t, s) {
		ids = append(ids, r.Claim.ID)
	}
	return strings.Join(ids, " ")
}

func TestRemovals(t *testing.T) {
	s := open(t, t.TempDir())
	state := []Entry{{Claim: path("/a"), Body: []byte("a")}, {Claim: path("/b")}, {Claim: path("/c")}}
	must(t, s.SetActive(converge.Digest{1}, state))
	leaving := func(ids ...string) (rs []Removal) {
		for _, id := range ids {
			rs = append(rs, Removal{Claim: path(id), Title: "file" + id, Config: "NodeConfig/x", Digest: converge.Digest{7}, OnRemove: declare.OnRemoveDelete,
				Body: []byte(id), After: []declare.Claim{path("/")}, Since: noon})
		}
		return rs
	}
	check := func(when, want string) {
		t.Helper()
		if got := removalIDs(t, s); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	must(t, s.AddRemovals(leaving("/c", "/a")))
	check("before the swap", "")
	s = reopen(t, s)
	check("after a crash before the swap", "")
	must(t, s.SetActive(converge.Digest{2}, state[1:2]))
	check("after a swap that they were not announced for", "")

	must(t, s.SetActive(converge.Digest{1}, state))
	must(t, s.AddRemovals(leaving("/c", "/a")))
	must(t, s.SetActive(converge.Digest{2}, state[1:2]))
	check("after the swap", "/c /a")
	s = reopen(t, s)
	check("after a restart", "/c /a")
	if got, want := pendingRemovals(t, s)[1], leaving("/a")[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	must(t, s.AddRemovals(leaving("/b")))
	must(t, s.SetActive(converge.Digest{3}, state[2:]))
	check("when somebody declares one again", "/a /b")
	must(t, s.VoidRemovals(func(c declare.Claim) bool { return c.ID == "/c" }))
	must(t, s.RemovalDone(path("/a")))
	must(t, s.RemovalDone(path("/never")))
	must(t, s.SetActive(converge.Digest{4}, nil))
	check("in the end", "/b")
	s = reopen(t, s)
	check("in the end, after a restart", "/b")
}

// TestWhatConcernsNobodyIsForgotten sets a state without resources that something is known of.
func TestWhatConcernsNobodyIsForgotten(t *testing.T) {
	s := open(t, t.TempDir())
	stays, leaves, removed := path("/stays"), path("/leaves"), path("/removed")
	must(t, s.SetActive(converge.Digest{1}, []Entry{{Claim: stays}, {Claim: leaves}, {Claim: removed}}))
	for i, c := range []declare.Claim{stays, leaves, removed} {
		must(t, s.SetOriginal(key(c), []byte("was")))
		must(t, s.Record([]converge.Record{added(uint64(i), key(c), "path:/source"), {Kind: converge.BudgetSpent, Target: key(c)}}, noon, moment(1)))
	}
	must(t, s.AddRemovals([]Removal{{Claim: removed}}))
	must(t, s.SetActive(converge.Digest{2}, []Entry{{Claim: stays}}))
	for range 2 {
		checkPending(t, s, 0, 2)
		_, budgets := s.Resume(noon)
		for c, want := range map[declare.Claim]bool{stays: true, leaves: false, removed: true} {
			_, original := s.Original(key(c))
			_, budget := budgets[key(c)]
			if original != want || budget != want {
				t.Errorf("%v: original %v, budget %v, want %v", c, original, budget, want)
			}
		}
		s = reopen(t, s)
	}
	must(t, s.DropOriginal(key(removed)))
	s = reopen(t, s)
	if _, ok := s.Original(key(removed)); ok {
		t.Error("an original that was dropped is back")
	}
}

// TestEventsThatMakeNoSense have good checksums; they are passed over and told of.
func TestEventsThatMakeNoSense(t *testing.T) {
	for what, payload := range map[string][]byte{
		"a kind of its own":         appendFrame(nil, map[int]int{1: 99})[frameHead:],
		"no notification":           appendFrame(nil, event{Kind: notificationAdded})[frameHead:],
		"no claim":                  appendFrame(nil, event{Kind: removalOver, Key: "nonsense"})[frameHead:],
		"no CBOR":                   []byte("\xff\xff"),
		"nothing":                   nil,
		"a field that nobody knows": appendFrame(nil, map[int]int{1: int(originalDropped), 77: 1})[frameHead:],
	} {
		s := open(t, t.TempDir())
		must(t, s.Record([]converge.Record{added(1, nginx, nginxCfg)}, noon, moment(1)))
		must(t, appendAt(s.journal.file, appendRaw(nil, payload), s.journal.size))
		must(t, s.Close())
		looked, err := Inspect(s.dir)
		must(t, err)
		s = open(t, s.dir)
		for _, s := range []*Store{looked, s} {
			checkPending(t, s, 1)
			if troubled(s) != "TK0802 journal" {
				t.Errorf("%s: troubles %v", what, s.Troubles())
			}
		}
		must(t, looked.Close())
		s = reopen(t, s)
		checkPending(t, s, 1)
		if len(s.Troubles()) > 0 {
			t.Errorf("%s: troubles after a restart: %v", what, s.Troubles())
		}
	}
}

// TestInspectOfATornJournal looks while the agent is writing.
func TestInspectOfATornJournal(t *testing.T) {
	s := open(t, t.TempDir())
	furnish(t, s)
	must(t, appendAt(s.journal.file, []byte("\x20\x00\x00\x00half"), s.journal.size))
	if err := lookAround(s.dir); err != nil {
		t.Error(err)
	}
}

// TestWhatIsNotDamage must end the opening, so that a good file is not set aside for it.
func TestWhatIsNotDamage(t *testing.T) {
	for _, c := range []struct {
		err  error
		want reason.Code
	}{
		{nil, 0}, {errNoHeader, 0}, {damage{1, 0, 10}, 0}, {errIncomplete, 0}, {os.ErrNotExist, 0},
		{&os.PathError{Err: unix.ENOENT}, 0}, {&os.PathError{Err: unix.EIO}, 0}, {&reason.Error{Code: reason.TypeInTheWay}, 0},
		{&os.PathError{Err: unix.EMFILE}, reason.SystemCallFailed}, {unix.ENOMEM, reason.SystemCallFailed},
		{&reason.Error{Code: reason.PermissionDenied, Cause: unix.EACCES}, reason.PermissionDenied}, {newerError{2}, reason.StateNewer},
	} {
		err := unjudged("/state/journal", c.err)
		if c.want == 0 && err != nil || c.want != 0 && !reason.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.err, err, c.want)
		}
	}
}

// TestFactsThatCouldNotBeWritten reach the disk with the next state, and with Close.
func TestFactsThatCouldNotBeWritten(t *testing.T) {
	for what, next := range map[string]func(s *Store) error{
		"set a state": func(s *Store) error { return s.SetActive(converge.Digest{2}, []Entry{{Claim: path("/etc/motd")}}) },
		"close":       (*Store).Close,
		"record": func(s *Store) error {
			return s.Record([]converge.Record{{Kind: converge.BudgetCleared, Target: motd}}, noon, moment(1))
		},
	} {
		s := open(t, t.TempDir())
		must(t, s.AddRemovals([]Removal{{Claim: path("/gone")}}))
		must(t, s.SetOriginal(motd, []byte("was")))
		writable := s.journal.file
		readOnly, err := os.Open(s.path(journalName))
		must(t, err)
		s.journal.file = readOnly
		checkCode(t, s.RemovalDone(path("/gone")), reason.StateUnwritable)
		must(t, next(s))
		must(t, writable.Close())
		looked, err := Inspect(s.dir)
		must(t, err)
		if _, kept := looked.Original(motd); len(pendingRemovals(t, looked)) > 0 || !kept {
			t.Errorf("%s: removals %v, original kept %v", what, pendingRemovals(t, looked), kept)
		}
		must(t, looked.Close())
	}
}

func TestTemporariesAreSwept(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.Close())
	killed := s.path(".tako.active.0123456789ab")
	must(t, os.WriteFile(killed, nil, 0o600))
	open(t, s.dir)
	if _, err := os.Lstat(killed); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

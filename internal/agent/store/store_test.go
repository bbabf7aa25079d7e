package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// noon is when the tests' stores are opened.
var noon = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)

// moment is a stamp of the boot in which the tests' stores are opened first.
func moment(usec uint64) host.Stamp { return host.Stamp{Boot: "first", USec: usec} }

// open opens a store at noon in the first boot, and closes it with the test.
func open(t testing.TB, dir string) *Store {
	t.Helper()
	return openOn(t, dir, moment(1000))
}

func openOn(t testing.TB, dir string, at host.Stamp) *Store {
	t.Helper()
	s, err := openAt(dir, noon, at)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// reopen closes a store and opens it again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	must(t, s.Close())
	return open(t, s.dir)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func path(id string) declare.Claim { return declare.Claim{Kind: declare.ClaimPath, ID: id} }

// entries makes n entries of a state; version goes into their bodies.
func entries(n int, version string) []Entry {
	list := make([]Entry, n)
	for i := range list {
		id := fmt.Sprintf("/srv/web/files/file-%05d.conf", i)
		list[i] = Entry{
			Claim: path(id), Title: fmt.Sprintf("file/file-%05d", i), Config: "NodeConfig/web", Place: fmt.Sprintf("web.yaml:%d:3", 10*i),
			Digest: converge.Digest{byte(i), byte(i >> 8)}, OnRemove: declare.OnRemoveDelete, After: []declare.Claim{path("/srv/web/files"), path("/srv/web")},
			Body: []byte("body " + version + " of " + id),
		}
	}
	return list
}

// checkActive compares the active state with what was set.
func checkActive(t testing.TB, s *Store, root converge.Digest, want []Entry) {
	t.Helper()
	active := s.Active()
	if active.Root() != root {
		t.Errorf("root %x, want %x", active.Root(), root)
	}
	got := []Entry{}
	for i := range active.Len() {
		e, err := active.Entry(i)
		must(t, err)
		got = append(got, e)
		if r, err := active.Ref(i); err != nil || !reflect.DeepEqual(r, e.ref()) {
			t.Errorf("entry %d without its body: %+v, %v", i, r, err)
		}
	}
	if len(want) == 0 {
		want = []Entry{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("active state:\n got %+v\nwant %+v", got, want)
	}
}

// pendingRemovals lists the pending removals.
func pendingRemovals(t testing.TB, s *Store) []Removal {
	t.Helper()
	pending, err := s.Removals()
	must(t, err)
	return pending
}

func added(seq uint64, target, source converge.Key) converge.Record {
	return converge.Record{Kind: converge.NotificationAdded, Target: target, Source: source, Seq: seq}
}

func cleared(seq uint64, target converge.Key) converge.Record {
	return converge.Record{Kind: converge.NotificationCleared, Target: target, Seq: seq}
}

const (
	nginx    converge.Key = "unit:nginx.service"
	nginxCfg converge.Key = "path:/etc/nginx/nginx.conf"
	motd     converge.Key = "path:/etc/motd"
)

func pendingSeqs(s *Store) []uint64 {
	seqs := []uint64{}
	pending, _ := s.Resume(noon)
	for _, p := range pending {
		seqs = append(seqs, p.Seq)
	}
	return seqs
}

func checkPending(t testing.TB, s *Store, want ...uint64) {
	t.Helper()
	if got := pendingSeqs(s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pending %v, want %v", got, want)
	}
}

func checkCode(t testing.TB, err error, want reason.Code) {
	t.Helper()
	if !reason.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestActiveStateSurvives(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "var", "lib", "tako"))
	checkActive(t, s, converge.Digest{}, nil)
	for n, root := range []converge.Digest{{1}, {2}, {3}, {4}} {
		want := entries(10*n, fmt.Sprint(n)) // none at first: an empty state is a state too
		must(t, s.SetActive(root, want))
		checkActive(t, s, root, want)
		s = reopen(t, s)
		checkActive(t, s, root, want)
	}
	if len(s.Troubles()) > 0 {
		t.Errorf("troubles: %v", s.Troubles())
	}
	info, err := os.Stat(s.dir)
	must(t, err)
	above, err := os.Stat(filepath.Dir(s.dir))
	must(t, err)
	if info.Mode().Perm() != 0o700 || above.Mode().Perm() != 0o755 {
		t.Errorf("modes %v in %v", info.Mode(), above.Mode())
	}
}

// TestActiveStateWithout: what is left out of a state makes another one of it, over restarts; and the file of a state as a whole is what it was.
func TestActiveStateWithout(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	list := entries(3, "one")
	must(t, s.SetActive(converge.Digest{1}, list))
	whole, err := os.ReadFile(filepath.Join(dir, activeName))
	must(t, err)
	must(t, s.SetActiveWithout(converge.Digest{1}, converge.Digest{9}, list))
	for range 2 {
		active := s.Active()
		if active.Without() != (converge.Digest{9}) || active.Root() != (converge.Digest{1}) || active.Is(converge.Digest{1}, converge.Digest{}, placesOf(list)) ||
			!active.Is(converge.Digest{1}, converge.Digest{9}, placesOf(list)) {
			t.Errorf("it is %x without %x", active.Root(), active.Without())
		}
		s = reopen(t, s)
	}
	must(t, s.SetActiveWithout(converge.Digest{1}, converge.Digest{}, list))
	if now, err := os.ReadFile(filepath.Join(dir, activeName)); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the file of the whole state has %d bytes, and had %d: %v", len(now), len(whole), err)
	}
	if active := s.Active(); active.Without() != (converge.Digest{}) {
		t.Errorf("nothing is left out, and it says %x", active.Without())
	}
}

func TestBodiesOfTheStateBefore(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.SetActive(converge.Digest{1}, entries(3, "one")))
	one := s.Active()
	must(t, s.SetActive(converge.Digest{2}, entries(3, "two")))
	two := s.Active()
	for i := range one.Len() {
		for want, of := range map[string]Active{"one": one, "two": two} {
			e, err := of.Entry(i)
			if err != nil || !strings.HasPrefix(string(e.Body), "body "+want) {
				t.Errorf("body of state %s: %q, %v", want, e.Body, err)
			}
		}
	}
	must(t, s.SetActive(converge.Digest{3}, nil))
	if _, err := two.Entry(0); err != nil {
		t.Errorf("body of the state before an empty one: %v", err)
	}
	_, err := one.Entry(0)
	checkCode(t, err, reason.InternalFault)
}

func TestBodyThatTheDiskLost(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.SetActive(converge.Digest{1}, entries(3, "one")))
	active := s.Active()
	ref, err := active.Ref(1)
	must(t, err)
	body := active.at[1] + int64(len(appendFrame(nil, ref))) + frameHead
	f, err := os.OpenFile(s.path(activeName), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{0xff}, body+2)
	must(t, err)
	_, err = active.Entry(1)
	checkCode(t, err, reason.StateCorrupt)
	if _, err := active.Ref(1); err != nil {
		t.Errorf("what is not the body: %v", err)
	}
	if _, err := active.Entry(2); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	for _, size := range []int64{body + 2, active.at[1] + 2} {
		must(t, f.Truncate(size))
		_, err = active.Entry(1)
		checkCode(t, err, reason.StateCorrupt)
	}
	_, err = active.Ref(1)
	checkCode(t, err, reason.StateCorrupt)
	for r, err := range active.Refs() {
		if r.Title != "file/file-00000" {
			checkCode(t, err, reason.StateCorrupt)
		}
	}
}

func TestBodyTooLarge(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.SetActive(converge.Digest{1}, entries(3, "one")))
	e := entries(1, "two")
	e[0].Body = make([]byte, declare.BodyBytesMax+1)
	checkCode(t, s.SetActive(converge.Digest{2}, e), reason.BodyTooLarge)
	checkCode(t, s.SetOriginal(motd, make([]byte, originalMax+1)), reason.BodyTooLarge)
	checkActive(t, s, converge.Digest{1}, entries(3, "one"))
}

func TestAnotherAgent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(dir, noon)
	checkCode(t, err, reason.AnotherAgent)
	if e := reason.Of(err); !strings.Contains(e.Error(), fmt.Sprintf("process %d ", os.Getpid())) || e.Hint == "" {
		t.Errorf("the error names neither process nor cure: %v; %s", e, e.Hint)
	}
	must(t, s.Close())
	open(t, dir)
}

func TestReportAndConverged(t *testing.T) {
	s := open(t, t.TempDir())
	if data, at, err := s.Report(); data != nil || !at.IsZero() || err != nil {
		t.Errorf("no report: %q %v %v", data, at, err)
	}
	if got := s.Converged(); got == nil || len(got) != 0 {
		t.Errorf("nothing converged: %v", got)
	}
	want := map[converge.Key]converge.Digest{nginx: {1}, motd: {2}, "path:/odd\xff\nname": {3}}
	must(t, s.SetConverged(func(yield func(converge.Key, converge.Digest) bool) {
		for k, d := range want {
			if !yield(k, d) {
				return
			}
		}
	}))
	must(t, s.SaveReport([]byte("first")))
	must(t, s.SaveReport([]byte(`{"second":true}`)))
	for range 2 {
		data, at, err := s.Report()
		if string(data) != `{"second":true}` || err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("report %q of %v, %v", data, at, err)
		}
		if got := s.Converged(); !reflect.DeepEqual(got, want) {
			t.Errorf("converged %v, want %v", got, want)
		}
		s = reopen(t, s)
	}
}

// listing is everything in a directory that a write would change.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Ctim)
		}
		return err
	}))
	return b.String()
}

// lookAround calls everything that reads, and checks that what writes is refused.
func lookAround(dir string) error {
	s, err := Inspect(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Active().Len() != 5 || len(pendingSeqs(s)) != 1 || len(s.Converged()) != 1 || len(s.Troubles()) != 0 {
		return fmt.Errorf("active %d, pending %v, converged %v, troubles %v", s.Active().Len(), pendingSeqs(s), s.Converged(), s.Troubles())
	}
	if _, err := s.Active().Entry(3); err != nil {
		return err
	}
	data, _, err := s.Report()
	history, historyErr := s.History(Asked{})
	if err = errors.Join(err, historyErr); err != nil || string(data) != "report" || len(history) != 1 {
		return fmt.Errorf("report %q, history %v, %w", data, history, err)
	}
	writes := map[string]error{
		"SetActive":      s.SetActive(converge.Digest{9}, nil),
		"Record":         s.Record([]converge.Record{added(9, nginx, motd)}, noon, moment(1)),
		"Confirm":        s.Confirm(nginxCfg, moment(2)),
		"AddRemovals":    s.AddRemovals([]Removal{{Claim: path("/x")}}),
		"SetOriginal":    s.SetOriginal(motd, nil),
		"SetConverged":   s.SetConverged(func(func(converge.Key, converge.Digest) bool) {}),
		"SaveReport":     s.SaveReport(nil),
		"Append":         s.Append(Happening{At: noon}),
		"Append, second": s.Append(Happening{At: noon}),
	}
	for name, err := range writes {
		if !reason.Is(err, reason.StateUnwritable) {
			return fmt.Errorf("%s on a state that is looked at: %w", name, err)
		}
	}
	return nil
}

// furnish puts something into every file of a state directory.
func furnish(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.SetActive(converge.Digest{1}, append(entries(3, "one"), Entry{Claim: declare.Claim{Kind: declare.ClaimUnit, ID: "nginx.service"}}, Entry{Claim: path("/etc/motd")})))
	must(t, s.Record([]converge.Record{added(7, nginx, nginxCfg)}, noon, moment(50)))
	must(t, s.SetOriginal(motd, []byte("as it was")))
	must(t, s.SetConverged(func(yield func(converge.Key, converge.Digest) bool) { yield(motd, converge.Digest{2}) }))
	must(t, s.SaveReport([]byte("report")))
	must(t, s.Append(Happening{At: noon, Claim: string(motd), Title: "file/motd", Outcome: "repaired"}))
}

func TestInspectWritesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	furnish(t, s)
	before := listing(t, dir)
	if err := lookAround(dir); err != nil {
		t.Errorf("beside an agent: %v", err)
	}
	must(t, s.Close())
	if err := lookAround(dir); err != nil {
		t.Errorf("without an agent: %v", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("it wrote:\n%s\nbefore:\n%s", after, before)
	}
}

func TestInspectOfNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	s, err := Inspect(dir)
	must(t, err)
	checkActive(t, s, converge.Digest{}, nil)
	history, err := s.History(Asked{})
	if len(pendingSeqs(s)) != 0 || len(pendingRemovals(t, s)) != 0 || len(s.Converged()) != 0 || len(history) != 0 || err != nil {
		t.Errorf("something is there: %v %v", history, err)
	}
	if data, _, err := s.Report(); data != nil || err != nil {
		t.Errorf("report %q, %v", data, err)
	}
	checkCode(t, s.SetActive(converge.Digest{1}, nil), reason.StateUnwritable)
	must(t, s.Close())
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// ordinaryUser is nobody on every distribution.
const ordinaryUser = 65534

// TestInspectAsOrdinaryUser looks at a directory that nothing can be written in. Root can always write, so for root it runs
// itself again as somebody else.
func TestInspectAsOrdinaryUser(t *testing.T) {
	const dirVariable = "TAKO_TEST_STATE_DIR"
	if dir := os.Getenv(dirVariable); dir != "" {
		must(t, lookAround(dir))
		_, err := Open(dir, noon)
		checkCode(t, err, reason.StateUnwritable)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become an ordinary user")
	}
	top, err := os.MkdirTemp("", "tako-store-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	must(t, os.Chmod(top, 0o755))
	program := filepath.Join(top, "test")
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(program, self, 0o755))
	dir := filepath.Join(top, "state")
	s := open(t, dir)
	furnish(t, s)
	must(t, s.Close())
	must(t, os.Remove(s.path(lockName)))
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error { return os.Lchown(p, ordinaryUser, ordinaryUser) }))
	must(t, os.Chmod(dir, 0o500))
	before := listing(t, dir)
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestInspectAsOrdinaryUser$", "-test.v")
	cmd.Dir, cmd.Env = top, []string{dirVariable + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("it wrote:\n%s\nbefore:\n%s", after, before)
	}
}

func TestInspectOfWhatIsForbidden(t *testing.T) {
	const dirVariable = "TAKO_TEST_STATE_DIR_OF_ROOT"
	if dir := os.Getenv(dirVariable); dir != "" {
		_, err := Inspect(dir)
		checkCode(t, err, reason.PermissionDenied)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become an ordinary user")
	}
	top, err := os.MkdirTemp("", "tako-store-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	must(t, os.Chmod(top, 0o755))
	program := filepath.Join(top, "test")
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(program, self, 0o755))
	dir := filepath.Join(top, "state")
	furnish(t, open(t, dir))
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestInspectOfWhatIsForbidden$", "-test.v")
	cmd.Dir, cmd.Env = top, []string{dirVariable + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSeveralGoroutines(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.SetActive(converge.Digest{1}, append(entries(20, "one"), Entry{Claim: path("/etc/motd")})))
	var all sync.WaitGroup
	const workers, rounds = 4, 15
	for w := range workers {
		source := converge.Key(fmt.Sprintf("path:/srv/web/files/file-%05d.conf", w))
		all.Go(func() {
			for i := range rounds {
				seq := uint64(w*rounds + i + 1)
				err := errors.Join(
					s.Record([]converge.Record{added(seq, motd, source)}, noon, moment(seq)),
					s.Confirm(source, moment(seq+1000)),
					s.SetOriginal(source, []byte(source)),
					s.Append(Happening{At: noon, Title: "file/x"}),
					s.SaveReport([]byte("report")),
				)
				_, bodyErr := s.Active().Entry(i)
				_, historyErr := s.History(Asked{Limit: 5})
				if err = errors.Join(err, bodyErr, historyErr); err != nil {
					t.Error(err)
				}
				s.Since(motd, seq)
				s.Removals()
				s.Troubles()
			}
		})
	}
	for i := range 3 {
		must(t, s.SetActive(converge.Digest{byte(i)}, append(entries(20, fmt.Sprint(i)), Entry{Claim: path("/etc/motd")})))
		all.Wait()
	}
	s = reopen(t, s)
	if got := len(pendingSeqs(s)); got != workers*rounds {
		t.Errorf("%d notifications, want %d", got, workers*rounds)
	}
	for seq := uint64(1); seq <= workers*rounds; seq++ {
		if at := s.Since(motd, seq); at.USec <= 1000 {
			t.Errorf("notifications up to %d count from %v: a confirmation is lost", seq, at)
		}
	}
	history, err := s.History(Asked{})
	if len(history) != workers*rounds || err != nil {
		t.Errorf("%d happenings, want %d; %v", len(history), workers*rounds, err)
	}
}

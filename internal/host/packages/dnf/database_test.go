package dnf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everything is all that a database has, "NAME VERSION ARCH", sorted.
func everything(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	if err := readInstalled(dir, func(p installed) { all = append(all, p.name+" "+p.version+" "+p.arch) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestDatabaseReal compares with what rpm reads of a database that it has written: with and without a log, small headers and large ones.
func TestDatabaseReal(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	var more strings.Builder
	for i := range 60 {
		fmt.Fprintf(&more, "%%package -n sub-%d\nEpoch: %d\nVersion: %d.%d\nRelease: %d.fc9^x~y\nSummary: %s\n%%description -n sub-%d\nx\n%%files -n sub-%d\n", i, i%3, i, i*7, i, strings.Repeat("s", 1+i*40), i, i)
	}
	l.build(rpm{name: "many", version: "1-1", more: more.String()})
	l.build(rpm{name: "large", version: "5:2.0-3", files: 2000})
	files, err := filepath.Glob(l.repo + "/noarch/*.rpm")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	dir := l.root + "/root/.rpmdb"
	same := func(what string) {
		t.Helper()
		want := strings.Split(run(t, "rpm", "--root", l.root, "-qa", "--qf", `%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH}\n`), "\n")
		for i := range want {
			want[i] = strings.Replace(want[i], " 0:", " ", 1)
		}
		slices.Sort(want)
		if got := everything(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %d packages, rpm has %d", what, len(got), len(want))
		}
	}
	run(t, append([]string{"rpm", "--root", l.root, "-i", "--justdb", "--nodeps"}, files...)...)
	same("installed")
	run(t, "rpm", "--root", l.root, "-e", "--justdb", "--nodeps", "sub-7", "sub-8", "large")
	same("some removed")
	// One who reads all the time keeps the log from being merged.
	reader := exec.CommandContext(t.Context(), "python3", "-c", "import sqlite3,sys,time\nc=sqlite3.connect(sys.argv[1]); c.execute('begin'); c.execute('select count(*) from Packages').fetchall(); print('in', flush=True); time.sleep(600)", dir+"/"+databaseFile)
	out, err := reader.StdoutPipe()
	if err == nil {
		err = reader.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	run(t, append([]string{"rpm", "--root", l.root, "-i", "--justdb", "--nodeps", "--replacepkgs"}, files...)...)
	if st, err := os.Stat(dir + "/" + databaseFile + logSuffix); err != nil || st.Size() == 0 {
		t.Errorf("there is no log to be read: %v", err)
	}
	same("with a log")
	if err := reader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = reader.Wait() // it was killed

	// While it is written, what is read is what was there before or after.
	writer := exec.CommandContext(t.Context(), "sh", "-c", `for i in 1 2 3; do rpm --root "$0" -e --justdb --nodeps many; rpm --root "$0" -i --justdb --nodeps "$1"; done`, l.root, filepath.Join(l.repo, "noarch/many-1-1.noarch.rpm"))
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- writer.Wait() }()
	db := &database{find: func() string { return dir }}
	for reads := 0; ; reads++ {
		versions, err := db.look([]string{"many", "sub-3"}, true)
		if err == nil && versions[1] != "3.21-3.fc9^x~y" || err == nil && versions[0] != "" && versions[0] != "1-1" {
			t.Fatalf("read %d: %v", reads, versions)
		}
		if err != nil && !errors.Is(err, errDamaged) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d reads beside the writer", reads)
			return
		default:
		}
	}
}

// header makes a header as rpm stores it.
func header(name, version, release, arch string, epoch int, padding int) []byte {
	var index, values []byte
	n := uint32(0)
	add := func(tag, kind uint32, value []byte) {
		if kind == typeInt32 {
			for len(values)%4 != 0 {
				values = append(values, 0)
			}
		}
		for _, v := range []uint32{tag, kind, uint32(len(values)), 1} {
			index = binary.BigEndian.AppendUint32(index, v)
		}
		values, n = append(values, value...), n+1
	}
	add(tagName, typeString, []byte(name+"\x00"))
	add(tagVersion, typeString, []byte(version+"\x00"))
	add(tagRelease, typeString, []byte(release+"\x00"))
	if epoch >= 0 {
		add(tagEpoch, typeInt32, binary.BigEndian.AppendUint32(nil, uint32(epoch)))
	}
	add(tagArch, typeString, []byte(arch+"\x00"))
	add(5000, typeString, append(bytes.Repeat([]byte("x"), padding), 0))
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, n), uint32(len(values)))
	return slices.Concat(head, index, values)
}

func parsed(b []byte) (installed, error) {
	return parseHeader(int64(len(b)), func(n int64) ([]byte, error) { return b[:min(n, int64(len(b)))], nil })
}

func TestParseHeaderModel(t *testing.T) {
	word := rapid.StringMatching(`[a-z0-9.~^_]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		name, version, release, epoch := word.Draw(t, "name"), word.Draw(t, "version"), word.Draw(t, "release"), rapid.IntRange(-1, 3).Draw(t, "epoch")
		got, err := parsed(header(name, version, release, "noarch", epoch, rapid.IntRange(0, 5000).Draw(t, "padding")))
		want := version + "-" + release
		if epoch > 0 {
			want = fmt.Sprint(epoch, ":", want)
		}
		if err != nil || got != (installed{name: name, arch: "noarch", version: want}) {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add(header("one", "1", "2", "noarch", 1, 10))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsed(b); err == nil && (p.name == "" || p.version == "") {
			t.Errorf("%+v", p)
		}
	})
}

// sqliteOf is a database of one page that a test writes by hand.
func sqliteOf(cell []byte) []byte {
	page := make([]byte, 1024)
	copy(page, sqliteMagic)
	binary.BigEndian.PutUint16(page[16:], 1024)
	page[sqliteHead] = leafPage
	binary.BigEndian.PutUint16(page[sqliteHead+3:], 1)
	at := len(page) - len(cell)
	binary.BigEndian.PutUint16(page[sqliteHead+8:], uint16(at))
	copy(page[at:], cell)
	return page
}

func FuzzSQLite(f *testing.F) {
	f.Add(sqliteOf([]byte("\x1a\x01\x06\x17\x1d\x1d\x01tablePackagesPackages\x01")), []byte(nil))
	f.Add(sqliteOf([]byte{200, 200, 1, 2}), make([]byte, walHead))
	f.Fuzz(func(t *testing.T, file, log []byte) {
		db, err := openSQLite(bytes.NewReader(file), bytes.NewReader(log))
		if err != nil {
			return
		}
		n := 0
		err = packagesOf(db, func(installed) { n++ })
		if err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%v", err)
		}
	})
}

func TestLocksText(t *testing.T) {
	const old = "# mine\none-0:1-1.*\n!two-0:1-1.*\nmy-two-3:1-1.x86_64\nlast-0:1-1.*"
	for _, c := range []struct {
		names, versions []string
		held            bool
		want            string
	}{
		{[]string{"one"}, []string{"2-1"}, true, "# mine\n!two-0:1-1.*\nmy-two-3:1-1.x86_64\nlast-0:1-1.*\none-0:2-1.*\n"},
		{[]string{"one", "my-two"}, []string{"1-1", "3:1-1"}, false, "# mine\n!two-0:1-1.*\nlast-0:1-1.*\n"},
		{[]string{"two", "gone"}, []string{"4:1-1", ""}, true, "# mine\none-0:1-1.*\n!two-0:1-1.*\nmy-two-3:1-1.x86_64\nlast-0:1-1.*\ntwo-4:1-1.*\n"},
	} {
		if got := locksText(old, c.names, c.versions, c.held); got != c.want {
			t.Errorf("%v: %q", c.names, got)
		}
	}
	for line, want := range map[string]string{"a-b-0:1-2.*": "a-b", "a": "a", "#x": "", " a-1-2.noarch \n": "a", "!a-1-2": ""} {
		if got := lockedName(line); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	for output, want := range map[string]string{
		"words\n\ntako-answer: {\"error\": \"x\"}\nlater": "x words\nlater", "\ntako-answer: {}\n": " ", "nothing": "dnf ended without an answer nothing",
	} {
		a, said := parseAnswer([]byte(output))
		if got := a.Error + " " + string(said); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
	if a, _ := parseAnswer([]byte("\ntako-answer: {")); !strings.Contains(a.Error, "makes no sense") {
		t.Errorf("%+v", a)
	}
}

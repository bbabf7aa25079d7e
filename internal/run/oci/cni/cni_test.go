package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestParseList(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"bridge"}]}`:                                       "",
		`{"name":"a","cniVersion":"0.4.0","plugins":[{"type":"x","ipam":{"type":"host-local"}}]}`:               "",
		`{"cniVersion":"1.0.0","plugins":[{"type":"bridge"}]}`:                                                  "name",
		`{"name":"a","plugins":[{"type":"bridge"}]}`:                                                            "cniVersion",
		`{"name":"a","cniVersion":"0.2.0","plugins":[{"type":"bridge"}]}`:                                       "0.3.0",
		`{"name":"a","cniVersion":"1.0.0"}`:                                                                     "0 plugins",
		`{"name":"a","cniVersion":"1.0.0","plugins":[{}]}`:                                                      `"type"`,
		`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"../sh"}]}`:                                        "no name of a program",
		`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"b","ipam":{"type":"/bin/sh"}}]}`:                  "no name of a program",
		`{"name":"a","cniVersion":"1.0.0","plugins":[` + strings.Repeat(`{"type":"b"},`, 16) + `{"type":"b"}]}`: "17 plugins",
		`no JSON`:                      "invalid",
		strings.Repeat(" ", listMax+1): "bytes",
	} {
		_, err := parseList([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func TestBuiltIn(t *testing.T) {
	l, err := builtIn(subnets[0], "/var/lib/addresses")
	if err != nil || !l.leads() || !l.prior() {
		t.Fatalf("%+v %v", l, err)
	}
	if got := strings.Join(l.programs(), " "); got != "bridge firewall host-local portmap" {
		t.Errorf("it takes %s", got)
	}
}

// The network is where it was, or where no other is.
func TestSubnet(t *testing.T) {
	p := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	for _, row := range []struct {
		bridge, others []netip.Prefix
		want           string
	}{
		{nil, nil, "10.213.0.0/16"},
		{nil, p("192.0.2.0/24", "10.213.8.0/24"), "10.214.0.0/16"},
		{nil, p("10.0.0.0/8"), "172.29.0.0/16"},
		{p("172.30.0.0/16", "fe80::/64"), nil, "172.30.0.0/16"},
		{p("203.0.113.0/24"), p("10.213.0.0/16"), "10.214.0.0/16"},
		{nil, p("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"), "invalid Prefix"},
	} {
		if got := subnet(row.bridge, row.others).String(); got != row.want {
			t.Errorf("beside %v and %v: %s, want %s", row.bridge, row.others, got, row.want)
		}
	}
}

func TestDeclared(t *testing.T) {
	dir := t.TempDir()
	if l, file, err := declared(dir); l != nil || file != "" || err != nil {
		t.Errorf("of nothing: %v %q %v", l, file, err)
	}
	write(t, filepath.Join(dir, "20-b.conflist"), `{"name":"b","cniVersion":"1.0.0","plugins":[{"type":"b"}]}`)
	write(t, filepath.Join(dir, "10-a.conflist"), `{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"a"}]}`)
	write(t, filepath.Join(dir, "05-no.conf"), `{`)
	if l, file, err := declared(dir); err != nil || l.Name != "a" || filepath.Base(file) != "10-a.conflist" {
		t.Errorf("%v %q %v", l, file, err)
	}
	write(t, filepath.Join(dir, "00-bad.conflist"), `{`)
	if _, file, err := declared(dir); err == nil || filepath.Base(file) != "00-bad.conflist" {
		t.Errorf("of a bad one: %q %v", file, err)
	}
}

func TestDocument(t *testing.T) {
	l := &list{Name: "net", Version: "1.0.0"}
	c := call{ports: []Port{{Host: 20000, Own: 80, Proto: "tcp"}}, prior: json.RawMessage(`{"ips":[]}`)}
	for text, want := range map[string]string{
		`{"type":"portmap","capabilities":{"portMappings":true},"snat":false}`: `{"capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"net","prevResult":{"ips":[]},` +
			`"runtimeConfig":{"portMappings":[{"hostPort":20000,"containerPort":80,"protocol":"tcp"}]},"snat":false,"type":"portmap"}`,
		`{"type":"tuning","name":"other"}`: `{"cniVersion":"1.0.0","name":"net","prevResult":{"ips":[]},"type":"tuning"}`,
	} {
		_, got, err := c.document(l, json.RawMessage(text))
		if err != nil || string(got) != want {
			t.Errorf("%s %v, want %s", got, err, want)
		}
	}
}

func TestWords(t *testing.T) {
	ended := errors.New("exit status 1")
	for _, row := range []struct{ out, errs, want string }{
		{`{"code":11,"msg":"no room","details":"none of\n16"}`, "noise", "no room: none of 16"},
		{`{"code":7,"msg":"bad"}`, "", "bad"},
		{"panic", "cannot\tfind it\n", "cannot find it"},
		{"", "", "exit status 1"},
	} {
		if got := words([]byte(row.out), []byte(row.errs), ended); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
	if got := words(nil, []byte(strings.Repeat("é", wordsMax)), ended); len(got) > wordsMax {
		t.Errorf("%d bytes", len(got))
	}
}

// host is one whose plugins are shell scripts, which write down what they are told.
func host(t *testing.T, plugins map[string]string) (n *Networks, said func() string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	o := Options{Dir: filepath.Join(dir, "networks"), Config: dir, Plugins: []string{dir}}
	var list []string
	for _, name := range []string{"first", "second"} {
		list = append(list, `{"type":"`+name+`","capabilities":{"portMappings":true}}`)
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho "+name+" $CNI_COMMAND $CNI_CONTAINERID ${CNI_NETNS##*/} >>"+log+"\ncat >"+dir+"/told\n"+plugins[name])
	}
	write(t, filepath.Join(dir, "10.conflist"), `{"name":"net","cniVersion":"1.0.0","plugins":[`+strings.Join(list, ",")+`]}`)
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return n, func() string {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(log); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\n", "; ")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func unused() bool { return false }

const result = `[ $CNI_COMMAND = DEL ] || echo '{"ips":[{"address":"192.0.2.9/24"}]}'`

// A network is made once, and taken away once, by whoever asks how often.
func TestHoldAndRelease(t *testing.T) {
	n, said := host(t, map[string]string{"first": result, "second": result})
	if why := n.Lacks(); why != "" {
		t.Fatal(why)
	}
	ctx := t.Context()
	ports := []Port{{Host: 20000, Own: 80, Proto: "tcp"}}
	path, done, err := n.Hold(ctx, "i", ports)
	if err != nil || !pinned(path) {
		t.Fatalf("%q %v", path, err)
	}
	if got := said(); got != "first ADD i i.net; second ADD i i.net; " {
		t.Errorf("to make it: %s", got)
	}
	if a, known := n.Address("i"); !known || a != netip.MustParseAddr("192.0.2.9") {
		t.Errorf("it is at %v, %v", a, known)
	}
	if err := n.Release(ctx, "i", unused); err != nil || said() != "" {
		t.Errorf("while it is held: %v", err)
	}
	if _, again, err := n.Hold(ctx, "i", ports); err != nil || said() != "" {
		t.Errorf("once more: %v", err)
	} else {
		again()
	}
	done()
	if err := n.Release(ctx, "i", func() bool { return true }); err != nil || said() != "" {
		t.Errorf("while it is used: %v", err)
	}
	for range 2 {
		if err := n.Release(ctx, "i", unused); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if got := said(); got != "second DEL i i.net; first DEL i i.net; " {
		t.Errorf("to take it away: %s", got)
	}
	if left, err := os.ReadDir(n.opts.Dir); err != nil || len(left) > 0 || len(n.claims) > 0 {
		t.Errorf("left: %v %v %v", left, n.claims, err)
	}
}

// What was made in part is taken away, and the plugin's words are told.
func TestPluginFails(t *testing.T) {
	n, said := host(t, map[string]string{"first": result, "second": `[ $CNI_COMMAND = DEL ] || { echo '{"code":100,"msg":"no bridge here"}'; exit 1; }`})
	_, _, err := n.Hold(t.Context(), "i", nil)
	if !reason.Is(err, reason.NetworkFailed) || !strings.Contains(err.Error(), "plugin second: ADD: no bridge here") {
		t.Errorf("the error is %v", err)
	}
	if got := said(); got != "first ADD i i.net; second ADD i i.net; second DEL i i.net; first DEL i i.net; " {
		t.Errorf("it was asked for %s", got)
	}
	if left, err := os.ReadDir(n.opts.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// What cannot be taken away is kept on record, until it can.
func TestCannotBeTakenAway(t *testing.T) {
	n, said := host(t, map[string]string{"first": result, "second": "[ $CNI_COMMAND = ADD ] || [ -e ${0%/*}/can ] || { echo not now >&2; exit 1; }\n" + result})
	_, done, err := n.Hold(t.Context(), "i", nil)
	if err != nil {
		t.Fatal(err)
	}
	done()
	said()
	if err := n.Release(t.Context(), "i", unused); !reason.Is(err, reason.NetworkFailed) || !strings.Contains(err.Error(), "not now") {
		t.Errorf("the error is %v", err)
	}
	if got := said(); got != "second DEL i i.net; first DEL i i.net; " {
		t.Errorf("it was asked for %s", got)
	}
	next, err := New(n.opts) // another agent
	if err != nil {
		t.Fatal(err)
	}
	if all, err := next.All(); err != nil || len(all) != 1 || all[0] != "i" {
		t.Errorf("there is %v %v", all, err)
	}
	write(t, filepath.Join(n.opts.Config, "can"), "")
	if err := next.Release(t.Context(), "i", unused); err != nil || next.there("i") {
		t.Errorf("then: %v", err)
	}
}

// A host that was restarted has the record, and no namespace: what plugins keep on the disk is given back before it is made again.
func TestRestartedHost(t *testing.T) {
	n, said := host(t, map[string]string{"first": result, "second": result})
	path, done, err := n.Hold(t.Context(), "i", nil)
	if err != nil {
		t.Fatal(err)
	}
	done()
	said()
	if err := unpin(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "") // of a file system on disk the file is left, with nothing mounted on it
	_, done, err = n.Hold(t.Context(), "i", nil)
	if err != nil || !pinned(path) {
		t.Fatal(err)
	}
	done()
	if got := said(); got != "second DEL i; first DEL i; first ADD i i.net; second ADD i i.net; " {
		t.Errorf("it was asked for %s", got)
	}
	if err := n.Release(t.Context(), "i", unused); err != nil {
		t.Error(err)
	}
}

// What is lacking is said in words, and ports that nobody would reach are refused.
func TestLacks(t *testing.T) {
	n, _ := host(t, nil)
	if err := os.Remove(filepath.Join(n.opts.Config, "second")); err != nil {
		t.Fatal(err)
	}
	if why := n.Lacks(); !strings.Contains(why, "no CNI plugin second") || !strings.Contains(why, "containernetworking-plugins") {
		t.Errorf("without a plugin: %q", why)
	}
	write(t, filepath.Join(n.opts.Config, "05.conflist"), `{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"first"}]}`)
	if why := n.Lacks(); why != "" {
		t.Errorf("with a list that takes what is there: %q", why)
	}
	if _, _, err := n.Hold(t.Context(), "i", []Port{{Host: 1, Own: 1, Proto: "tcp"}}); !reason.Is(err, reason.RuntimeUnfit) {
		t.Errorf("with ports: %v", err)
	}
	write(t, filepath.Join(n.opts.Config, "01.conflist"), "{")
	if why := n.Lacks(); !strings.Contains(why, "01.conflist") {
		t.Errorf("with a bad list: %q", why)
	}
}

// Who waits for a turn that does not come goes.
func TestTurn(t *testing.T) {
	n, _ := host(t, nil)
	_, leave, err := n.enter(t.Context(), "i")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := n.enter(ctx, "i"); !reason.Is(err, reason.Interrupted) {
		t.Errorf("%v", err)
	}
	leave()
	if len(n.claims) > 0 {
		t.Errorf("claims are left: %v", n.claims)
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"bridge","ipam":{"type":"host-local"},"capabilities":{"portMappings":true}}]}`))
	f.Add([]byte(`{"ips":[{"address":"192.0.2.9/24"}]}`))
	f.Add([]byte(`{"code":1,"msg":"a","details":"b"}`))
	f.Add([]byte(`{"list":{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"b"}]},"result":{},"made":true,"address":"192.0.2.9"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := parseList(text); err == nil {
			c := call{prior: json.RawMessage("{}")}
			for _, p := range l.Plugins {
				if _, out, err := c.document(l, p); err == nil && !json.Valid(out) {
					t.Errorf("the document is %q", out)
				}
			}
			for _, name := range l.programs() {
				if strings.Contains(name, "/") {
					t.Errorf("the program %q is a path", name)
				}
			}
		}
		if a, err := addressOf(text); err == nil && !a.IsValid() {
			t.Errorf("the address is %v", a)
		}
		if r, err := decodeRecord(text); err == nil && r.Made && !r.Address.IsValid() {
			t.Errorf("the record is %+v", r)
		}
		if got := words(text, text, errors.New("ended")); len(got) > wordsMax {
			t.Errorf("the words are %d bytes", len(got))
		}
	})
}

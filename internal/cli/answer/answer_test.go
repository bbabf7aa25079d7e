package answer

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/present"
)

// TestLogLines: a person reads time, unit and message, the newest last, whatever the host has of them.
func TestLogLines(t *testing.T) {
	t.Setenv("TZ", "UTC")
	at := func(second int) string {
		return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC).Local().Format(timeForm)
	}
	journal := `{"__REALTIME_TIMESTAMP":"1767323045000000","_SYSTEMD_UNIT":"nginx.service","SYSLOG_IDENTIFIER":"nginx","MESSAGE":"started"}
{"__REALTIME_TIMESTAMP":"1767323046000000","_SYSTEMD_UNIT":"init.scope","UNIT":"nginx.service","MESSAGE":"one\ntwo\n"}
{"__REALTIME_TIMESTAMP":"1767323047000000","SYSLOG_IDENTIFIER":"kernel","MESSAGE":[104,105,27,255]}
{"__REALTIME_TIMESTAMP":"1767323048000000","MESSAGE":null}
no JSON` + "\x1b" + `
{"other": true}
`
	got := LogLines(journal, present.Style{})
	want := []string{
		at(5) + "  nginx.service  started",
		at(6) + "  nginx.service  one\n" + strings.Repeat(" ", len(at(6))+len("  nginx.service  ")) + "two",
		at(7) + `  kernel  hi\x1b\xff`,
		at(8) + "  -  ",
		`no JSON\x1b`,
		`{"other": true}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	history := `{"at":"2026-01-02T03:04:06Z","claim":"path:/b","title":"file/b","outcome":"failed","message":"no space"}
{"at":"2026-01-02T03:04:05Z","claim":"path:/a","title":"file/a","outcome":"repaired","detail":"drift","changes":["mode 0600 -> 0644"],"writer":"vim"}
`
	got = LogLines(history, present.Style{})
	if len(got) != 2 || !strings.Contains(got[0], at(5)) || !strings.Contains(got[0], "file/a: mode 0600 -> 0644; changed by vim") || !strings.Contains(got[1], "file/b: no space") {
		t.Errorf("a history is %q", got)
	}
	if got := LogLines("", present.Style{}); len(got) != 0 {
		t.Errorf("nothing is %q", got)
	}
}

const declared = `
spec:
  resources:
  - name: motd
    file: {path: /etc/motd, content: "ours\n"}
  - name: motd
    directory: {path: /srv/motd}
  - name: current
    expand: true
    symlink: {path: /current, target: "releases/$(node.name)"}
  - name: plain
    expand: true
    file: {path: /plain, content: "ours\n"}
  - name: taken
    file: {path: /taken, contentFrom: {configMap: {name: settings, key: a}}}
  - name: nginx
    service: {enabled: true, masked: true}
  - name: forward
    sysctl: {key: net.ipv4.ip_forward, value: "0"}
  - name: ann
    user: {}
`

func config(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(declared), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAdopt: what is there becomes what is declared, all of it or nothing, and nothing else changes.
func TestAdopt(t *testing.T) {
	for _, c := range []struct {
		name, title, differs string
		unlooked             string
		index                int
		want                 string // the resource then; empty where it is refused
		fields               string
		says, hint           string
	}{
		{name: "as declared", title: "file/motd", differs: `[]`, want: `{name: motd, file: {path: /etc/motd, content: "ours\n"}}`},
		{name: "content", title: "file/motd", differs: `[{"field": "content", "have": "7 B", "content": "theirs\n"}]`, fields: "content",
			want: `{name: motd, file: {path: /etc/motd, content: "theirs\n"}}`},
		{name: "all of a file", title: "file/motd", fields: "content mode owner group",
			differs: `[{"field": "content", "content": ""}, {"field": "check"}, {"field": "links", "have": "2"}, {"field": "mode", "have": "0755"}, {"field": "owner", "have": "web"}, {"field": "group", "have": "1005"}]`,
			want:    `{name: motd, file: {path: /etc/motd, content: "", mode: "0755", owner: web, group: "1005"}}`},
		{name: "a directory of the same name", title: "directory/motd", differs: `[{"field": "mode", "have": "0700"}]`, index: 1, fields: "mode",
			want: `{name: motd, directory: {path: /srv/motd, mode: "0700"}}`},
		{name: "no $( in what is expanded", title: "file/plain", differs: `[{"field": "content", "content": "theirs $HOME\n"}]`, index: 3, fields: "content",
			want: `{name: plain, expand: true, file: {path: /plain, content: "theirs $HOME\n"}}`},
		{name: "$( in what is not", title: "file/motd", differs: `[{"field": "content", "content": "$(date)\n"}]`, fields: "content",
			want: `{name: motd, file: {path: /etc/motd, content: "$(date)\n"}}`},
		{name: "$( comes", title: "file/plain", differs: `[{"field": "content", "content": "$(date)\n"}]`, says: "which hosts would expand", hint: "$$("},
		{name: "$( was", title: "symlink/current", differs: `[{"field": "target", "have": "releases/1"}]`, says: "another one on each host"},
		{name: "from a ConfigMap", title: "file/taken", differs: `[{"field": "content", "content": "theirs"}]`, says: "comes from a configmap", hint: "tako edit configmap/settings"},
		{name: "its mode only", title: "file/taken", differs: `[{"field": "mode", "have": "0600"}]`, index: 4, fields: "mode",
			want: `{name: taken, file: {path: /taken, mode: "0600", contentFrom: {configMap: {name: settings, key: a}}}}`},
		{name: "private", title: "file/motd", differs: `[{"field": "mode", "have": "0600"}, {"field": "content", "hidden": "it is private"}]`, says: "not told: it is private"},
		{name: "absent", title: "file/motd", differs: `[{"field": "", "have": "absent"}, {"field": "content"}]`, says: "nothing on the host"},
		{name: "another type", title: "file/motd", differs: `[{"field": "type", "have": "directory"}]`, says: "a directory on the host, where a file"},
		{name: "not looked at", title: "file/motd", unlooked: "TK0512: x", differs: `[]`, says: "TK0512: x"},
		{name: "gone from the config", title: "file/other", differs: `[]`, says: "any more"},
		{name: "a package", title: "package/vim", differs: `[]`, says: "of a package", hint: "tako edit"},
		{name: "a service", title: "service/nginx", differs: `[{"field": "daemon-reload", "have": "unit files changed"}, {"field": "masked", "have": "not masked"}, {"field": "enabled", "have": "disabled"}, {"field": "state", "have": "failed (exit-code)"}]`,
			index: 5, fields: "masked enabled state", want: `{name: nginx, service: {enabled: false, masked: false, state: stopped}}`},
		{name: "a service on its way", title: "service/nginx", differs: `[{"field": "state", "have": "activating"}]`, says: "it is activating"},
		{name: "a parameter", title: "sysctl/forward", differs: `[{"field": "value", "have": "1"}, {"field": "at boot", "have": "1"}]`, index: 6, fields: "value",
			want: `{name: forward, sysctl: {key: net.ipv4.ip_forward, value: "1"}}`},
		{name: "a parameter at boot only", title: "sysctl/forward", differs: `[{"field": "at boot", "have": "1"}]`, says: "at boot cannot be declared"},
		{name: "a user", title: "user/ann", differs: `[{"field": "shell", "have": "/bin/zsh"}]`, index: 7, fields: "shell", want: `{name: ann, user: {shell: /bin/zsh}}`},
		{name: "a password", title: "user/ann", differs: `[{"field": "password", "have": "another, not shown"}]`, says: "its password"},
		{name: "no user", title: "user/ann", differs: `[{"field": "state", "have": "absent"}]`, says: "nothing on the host"},
		{name: "what nobody knows", title: "file/motd", differs: `[{"field": "color", "have": "red"}]`, says: "its color"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Answer{Resource: Resource{Title: c.title}, Unlooked: c.unlooked}
			if err := json.Unmarshal([]byte(c.differs), &a.Differs); err != nil {
				t.Fatal(err)
			}
			have := config(t)
			fields, err := a.Adopt(have)
			if c.want == "" {
				var refusal *Refusal
				if !errors.As(err, &refusal) || !strings.Contains(refusal.Words, c.says) || !strings.Contains(refusal.Hint, c.hint) {
					t.Errorf("it says %+v, want a refusal with %q", err, c.says)
				}
				if !reflect.DeepEqual(have, config(t)) {
					t.Errorf("refused, and the config is changed: %v", have.Object)
				}
				return
			}
			if err != nil || strings.Join(fields, " ") != c.fields {
				t.Fatalf("fields %q (%v), want %q", fields, err, c.fields)
			}
			want := config(t)
			list, _, _ := unstructured.NestedSlice(want.Object, "spec", "resources")
			var resource map[string]any
			if err := yaml.Unmarshal([]byte(c.want), &resource); err != nil {
				t.Fatal(err)
			}
			list[c.index] = resource
			if err := unstructured.SetNestedSlice(want.Object, list, "spec", "resources"); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(have, want) {
				t.Errorf("have %v\nwant %v", have.Object, want.Object)
			}
		})
	}
}

// TestText: a person reads what is there, and what can be done with it.
func TestText(t *testing.T) {
	theirs := "theirs\n"
	a := &Answer{Resource: Resource{Title: "file/motd", Claim: "path:/etc/motd", Config: "NodeConfig/qa/web", Outcome: "deferred", Detail: "hold"},
		Differs: []Difference{{Field: "content", Have: "7 B", Want: "5 B", Content: &theirs}, {Field: "mode", Have: "0600", Want: "0644"}}}
	said := a.Text("one", time.Now(), present.Style{})
	for _, want := range []string{"there is content 7 B, declared 5 B\n", "there is mode 0600, declared 0644\n", "next: tako adopt file/motd --node one"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	a.Resource.Detail, a.Differs = "", []Difference{{Have: "absent", Want: "file"}, {Field: "mode", Want: "0644"}}
	if said := a.Text("one", time.Now(), present.Style{}); !strings.Contains(said, "there is nothing of it\n") || strings.Contains(said, "mode") || strings.Contains(said, "adopt") {
		t.Errorf("of nothing it says\n%s", said)
	}
}

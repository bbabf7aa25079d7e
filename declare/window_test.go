package declare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidateWindows(t *testing.T) {
	night := []Window{{Opens: "Sun 02:00", Duration: "2h"}}
	file := func(r Resource) Resource {
		r.Name, r.File = "f", &File{Path: "/f"}
		return r
	}
	service := func(r Resource) Resource {
		r.Name, r.Service = "s", &Service{}
		return r
	}
	for _, c := range []struct {
		name string
		spec NodeConfigSpec
		want string
	}{
		{"of a config", NodeConfigSpec{Windows: night, Resources: []Resource{file(Resource{}), service(Resource{})}}, ""},
		{"in a zone", NodeConfigSpec{Windows: []Window{{Opens: "Mon..Fri 22:00 Europe/Berlin", Duration: "90m"}}}, ""},
		{"of a service", NodeConfigSpec{Resources: []Resource{service(Resource{Windows: night})}}, ""},
		{"of a file", NodeConfigSpec{Resources: []Resource{file(Resource{Windows: night})}}, "TK0415 spec.resources[0].windows"},
		{"of a file for changes", NodeConfigSpec{Resources: []Resource{file(Resource{Windows: night, WindowFor: WindowForChanges})}}, ""},
		{"of a file for changes of the config", NodeConfigSpec{WindowFor: WindowForChanges, Windows: night, Resources: []Resource{file(Resource{Windows: night})}}, ""},
		{"for nothing", NodeConfigSpec{Windows: night, Resources: []Resource{service(Resource{WindowFor: WindowForNothing})}}, ""},
		{"windows for nothing", NodeConfigSpec{Resources: []Resource{service(Resource{Windows: night, WindowFor: WindowForNothing})}}, "TK0415 spec.resources[0].windowFor"},
		{"a config for nothing", NodeConfigSpec{Windows: night, WindowFor: WindowForNothing}, "TK0415 spec.windowFor"},
		{"no windows", NodeConfigSpec{WindowFor: WindowForChanges, Resources: []Resource{service(Resource{WindowFor: WindowForChanges})}}, "TK0415 spec.windowFor, TK0415 spec.resources[0].windowFor"},
		{"another word", NodeConfigSpec{Windows: night, WindowFor: "restart"}, "TK0414 spec.windowFor"},
		{"empty", NodeConfigSpec{Windows: []Window{{}}}, "TK0413 spec.windows[0].opens, TK0413 spec.windows[0].duration"},
		{"no expression", NodeConfigSpec{Windows: []Window{{Opens: "Sunday night", Duration: "1h"}}}, "TK0414 spec.windows[0].opens"},
		{"no zone", NodeConfigSpec{Windows: []Window{{Opens: "02:00 CEST", Duration: "1h"}}}, "TK0414 spec.windows[0].opens"},
		{"never", NodeConfigSpec{Windows: []Window{{Opens: "*-02-30", Duration: "1h"}}}, "TK0414 spec.windows[0].opens"},
		{"too short", NodeConfigSpec{Windows: []Window{{Opens: "daily", Duration: "30s"}}}, "TK0414 spec.windows[0].duration"},
		{"too long", NodeConfigSpec{Windows: []Window{{Opens: "daily", Duration: "169h"}}}, "TK0414 spec.windows[0].duration"},
		{"seconds", NodeConfigSpec{Windows: []Window{{Opens: "daily", Duration: "61s"}}}, "TK0414 spec.windows[0].duration"},
		{"too many", NodeConfigSpec{Windows: slices.Repeat(night, windowsMax+1)}, "TK0414 spec.windows"},
	} {
		config := config()
		config.Spec = c.spec
		if got := summary(Validate(config)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestEffectiveWindows: what the config says is said of each resource of which something waits, and of no other, so that other windows
// change nothing else.
func TestEffectiveWindows(t *testing.T) {
	night, noon := []Window{{Opens: "02:00", Duration: "2h"}}, []Window{{Opens: "12:00", Duration: "1h"}}
	f, s := &File{Path: "/f"}, &Service{}
	for _, c := range []struct {
		windows []Window
		what    WindowFor
		r       Resource
		want    string // windows and what for
	}{
		{nil, "", Resource{Service: s}, "[] "},
		{night, "", Resource{File: f}, "[] "},
		{night, "", Resource{Service: s}, "[{02:00 2h}] "},
		{night, WindowForRestarts, Resource{Service: s}, "[{02:00 2h}] "},
		{night, "", Resource{Service: s, Windows: noon}, "[{12:00 1h}] "},
		{night, "", Resource{Service: s, WindowFor: WindowForNothing}, "[] "},
		{night, "", Resource{File: f, WindowFor: WindowForChanges}, "[{02:00 2h}] changes"},
		{night, WindowForChanges, Resource{File: f}, "[{02:00 2h}] changes"},
		{night, WindowForChanges, Resource{Service: s, WindowFor: WindowForRestarts}, "[{02:00 2h}] "},
		{night, WindowForChanges, Resource{File: f, WindowFor: WindowForNothing}, "[] "},
		{nil, "", Resource{Service: s, Windows: noon, WindowFor: WindowForChanges}, "[{12:00 1h}] changes"},
	} {
		spec := NodeConfigSpec{Windows: c.windows, WindowFor: c.what, Resources: []Resource{c.r}}
		got := spec.Effective()[0]
		if text := fmt.Sprint(got.Windows, " ", got.WindowFor); text != c.want || got.Frozen() != strings.HasSuffix(c.want, "changes") {
			t.Errorf("%v for %q, %+v: %q, want %q", c.windows, c.what, c.r, text, c.want)
		}
		if times := got.Times(); len(times) != len(got.Windows) || len(times) > 0 && times[0].Duration < time.Hour {
			t.Errorf("%v: %v", got.Windows, times)
		}
	}
}

func TestValidateIgnore(t *testing.T) {
	file := &File{Path: "/f"}
	for _, c := range []struct {
		r    Resource
		want string
	}{
		{Resource{Name: "f", File: file, Ignore: []string{"content", "mode", "owner", "group"}}, ""},
		{Resource{Name: "f", File: file, Ignore: []string{"mode", "mode"}}, "TK0414 spec.resources[0].ignore[1]"},
		{Resource{Name: "f", File: file, Ignore: []string{"path", "modes"}}, "TK0414 spec.resources[0].ignore[0], TK0414 spec.resources[0].ignore[1]"},
		{Resource{Name: "f", File: file, Ignore: slices.Repeat([]string{"mode"}, 5)}, "TK0414 spec.resources[0].ignore"},
		{Resource{Name: "d", Directory: &Directory{Path: "/d"}, Ignore: []string{"mode"}}, ""},
		{Resource{Name: "d", Directory: &Directory{Path: "/d", Recurse: &Recurse{FileMode: "0644"}}, Ignore: []string{"mode"}}, "TK0415 spec.resources[0].ignore"},
		{Resource{Name: "d", Directory: &Directory{Path: "/d"}, Ignore: []string{"content"}}, "TK0414 spec.resources[0].ignore[0]"},
		{Resource{Name: "s", Service: &Service{}, Ignore: []string{"state", "enabled", "masked"}}, ""},
		{Resource{Name: "vim", Package: &Package{}, Ignore: []string{"version"}}, "TK0415 spec.resources[0].ignore"},
		{Resource{Name: "x", Ignore: []string{"mode"}}, "TK0416 spec.resources[0]"},
	} {
		if got := summary(Validate(config(c.r))); got != c.want {
			t.Errorf("%v of %s: got %s, want %s", c.r.Ignore, c.r.Title(), got, c.want)
		}
	}
}

package declare

import (
	"strings"
	"testing"
)

func TestDataMistakes(t *testing.T) {
	long := strings.Repeat("k", DataKeyBytesMax)
	for _, c := range []struct {
		data Data
		want string
	}{
		{Data{Key: "users/alice/quota", Value: "10G"}, ""},
		{Data{Key: "ä:b=c"}, ""},
		{Data{Key: long, Value: "x\n\ty"}, ""},
		{Data{Key: "a", Base64: "AAEC/w=="}, ""},
		{Data{}, "TK0413 data.key"},
		{Data{Key: long + "k"}, "TK0414 data.key"},
		{Data{Key: "a b"}, "TK0414 data.key"},
		{Data{Key: "a\u00a0b"}, "TK0414 data.key"},
		{Data{Key: "a\x00"}, "TK0414 data.key"},
		{Data{Key: "a\xff"}, "TK0414 data.key"},
		{Data{Key: "a", Value: "\xff"}, "TK0414 data.value"},
		{Data{Key: "a", Value: "x", Base64: "AA=="}, "TK0414 data.base64"},
		{Data{Key: "a", Base64: "AA"}, "TK0414 data.base64"},
		{Data{Key: "a", Base64: "AB=="}, "TK0414 data.base64"}, // bits that mean nothing
		{Data{Key: "a", Base64: "AA=="[:2] + "\n=="}, "TK0414 data.base64"},
		{Data{Key: "a", Base64: "-_8="}, "TK0414 data.base64"},
		{Data{Key: "a", Value: strings.Repeat("x", BodyBytesMax)}, "TK0429 spec.resources[0]"},
	} {
		got := strings.ReplaceAll(mistakes(Resource{Name: "a", Data: &c.data}), "spec.resources[0].", "")
		if got != c.want {
			t.Errorf("%.80q: %s, want %s", c.data, got, c.want)
		}
	}
}

// Data is delivered and not acted upon, so what is about acting is refused by its name.
func TestDataHasNoOrder(t *testing.T) {
	data := func() Resource { return Resource{Name: "d", Data: &Data{Key: "k"}} }
	for field, change := range map[string]func(*Resource){
		"require":   func(r *Resource) { r.Require = []string{"f"} },
		"before":    func(r *Resource) { r.Before = []string{"f"} },
		"notify":    func(r *Resource) { r.Notify = []string{"f"} },
		"subscribe": func(r *Resource) { r.Subscribe = []string{"f"} },
		"onFailure": func(r *Resource) { r.OnFailure = []string{"f"} },
		"when":      func(r *Resource) { r.When = "facts.arch == 'amd64'" },
		"expand":    func(r *Resource) { r.Expand = true },
		"drift":     func(r *Resource) { r.Drift = DriftObserve },
		"ignore":    func(r *Resource) { r.Ignore = []string{"value"} },
		"windowFor": func(r *Resource) { r.WindowFor = WindowForChanges },
		"windows":   func(r *Resource) { r.Windows = []Window{{Opens: "Sun 02:00", Duration: "2h"}} },
		"onRemove":  func(r *Resource) { r.OnRemove = OnRemoveDelete },
	} {
		r := data()
		change(&r)
		faults := Validate(config(r, Resource{Name: "f", File: &File{Path: "/f"}}))
		found := false
		for _, f := range faults {
			found = found || f.Path == "spec.resources[0]."+field
		}
		if !found {
			t.Errorf("%s: %s", field, summary(faults))
		}
	}
	// Nor can others have an order with it.
	for _, r := range []Resource{{Require: []string{"d"}}, {Before: []string{"d"}}, {Notify: []string{"d"}}, {Subscribe: []string{"d"}}, {OnFailure: []string{"d"}}} {
		r.Name, r.File = "f", &File{Path: "/f"}
		if faults := Validate(config(data(), r)); len(faults) == 0 || !strings.HasPrefix(faults[0].Path, "spec.resources[1].") || !strings.Contains(faults[0].Message, "delivered") {
			t.Errorf("%+v: %v", r, faults)
		}
	}
}

func TestData(t *testing.T) {
	r := Resource{Name: "quota", Data: &Data{Key: "users/alice/quota", Base64: "AAEC/w=="}}
	if r.Claim() != (Claim{ClaimData, "users/alice/quota"}) || r.Title() != "data/quota" || !r.Delivered() {
		t.Errorf("it is %s, and claims %s", r.Title(), r.Claim())
	}
	if got := r.Data.Bytes(); string(got) != "\x00\x01\x02\xff" {
		t.Errorf("its value is %q", got)
	}
	unnamed := r.Unrelated()
	if unnamed.Title() != "data/users/alice/quota" {
		t.Errorf("without a name it is %s", unnamed.Title())
	}
	if c, ok := ParseClaim("data:a:b"); !ok || c != (Claim{ClaimData, "a:b"}) {
		t.Errorf("its claim is read as %v", c)
	}
	twice := config(r, Resource{Name: "b", Data: &Data{Key: "users/alice/quota"}})
	if got := summary(Validate(twice)); got != "TK0421 spec.resources[1].data.key" {
		t.Errorf("one key twice: %s", got)
	}
}

// What a config says of all its resources is not said of data: otherwise the same data would be another declaration there.
func TestDataIsWithoutWhatTheConfigSays(t *testing.T) {
	c := config(Resource{Name: "d", Data: &Data{Key: "k"}}, Resource{Name: "f", File: &File{Path: "/f"}})
	c.Spec.Drift, c.Spec.WindowFor = DriftObserve, WindowForChanges
	c.Spec.Windows = []Window{{Opens: "Sun 02:00", Duration: "2h"}}
	if faults := Validate(c); len(faults) > 0 {
		t.Fatal(faults)
	}
	got := c.Spec.Effective()
	if got[0].Drift != "" || len(got[0].Windows) > 0 || got[0].WindowFor != "" || got[1].Drift == "" || len(got[1].Windows) == 0 {
		t.Errorf("%+v", got)
	}
}

func TestDataIsNotCountedAmongWhatActs(t *testing.T) {
	var resources []Resource
	for i := range ResourcesMax + 1 {
		resources = append(resources, Resource{Data: &Data{Key: strings.Repeat("k", i%7+1)}})
	}
	if n := acting(resources); n != 0 {
		t.Errorf("%d act", n)
	}
	resources[3] = Resource{File: &File{}}
	if n := acting(resources); n != 1 {
		t.Errorf("%d act", n)
	}
}

func TestBundleReference(t *testing.T) {
	for digest, good := range map[string]bool{someDigest: true, "": false, "sha256:": false, strings.ToUpper(someDigest): false, strings.TrimPrefix(someDigest, "sha256:"): false} {
		c := config()
		c.Spec.Bundle = &BundleReference{Digest: digest}
		if got := summary(Validate(c)); (got == "") != good {
			t.Errorf("%q: %s", digest, got)
		}
	}
}

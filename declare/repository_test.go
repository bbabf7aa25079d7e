package declare

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// keyOfTest is a public key that gpg has made, and nobody has the other half of.
func keyOfTest(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/repository.asc")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func aptOf(change func(*AptRepository)) Resource {
	a := &AptRepository{Uris: []string{"https://deb.example.com/debian"}, Suites: []string{"bookworm"}, Components: []string{"main"}}
	change(a)
	return Resource{Name: "lab", Repository: &Repository{Apt: a}}
}

func dnfOf(change func(*DnfRepository)) Resource {
	d := &DnfRepository{BaseURL: []string{"https://rpm.example.com/$releasever/$basearch"}, Options: map[string]string{"gpgcheck": "0"}}
	change(d)
	return Resource{Name: "lab", Repository: &Repository{Dnf: d}}
}

func TestValidateAptRepository(t *testing.T) {
	key := keyOfTest(t)
	const at = "spec.resources[0].repository.apt."
	many := slices.Repeat([]string{"x"}, 33)
	for name, c := range map[string]struct {
		change func(*AptRepository)
		want   string
	}{
		"plain": {func(*AptRepository) {}, ""},
		"all": {func(a *AptRepository) {
			a.Key, a.Source, a.Architectures, a.Options = key, true, []string{"amd64", "arm64"}, map[string]string{"Check-Valid-Until": "no"}
		}, ""},
		"a path":             {func(a *AptRepository) { a.Suites, a.Components = []string{"./"}, nil }, ""},
		"a root":             {func(a *AptRepository) { a.Suites, a.Components = []string{"/"}, nil }, ""},
		"a suite with parts": {func(a *AptRepository) { a.Suites = []string{"bookworm/updates", "bookworm-security"} }, ""},
		"files":              {func(a *AptRepository) { a.Uris = []string{"file:///srv/x", "file:/srv/y", "copy:/srv/z"} }, ""},
		"apt's own":          {func(a *AptRepository) { a.Uris = []string{"http://x:8080/$(ARCH)/a~b"} }, ""},
		"mirrors":            {func(a *AptRepository) { a.Uris = []string{"mirror+https://x/list", "mirror+file:/etc/mirrors"} }, ""},
		"no uris":            {func(a *AptRepository) { a.Uris = nil }, "TK0413 " + at + "uris"},
		"no suites":          {func(a *AptRepository) { a.Suites = nil }, "TK0413 " + at + "suites"},
		"no components":      {func(a *AptRepository) { a.Components = nil }, "TK0413 " + at + "components"},
		"path and parts":     {func(a *AptRepository) { a.Suites = []string{"./"} }, "TK0415 " + at + "components"},
		"both kinds":         {func(a *AptRepository) { a.Suites = []string{"./", "bookworm"} }, "TK0414 " + at + "suites"},
		"a line break":       {func(a *AptRepository) { a.Uris[0] = "http://x/\nTrusted: yes" }, "TK0414 " + at + "uris[0]"},
		"a blank":            {func(a *AptRepository) { a.Uris[0] = "http://x/ http://y/" }, "TK0414 " + at + "uris[0]"},
		"an option":          {func(a *AptRepository) { a.Uris[0] = "[trusted=yes] http://x/" }, "TK0414 " + at + "uris[0]"},
		"a password":         {func(a *AptRepository) { a.Uris[0] = "https://me:geheim@x/" }, "TK0414 " + at + "uris[0]"},
		"a user":             {func(a *AptRepository) { a.Uris[0] = "https://me@x/" }, "TK0414 " + at + "uris[0]"},
		"no scheme":          {func(a *AptRepository) { a.Uris[0] = "/srv/x" }, "TK0414 " + at + "uris[0]"},
		"another scheme":     {func(a *AptRepository) { a.Uris[0] = "javascript://x" }, "TK0414 " + at + "uris[0]"},
		"no host":            {func(a *AptRepository) { a.Uris[0] = "http:///x" }, "TK0414 " + at + "uris[0]"},
		"a relative file":    {func(a *AptRepository) { a.Uris[0] = "file:x" }, "TK0414 " + at + "uris[0]"},
		"a fragment":         {func(a *AptRepository) { a.Uris[0] = "http://x/#y" }, "TK0414 " + at + "uris[0]"},
		"twice":              {func(a *AptRepository) { a.Uris = append(a.Uris, a.Uris[0]) }, "TK0414 " + at + "uris[1]"},
		"too many":           {func(a *AptRepository) { a.Components = many }, "TK0414 " + at + "components"},
		"out":                {func(a *AptRepository) { a.Suites = []string{"../x"} }, "TK0414 " + at + "suites[0]"},
		"two words":          {func(a *AptRepository) { a.Components = []string{"main contrib"} }, "TK0414 " + at + "components[0]"},
		"an argument":        {func(a *AptRepository) { a.Architectures = []string{"-x"} }, "TK0414 " + at + "architectures[0]"},
		"no key":             {func(a *AptRepository) { a.Key = "0x1234" }, "TK0414 " + at + "key"},
		"two keys":           {func(a *AptRepository) { a.Key, a.Options = key, map[string]string{"signed-by": "/x.gpg"} }, "TK0415 " + at + "options"},
		"a key of the host":  {func(a *AptRepository) { a.Options = map[string]string{"Signed-By": "/usr/share/keyrings/x.gpg"} }, ""},
		"own field":          {func(a *AptRepository) { a.Options = map[string]string{"URIs": "http://x"} }, "TK0415 " + at + "options"},
		"option, break":      {func(a *AptRepository) { a.Options = map[string]string{"By-Hash": "yes\nTrusted: yes"} }, "TK0414 " + at + "options"},
		"option, old break":  {func(a *AptRepository) { a.Options = map[string]string{"By-Hash": "yes\rTrusted: yes"} }, "TK0414 " + at + "options"},
		"option's name":      {func(a *AptRepository) { a.Options = map[string]string{"a: b\nTrusted": "yes"} }, "TK0414 " + at + "options"},
		"option, empty":      {func(a *AptRepository) { a.Options = map[string]string{"By-Hash": ""} }, "TK0414 " + at + "options"},
		"option, twice":      {func(a *AptRepository) { a.Options = map[string]string{"By-Hash": "no", "by-hash": "yes"} }, "TK0414 " + at + "options"},
		"on purpose":         {func(a *AptRepository) { a.Options = map[string]string{"Trusted": "yes"} }, ""},
	} {
		if got := mistakes(aptOf(c.change)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestValidateDnfRepository(t *testing.T) {
	key := keyOfTest(t)
	const at = "spec.resources[0].repository.dnf"
	for name, c := range map[string]struct {
		change func(*DnfRepository)
		want   string
	}{
		"plain": {func(*DnfRepository) {}, ""},
		"a key": {func(d *DnfRepository) { d.Key, d.Options, d.Title = key, nil, "The lab's" }, ""},
		"mirrors": {func(d *DnfRepository) {
			d.BaseURL, d.Mirrorlist = nil, "https://x/list?repo=$releasever&arch=$basearch"
		}, ""},
		"a key of the host": {func(d *DnfRepository) {
			d.Options = map[string]string{"gpgkey": "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-x, file:///y"}
		}, ""},
		"another's key":   {func(d *DnfRepository) { d.Options = map[string]string{"gpgkey": "https://x/key"} }, "TK0414 " + at + ".options"},
		"no key":          {func(d *DnfRepository) { d.Options = nil }, "TK0413 " + at},
		"no key, checked": {func(d *DnfRepository) { d.Options["gpgcheck"] = "1" }, "TK0413 " + at},
		"two keys":        {func(d *DnfRepository) { d.Key, d.Options = key, map[string]string{"gpgkey": "file:///x"} }, "TK0415 " + at + ".options"},
		"no place":        {func(d *DnfRepository) { d.BaseURL = nil }, "TK0413 " + at},
		"two places":      {func(d *DnfRepository) { d.Mirrorlist = "https://x/" }, "TK0415 " + at + ".mirrorlist"},
		"a password":      {func(d *DnfRepository) { d.BaseURL[0] = "https://me:geheim@x/" }, "TK0414 " + at + ".baseURL[0]"},
		"bad mirrors":     {func(d *DnfRepository) { d.BaseURL, d.Mirrorlist = nil, "x" }, "TK0414 " + at + ".mirrorlist"},
		"a title's break": {func(d *DnfRepository) { d.Title = "x\ngpgcheck=0" }, "TK0414 " + at + ".title"},
		"own field":       {func(d *DnfRepository) { d.Options["enabled"] = "0" }, "TK0415 " + at + ".options"},
	} {
		if got := mistakes(dnfOf(c.change)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestValidateRepository(t *testing.T) {
	const at = "spec.resources[0].repository"
	for name, c := range map[string]struct {
		r    Repository
		want string
	}{
		"neither":     {Repository{}, "TK0413 " + at},
		"both":        {Repository{Apt: &AptRepository{}, Dnf: &DnfRepository{}}, "TK0415 " + at + ".dnf"},
		"absent":      {Repository{State: EditAbsent, Apt: &AptRepository{}}, ""},
		"absent, dnf": {Repository{State: EditAbsent, Dnf: &DnfRepository{Title: "x"}}, "TK0415 " + at + ".dnf.title"},
		"absent, apt": {Repository{State: EditAbsent, Apt: &AptRepository{Uris: []string{"http://x/"}}}, "TK0415 " + at + ".apt.uris"},
		"state":       {Repository{State: "gone", Apt: aptOf(func(*AptRepository) {}).Repository.Apt}, "TK0414 " + at + ".state"},
		"suffix":      {Repository{Repository: "x.sources", Apt: aptOf(func(*AptRepository) {}).Repository.Apt}, "TK0414 " + at + ".repository"},
		"name":        {Repository{Repository: "a/b", Apt: aptOf(func(*AptRepository) {}).Repository.Apt}, "TK0414 " + at + ".repository"},
		"hidden":      {Repository{Repository: ".x", Apt: aptOf(func(*AptRepository) {}).Repository.Apt}, "TK0414 " + at + ".repository"},
	} {
		if got := mistakes(Resource{Name: "lab", Repository: &c.r}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	gone := Resource{Name: "lab", OnRemove: OnRemoveDelete, Repository: &Repository{State: EditAbsent, Apt: &AptRepository{}}}
	if got := mistakes(gone); got != "TK0415 spec.resources[0].onRemove" {
		t.Errorf("delete what is absent: %q", got)
	}
	expanded := aptOf(func(a *AptRepository) { a.Suites = []string{"$(node.labels['suite'])"} })
	expanded.Expand = true
	if got := mistakes(expanded); got != "" {
		t.Errorf("expanded: %q", got)
	}
	name := aptOf(func(*AptRepository) {})
	name.Expand, name.Repository.Repository = true, "$(os.id)"
	if got := mistakes(name); !strings.Contains(got, "TK0415 spec.resources[0].repository.repository") {
		t.Errorf("an expanded name: %q", got)
	}
}

// TestRepositoryTellsNothing gives secrets in wrong places.
func TestRepositoryTellsNothing(t *testing.T) {
	private := strings.ReplaceAll(keyOfTest(t), "PUBLIC", "PRIVATE")
	secret := strings.Split(private, "\n")[3]
	for name, r := range map[string]Resource{
		"apt key":      aptOf(func(a *AptRepository) { a.Key = private }),
		"dnf key":      dnfOf(func(d *DnfRepository) { d.Key, d.Options = private, nil }),
		"apt password": aptOf(func(a *AptRepository) { a.Uris[0] = "https://me:" + secret + "@x/\n" }),
		"dnf password": dnfOf(func(d *DnfRepository) { d.BaseURL[0] = "nonsense:me:" + secret + "@x" }),
	} {
		faults := Validate(config(r))
		if len(faults) != 1 || strings.Contains(faults[0].Message+faults[0].Hint, secret) {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

func TestRepositoryUnchecked(t *testing.T) {
	for want, r := range map[string]Resource{
		"": aptOf(func(a *AptRepository) {
			a.Options = map[string]string{"Trusted": "no", "Check-Date": "yes", "By-Hash": "no"}
		}),
		"Trusted: yes":           aptOf(func(a *AptRepository) { a.Options = map[string]string{"Trusted": "yes"} }),
		"allow-insecure: 1":      aptOf(func(a *AptRepository) { a.Options = map[string]string{"allow-insecure": "1"} }),
		"Check-Valid-Until: off": aptOf(func(a *AptRepository) { a.Options = map[string]string{"Check-Valid-Until": "off"} }),
		"gpgcheck: 0":            dnfOf(func(*DnfRepository) {}),
		"sslverify: False":       dnfOf(func(d *DnfRepository) { d.Options = map[string]string{"gpgkey": "file:///x", "sslverify": "False"} }),
	} {
		if got := r.Repository.Unchecked(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRepositoryEdges(t *testing.T) {
	r := aptOf(func(*AptRepository) {})
	for _, want := range []AutoEdge{
		{Other: Claim{ClaimPath, aptSourcesDir}, Why: ParentDirectory}, {Other: Claim{ClaimPackage, "ca-certificates"}, Why: "certificates for a repository", Loose: true},
	} {
		if !slices.Contains(r.AutoEdges(), want) {
			t.Errorf("no %v in %v", want, r.AutoEdges())
		}
	}
	p := Resource{Name: "nginx", Package: &Package{}}
	if got := p.AutoEdges(); len(got) != 1 || got[0].Other != (Claim{Kind: ClaimRepository}) || !got[0].Loose {
		t.Errorf("of a package: %v", got)
	}
	p.Name = "ca-certificates"
	if got := p.AutoEdges(); len(got) != 0 {
		t.Errorf("of what a repository needs: %v", got)
	}
}

func FuzzRepositoryPlace(f *testing.F) {
	for _, s := range []string{"https://deb.example.com/debian", "file:/x", "http://[::1]:80/", "a:b@c", "mirror+file:/x\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, mistake := range []func(string) (string, string){AptURIMistake, DnfURLMistake, AptWordMistake} {
			message, _ := mistake(s)
			if message == "" && (strings.ContainsAny(s, " \t\r\n[]\"") || s == "") {
				t.Errorf("%q is accepted", s)
			}
			if len(message) > 1000 {
				t.Errorf("a long message of %q", s)
			}
		}
	})
}

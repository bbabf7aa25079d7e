package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Push is what a request says. Every field may be empty: then it is not known. All of it is a hint, and nothing to be applied.
type Push struct {
	Ping   bool   // the forge only tries whether somebody is there
	Ref    string // for example refs/heads/main; in a Generic push whatever its sender calls it
	Before string // commit, in hexadecimal; zeros for a ref that is new
	After  string // commit; zeros for a ref that was deleted
	URLs   []string
}

// Concerns tells whether a push may be one to the repository with a URL: its host and path are those of one of the URLs of the
// push, whatever the protocol, user and port; or the push names none.
func (p Push) Concerns(repository string) bool {
	if len(p.URLs) == 0 {
		return true
	}
	want, ok := place(repository)
	for _, u := range p.URLs {
		if got, known := place(u); ok && known && got == want {
			return true
		}
	}
	return false
}

// place is host and path of a URL or of the form user@host:path.
func place(repository string) (string, bool) {
	host, path := "", ""
	if u, err := url.Parse(repository); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Hostname(), u.Path
	} else if before, after, ok := strings.Cut(repository, ":"); ok && !strings.Contains(before, "/") && !strings.HasPrefix(after, "//") {
		host, path = before[strings.LastIndexByte(before, '@')+1:], after
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	return strings.ToLower(host) + "/" + path, host != "" && path != ""
}

// repository has the fields that forges name URLs with. GitLab calls it a project; GitHub and Gitea call what one clones from
// and looks at alike.
type repository struct {
	CloneURL string `json:"clone_url"`
	SSHURL   string `json:"ssh_url"`
	GitURL   string `json:"git_url"`
	HTMLURL  string `json:"html_url"`
	GitHTTP  string `json:"git_http_url"`
	GitSSH   string `json:"git_ssh_url"`
	WebURL   string `json:"web_url"`
}

// decode reads the fields that matter out of an object, one after the other. A body of which only the beginning is there gives
// what stands in the beginning.
func decode(kept []byte, all bool) (Push, error) {
	var p Push
	d := json.NewDecoder(bytes.NewReader(kept))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Push{}, errors.New("the body is no JSON object")
	}
	for d.More() {
		err := p.field(d)
		if !all && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) {
			return p, p.check()
		}
		if err != nil {
			return Push{}, errors.New("the body is no JSON, or not that of a push") // the decoder's words quote it
		}
	}
	if _, err := d.Token(); err != nil && all {
		return Push{}, errors.New("the body is no JSON object")
	}
	return p, p.check()
}

// field reads one field of the object.
func (p *Push) field(d *json.Decoder) error {
	key, err := d.Token()
	if err != nil {
		return err
	}
	var one string
	switch key {
	case "ref":
		return d.Decode(&p.Ref)
	case "before":
		return d.Decode(&p.Before)
	case "after":
		return d.Decode(&p.After)
	case "url":
		err := d.Decode(&one)
		p.add(one)
		return err
	case "repository", "project":
		var r repository
		err := d.Decode(&r)
		p.add(r.CloneURL, r.SSHURL, r.GitURL, r.HTMLURL, r.GitHTTP, r.GitSSH, r.WebURL)
		return err
	}
	var other json.RawMessage
	return d.Decode(&other)
}

func (p *Push) add(urls ...string) {
	for _, u := range urls {
		if u != "" {
			p.URLs = append(p.URLs, u)
		}
	}
}

const (
	// textBytesMax bounds a ref and a URL: git makes no longer ref than a path, and 4 KiB is that of Linux.
	textBytesMax = 4096
	// urlsMax bounds URLs: a forge sends five.
	urlsMax = 16
)

// check refuses what is no ref, commit or URL, because it is shown to people.
func (p *Push) check() error {
	for _, c := range []struct{ name, text string }{{"before", p.Before}, {"after", p.After}} {
		if len(c.text) > 64 || strings.Trim(c.text, "0123456789abcdef") != "" {
			return fmt.Errorf("%q is no commit", c.name)
		}
	}
	if len(p.URLs) > urlsMax {
		return fmt.Errorf("more than %d URLs are named", urlsMax)
	}
	for _, text := range append([]string{p.Ref}, p.URLs...) {
		if len(text) > textBytesMax || strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return errors.New("the ref or a URL is too long or has control characters")
		}
	}
	return nil
}

package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"tako.dev/tako/internal/reason"
)

// addresses reads where the submodules of a commit are, by the path of each. The program reads the file, so that it means what
// git takes it to mean; nothing that it includes is read.
func (g *Git) addresses(ctx context.Context, dir string, commit ID) (map[string]string, error) {
	files, err := g.modulesFile(ctx, dir, commit)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	var content []byte
	err = g.withBatch(ctx, dir, func(b *batch) error {
		e, raw, err := b.content(ctx, string(files[0].ID), g.limits.FileBytes)
		if err == nil && e.kind == "" {
			err = tooLarge(modulesName, fmt.Errorf("it has more than %d bytes", g.limits.FileBytes))
		}
		content = raw
		return err
	})
	if err != nil {
		return nil, err
	}
	m := &modulesList{}
	args := []string{"config", "--file", "-", "--no-includes", "--null", "--list"}
	err = g.run(ctx, command{doing: "read " + modulesName, args: args, stdin: content, stdout: &records{separator: 0, each: m.line}})
	if err != nil && reason.Of(err).Code == (command{}).fallback() {
		err = &reason.Error{Code: reason.RepositoryContent, Doing: "read " + modulesName, Cause: reason.Of(err).Cause, Hint: "see gitmodules(5)"}
	}
	return m.byPath(), err
}

// modulesList collects the records of git config.
type modulesList struct {
	names       []string // in the order of the file
	paths, urls map[string]string
}

// line reads "submodule.NAME.KEY<line end>VALUE"; of several values for a key git takes the last.
func (m *modulesList) line(record []byte) error {
	key, value, _ := bytes.Cut(record, []byte{'\n'})
	rest, ok := strings.CutPrefix(string(key), "submodule.")
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return nil
	}
	if m.paths == nil {
		m.paths, m.urls = map[string]string{}, map[string]string{}
	}
	name := rest[:dot]
	switch rest[dot+1:] {
	case "path":
		if _, known := m.paths[name]; !known {
			m.names = append(m.names, name)
		}
		m.paths[name] = string(value)
	case "url":
		m.urls[name] = string(value)
	}
	return nil
}

// byPath is what there is to follow. Of two submodules with one path the first counts.
func (m *modulesList) byPath() map[string]string {
	all := map[string]string{}
	for _, name := range m.names {
		p, address := strings.TrimSuffix(m.paths[name], "/"), m.urls[name]
		if _, known := all[p]; !known && address != "" {
			all[p] = address
		}
	}
	return all
}

// submoduleTarget says where a submodule is: relative to the repository that names it, or by a whole address. Either way it is where
// the first repository is, by the same protocol and at the same server, so that its credentials open it and nobody else sees them.
func (g *Git) submoduleTarget(root, parent *target, name, address string) (*target, error) {
	shown := quote(userInURL.ReplaceAllString(address, "://")) // it may hold a password
	refuse := func(why, hint string) (*target, error) {
		return nil, contentError(name, fmt.Sprintf("it is a submodule whose url %s %s", shown, why), hint)
	}
	if strings.HasPrefix(address, "./") || strings.HasPrefix(address, "../") {
		whole, err := relative(parent.url, address)
		if err != nil {
			return refuse(err.Error(), "write it relative to the url of the repository, without leaving its server")
		}
		address = whole
	}
	ours, err := serverOf(root.url)
	if err != nil {
		return nil, err
	}
	if theirs, err := serverOf(address); err != nil || theirs != ours {
		return refuse("is not at "+ours.String()+", where the Source is", "write it relative (../other.git), or put what it holds into this repository or a Source of its own")
	}
	t, err := g.target(Remote{URL: address, Auth: root.auth, PlainHTTP: root.protocol == overHTTP})
	if err != nil {
		return refuse(fmt.Sprintf("is not used: %v", reason.Of(err).Cause), reason.Of(err).Hint)
	}
	return t, nil
}

var (
	errAboveServer = errors.New("leads out of its server")
	errDots        = errors.New("has empty parts, or dots within it")
)

// relative is an address as git reads it in .gitmodules: each ../ at its beginning takes a part off the end of what it is relative to.
func relative(base, address string) (string, error) {
	before, parts := splitAddress(base)
	for {
		if rest, ok := strings.CutPrefix(address, "./"); ok {
			address = rest
			continue
		}
		rest, ok := strings.CutPrefix(address, "../")
		if !ok {
			break
		}
		if len(parts) == 0 {
			return "", errAboveServer
		}
		address, parts = rest, parts[:len(parts)-1]
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(address, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return "", errDots
		}
		parts = append(parts, part)
	}
	return before + strings.Join(parts, "/"), nil
}

// splitAddress splits an address that target has allowed into what is before its path, and the parts of that.
func splitAddress(address string) (before string, parts []string) {
	scheme, rest, isURL := strings.Cut(address, "://")
	host, name, _ := strings.Cut(rest, "/")
	before = scheme + "://" + host + "/"
	if !isURL {
		host, name, _ = strings.Cut(address, ":")
		before = host + ":"
		if strings.HasPrefix(name, "/") {
			before += "/"
		}
	}
	if name = strings.Trim(name, "/"); name != "" {
		parts = strings.Split(name, "/")
	}
	return before, parts
}

// server is where credentials may be sent.
type server struct {
	protocol   protocol
	user       string // of ssh: the same key opens other things to another user
	host, port string
}

func (s server) String() string {
	text := string(s.protocol) + "://"
	if s.user != "" {
		text += s.user + "@"
	}
	if text += s.host; s.port != "" {
		text += ":" + s.port
	}
	return text
}

// serverOf reads an address in any form that target allows.
func serverOf(address string) (server, error) {
	if !strings.Contains(address, "://") {
		host, _, ok := strings.Cut(address, ":")
		user, name, hasUser := strings.Cut(host, "@")
		if !ok {
			return server{}, errors.New("it is no address")
		}
		if !hasUser {
			user, name = "", host
		}
		return server{overSSH, user, strings.ToLower(name), ""}, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return server{}, errors.New("it is no URL") // what is wrong would quote a password
	}
	s := server{protocol(u.Scheme), u.User.Username(), strings.ToLower(u.Hostname()), u.Port()}
	if s.port == map[protocol]string{overHTTPS: "443", overHTTP: "80", overSSH: "22"}[s.protocol] {
		s.port = ""
	}
	return s, nil
}

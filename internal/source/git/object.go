package git

import (
	"bytes"
	"crypto/sha1" // #nosec: Git names objects by it; the git program checks for known collisions when it takes them in
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Person is an author, committer or tagger. The texts are what the repository says: valid UTF-8, without control
// characters, and proved by nothing but a signature.
type Person struct {
	Name, Email string
	Time        time.Time // in UTC; zero where the repository says nothing that is a time
}

// Commit is one commit.
type Commit struct {
	ID, Tree          ID
	Parents           []ID // as written in the commit; they are not fetched
	Author, Committer Person
	Subject           string // the first line of the message, shortened
	Raw               []byte // the object as it is hashed and signed
	Tag               *Tag   // the annotated tag that led here, or nil

	modules []module // its submodules and theirs, where they were asked for
}

// Tag is an annotated tag.
type Tag struct {
	ID, Target ID
	Name       string
	Tagger     Person
	Subject    string
	Raw        []byte
}

// objectMax bounds commits and tags. Those of people have a few kilobytes; a merge of signed tags carries them all.
const objectMax = 1 << 20

// hash names an object as Git does. size is the number of hexadecimal digits of the repository's ids.
func hash(kind string, content []byte, size int) ID {
	head := []byte(kind + " " + strconv.Itoa(len(content)) + "\x00")
	if size == 64 {
		h := sha256.New()
		h.Write(head)
		h.Write(content)
		return ID(hex.EncodeToString(h.Sum(nil)))
	}
	h := sha1.New() // #nosec
	h.Write(head)
	h.Write(content)
	return ID(hex.EncodeToString(h.Sum(nil)))
}

func parseCommit(id ID, raw []byte) (Commit, error) {
	c := Commit{ID: id, Raw: raw}
	message, err := headers(raw, func(key, value string) {
		switch key {
		case "tree":
			c.Tree = ID(value)
		case "parent":
			c.Parents = append(c.Parents, ID(value))
		case "author":
			c.Author = person(value)
		case "committer":
			c.Committer = person(value)
		}
	})
	if err == nil && !c.Tree.Valid() {
		err = errors.New("it names no tree")
	}
	if err != nil {
		return Commit{}, malformed("commit", id, err)
	}
	c.Subject = subject(message)
	return c, nil
}

func parseTag(id ID, raw []byte) (*Tag, error) {
	t := &Tag{ID: id, Raw: raw}
	kind := ""
	message, err := headers(raw, func(key, value string) {
		switch key {
		case "object":
			t.Target = ID(value)
		case "type":
			kind = value
		case "tag":
			t.Name = plain(value)
		case "tagger":
			t.Tagger = person(value)
		}
	})
	switch {
	case err != nil:
	case !t.Target.Valid():
		err = errors.New("it names no object")
	case kind != "commit":
		err = fmt.Errorf("it is of a %s, not of a commit", quote(kind))
	}
	if err != nil {
		return nil, malformed("tag", id, err)
	}
	t.Subject = subject(message)
	return t, nil
}

func malformed(kind string, id ID, err error) error {
	return &reason.Error{Code: reason.RepositoryContent, Doing: "read " + kind + " " + string(id), Cause: err, Hint: "see `git fsck` in the repository"}
}

// headers hands on each header before the first empty line, the first of each name only where git knows one (a forged second
// tree counts for nothing), and returns the message.
func headers(raw []byte, each func(key, value string)) ([]byte, error) {
	seen := map[string]bool{}
	for rest := raw; ; {
		line, after, ok := bytes.Cut(rest, []byte{'\n'})
		if !ok {
			return nil, errors.New("it has no end of headers")
		}
		rest = after
		if len(line) == 0 {
			return rest, nil
		}
		if line[0] == ' ' {
			continue // more of the header before
		}
		key, value, ok := strings.Cut(string(line), " ")
		if !ok || bytes.IndexByte(line, 0) >= 0 {
			return nil, errors.New("it has a malformed header")
		}
		if seen[key] && key != "parent" {
			continue
		}
		seen[key] = true
		each(key, value)
	}
}

// person reads "NAME <EMAIL> SECONDS ZONE". What it cannot read stays empty: it is for people to see, no decision rests on it.
func person(s string) Person {
	name, rest, _ := strings.Cut(s, "<")
	email, when, _ := strings.Cut(rest, ">")
	p := Person{Name: plain(strings.TrimSpace(name)), Email: plain(email)}
	seconds, err := strconv.ParseInt(strings.SplitN(strings.TrimSpace(when), " ", 2)[0], 10, 64)
	// Year 9999 is the last that RFC 3339 can write.
	if err == nil && seconds >= 0 && seconds < 253402300800 {
		p.Time = time.Unix(seconds, 0).UTC()
	}
	return p
}

func subject(message []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(message, "\n\r\t "), []byte{'\n'})
	return plain(strings.TrimSpace(string(line)))
}

// plainMax bounds what is shown of a name or subject: two lines of a terminal.
const plainMax = 200

// plain makes text of others fit to be shown: valid, on one line, without control characters, shortened.
func plain(s string) string {
	s = strings.Join(strings.Fields(reason.Clip([]byte(s[:min(len(s), 4*plainMax)]))), " ")
	for i := range s {
		if i >= plainMax {
			return s[:i] + "…"
		}
	}
	return s
}

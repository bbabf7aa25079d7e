// Package pick decides which commit a declared ref means, in the list of refs that a repository has. It is pure: no I/O, no
// clock, no state. The same list and declaration give the same answer in whatever order the list is.
package pick

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"tako.dev/tako/internal/reason"
)

// Ref is what a repository has, as the transport lists it.
type Ref struct {
	Name   string // "HEAD", "refs/heads/main", "refs/tags/v1.0.0"
	ID     string // what the name points at: a commit, or the object of an annotated tag
	Peeled string // of an annotated tag: the commit; empty otherwise
	Target string // of HEAD: the name of the default branch
}

// Want is what is declared: at most one of Branch, Tag and Semver, or a Commit, with or without the Branch on which it is
// looked for. Nothing at all is the default branch.
type Want struct {
	Branch string // "main", without refs/heads/
	Tag    string // "v1.0.0", without refs/tags/
	Semver string // a range of versions: ">=1.2 <2", "1.x", "~1.4.0-0"
	Commit string // 40 or 64 hexadecimal digits
}

// Choice is the answer.
type Choice struct {
	Ref     Ref    // what to fetch; of a Commit only ID is set, and Name where a branch is declared too
	Commit  string // the commit, as far as the list says
	Version string // of a range: the version that was chosen, as the tag has it, without "refs/tags/"
}

const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
)

// Pick finds what is wanted. Its errors are RefUnknown, which say what there is, and InvalidValue, of a declaration that
// cannot be right in any repository.
func Pick(want Want, refs []Ref) (Choice, error) {
	if err := want.Validate(); err != nil {
		return Choice{}, err
	}
	switch {
	case want.Commit != "":
		c := Choice{Ref: Ref{ID: want.Commit}, Commit: want.Commit}
		if want.Branch != "" {
			c.Ref.Name = heads + want.Branch
		}
		return c, nil
	case want.Branch != "":
		return named(refs, heads, "branch", want.Branch)
	case want.Tag != "":
		return named(refs, tags, "tag", want.Tag)
	case want.Semver != "":
		return newest(refs, want.Semver)
	}
	return head(refs)
}

// Validate says what is wrong with a declaration, whatever the repository has; nil when nothing is.
func (w Want) Validate() error {
	invalid := func(why, hint string) error {
		return &reason.Error{Code: reason.InvalidValue, Doing: "use ref " + w.String(), Cause: errors.New(why), Hint: hint}
	}
	given := 0
	for _, s := range []string{w.Branch, w.Tag, w.Semver} {
		if s != "" {
			given++
		}
	}
	switch {
	case given > 1 || w.Commit != "" && (w.Tag != "" || w.Semver != ""):
		return invalid("several refs are given", "give one of branch, tag, semver and commit")
	case w.Commit != "" && !isID(w.Commit):
		return invalid("a commit is named by 40 or 64 lower-case hexadecimal digits", "write the whole id, as git rev-parse shows it")
	case strings.HasPrefix(w.Branch, "refs/") || strings.HasPrefix(w.Tag, "refs/"):
		return invalid("branches and tags are named without refs/", "leave out refs/heads/ or refs/tags/")
	}
	if w.Semver != "" {
		if _, err := constraint(w.Semver); err != nil {
			return invalid(fmt.Sprintf("%q is not a range of versions", w.Semver), `write for example "1.x", ">=1.2 <2" or "~1.4.0-0"`)
		}
	}
	return nil
}

// String shows a declaration in an error.
func (w Want) String() string {
	var parts []string
	for _, p := range [][2]string{{"branch", w.Branch}, {"tag", w.Tag}, {"semver", w.Semver}, {"commit", w.Commit}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf("%s %q", p[0], p[1]))
		}
	}
	if len(parts) == 0 {
		return "default branch"
	}
	return strings.Join(parts, ", ")
}

func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func choice(r Ref) Choice {
	c := Choice{Ref: r, Commit: r.ID}
	if r.Peeled != "" {
		c.Commit = r.Peeled
	}
	return c
}

func head(refs []Ref) (Choice, error) {
	i := slices.IndexFunc(refs, func(r Ref) bool { return r.Name == "HEAD" })
	if i < 0 {
		return Choice{}, unknown("find the default branch", refs, heads, "branches", "", "the repository is empty or has no default branch: name a branch")
	}
	// The name of the branch says more than HEAD does; it is not in the list where only HEAD was asked for.
	if j := slices.IndexFunc(refs, func(r Ref) bool { return r.Name == refs[i].Target && r.ID == refs[i].ID }); j >= 0 {
		return choice(refs[j]), nil
	}
	return choice(refs[i]), nil
}

func named(refs []Ref, prefix, kind, name string) (Choice, error) {
	for _, r := range refs {
		if r.Name == prefix+name {
			return choice(r), nil
		}
	}
	plural := map[string]string{"branch": "branches", "tag": "tags"}[kind]
	return Choice{}, unknown(fmt.Sprintf("find %s %q", kind, name), refs, prefix, plural, name, "")
}

// newest finds the highest version in a range. Of tags with the same version, such as v1.0.0 and 1.0.0, or those that differ
// in build metadata only, which have no order, the last by name counts: whichever it is, it is always the same.
func newest(refs []Ref, text string) (Choice, error) {
	inRange, err := constraint(text)
	if err != nil {
		return Choice{}, err
	}
	var best *semver.Version
	var found Ref
	for _, r := range refs {
		name, isTag := strings.CutPrefix(r.Name, tags)
		if !isTag {
			continue
		}
		v := version(name)
		if v == nil || !inRange.Check(v) {
			continue
		}
		if order := compare(v, best); order > 0 || order == 0 && r.Name > found.Name {
			best, found = v, r
		}
	}
	if best == nil {
		return Choice{}, noVersion(refs, text)
	}
	c := choice(found)
	c.Version = strings.TrimPrefix(found.Name, tags)
	return c, nil
}

// constraint reads a range. Pre-releases are in it only where it names one, as the library has it.
func constraint(text string) (*semver.Constraints, error) {
	const most = 256 // the library takes time with the length
	if len(text) > most {
		return nil, errors.New("it is too long")
	}
	return semver.NewConstraint(text)
}

// version reads a tag as a version with all three numbers, with or without a "v" before it; nil where it is none.
func version(tag string) *semver.Version {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
	if err != nil {
		return nil
	}
	return v
}

func compare(v, best *semver.Version) int {
	if best == nil {
		return 1
	}
	return v.Compare(best)
}

func noVersion(refs []Ref, text string) error {
	var all []*semver.Version
	for _, r := range refs {
		if name, isTag := strings.CutPrefix(r.Name, tags); isTag {
			if v := version(name); v != nil {
				all = append(all, v)
			}
		}
	}
	doing := fmt.Sprintf("find a version in %q", text)
	if len(all) == 0 {
		return unknown(doing, refs, tags, "tags", "", "no tag is a version such as v1.2.3")
	}
	slices.SortFunc(all, (*semver.Version).Compare)
	newest := all[len(all)-1]
	hint := fmt.Sprintf("the newest version is %s", newest.Original())
	if newest.Prerelease() != "" {
		hint += "; for pre-releases, name one in the range: \">=1.0.0-0\""
	}
	return &reason.Error{Code: reason.RefUnknown, Doing: doing, Cause: fmt.Errorf("none of %d versions is in it", len(all)), Hint: hint}
}

// unknown says what there is: all where they are few, otherwise the nearest names.
func unknown(doing string, refs []Ref, prefix, plural, name, hint string) error {
	var list []string
	for _, r := range refs {
		if n, ok := strings.CutPrefix(r.Name, prefix); ok {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		if name != "" {
			if d := distance(a, name) - distance(b, name); d != 0 {
				return d
			}
		}
		return strings.Compare(a, b)
	})
	const shown = 5 // what fits on a line
	there := fmt.Sprintf("there are no %s", plural)
	if n := len(list); n > 0 {
		quoted := make([]string, 0, shown)
		for _, s := range list[:min(n, shown)] {
			quoted = append(quoted, fmt.Sprintf("%q", s))
		}
		there = fmt.Sprintf("there are %s", strings.Join(quoted, ", "))
		if n > shown {
			there += fmt.Sprintf(" and %d more", n-shown)
		}
	}
	if hint == "" {
		hint = "check the name"
		if len(list) > 0 && distance(list[0], name) <= 2 {
			hint = fmt.Sprintf("did you mean %q?", list[0])
		}
	}
	return &reason.Error{Code: reason.RefUnknown, Doing: doing, Cause: errors.New(there), Hint: hint}
}

// distance is the number of bytes to insert, remove or replace to come from a to b (Levenshtein). Long names are compared by
// their beginnings, so that a repository with many refs costs little.
func distance(a, b string) int {
	const most = 64
	a, b = strings.ToLower(a[:min(len(a), most)]), strings.ToLower(b[:min(len(b), most)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

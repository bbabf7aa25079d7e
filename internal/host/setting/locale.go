package setting

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	localeConf = "/etc/locale.conf"    // locale.conf(5)
	localeDeb  = "/etc/default/locale" // of Debian before 13
	localeGen  = "/etc/locale.gen"     // lists what locale-gen compiles, of Debian and Arch
	// localesSupported lists what glibc has sources for, in the same form.
	localesSupported = "/usr/share/i18n/SUPPORTED"
	// generateMax bounds locale-gen, which compiles all that are listed anew: several seconds each.
	generateMax    = 30 * time.Minute
	generateOutput = 16 << 10
	fieldGenerated = "generated"
	variableLang   = "LANG"
)

// locale is the host's language.
type locale struct {
	names    []string // of variables, sorted
	values   []string
	generate []string
}

func bindLocale(t *Type, r *declare.Resource) (thing, error) {
	l := &locale{generate: slices.Clone(r.Locale.Generate)}
	variables := map[string]string{}
	for name, value := range r.Locale.Variables {
		variables[name] = value
	}
	if r.Locale.Lang != "" {
		if err := expanded(l.doing(), declare.LocaleMistake, r.Locale.Lang); err != nil {
			return nil, err
		}
		variables[variableLang] = r.Locale.Lang
	}
	l.names = sortedNames(variables)
	for _, name := range l.names {
		l.values = append(l.values, variables[name])
	}
	if len(l.generate) > 0 && t.sandbox() {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: l.doing(), Hint: "a sandbox has files only, and no locale-gen: leave `generate` out"}
	}
	return l, nil
}

func (l *locale) doing() string { return "set the host's locale" }

func (l *locale) watches() []host.Watch {
	list := []host.Watch{{Kind: host.WatchPath, Name: localeConf}, {Kind: host.WatchPath, Name: localeDeb}}
	if len(l.generate) > 0 {
		list = append(list, host.Watch{Kind: host.WatchPath, Name: localeGen}, host.Watch{Kind: host.WatchEntries, Name: localeDir})
	}
	return list
}

func (l *locale) sign(s *signs) {
	s.file(localeConf)
	s.file(localeDeb)
	if len(l.generate) > 0 {
		s.file(localeGen)
		s.file(localeDir)
		s.file(localeArchive)
	}
}

// localeSight is how the language is set. The lists are joined, so that it can be compared.
type localeSight struct {
	file    string
	body    string
	has     bool
	missing string // locales that are to be generated
	unlists string // of those that are listed nowhere
	unknown string // the first of the missing that cannot be compiled
	near    string // what may have been meant
	gen     bool   // there is a list
}

func (l *locale) look(c *call) (any, error) {
	var s localeSight
	var err error
	if s.file, err = c.localeFile(); err != nil {
		return nil, err
	}
	f, err := c.read(s.file)
	if err != nil {
		return nil, err
	}
	s.body, s.has = f.body, f.there()
	if len(l.generate) == 0 {
		return s, nil
	}
	list, err := c.read(localeGen)
	if err != nil {
		return nil, err
	}
	s.gen = list.there()
	have, err := c.compiledLocales()
	if err != nil {
		return nil, err
	}
	var missing, unlisted []string
	for _, name := range l.generate {
		if !have[normalLocale(name)] {
			missing = append(missing, name)
		}
		if s.gen && !slices.ContainsFunc(strings.Split(list.body, "\n"), func(line string) bool { return lists(line, name) }) {
			unlisted = append(unlisted, name)
		}
	}
	s.missing, s.unlists = strings.Join(missing, " "), strings.Join(unlisted, " ")
	s.unknown, s.near, err = c.unsupported(missing)
	return s, err
}

// unsupported finds the first of the locales that no source is there for, and what may have been meant. Without a list of what there is,
// every one may be.
func (t *Type) unsupported(names []string) (unknown, near string, err error) {
	if len(names) == 0 {
		return "", "", nil
	}
	list, err := t.read(localesSupported)
	if err != nil || !list.there() {
		return "", "", err
	}
	var known []string
	for line := range strings.Lines(list.body) {
		if f := strings.Fields(line); len(f) == 2 {
			known = append(known, withSet(f[0], f[1]))
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return name, declare.Nearest(name, known), nil
		}
	}
	return "", "", nil
}

// localeFile is the file that the distribution has: where one is a link to the other, the other.
func (t *Type) localeFile() (string, error) {
	conf, err := t.root.Stat(localeConf)
	if err != nil || conf.Type() == unix.S_IFREG {
		return localeConf, err
	}
	deb, err := t.root.Stat(localeDeb)
	if err != nil || deb.Type() == unix.S_IFREG || t.isDebian() && !deb.Exists() {
		return localeDeb, err
	}
	return localeConf, nil
}

// variable reads a variable from a file of NAME=VALUE lines: the last one counts.
func variable(body, name string) string {
	value := ""
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			value = strings.Trim(strings.TrimSpace(rest), `"'`)
		}
	}
	return value
}

// withVariable gives a variable another value, "" for none. The last line that sets it is changed, and others that do go; all else stays.
func withVariable(body, name, value string) string {
	var lines []string
	at := -1
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), name+"=") {
			lines = append(lines, line)
		} else if at < 0 {
			at = len(lines)
		}
	}
	if value != "" {
		if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
			lines[n-1] += "\n"
		}
		if at < 0 {
			at = len(lines)
		}
		lines = slices.Insert(lines, at, name+"="+value+"\n")
	}
	return strings.Join(lines, "")
}

func (l *locale) compare(sight any) ([]host.Change, error) {
	now := sight.(localeSight)
	var changes []host.Change
	for i, name := range l.names {
		if have := variable(now.body, name); have != l.values[i] {
			changes = append(changes, host.Change{Field: name, From: have, To: l.values[i]})
		}
	}
	missing, unlisted := strings.Fields(now.missing), strings.Fields(now.unlists)
	if len(missing) > 0 && !now.gen {
		language, _, _ := strings.Cut(missing[0], "_")
		return changes, &reason.Error{Code: reason.SettingUnknown, Doing: l.doing(), Cause: errors.New("the locales " + strings.Join(missing, ", ") + " are not on the host, and " + localeGen + " is not there to have them compiled"),
			Hint: "require the package that brings them: glibc-langpack-" + language + " (Fedora and its relatives), or locales (Debian)"}
	}
	if now.unknown != "" {
		e := &reason.Error{Code: reason.SettingUnknown, Doing: l.doing(), Cause: errors.New("there is no locale " + now.unknown), Hint: localesSupported + " lists those that there are"}
		if now.near != "" {
			e.Hint = "did you mean " + now.near + "?"
		}
		return nil, e
	}
	for _, name := range l.generate {
		switch {
		case slices.Contains(missing, name):
			changes = append(changes, host.Change{Field: fieldGenerated, To: name})
		case slices.Contains(unlisted, name):
			changes = append(changes, host.Change{Field: localeGen, To: name})
		}
	}
	return changes, nil
}

func (l *locale) apply(ctx context.Context, t *Type, sight any) (work, error) {
	now := sight.(localeSight)
	var done work
	// Who logs in meanwhile is not to be told of a locale that is not there yet.
	if now.gen && now.missing+now.unlists != "" {
		if err := l.compile(ctx, t, &now, &done); err != nil {
			return done, err
		}
	}
	f, err := t.read(now.file)
	if err != nil {
		return done, err
	}
	body := f.body
	for i, name := range l.names {
		if variable(body, name) != l.values[i] {
			body = withVariable(body, name, l.values[i])
		}
	}
	if body != f.body {
		changed, err := t.write(ctx, f, body)
		done.changed = done.changed || changed
		if err != nil {
			return done, err
		}
		done.note = "sessions and services that run already keep their language until they are started anew"
	}
	return done, nil
}

// compile lists locales, and has them compiled where they are not there.
func (l *locale) compile(ctx context.Context, t *Type, now *localeSight, done *work) error {
	f, err := t.read(localeGen)
	if err != nil {
		return err
	}
	body := f.body
	for _, name := range strings.Fields(now.unlists) {
		body = withLocale(body, name)
	}
	changed, err := t.write(ctx, f, body)
	done.changed = done.changed || changed
	if err != nil || now.missing == "" {
		return err
	}
	output, err := command.Tool{Args: []string{"locale-gen"}, Limit: generateMax, Keep: generateOutput, Lasting: true}.Run(ctx)
	done.changed = done.changed || err == nil
	if err != nil {
		return toolError(l.doing()+": compile "+now.missing, output, err)
	}
	have, err := t.compiledLocales()
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(now.missing) {
		if !have[normalLocale(name)] {
			return &reason.Error{Code: reason.SettingUnknown, Doing: l.doing() + ": compile " + name, Cause: errors.New("locale-gen ended well, and there is no such locale"),
				Evidence: reason.Clip(output), Hint: "/usr/share/i18n/SUPPORTED lists those that there are"}
		}
	}
	return nil
}

// genLine is the line of a locale in locale.gen(5): its name, and its character set once more.
func genLine(name string) string {
	_, set, _ := strings.Cut(name, ".")
	set, _, _ = strings.Cut(set, "@")
	return name + " " + set
}

// withSet is a name of a locale with its character set in it.
func withSet(name, set string) string {
	language, modifier, modified := strings.Cut(name, "@")
	if !strings.Contains(language, ".") {
		language += "." + set
	}
	if modified {
		language += "@" + modifier
	}
	return language
}

func lists(line, name string) bool {
	return slices.Equal(strings.Fields(line), strings.Fields(genLine(name)))
}

// withLocale takes the comment sign from the line of a locale, or adds one.
func withLocale(body, name string) string {
	var b strings.Builder
	found := false
	for line := range strings.Lines(body) {
		if rest, commented := strings.CutPrefix(line, "#"); commented && !found && lists(rest, name) {
			line, found = strings.TrimLeft(rest, " \t"), true
		}
		b.WriteString(line)
	}
	if found {
		return b.String()
	}
	if n := b.Len(); n > 0 && !strings.HasSuffix(body, "\n") {
		b.WriteByte('\n')
	}
	return b.String() + genLine(name) + "\n"
}

type localeOriginal struct {
	There  bool              `json:"there"`
	Values map[string]string `json:"values"`
}

func (l *locale) original(_ *Type, sight any) ([]byte, error) {
	now := sight.(localeSight)
	o := localeOriginal{There: now.has, Values: map[string]string{}}
	for _, name := range l.names {
		o.Values[name] = variable(now.body, name)
	}
	return json.Marshal(o)
}

// undo leaves what was compiled.
func (l *locale) undo(ctx context.Context, t *Type, original []byte) error {
	o := localeOriginal{There: true}
	if original != nil {
		if err := unmarshal(l.doing(), original, &o); err != nil {
			return err
		}
	}
	p, err := t.localeFile()
	if err != nil {
		return err
	}
	f, err := t.read(p)
	if err != nil {
		return err
	}
	body := f.body
	for _, name := range l.names {
		if value := o.Values[name]; variable(body, name) != value {
			body = withVariable(body, name, value)
		}
	}
	if !f.there() && body == "" {
		return nil
	}
	if !o.There && strings.TrimSpace(body) == "" {
		_, err = t.remove(ctx, f)
		return err
	}
	_, err = t.write(ctx, f, body)
	return err
}

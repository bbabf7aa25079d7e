package bundles

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

const (
	// lineBytesMax is how long a line may be: a body, with every byte of it escaped.
	lineBytesMax = 6*declare.BodyBytesMax + 1024
	// faultsMax is how many mistakes are told; who has more has one of them many times.
	faultsMax = 100
)

// entry is one entry of a list. Of one from a file of lines there is in memory where it stands, and no more.
type entry struct {
	catalog.Row
	length uint32 // of the body
	file   uint32 // number of the file
	line   uint32 // from 1 on; 0 of one that is in memory
	bytes  uint32 // of the line
	at     int64  // where the line begins, or which of the items it is
}

// list is the entries that are declared in some files, sorted by key.
type list struct {
	entries []entry
	bytes   int64 // of all bodies

	names  []string
	open   map[uint32]*os.File
	items  []catalog.Item // of declarations, which were read as a whole
	places []declare.Place
	faults []declare.Fault
}

// read reads all that paths name. The error is failure.Refused for mistakes in it.
func read(ctx context.Context, paths []string) (*list, error) {
	l := &list{open: map[uint32]*os.File{}}
	for _, path := range paths {
		files, err := filesIn(path)
		if err != nil {
			return nil, failure.Of(err, "read "+path)
		}
		if len(files) == 0 {
			return nil, failure.Usage("read "+path, "there are no entries in it", "entries are in *.jsonl, one {\"key\": ..., \"value\": ...} on each line, or in *.yaml, *.yml and *.json, as resources of the type data")
		}
		for _, name := range files {
			if isLines(name) {
				err = l.lines(ctx, name)
			} else {
				l.documents(name)
			}
			if err != nil {
				return nil, failure.Of(err, "read "+name)
			}
		}
	}
	l.sort()
	l.within()
	if len(l.faults) > 0 {
		return nil, errors.Join(&failure.Refused{Faults: l.faults, Exit: present.ExitOf(l.faults), Source: excerpt}, l.close())
	}
	return l, nil
}

// excerpt reads a file for the lines around a mistake. A large one is not worth it.
func excerpt(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err == nil && st.Size() > declare.DocumentBytesMax {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

func isLines(name string) bool { return filepath.Ext(name) == ".jsonl" }

// filesIn lists what a path stands for: itself, or of a directory all files of the forms that are known, in the order of their names.
func filesIn(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return []string{path}, err
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		hidden := name != path && strings.HasPrefix(filepath.Base(name), ".")
		switch {
		case err != nil:
			return err
		case hidden && e.IsDir():
			return fs.SkipDir
		case hidden || !e.Type().IsRegular():
			return nil
		}
		if slices.Contains([]string{".jsonl", ".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// file gives a file a number.
func (l *list) file(name string) uint32 {
	l.names = append(l.names, name)
	return uint32(len(l.names) - 1)
}

func (l *list) fault(f declare.Fault) {
	if len(l.faults) < faultsMax {
		l.faults = append(l.faults, f)
	}
}

// lines reads a file that has an entry on each line. Only the line at hand is in memory.
func (l *list) lines(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	file := l.file(name)
	l.open[file] = f
	r := bufio.NewReaderSize(f, 1<<20)
	var line []byte
	for at, number := int64(0), uint32(1); ; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err = readLine(r, line[:0])
		if errors.Is(err, errLong) {
			l.fault(declare.Fault{Code: reason.BodyTooLarge, File: name, Line: int(number), Column: 1, Message: fmt.Sprintf("the line has more than %d bytes", lineBytesMax)})
			return nil // where the next one begins is not looked for
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			l.line(entry{file: file, line: number, bytes: uint32(len(line)), at: at}, text)
		}
		if err != nil || len(l.entries) > declare.BundleEntriesMax || len(l.faults) == faultsMax {
			return nil
		}
		at += int64(len(line))
	}
}

var errLong = errors.New("the line is too long")

// readLine appends the next line to a buffer, with its end. The error is io.EOF with the last one.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > lineBytesMax {
			return line, errLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// line takes the entry on a line.
func (l *list) line(e entry, text []byte) {
	item, fault := itemOf(text)
	if fault != nil {
		fault.File, fault.Line, fault.Column = l.names[e.file], int(e.line), 1
		l.fault(*fault)
		return
	}
	l.add(e, &item)
}

func (l *list) add(e entry, item *catalog.Item) {
	e.Row, e.length = item.Row(), uint32(len(item.Body))
	l.entries = append(l.entries, e)
	l.bytes += int64(len(item.Body))
}

// itemOf reads one line.
func itemOf(text []byte) (catalog.Item, *declare.Fault) {
	var d struct {
		declare.Data
		TTL string `json:"ttl"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return catalog.Item{}, &declare.Fault{Code: reason.InvalidValue, Message: "the line is no entry: " + firstLine(err), Hint: `write {"key": "a/b", "value": "text"}, or base64 in the place of value`}
	}
	if decoder.More() {
		return catalog.Item{}, &declare.Fault{Code: reason.InvalidValue, Message: "there is something after the entry", Hint: "each entry has a line of its own"}
	}
	if field, message, hint := d.Mistake(); message != "" {
		return catalog.Item{}, &declare.Fault{Code: reason.InvalidValue, Path: strings.TrimPrefix(field, "data."), Message: message, Hint: hint}
	}
	if message, hint := declare.TTLMistake(d.TTL); message != "" {
		return catalog.Item{}, &declare.Fault{Code: reason.InvalidValue, Path: "ttl", Message: message, Hint: hint}
	}
	item, err := catalog.DataItemFor(&d.Data, d.TTL)
	if err != nil {
		e := reason.Of(err)
		return catalog.Item{}, &declare.Fault{Code: e.Code, Message: e.Error(), Hint: e.Hint}
	}
	return item, nil
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// documents takes the resources of the declarations in a file, as a host that stands alone would.
func (l *list) documents(name string) {
	file := l.file(name)
	documents, err := declare.Load([]string{name})
	var faults declare.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			l.fault(f)
		}
		return
	}
	for i := range documents {
		d := &documents[i]
		for j := range d.Config.Spec.Resources {
			r := &d.Config.Spec.Resources[j]
			place := d.Place(declare.ResourcePath(j))
			if r.Data == nil {
				l.fault(declare.Fault{Code: reason.FieldNotAllowed, File: place.File, Line: place.Line, Column: place.Column, Path: place.Path,
					Message: r.Title() + " is acted upon, and a bundle holds data only", Hint: "declare it in the config that names the bundle"})
				continue
			}
			item, err := catalog.DataItemFor(r.Data, r.TTL)
			if err != nil {
				e := reason.Of(err)
				l.fault(declare.Fault{Code: e.Code, File: place.File, Line: place.Line, Column: place.Column, Path: place.Path, Message: e.Error()})
				continue
			}
			l.add(entry{file: file, at: int64(len(l.items))}, &item)
			l.items, l.places = append(l.items, item), append(l.places, place)
		}
	}
}

// sort puts the entries in order, and refuses two of one key.
func (l *list) sort() {
	slices.SortFunc(l.entries, func(a, b entry) int {
		return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.at, b.at))
	})
	for i := 1; i < len(l.entries); i++ {
		first, second := &l.entries[i-1], &l.entries[i]
		if first.Key != second.Key {
			continue
		}
		claim := "a key"
		if item, err := l.item(second); err == nil {
			claim = item.Claim
		}
		here, there := l.place(second), l.place(first)
		there.Note = "first declared here"
		l.fault(declare.Fault{Code: reason.DuplicateClaim, File: here.File, Line: here.Line, Column: here.Column, Path: here.Path,
			Message: claim + " is declared twice", Hint: "remove one of them", Related: []declare.Place{there}})
	}
}

// within refuses what is more than a bundle may have.
func (l *list) within() {
	if len(l.names) == 0 || len(l.faults) > 0 {
		return
	}
	at := declare.Place{File: l.names[0], Line: 1, Column: 1}
	switch {
	case len(l.entries) > declare.BundleEntriesMax:
		l.fault(declare.Fault{Code: reason.TooManyResources, File: at.File, Line: at.Line, Column: at.Column,
			Message: fmt.Sprintf("there are more than %d entries, which is what a bundle may have", declare.BundleEntriesMax), Hint: "spread them over several configs"})
	case l.bytes > declare.BundleBytesMax:
		l.fault(declare.Fault{Code: reason.TooManyResources, File: at.File, Line: at.Line, Column: at.Column,
			Message: fmt.Sprintf("the entries have %d bytes, a bundle may have %d", l.bytes, declare.BundleBytesMax), Hint: "spread them over several configs"})
	}
}

func (l *list) place(e *entry) declare.Place {
	if e.line == 0 {
		return l.places[e.at]
	}
	return declare.Place{File: l.names[e.file], Line: int(e.line), Column: 1}
}

// item reads an entry again.
func (l *list) item(e *entry) (catalog.Item, error) {
	if e.line == 0 {
		return l.items[e.at], nil
	}
	text := make([]byte, e.bytes)
	if _, err := l.open[e.file].ReadAt(text, e.at); err != nil && !errors.Is(err, io.EOF) {
		return catalog.Item{}, err
	}
	item, fault := itemOf(bytes.TrimSpace(text))
	if fault != nil || item.Row() != e.Row {
		return catalog.Item{}, failure.Stalled("read "+l.names[e.file], "it has changed while it was read", "push again when nobody writes it")
	}
	return item, nil
}

// find returns the entry of a key that the list has.
func (l *list) find(key catalog.Digest) *entry {
	i, _ := slices.BinarySearchFunc(l.entries, key, func(e entry, key catalog.Digest) int { return bytes.Compare(e.Key[:], key[:]) })
	return &l.entries[i]
}

// trie is that of all entries.
func (l *list) trie() catalog.Trie {
	rows := make([]catalog.Row, len(l.entries))
	for i := range l.entries {
		rows[i] = l.entries[i].Row
	}
	return catalog.Build(rows)
}

func (l *list) close() error {
	var errs []error
	for _, f := range l.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

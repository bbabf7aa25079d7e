package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the history.
const (
	historyBytesMax = 16 << 20           // all segments together
	historyAge      = 7 * 24 * time.Hour // of the newest happening of a segment that is kept
	segmentBytesMax = 1 << 20            // so that dropping one loses little
	segmentAge      = 24 * time.Hour     // so that one is not kept for long because of its end
	segmentsMax     = 64                 // more than both bounds make; a crash may begin one too many
	happeningMax    = 64 << 10           // one happening: an error carries at most 4 KiB of evidence
)

// Happening is one thing that happened on this host.
type Happening struct {
	At       time.Time `json:"at" cbor:"1,keyasint"`
	Claim    string    `json:"claim,omitempty" cbor:"2,keyasint,omitempty"`
	Title    string    `json:"title,omitempty" cbor:"3,keyasint,omitempty"`
	Config   string    `json:"config,omitempty" cbor:"4,keyasint,omitempty"`
	Outcome  string    `json:"outcome,omitempty" cbor:"5,keyasint,omitempty"`
	Detail   string    `json:"detail,omitempty" cbor:"6,keyasint,omitempty"`
	Code     string    `json:"code,omitempty" cbor:"7,keyasint,omitempty"`
	Message  string    `json:"message,omitempty" cbor:"8,keyasint,omitempty"`
	Evidence string    `json:"evidence,omitempty" cbor:"9,keyasint,omitempty"`
	Cause    string    `json:"cause,omitempty" cbor:"10,keyasint,omitempty"`
	Writer   string    `json:"writer,omitempty" cbor:"11,keyasint,omitempty"`
	Changes  []string  `json:"changes,omitempty" cbor:"12,keyasint,omitempty"`
	Took     int64     `json:"tookMicroseconds,omitempty" cbor:"13,keyasint,omitempty"` // the operation that found or did it
}

// about reports whether the happening concerns a subject: a claim, its id, a title, or the name in it. The empty subject
// is everything.
func (h *Happening) about(subject string) bool {
	_, id, _ := strings.Cut(h.Claim, ":")
	_, name, _ := strings.Cut(h.Title, "/")
	return subject == "" || subject == h.Claim || subject == id || subject == h.Title || subject == name
}

// history is the segments. The last one is written; the others only wait to be dropped.
type history struct {
	dir string

	mu       sync.Mutex // guards what follows
	segments []segment  // oldest first
	file     *os.File   // of the last segment; nil until something happens
	info     fs.FileInfo
	began    time.Time // the first happening of the last segment
}

// segment is one file of the history.
type segment struct {
	number int
	size   int64
	newest time.Time // its last happening
}

// Append adds what happened. It is not durable when it returns.
func (s *Store) Append(h Happening) error {
	s.mu.Lock()
	err := s.presentLocked()
	s.mu.Unlock()
	if err == nil {
		err = s.history.append(h)
	}
	if err != nil {
		err = unwritable("write", s.path(historyName), err)
	}
	return err
}

// Asked says which happenings are wanted.
type Asked struct {
	Subject string    // a claim, the id of a claim, a title or the name in it; empty: everything
	Since   time.Time // not before; zero: from the beginning
	Until   time.Time // not after; zero: to the end
	Limit   int       // at most so many, the newest; 0: all
	Bytes   int       // at most so many bytes of the disk, the newest, but at least one happening; 0: all
}

// wants reports whether a happening is one of them.
func (a *Asked) wants(h *Happening) bool {
	return h.about(a.Subject) && !h.At.Before(a.Since) && (a.Until.IsZero() || !h.At.After(a.Until))
}

// History returns what happened, newest first.
func (s *Store) History(a Asked) ([]Happening, error) {
	numbers, err := segmentNumbers(s.history.dir)
	if err != nil {
		return nil, readError(s.history.dir, err)
	}
	var found []Happening
	bytes := 0
	for _, number := range slices.Backward(numbers) {
		more, sizes, err := readSegment(filepath.Join(s.history.dir, segmentName(number)), &a)
		if err != nil {
			return nil, err
		}
		for i := range slices.Backward(more) {
			if bytes += sizes[i]; len(found) > 0 && a.Bytes > 0 && bytes > a.Bytes {
				return found, nil
			}
			if found = append(found, more[i]); len(found) == a.Limit {
				return found, nil
			}
		}
	}
	return found, nil
}

// readSegment returns the last happenings of a segment that are wanted and their sizes, oldest first. What is damaged is left out.
func readSegment(path string, a *Asked) (found []Happening, sizes []int, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil, nil // the agent has dropped it meanwhile, or it is not of the agent
	}
	if err != nil {
		return nil, nil, readError(path, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, readError(path, err)
	}
	defer f.Close()
	err = scanFile(f, info.Size(), historyName, func(payload []byte, _ int64) error {
		var h Happening
		if decoding.Unmarshal(payload, &h) == nil && a.wants(&h) {
			found, sizes = append(found, h), append(sizes, len(payload))
		}
		if over := len(found) - a.Limit; a.Limit > 0 && over >= a.Limit {
			found, sizes = append(found[:0], found[over:]...), append(sizes[:0], sizes[over:]...)
		}
		return nil
	})
	return found, sizes, unjudged(path, err)
}

func (h *history) append(what Happening) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	what.At = what.At.UTC()
	frame := appendFrame(nil, what)
	if err := tooLarge("note what happened to "+what.Title, len(frame), happeningMax); err != nil {
		return err
	}
	if h.segments == nil {
		if err := h.load(); err != nil {
			return err
		}
	}
	if h.full(len(frame), what.At) {
		if err := h.begin(what.At); err != nil {
			return err
		}
	}
	if err := h.drop(len(frame), what.At); err != nil {
		return err
	}
	last := &h.segments[len(h.segments)-1]
	if err := appendAt(h.file, frame, last.size); err != nil {
		return err
	}
	last.size += int64(len(frame))
	last.newest = what.At
	return nil
}

// load takes stock of the segments, and goes on with the last one if it is whole.
func (h *history) load() error {
	if err := os.Mkdir(h.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	numbers, err := segmentNumbers(h.dir)
	if err != nil {
		return err
	}
	segments := []segment{}
	for _, n := range numbers {
		info, err := os.Lstat(h.path(n))
		if err != nil {
			return err
		}
		segments = append(segments, segment{number: n, size: info.Size(), newest: info.ModTime()})
	}
	h.segments = segments
	if len(segments) == 0 {
		return nil
	}
	return h.resume(segments[len(segments)-1])
}

// resume opens the last segment for appending, if it is whole. A torn one is left as it is, and a new one begun.
func (h *history) resume(last segment) error {
	f, err := os.OpenFile(h.path(last.number), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil // not a file of ours: leave it alone
	}
	var first *Happening
	err = scanFile(f, last.size, historyName, func(payload []byte, _ int64) error {
		if first != nil {
			return nil
		}
		first = &Happening{}
		return decoding.Unmarshal(payload, first)
	})
	info, statErr := f.Stat()
	if err != nil || statErr != nil || first == nil {
		return f.Close()
	}
	h.file, h.info, h.began = f, info, first.At
	return nil
}

// full reports whether a new segment is due.
func (h *history) full(need int, at time.Time) bool {
	if h.file == nil {
		return true
	}
	last := h.segments[len(h.segments)-1]
	return last.size+int64(need) > segmentBytesMax || at.Sub(h.began) > segmentAge || !inPlace(h.path(last.number), h.info)
}

// begin begins a new segment.
func (h *history) begin(at time.Time) error {
	if err := h.closeFile(); err != nil {
		return err
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	number := 1
	if len(h.segments) > 0 {
		number = h.segments[len(h.segments)-1].number + 1
	}
	f, err := os.OpenFile(h.path(number), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	head := header(historyName)
	info, err := f.Stat()
	if err == nil {
		err = appendAt(f, head, 0)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(h.path(number)))
	}
	h.file, h.info, h.began = f, info, at
	h.segments = append(h.segments, segment{number: number, size: int64(len(head)), newest: at})
	return nil
}

// drop drops the oldest segments until there is room for need bytes more and none is too old.
func (h *history) drop(need int, now time.Time) error {
	total := int64(need)
	for _, s := range h.segments {
		total += s.size
	}
	for len(h.segments) > 1 {
		oldest := h.segments[0]
		if total <= historyBytesMax && len(h.segments) <= segmentsMax && now.Sub(oldest.newest) <= historyAge {
			return nil
		}
		if err := os.RemoveAll(h.path(oldest.number)); err != nil {
			return err
		}
		total -= oldest.size
		h.segments = h.segments[1:]
	}
	return nil
}

func (h *history) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closeFile()
}

func (h *history) closeFile() error {
	if h.file == nil {
		return nil
	}
	f := h.file
	h.file = nil
	return f.Close()
}

func (h *history) path(number int) string { return filepath.Join(h.dir, segmentName(number)) }

// segmentDigits is the length of the names of segments, so that they sort.
const segmentDigits = 8

func segmentName(number int) string { return fmt.Sprintf("%0*d", segmentDigits, number) }

// segmentNumbers lists the segments in a directory, oldest first; none where there is no directory.
func segmentNumbers(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 31)
		if err == nil && n > 0 && segmentName(int(n)) == e.Name() {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

package shim

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"tako.dev/tako/internal/run"
)

const (
	// lineMax is how much of a line without an end is waited for.
	lineMax = 8 << 10
	// timeForm is the time of a record: of one width, so that records are compared by their bytes.
	timeForm = "2006-01-02T15:04:05.000000000Z"
)

// streamNames are those of a record, with what is around them.
var streamNames = [2]string{" stdout ", " stderr "}

// logWriter writes what a task prints to its files. An error is no reason to stop the task: what cannot be written is lost.
type logWriter struct {
	name string
	run.Log
	file *os.File
	size int64
	open [2][]byte // of each stream, the line that has no end yet
	time []byte    // when was read what is being written
	out  []byte
}

// openLog goes on with a log.
func openLog(name string, bounds run.Log) (*logWriter, error) {
	w := &logWriter{name: name, Log: bounds}
	return w, w.reopen()
}

func (w *logWriter) reopen() error {
	f, err := os.OpenFile(w.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	w.file = f
	w.size, err = f.Seek(0, io.SeekEnd)
	return err
}

// write takes what was read from a stream.
func (w *logWriter) write(stream int, data []byte) {
	w.time = time.Now().UTC().AppendFormat(w.time[:0], timeForm)
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		room := lineMax - len(w.open[stream])
		if !whole && len(line) < room {
			w.open[stream] = append(w.open[stream], line...)
			break
		}
		if len(line) > room {
			line, rest, whole = data[:room], data[room:], false
		}
		w.record(stream, line, whole)
		data = rest
	}
	w.flush()
}

// record adds a record: what has waited of the stream, and a line.
func (w *logWriter) record(stream int, line []byte, whole bool) {
	before := len(w.out)
	w.out = append(w.out, w.time...)
	w.out = append(w.out, streamNames[stream]...)
	end := byte('F')
	if !whole {
		end = 'P'
	}
	w.out = append(append(append(append(w.out, end, ' '), w.open[stream]...), line...), '\n')
	w.open[stream] = w.open[stream][:0]
	if w.size+int64(len(w.out)) > w.Bytes && w.size+int64(before) > 0 {
		last := slices.Clone(w.out[before:])
		w.out = w.out[:before]
		w.flush()
		w.rotate()
		w.out = append(w.out, last...)
	}
}

func (w *logWriter) flush() {
	if w.file == nil {
		_ = w.reopen() // the disk may have room again
	}
	if w.file != nil && len(w.out) > 0 {
		n, _ := w.file.Write(w.out)
		w.size += int64(n)
	}
	w.out = w.out[:0]
}

// rotate begins another file, and drops the oldest.
func (w *logWriter) rotate() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	for n := w.Files - 1; n > 0; n-- {
		_ = os.Rename(logName(w.name, n-1), logName(w.name, n))
	}
	if w.Files == 1 {
		_ = os.Remove(w.name)
	}
	_ = w.reopen()
}

// close writes what has no end.
func (w *logWriter) close() {
	for stream := range w.open {
		if len(w.open[stream]) > 0 {
			w.record(stream, nil, false)
		}
	}
	w.flush()
	if w.file != nil {
		_ = w.file.Close()
	}
}

// logName is the nth file of a log: 0 is the one that is written.
func logName(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "." + strconv.Itoa(n)
}

// openLogs opens the files of a log, newest first, as they are at one moment.
func openLogs(name string) (files []*os.File, err error) {
	for range 10 {
		for n := 0; ; n++ {
			f, err := os.Open(logName(name, n))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				closeAll(files)
				return nil, err
			}
			files = append(files, f)
		}
		if len(files) == 0 {
			return nil, nil
		}
		// When the first is the same afterwards nothing was rotated meanwhile.
		now, err := os.Stat(name)
		was, errWas := files[0].Stat()
		if err == nil && errWas == nil && os.SameFile(now, was) {
			return files, nil
		}
		closeAll(files)
		files = nil
	}
	return nil, errors.New("it is rotated faster than it is read")
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was read only
	}
}

// tail reads the newest lines of a log.
func tail(name string, bytesMax int) (lines []run.Line, err error) {
	bytesMax = min(bytesMax, run.TailMax)
	files, err := openLogs(name)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	left := int64(bytesMax) * 2 // a record has a head, which is longer than many lines
	for _, f := range files {
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		from := max(0, size-left-lineMax)
		text, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
		if err != nil {
			return nil, err
		}
		if from > 0 { // it begins within a record
			_, text, _ = bytes.Cut(text, []byte{'\n'})
		}
		lines = append(parseLog(text), lines...)
		if left -= int64(len(text)); left <= 0 {
			break
		}
	}
	return run.TailLines(lines, bytesMax), nil
}

// parseLog reads records. What is none, such as one that a crash has cut short, is passed over.
func parseLog(text []byte) (lines []run.Line) {
	for len(text) > 0 {
		record, rest, whole := bytes.Cut(text, []byte{'\n'})
		if text = rest; !whole {
			break
		}
		const head = len(timeForm) + len(" stdout F ")
		if len(record) < head {
			continue
		}
		at, err := time.Parse(timeForm, string(record[:len(timeForm)]))
		stream, end := string(record[len(timeForm):head-2]), record[head-2]
		if err != nil || !slices.Contains(streamNames[:], stream) || end != 'F' && end != 'P' || record[head-1] != ' ' {
			continue
		}
		lines = append(lines, run.Line{At: at, Stderr: stream == streamNames[1], Part: end == 'P', Text: record[head:]})
	}
	return lines
}

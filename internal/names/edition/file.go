package edition

import (
	"bufio"
	"errors"
	"io"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

// Write writes the newest edition with all rows, in the form in which it goes over the wire.
func (s *Store) Write(w io.Writer) error {
	parts, _, _ := s.After(wire.NamesMark{})
	buffered := bufio.NewWriter(w)
	for i := range parts {
		if err := wire.WriteFrame(buffered, &parts[i]); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// Read takes what Write has written, and believes it as if it had come from anybody. News are nil where there was nothing. The errors are those of
// Take and of the reader.
func (s *Store) Read(r io.Reader, now time.Time) (*News, error) {
	buffered := bufio.NewReader(r)
	for {
		var part wire.Names
		err := wire.ReadFrame(buffered, &part)
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if news, err := s.Take(&part, now); err != nil || news != nil {
			return news, err
		}
	}
}

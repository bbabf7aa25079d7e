package h2

import (
	"errors"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headBytes is how long the head of a frame is; RFC 9113, section 4.1.
const headBytes = 9

// reader reads one frame, with its head, which has come already. It is of nobody, so that a connection has none while nothing comes.
type reader struct {
	framer *http2.Framer
	from   io.Reader
	head   []byte // what is left of it
	left   int    // that may follow
}

func newReader(headers int) *reader {
	r := &reader{}
	r.framer = http2.NewFramer(nil, r)
	r.framer.SetMaxReadFrameSize(frameMax)
	r.framer.SetReuseFrames()
	r.framer.MaxHeaderListSize = uint32(headers)
	return r
}

// read reads the next frame of a connection, and the frames that go with it. It is good until end is called.
func (r *reader) read(c *conn) (http2.Frame, error) {
	r.from, r.head, r.left = c.raw, c.head[:], 2*frameMax+4*c.server.opts.Headers
	r.framer.ReadMetaHeaders = c.unpacks
	return r.framer.ReadFrame()
}

// end makes the reader fit for another connection. One that has met an error is not.
func (r *reader) end() {
	r.from, r.head, r.framer.ReadMetaHeaders = nil, nil, (*hpack.Decoder)(nil)
}

// errTooLong is of headers whose frames do not come to an end.
var errTooLong = errors.New("headers in too many frames")

// Read is for the framer. Headers may be cut into any number of frames, which it reads as one: so they are bounded.
func (r *reader) Read(p []byte) (n int, err error) {
	if len(r.head) > 0 {
		n = copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	if r.left <= 0 {
		return 0, errTooLong
	}
	n, err = r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

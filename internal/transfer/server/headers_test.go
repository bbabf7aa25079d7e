package server

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"tako.dev/tako/internal/transfer/wire"
)

// TestHeadersRemembered: what a connection remembers of headers is bounded, whatever the other end would allow, so that a host which reports for
// days costs no more than one that has just come.
func TestHeadersRemembered(t *testing.T) {
	r := newRig(t, func(*Options) {})
	conn, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	to := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: r.addr}, {Name: ":path", Value: wire.PathTrust}} {
		if err := to.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	reads := uint32(4 << 10) // of who says nothing; RFC 9113, section 6.5.2
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if size, said := f.Value(http2.SettingHeaderTableSize); said {
				reads = size
			}
		case *http2.HeadersFrame:
			if reads != readHeadersMax {
				t.Errorf("it remembers %d bytes of headers that it reads, want %d", reads, readHeadersMax)
			}
			// Whoever remembers nothing understands an answer, and is told so first; RFC 7541, sections 4.2 and 6.3.
			fields, err := hpack.NewDecoder(0, nil).DecodeFull(f.HeaderBlockFragment())
			if err != nil || f.HeaderBlockFragment()[0] != 0x20 {
				t.Errorf("an answer of %v begins with %x, %v", fields, f.HeaderBlockFragment()[0], err)
			}
			return
		}
	}
}

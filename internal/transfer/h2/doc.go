// Package h2 serves calls over HTTP/2 (RFC 9113) to hosts that are connected for days and have nothing to say. It is what net/http does for
// an http.Handler, with what an idle connection costs as its measure: one goroutine that reads, and nothing else that waits. There is no
// buffer that is not in use, and nothing is remembered of headers that are sent. A call is a goroutine while its handler runs; it writes to the
// connection itself.
//
//	Serve   one goroutine for each connection: frames -> calls, windows, acknowledgements
//	call    HEADERS -> http.Request -> handler in a goroutine of its own -> HEADERS and DATA; both end with the connection
//	body    DATA -> what the handler has not read yet, at most a window of it -> WINDOW_UPDATE as it reads
//	write   wait for room in the two windows of the other end -> one piece of at most 16 KiB -> one write with a deadline
//
// Run by whoever calls Serve, which returns when all of that has ended.
//
// What the other end can cause is bounded:
//
//  1. No more than Calls calls are open for a connection, and no more than twice as many handlers run: those of calls that were given up count.
//  2. The headers of a call take at most Headers bytes, and the frames that they come in a few times as many.
//  3. What was received and nobody has read is within the window of a connection, whatever is said about windows.
//  4. Nothing is kept to be written later but the short answers to frames, 32 KiB of them: who does not read is written to until the deadline of
//     one write, and then disconnected. Whoever reads the connection does not write to it before its end.
//  5. Frames that bring nothing on (PING, SETTINGS, RST_STREAM, empty DATA, windows opened byte by byte, calls above the bound) come at a
//     bounded rate; above it the connection ends with ENHANCE_YOUR_CALM.
//
// Not served, because nobody here asks for it: server push, priorities, CONNECT, Expect: 100-continue, trailers (they are read, and dropped).
package h2

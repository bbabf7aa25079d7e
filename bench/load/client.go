package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestMax bounds one request, on a machine that is busy with many.
const requestMax = 2 * time.Minute

// Client is one client of a server, with one connection of its own.
type Client struct {
	http http.Client
	url  string
}

// Client makes a client, which connects with its first request. As client-go does, it asks for lists in gzip.
func (s *Server) Client() *Client { return s.client(false) }

// Plain makes a client that asks for nothing compressed.
func (s *Server) Plain() *Client { return s.client(true) }

func (s *Server) client(plain bool) *Client {
	return &Client{http.Client{Transport: &http.Transport{TLSClientConfig: s.trust.Clone(), ForceAttemptHTTP2: true, DisableCompression: plain}}, s.url}
}

// Leave ends the connection.
func (c *Client) Leave() { c.http.CloseIdleConnections() }

// send makes a request, and returns the answer when it is a good one. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, sayingMax)) // only for the words
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said), resp.Body.Close())
}

// do makes a request and reads the answer, which is of no interest.
func (c *Client) do(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// Get returns the answer to a request.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	return text, errors.Join(err, resp.Body.Close())
}

// page is what is read of one part of a list.
type page struct {
	meta  metav1.ListMeta
	bytes int64 // as they came out of the connection's decompression
}

// page asks for a part of a list. It decodes the list's metadata, which comes before the items, and of the rest counts the
// bytes: what a client makes of them is not the server's time.
func (c *Client) page(ctx context.Context, path string, limit int, next string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(limit)}, "continue": {next}}
	resp, err := c.send(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
	if err != nil {
		return page{}, err
	}
	defer resp.Body.Close()
	counted := &counter{from: resp.Body}
	meta, err := listMeta(json.NewDecoder(counted))
	if err != nil {
		return page{}, fmt.Errorf("list %s: %w", path, err)
	}
	_, err = io.Copy(io.Discard, counted)
	return page{meta, counted.bytes}, err
}

// listMeta reads a list up to its metadata.
func listMeta(d *json.Decoder) (meta metav1.ListMeta, err error) {
	for {
		key, err := d.Token()
		if err != nil {
			return meta, err
		}
		if key == "metadata" {
			return meta, d.Decode(&meta)
		}
	}
}

// counter counts what is read.
type counter struct {
	from  io.Reader
	bytes int64
}

// Read reads.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
}

// List reads a whole list of so many objects in parts, and returns how long that is in bytes, before compression, and how long
// it took until the last byte was there. A list that is not whole is an error.
func (c *Client) List(ctx context.Context, path string, want, limit int) (size int64, took time.Duration, err error) {
	start, next, parts := time.Now(), "", 0
	for first := true; first || next != ""; first = false {
		p, err := c.page(ctx, path, limit, next)
		if err != nil {
			return 0, 0, err
		}
		parts++
		if left := p.meta.RemainingItemCount; p.meta.Continue != "" && (left == nil || int(*left) != want-parts*limit) {
			return 0, 0, fmt.Errorf("list %s: of %d objects, %v remain after part %d of %d each", path, want, left, parts, limit)
		}
		size, next = size+p.bytes, p.meta.Continue
	}
	took = time.Since(start)
	if parts != (want+limit-1)/limit {
		return 0, 0, fmt.Errorf("list %s: %d parts of %d, not all %d objects", path, parts, limit, want)
	}
	return size, took, nil
}

// count returns how many objects there are.
func (c *Client) count(ctx context.Context, path string) (int, error) {
	p, err := c.page(ctx, path, 1, "")
	switch {
	case err != nil:
		return 0, err
	case p.meta.RemainingItemCount == nil:
		return 1, nil // or none; whoever waits for more asks again
	}
	return 1 + int(*p.meta.RemainingItemCount), nil
}

// watchEvent is how every event of a new object begins.
const watchEvent = `{"type":"ADDED"`

// watchBuffer holds an event.
const watchBuffer = 16 << 10

// watch is an open watch.
type watch struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// watch begins to watch what comes after a version; the server has accepted the watch when it returns.
func (c *Client) watch(ctx context.Context, path, version string) (*watch, error) {
	resp, err := c.send(ctx, http.MethodGet, path+"?watch=true&resourceVersion="+version, nil)
	if err != nil {
		return nil, err
	}
	return &watch{resp.Body, bufio.NewReaderSize(resp.Body, watchBuffer)}, nil
}

// next waits for the next event, which must tell of a new object.
func (w *watch) next() error {
	text, err := w.lines.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("the watch ended: %w", err)
	}
	if !strings.HasPrefix(string(text[:min(len(text), len(watchEvent))]), watchEvent) {
		return fmt.Errorf("not an event of a new object: %s", text[:min(len(text), 200)])
	}
	return nil
}

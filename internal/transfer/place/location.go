package place

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Bounds of reading a location.
const (
	// answerMax is until a location has begun to answer.
	answerMax = 30 * time.Second
	// fileMax is how long one file may take: a layer of 256 MiB over a line of 1 MiB/s.
	fileMax    = 5 * time.Minute
	headersMax = 16 << 10
)

// Dial makes a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Location is the place at a URL of http or https. What is larger than one reading is brought over into a file in the directory spool that
// has no name there. The error is PlaceUnusable.
//
// Whoever answers is not verified: what comes has to speak for itself, nothing secret goes, and a host whose clock or whose list of
// authorities is wrong is to get there too.
func Location(address, spool string, dial Dial) (*Place, error) {
	u, err := url.Parse(address)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it is no URL of http or https")
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.PlaceUnusable, Doing: "read location " + address, Cause: err}
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, TLSHandshakeTimeout: answerMax,
			ResponseHeaderTimeout: answerMax, MaxResponseHeaderBytes: headersMax, DisableCompression: true, DisableKeepAlives: true,
		},
		// A location is where the root keys have said, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       fileMax,
	}
	return &Place{files: location{base: strings.TrimSuffix(address, "/"), http: client}, name: address, spool: spool}, nil
}

type location struct {
	base string
	http *http.Client
}

func (l location) open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.base+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	answer, err := l.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	_ = answer.Body.Close() // nothing of it is wanted
	if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusGone {
		return nil, fs.ErrNotExist
	}
	return nil, fmt.Errorf("the location answers %s", answer.Status)
}

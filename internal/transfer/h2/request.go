package h2

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// request is a call as net/http has it, and how long its message is to be; -1: that is not said. What the framer does not refuse by itself of
// what RFC 9113 forbids in section 8, is refused here.
func request(f *http2.MetaHeadersFrame) (r *http.Request, message int64, err error) {
	method, path, scheme, authority := f.PseudoValue("method"), f.PseudoValue("path"), f.PseudoValue("scheme"), f.PseudoValue("authority")
	if f.Truncated { // what is missing may be any of it
		return &http.Request{Method: method, URL: &url.URL{}, Header: http.Header{}, Body: http.NoBody}, -1, nil
	}
	if method == "" || path == "" || scheme != "https" && scheme != "http" || method == http.MethodConnect {
		return nil, 0, errors.New("it does not say what is called")
	}
	header, message, err := headerOf(f)
	if err != nil {
		return nil, 0, err
	}
	if authority == "" {
		authority = header.Get("Host")
	}
	delete(header, "Host")
	to, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return nil, 0, errors.New("its path is none")
	}
	if f.StreamEnded() && message > 0 {
		return nil, 0, errors.New("it has no message, and says that it has one")
	}
	r = &http.Request{
		Method: method, URL: to, RequestURI: path, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, Host: authority, ContentLength: message, Body: http.NoBody,
	}
	if f.StreamEnded() {
		r.ContentLength = 0
	}
	return r, message, nil
}

// headerOf is the header of a call.
func headerOf(f *http2.MetaHeadersFrame) (header http.Header, message int64, err error) {
	fields := f.RegularFields()
	header, message = make(http.Header, len(fields)), -1
	values := make([]string, len(fields)) // of all fields: most have one
	for i, field := range fields {
		switch field.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return nil, 0, fmt.Errorf("%s is of connections that speak HTTP/1", field.Name) // section 8.2.2
		case "te":
			if field.Value != "trailers" {
				return nil, 0, errors.New("te is of connections that speak HTTP/1")
			}
		case "content-length":
			n, err := strconv.ParseUint(field.Value, 10, 63)
			if err != nil || message >= 0 && int64(n) != message {
				return nil, 0, errors.New("its length is none")
			}
			message = int64(n)
		}
		name := http.CanonicalHeaderKey(field.Name)
		if before, more := header[name]; more {
			header[name] = append(before, field.Value)
			continue
		}
		values[i] = field.Value
		header[name] = values[i : i+1 : i+1]
	}
	return header, message, nil
}
